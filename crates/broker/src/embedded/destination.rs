//! Publishing into the embedded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use consign_core::lease::Publish;
use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::{Destination, Lane, Readiness};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::writer::{Command, PublishCommand};

/// A destination whose route keys are topics of the embedded queue.
#[derive(Clone, Debug)]
pub struct EmbeddedDestination {
    shared: Arc<Shared>,
    origin: Instant,
    source: Arc<str>,
}

impl EmbeddedDestination {
    pub(super) fn new(shared: Arc<Shared>, origin: Instant, source: Arc<str>) -> Self {
        Self { shared, origin, source }
    }
}

impl Destination for EmbeddedDestination {
    /// Both lanes end in the same transaction: a message that the file refuses undoes its own statement only.
    async fn publish(&self, _lane: Lane, publish: Publish) -> Outcome {
        let deadline = self.origin + publish.deadline.since_origin();
        if deadline <= Instant::now() {
            return refused("the publish deadline has passed already");
        }
        let decided = Arc::new(AtomicBool::new(false));
        let (answer, answered) = oneshot::channel();
        let command = Command::Publish(PublishCommand {
            event: publish.event,
            topic: publish.route.key,
            source: Arc::clone(&self.source),
            decided: Arc::clone(&decided),
            answer,
        });
        let exchange = async {
            if self.shared.commands.send(command).await.is_err() {
                return refused("the embedded queue is closed");
            }
            // A writer that ended without an answer may have been in the middle of COMMIT.
            answered.await.unwrap_or_else(|_| {
                Outcome::Unknown(Doubt::ConnectionLost("the embedded queue's writer ended".to_owned()))
            })
        };
        match timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if decided.swap(true, Ordering::AcqRel) => Outcome::Unknown(Doubt::ConfirmTimedOut),
            Err(_) => refused("the queue file stayed busy until the publish deadline"),
        }
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        let mut readiness = self.shared.readiness.clone();
        let changed = readiness.wait_for(|now| now != known).await.map(|now| now.clone());
        match changed {
            Ok(now) => now,
            Err(_) => closed(known).await,
        }
    }
}

/// The writer is gone for good: said once, then never again.
async fn closed(known: &Readiness) -> Readiness {
    let closed = Readiness::Unavailable("the embedded queue is closed".to_owned());
    if *known == closed {
        std::future::pending::<()>().await;
    }
    closed
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused { reason: reason.to_owned(), retry_after: None }
}
