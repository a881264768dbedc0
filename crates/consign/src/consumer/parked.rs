//! Deliveries that wait in the consumer's own database, handed out again when their time has come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use consign_core::ports::{ParkedDelivery, Parking, StoreError};
use consign_core::time::Monotonic;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::ProcessClock;

/// How long a delivery belongs to the process that took it. A handler that takes longer is run a second time, and the
/// marker makes that a repeat.
const LEASE: Duration = Duration::from_mins(1);
/// The first pause after nothing was due; each further one is twice as long.
const IDLE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: what a delivery that another process or an operator parked waits at most.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// The pause while there is no table of parked deliveries.
const ABSENT: Duration = Duration::from_secs(30);

/// A look at the table, in a task that nobody aborts.
type Look = JoinHandle<Result<Vec<ParkedDelivery>, StoreError>>;

/// The parked deliveries of one consumer.
#[derive(Debug)]
pub(super) struct ParkedSource<S> {
    store: Arc<S>,
    consumer: String,
    limit: u32,
    /// Each with the end of its lease.
    ready: VecDeque<(ParkedDelivery, Monotonic)>,
    idle: Duration,
    next_at: Instant,
    wake: Arc<Notify>,
    clock: ProcessClock,
    /// A look under way. It is kept here, so that dropping the future of `next` loses no leased row.
    looking: Option<(Look, Monotonic)>,
    said: bool,
}

impl<S: Parking + 'static> ParkedSource<S> {
    pub(super) fn new(
        store: Arc<S>,
        consumer: &str,
        limit: u32,
        wake: Arc<Notify>,
        clock: ProcessClock,
    ) -> Self {
        let consumer = consumer.to_owned();
        Self {
            store,
            consumer,
            limit,
            ready: VecDeque::new(),
            idle: IDLE_MIN,
            next_at: Instant::now(),
            wake,
            clock,
            looking: None,
            said: false,
        }
    }

    /// The next delivery that is due, with the end of its lease. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> (ParkedDelivery, Monotonic) {
        loop {
            if let Some(parked) = self.ready.pop_front() {
                return parked;
            }
            let Some((looking, until)) = &mut self.looking else {
                tokio::select! {
                    () = sleep_until(self.next_at) => {}
                    () = self.wake.notified() => self.idle = IDLE_MIN,
                }
                // Counted from before the look, so that the database's lease never ends first.
                let until = self.clock.now().plus(LEASE);
                self.looking = Some((self.look(), until));
                continue;
            };
            let (looked, until) = (looking.await, *until);
            self.looking = None;
            let looked = looked.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())));
            self.looked(looked, until);
        }
    }

    fn look(&self) -> Look {
        let (store, consumer, limit) = (Arc::clone(&self.store), self.consumer.clone(), self.limit);
        tokio::spawn(async move { store.due(&consumer, limit, LEASE).await })
    }

    fn looked(&mut self, looked: Result<Vec<ParkedDelivery>, StoreError>, until: Monotonic) {
        let pause = match looked {
            Ok(due) if due.is_empty() => {
                self.idle = (self.idle * 2).min(IDLE_MAX);
                self.idle
            }
            Ok(due) => {
                self.ready.extend(due.into_iter().map(|parked| (parked, until)));
                self.idle = IDLE_MIN;
                Duration::ZERO
            }
            Err(StoreError::Schema(reason)) => {
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!(
                        consumer = self.consumer,
                        reason,
                        "deliveries cannot be parked, refused ones wait in hand: run consign migrate"
                    );
                }
                ABSENT
            }
            Err(error) => {
                tracing::debug!(consumer = self.consumer, %error, "looking for parked deliveries");
                IDLE_MAX
            }
        };
        self.next_at = Instant::now() + pause;
    }
}
