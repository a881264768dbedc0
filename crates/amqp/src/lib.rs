//! A thin AMQP 0-9-1 client on tokio: publishing with confirms, and consuming.
//!
//! It exists because the published clients pair a returned message with whichever confirm comes next.
//! Here every publish gets a [`Verdict`] of its own, and [`Verdict::Acked`] is given only when the
//! broker acknowledged exactly this publish and returned no message with its message id.
//!
//! One task per [`Connection`] owns the socket and all state. Handles ([`Channel`], [`Publisher`],
//! [`Consumer`], [`DeliveryHandle`]) talk to it through a queue. Nothing reconnects and nothing is
//! retried: when a connection ends, every waiting call ends with the reason, and the caller opens a
//! new connection, which carries a new incarnation number.
//!
//! ```no_run
//! use std::time::Duration;
//! use consign_amqp::{ConnectOptions, Connection, Properties, Publication, Verdict};
//! use tokio::time::Instant;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options: ConnectOptions = "amqp://guest:guest@localhost/".parse()?;
//! let connection = Connection::open(&options).await?;
//! let publisher = connection.open_publisher().await?;
//! let publication = Publication {
//!     exchange: "orders".to_owned(),
//!     routing_key: "order.paid".to_owned(),
//!     properties: Properties { message_id: Some("e-1".to_owned()), delivery_mode: Some(2), ..Properties::default() },
//!     body: "{}".into(),
//! };
//! match publisher.publish(publication, Instant::now() + Duration::from_secs(15)).await {
//!     Verdict::Acked { tag } => println!("the broker took it as {tag}"),
//!     verdict => println!("not proven: {verdict:?}"),
//! }
//! # Ok(())
//! # }
//! ```

mod channel;
mod command;
mod confirms;
mod connection;
mod consumer;
mod error;
mod frame;
#[cfg(test)]
mod fuzz;
mod method;
mod options;
mod properties;
mod publisher;
mod request;
mod session;
mod table;
mod wire;

pub use channel::{Channel, ExchangeDeclaration, QueueDeclaration, QueueStatus};
pub use connection::{Connection, ServerInfo};
pub use consumer::{ConsumeOptions, Consumer, ConsumerEnd, Delivery, DeliveryHandle, DeliveryId, HandleLost};
pub use error::{ChannelError, ChannelId, CloseReason, ClosedBy, ConnectError};
pub use options::{ConnectOptions, TlsOptions, Uri, UriError};
pub use properties::{Properties, UndecodableProperties};
pub use publisher::{NotSent, Publication, Publisher, Verdict};
pub use table::{FieldTable, FieldValue};
