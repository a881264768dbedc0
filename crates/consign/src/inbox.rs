//! Consumers in Rust: a key, a comparison and a handler, over typed payloads.
//!
//! ```no_run
//! use consign::inbox::{BuildConsumer, column};
//! use consign_core::inbox::{HandlerError, Inbox};
//! use consign_core::ports::InboxTransaction;
//!
//! #[derive(serde::Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct OrderPaid {
//!     order_id: i64,
//!     user_id: i64,
//!     amount: i64,
//! }
//!
//! # fn example<S: consign_core::ports::InboxStore + 'static>(inbox: &Inbox<S>) {
//! let award = inbox
//!     .consumer::<OrderPaid>("points-award")
//!     .key(|event| format!("order:{}:paid", event.payload.order_id))
//!     .compare(|event| vec![column("user_id", event.payload.user_id), column("amount", event.payload.amount)])
//!     .handle(|tx, event| {
//!         Box::pin(async move {
//!             let values = [event.payload.amount.into(), event.payload.user_id.into()];
//!             match tx.execute("UPDATE points_account SET points = points + ? WHERE user_id = ?", &values).await? {
//!                 1 => Ok(()),
//!                 rows => Err(HandlerError::Refused(format!("{rows} accounts, not 1"))),
//!             }
//!         })
//!     });
//! # let _ = award;
//! # }
//! ```
//!
//! The handler runs inside the transaction that holds the marker, and may run more than once before one commits: what
//! it does outside that transaction is not undone.
//!
//! A team with its own loop and its own transactions takes just the marker:
//!
//! ```no_run
//! # #[cfg(feature = "mysql")]
//! # async fn example(
//! #     pool: sqlx::MySqlPool,
//! #     inbox: consign::inbox::MySqlInbox,
//! #     operation: consign_core::operation::Operation,
//! #     message: consign_core::delivery::Message,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use consign_core::inbox::Processed;
//!
//! let mut tx = pool.begin().await?;
//! if inbox.apply(&mut tx, &operation, &message).await? == Processed::Applied {
//!     sqlx::query("UPDATE points_account SET points = points + 5 WHERE user_id = 7").execute(&mut *tx).await?;
//! }
//! tx.commit().await?;
//! // Acknowledge the delivery now.
//! # Ok(())
//! # }
//! ```

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::event::{EventId, Headers};
use consign_core::guard::Guard;
use consign_core::inbox::{Handler, HandlerError, Inbox};
use consign_core::json::Json;
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::InboxStore;
use consign_core::value::Value;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use crate::consumer::Interpret;

#[cfg(feature = "mysql")]
pub use consign_store::mysql::Inbox as MySqlInbox;
#[cfg(feature = "sqlite")]
pub use consign_store::sqlite::Inbox as SqliteInbox;

/// How long a handler may take unless [`Keyed::timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A message with its payload read.
#[derive(Clone, Debug)]
pub struct Received<T> {
    /// The payload.
    pub payload: T,
    /// The message id: the event id, when consign published it.
    pub id: Option<String>,
    /// The message type: the event's type.
    pub message_type: Option<String>,
    /// Headers with a text form.
    pub headers: Headers,
}

/// A comparison column and its value.
pub fn column(name: &str, value: impl Into<Value>) -> Compared {
    Compared { column: name.into(), value: value.into() }
}

/// Builds consumers over an inbox.
pub trait BuildConsumer<S: InboxStore> {
    /// A consumer of payloads of type `T`. Its name is part of every marker, so it never changes.
    fn consumer<T>(&self, name: &str) -> Unkeyed<S::Transaction, T>;
}

impl<S: InboxStore> BuildConsumer<S> for Inbox<S> {
    fn consumer<T>(&self, name: &str) -> Unkeyed<S::Transaction, T> {
        Unkeyed { name: name.into(), types: PhantomData }
    }
}

type Types<Tx, T> = PhantomData<fn(&mut Tx, T)>;
type KeyOf<T> = Box<dyn Fn(&Received<T>) -> String + Send + Sync>;
type ColumnsOf<T> = Box<dyn Fn(&Received<T>) -> Vec<Compared> + Send + Sync>;
type GuardOf<T> = Box<dyn Fn(&Received<T>) -> Guard + Send + Sync>;
type Change<Tx, T> =
    Box<dyn for<'a> Fn(&'a mut Tx, &'a Received<T>) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync>;

/// A consumer that lacks its key.
#[derive(Debug)]
pub struct Unkeyed<Tx, T> {
    name: String,
    types: Types<Tx, T>,
}

