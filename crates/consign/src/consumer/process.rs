//! What a consumer's worker gets from this process: time, randomness, a reason to stop, and logs.

use std::sync::Arc;
use std::time::Duration;

use consign_core::consumer::{News, Surroundings};
use consign_core::inbox::Processed;
use consign_core::ports::ParkReason;
use consign_core::time::{Draw, Monotonic};
use consign_failpoint as failpoint;
use tokio::sync::{Notify, watch};

use super::{Observation, Observe};
use crate::clock::ProcessClock;
use crate::draw::SystemDraw;
use crate::shutdown::Shutdown;

/// The process around one consumer.
pub(super) struct Process {
    pub consumer: String,
    pub observer: Arc<dyn Observe>,
    pub clock: ProcessClock,
    pub shutdown: Shutdown,
    /// Wakes the source of parked deliveries.
    pub wake: Arc<Notify>,
    /// Why the consumer must stop, once it must.
    pub halt: watch::Sender<Option<String>>,
}

impl Surroundings for Process {
    async fn pause(&self, span: Duration) -> bool {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            () = tokio::time::sleep(span) => true,
            () = shutdown.requested() => false,
        }
    }

    fn now(&self) -> Monotonic {
        self.clock.now()
    }

    fn fraction(&self) -> f64 {
        SystemDraw.fraction()
    }

    fn fresh_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }

    fn wake_parked(&self) {
        self.wake.notify_one();
    }

    fn halt(&self, reason: String) {
        tracing::error!(consumer = self.consumer, reason, "the consumer stops, as on_conflict says");
        self.halt.send_replace(Some(reason));
    }

    fn tell(&self, news: &News<'_>) {
        let consumer = self.consumer.as_str();
        match *news {
            News::Processed { operation, processed } => {
                failpoint::pass("consume.after_commit");
                let key = &operation.key;
                tracing::debug!(consumer, key, ?processed, "processed");
                self.observer.processed(&Observation { operation, result: Ok(processed) });
                if processed == Processed::Conflict {
                    tracing::error!(
                        consumer,
                        key,
                        "same business key, other content: conflict recorded, nothing changed"
                    );
                }
            }
            News::Acknowledged { .. } => failpoint::pass("consume.after_ack"),
            News::Refused { operation, error } => {
                self.observer.processed(&Observation { operation, result: Err(error) });
            }
            News::InHand { operation, error, rows, tries } => {
                let key = &operation.key;
                tracing::warn!(
                    consumer,
                    key,
                    rows,
                    tries,
                    %error,
                    "store failed, the deliveries stay in hand"
                );
            }
            News::Parking { operation, reason, detail, attempt } => {
                let key = &operation.key;
                if reason == ParkReason::Gap {
                    tracing::info!(consumer, key, detail, "parked until the step before it was applied");
                } else {
                    tracing::warn!(
                        consumer,
                        key,
                        attempt,
                        reason = detail,
                        "delivery refused, it will be tried again"
                    );
                }
            }
            News::NotParked { operation, error } => {
                tracing::warn!(consumer, key = operation.key, %error, "not parked");
            }
            News::Dead { key, reason } => {
                tracing::error!(consumer, key, reason, "delivery put aside as dead");
            }
            News::NotDead { key, why } => {
                tracing::error!(consumer, key, why, "dead letter was not taken, the delivery comes again");
            }
        }
    }
}
