//! The points story: operations, messages, handlers and a receipt that remembers what became of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use consign_core::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use consign_core::event::EventId;
use consign_core::inbox::{Committed, Failed, Handler, HandlerError, Inbox, Processed};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{InboxStore, InboxTransaction};
use consign_core::value::Value;

use super::InboxFixture;

pub(crate) const CONSUMER: &str = "points-award";
pub(crate) const USER: i64 = 7;
pub(crate) const AWARD: &str = "UPDATE points_account SET points = points + ? WHERE user_id = ?";

/// A schema with one account.
pub(crate) async fn with_account<F: InboxFixture>() -> F {
    let fixture = F::fresh().await;
    fixture.open_account(USER).await;
    fixture
}

/// What became of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Acknowledged,
    Retried,
}

/// The fates of all receipts of one behaviour, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fates(Arc<Mutex<Vec<Fate>>>);

impl Fates {
    pub(crate) fn all(&self) -> Vec<Fate> {
        self.0.lock().expect("no receipt panics").clone()
    }

    fn push(&self, fate: Fate) {
        self.0.lock().expect("no receipt panics").push(fate);
    }

    /// A delivery of `message` whose receipt tells its fate here.
    pub(crate) fn delivery(&self, message: Message) -> Delivery<Remembered> {
        Delivery { message, receipt: Remembered(self.clone()) }
    }
}

/// A receipt that remembers.
#[derive(Debug)]
pub(crate) struct Remembered(Fates);

impl Receipt for Remembered {
    async fn ack(self, _permit: AckPermit) -> Result<(), ReceiptLost> {
        self.0.push(Fate::Acknowledged);
        Ok(())
    }

    async fn retry(self, _delay: Duration) -> Result<(), ReceiptLost> {
        self.0.push(Fate::Retried);
        Ok(())
    }
}

/// The operation "award `amount` points for order `order`".
pub(crate) fn award(order: &str, amount: i64) -> Operation {
    let compared = |column: &str, value: i64| Compared {
        column: column.into(),
        value: Value::Integer(i128::from(value)),
    };
    Operation {
        consumer: CONSUMER.into(),
        key: format!("order:{order}:paid"),
        event_id: Some(EventId::stored(format!("event-of-{order}"))),
        comparison: Comparison::Columns(vec![compared("user_id", USER), compared("amount", amount)]),
        ..Operation::default()
    }
}

/// A message as the broker delivers it.
pub(crate) fn message(body: &str) -> Message {
    Message {
        id: Some("event-1".into()),
        message_type: Some("OrderPaid".into()),
        body: Bytes::copy_from_slice(body.as_bytes()),
        delivery_count: 1,
        source: "points".into(),
        ..Message::default()
    }
}

/// Adds the operation's amount to the account, expecting exactly one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Award(pub(crate) i64);

impl<Tx: InboxTransaction> Handler<Tx> for Award {
    async fn apply(&self, tx: &mut Tx, _: &Operation, _: &Message) -> Result<(), HandlerError> {
        let values = [Value::Integer(self.0.into()), Value::Integer(USER.into())];
        match tx.execute(AWARD, &values).await? {
            1 => Ok(()),
            rows => Err(HandlerError::Refused(format!("expected 1 row, changed {rows}"))),
        }
    }
}

/// Makes its change, then refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwardThenRefuse;

impl<Tx: InboxTransaction> Handler<Tx> for AwardThenRefuse {
    async fn apply(&self, tx: &mut Tx, operation: &Operation, message: &Message) -> Result<(), HandlerError> {
        Award(1).apply(tx, operation, message).await?;
        Err(HandlerError::Refused("not today".into()))
    }
}

/// Processes one delivery of the operation.
pub(crate) async fn process<S: InboxStore + Clone>(
    store: &S,
    fates: &Fates,
    operation: &Operation,
    handler: &impl Handler<S::Transaction>,
) -> Result<Committed<Remembered>, Failed<Remembered>> {
    let delivery = fates.delivery(message(r#"{"orderId":42}"#));
    Inbox::new(store.clone()).process(delivery, operation, handler).await
}

/// Processes one delivery that must come to a committed result, and acknowledges it.
pub(crate) async fn processed<S: InboxStore + Clone>(
    store: &S,
    operation: &Operation,
    handler: &impl Handler<S::Transaction>,
) -> Processed {
    let fates = Fates::default();
    let committed = match process(store, &fates, operation, handler).await {
        Ok(committed) => committed,
        Err(failed) => panic!("the delivery failed: {}", failed.error),
    };
    assert!(fates.all().is_empty(), "nothing is acknowledged before the commit returned");
    let processed = committed.ack().await.expect("the receipt is live");
    assert_eq!(fates.all(), [Fate::Acknowledged]);
    processed
}