/// A consumer that lacks its handler.
pub struct Keyed<Tx, T> {
    name: String,
    key: KeyOf<T>,
    columns: Option<ColumnsOf<T>>,
    guard: Option<GuardOf<T>>,
    timeout: Duration,
    types: Types<Tx, T>,
}

impl<Tx, T> Unkeyed<Tx, T> {
    /// The business key: the same for every copy and every re-wrapping of the fact.
    pub fn key(self, key: impl Fn(&Received<T>) -> String + Send + Sync + 'static) -> Keyed<Tx, T> {
        Keyed {
            name: self.name,
            key: Box::new(key),
            columns: None,
            guard: None,
            timeout: TIMEOUT,
            types: PhantomData,
        }
    }
}

impl<Tx, T> Keyed<Tx, T> {
    /// The columns of the marker table that must be equal for a repeat to be a duplicate. Without this, the whole
    /// payload must be equal in canonical form, kept as a fingerprint.
    #[must_use]
    pub fn compare(
        mut self,
        columns: impl Fn(&Received<T>) -> Vec<Compared> + Send + Sync + 'static,
    ) -> Self {
        self.columns = Some(Box::new(columns));
        self
    }

    /// The guard against old versions.
    #[must_use]
    pub fn guard(mut self, guard: impl Fn(&Received<T>) -> Guard + Send + Sync + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// How long the handler may take: beyond it the transaction is rolled back and the delivery refused. 30 s by
    /// default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The business change. It may run more than once before one run commits, and everything it does in `tx` is
    /// rolled back when it fails, panics or takes too long.
    pub fn handle<F>(self, change: F) -> HandledConsumer<Tx, T>
    where
        F: for<'a> Fn(&'a mut Tx, &'a Received<T>) -> BoxFuture<'a, Result<(), HandlerError>>
            + Send
            + Sync
            + 'static,
    {
        HandledConsumer { parts: Arc::new(Parts { keyed: self, change: Box::new(change) }) }
    }
}

struct Parts<Tx, T> {
    keyed: Keyed<Tx, T>,
    change: Change<Tx, T>,
}

/// A consumer whose change is Rust code.
pub struct HandledConsumer<Tx, T> {
    parts: Arc<Parts<Tx, T>>,
}

/// The change of one message.
pub struct HandledChange<Tx, T> {
    parts: Arc<Parts<Tx, T>>,
    received: Received<T>,
}

impl<Tx, T> Interpret<Tx> for HandledConsumer<Tx, T>
where
    Tx: Send + 'static,
    T: DeserializeOwned + Send + Sync + 'static,
{
    type Handler = HandledChange<Tx, T>;

    fn name(&self) -> &str {
        &self.parts.keyed.name
    }

    fn interpret(&self, message: &Message) -> Result<(Operation, Self::Handler), String> {
        let keyed = &self.parts.keyed;
        let payload = serde_json::from_slice(&message.body)
            // Where it failed, and never what stood there.
            .map_err(|error| {
                format!("the payload does not fit at line {} column {}", error.line(), error.column())
            })?;
        let received = Received {
            payload,
            id: message.id.clone(),
            message_type: message.message_type.clone(),
            headers: message.headers.clone(),
        };
        let comparison = if let Some(columns) = &keyed.columns {
            Comparison::Columns(columns(&received))
        } else {
            let json = Json::parse(&message.body).map_err(|error| format!("the payload is {error}"))?;
            Comparison::fingerprint_of(&json)
        };
        let event_id = message.id.as_deref().filter(|id| !id.is_empty()).map(EventId::new).transpose();
        let operation = Operation {
            consumer: keyed.name.clone(),
            key: (keyed.key)(&received),
            event_id: event_id.map_err(|invalid| format!("the message id is no event id: {invalid}"))?,
            comparison,
            guard: keyed.guard.as_ref().map(|guard| guard(&received)),
            ..Operation::default()
        };
        Ok((operation, HandledChange { parts: Arc::clone(&self.parts), received }))
    }
}

impl<Tx, T> Handler<Tx> for HandledChange<Tx, T>
where
    Tx: Send + 'static,
    T: Send + Sync + 'static,
{
    async fn apply(&self, tx: &mut Tx, _: &Operation, _: &Message) -> Result<(), HandlerError> {
        let limit = self.parts.keyed.timeout;
        // What a panic leaves half done is in the transaction, which is rolled back.
        let change = AssertUnwindSafe((self.parts.change)(tx, &self.received)).catch_unwind();
        match tokio::time::timeout(limit, change).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(HandlerError::Refused("the handler panicked".into())),
            Err(_) => Err(HandlerError::Refused(format!("the handler took longer than {limit:?}"))),
        }
    }
}
