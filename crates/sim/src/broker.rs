//! The broker: destinations that take messages in the order they were sent on a connection, keep them for consumers,
//! and say what they made of them, or do not.

use std::sync::Arc;

use consign_core::event::Event;
use consign_core::outcome::{ChannelId, DeliveryTag, Doubt, Outcome, Proof};
use consign_core::time::Monotonic;

use std::num::NonZeroU64;

/// A message that a destination took: what its consumers get.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The message as it was published.
    pub event: Arc<Event>,
    /// The row it is a copy of.
    pub row: usize,
    /// When it was taken.
    pub at: Monotonic,
}

/// One destination.
#[derive(Debug, Default)]
pub struct SimDestination {
    /// Nobody can connect.
    pub down: bool,
    /// It takes bytes and answers nothing.
    pub blocked: bool,
    /// No queue is bound: messages come back.
    pub unbound: bool,
    /// Every message it took, in its order. A consumer's queue is a place in this list.
    pub taken: Vec<Copy>,
}

/// All destinations.
#[derive(Debug)]
pub struct SimBroker {
    /// By number.
    pub destinations: Vec<SimDestination>,
}

impl SimBroker {
    /// So many healthy, empty destinations.
    pub fn new(destinations: usize) -> Self {
        Self { destinations: (0..destinations).map(|_| SimDestination::default()).collect() }
    }

    /// Takes a message.
    pub fn take(&mut self, destination: usize, copy: Copy) {
        self.destinations[destination].taken.push(copy);
    }

    /// Everything works again.
    pub fn heal(&mut self) {
        for destination in &mut self.destinations {
            (destination.down, destination.blocked, destination.unbound) = (false, false, false);
        }
    }
}

/// The broker confirmed a message.
pub fn confirmed() -> Outcome {
    let channel = ChannelId { incarnation: 1, number: 1 };
    Outcome::Confirmed(Proof::PublisherConfirm { channel, tag: DeliveryTag(NonZeroU64::MIN) })
}

/// No confirm came in time.
pub fn timed_out() -> Outcome {
    Outcome::Unknown(Doubt::ConfirmTimedOut)
}

/// The channel died of one of its messages.
pub fn channel_closed() -> Outcome {
    Outcome::Unknown(Doubt::ChannelClosed("406 precondition failed".into()))
}

/// The connection broke.
pub fn connection_lost() -> Outcome {
    Outcome::Unknown(Doubt::ConnectionLost("reset by peer".into()))
}

/// The broker said no.
pub fn refused(retry_after: Option<std::time::Duration>) -> Outcome {
    Outcome::Refused { reason: "nack".into(), retry_after }
}

/// Nothing left: there is no connection.
pub fn not_connected() -> Outcome {
    Outcome::Refused { reason: "not connected".into(), retry_after: None }
}

/// The message is at fault.
pub fn rejected(reason: &str) -> Outcome {
    Outcome::Rejected { reason: reason.into() }
}

/// No queue took it.
pub fn returned() -> Outcome {
    Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }
}
