//! Drives the relay engine: runs its commands and feeds it what happened. It decides nothing itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::{Destination, OutboxStore, Readiness};
use consign_core::relay::{Command, Input, Relay, RelaySettings, Report, Totals};
use consign_core::route::{DestinationName, RouteTable};
use consign_failpoint as failpoint;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::time::timeout_at;

use crate::clock::ProcessClock;
use crate::draw::SystemDraw;
use crate::reload::{Changes, Reload};
use crate::shutdown::Shutdown;
use crate::wakeup::Wakeup;

/// How long after its deadline a publish is still waited for. Destinations answer by the deadline; what one of them forgets
/// must not take a place in the window until the relay restarts.
const OVERDUE: Duration = Duration::from_secs(1);
/// At most this many finished publishes are fed to the engine before its commands run again.
const INPUTS_PER_TURN: usize = 256;

/// One relay over one outbox.
pub struct RelayRuntime<S, D> {
    /// The outbox's name, for logs.
    pub name: String,
    /// The store.
    pub store: Arc<S>,
    /// The destinations by name.
    pub destinations: BTreeMap<DestinationName, Arc<D>>,
    /// The routes.
    pub routes: RouteTable,
    /// The engine's settings.
    pub settings: RelaySettings,
    /// The process's clock, shared with the destinations.
    pub clock: ProcessClock,
    /// Wakes this relay; `Wakeup::default()` when nobody will.
    pub wakeup: Wakeup,
    /// Brings new settings and routes; `Reload::default()` when nobody will.
    pub reload: Reload,
}

type Work = Pin<Box<dyn Future<Output = Input> + Send>>;

impl<S, D> RelayRuntime<S, D>
where
    S: OutboxStore + 'static,
    D: Destination + 'static,
{
    /// Runs until the drain that `shutdown` asks for is over; returns the totals since start.
    ///
    /// Dropping the future loses at most time: the store runs its units of work to their ends, and rows that are still
    /// leased come back by a sweep.
    pub async fn run(mut self, mut shutdown: Shutdown) -> Totals {
        let mut relay = Relay::new(self.settings.clone(), self.routes.clone(), SystemDraw, self.clock.now());
        // Units of database work, and the watch on each destination.
        let mut work: FuturesUnordered<Work> = FuturesUnordered::new();
        let mut flights = FuturesUnordered::new();
        for (name, destination) in &self.destinations {
            // Every outlet starts as unavailable, so the first answer is whatever differs from that.
            let unknown = Readiness::Unavailable(String::new());
            work.push(watch_readiness(name.clone(), Arc::clone(destination), unknown));
        }
        let mut draining = false;
        let mut claiming = false;
        loop {
            while let Some(command) = relay.next_command() {
                match command {
                    Command::Claim(_) | Command::Settle(_) | Command::Sweep { .. } => {
                        claiming |= matches!(command, Command::Claim(_));
                        work.push(self.database(command));
                    }
                    Command::Publish(id, lane, publish) => {
                        let destination = Arc::clone(&self.destinations[&publish.route.destination]);
                        failpoint::pass("publish.before_first_byte");
                        let overdue = self.clock.instant(publish.deadline) + OVERDUE;
                        flights.push(async move {
                            let answered = timeout_at(overdue, destination.publish(lane, publish)).await;
                            (id, answered.unwrap_or(Outcome::Unknown(Doubt::ConfirmTimedOut)))
                        });
                    }
                    Command::Report(report) => self.log(&report),
                    Command::Stopped => return relay.totals(),
                }
            }
            let timer = relay.next_timer();
            tokio::select! {
                Some((id, outcome)) = flights.next(), if !flights.is_empty() => {
                    failpoint::pass("publish.after_outcome");
                    relay.handle(self.clock.now(), Input::Outcome(id, outcome));
                    for _ in 1..INPUTS_PER_TURN {
                        let Some(Some((id, outcome))) = flights.next().now_or_never() else { break };
                        relay.handle(self.clock.now(), Input::Outcome(id, outcome));
                    }
                }
                Some(input) = work.next(), if !work.is_empty() => {
                    claiming &= !matches!(input, Input::Claimed(_) | Input::ClaimFailed(_));
                    if let Input::Readiness(name, readiness) = &input {
                        let destination = Arc::clone(&self.destinations[name]);
                        work.push(watch_readiness(name.clone(), destination, readiness.clone()));
                    }
                    relay.handle(self.clock.now(), input);
                }
                // What was committed while a claim looked is not in it: the wake-up waits for the claim after it.
                () = self.wakeup.woken(), if !claiming && !draining => {
                    relay.handle(self.clock.now(), Input::Wakeup);
                }
                Changes { settings, routes } = self.reload.taken() => {
                    relay.handle(self.clock.now(), Input::Reconfigure(Box::new(settings), routes));
                }
                () = shutdown.requested(), if !draining => {
                    draining = true;
                    relay.handle(self.clock.now(), Input::Drain);
                }
                () = self.clock.sleep_until(timer) => relay.handle(self.clock.now(), Input::Timer),
            }
        }
    }

    /// One unit of database work; its future answers with what the engine must know.
    fn database(&self, command: Command) -> Work {
        let store = Arc::clone(&self.store);
        match command {
            Command::Claim(request) => Box::pin(async move {
                failpoint::pass("claim.before_begin");
                match store.claim(request).await {
                    Ok(claimed) => {
                        if !claimed.claims.is_empty() {
                            failpoint::pass("claim.after_commit");
                        }
                        Input::Claimed(claimed)
                    }
                    Err(error) => Input::ClaimFailed(error),
                }
            }),
            Command::Settle(batch) => Box::pin(async move {
                failpoint::pass("settle.before_update");
                match store.settle(&batch).await {
                    Ok(answers) => {
                        failpoint::pass("settle.after_commit");
                        Input::Settled(batch, answers)
                    }
                    Err(error) => Input::SettleFailed(batch, error),
                }
            }),
            Command::Sweep { limit, delay, attempts_max } => Box::pin(async move {
                match store.sweep(limit, delay, attempts_max).await {
                    Ok(swept) => {
                        if swept.returned > 0 {
                            failpoint::pass("sweep.after_commit");
                        }
                        Input::Swept(swept)
                    }
                    Err(error) => Input::SweepFailed(error),
                }
            }),
            Command::Publish(..) | Command::Report(_) | Command::Stopped => {
                unreachable!("only database commands are passed here")
            }
        }
    }

    fn log(&self, report: &Report) {
        let outbox = self.name.as_str();
        match report {
            Report::NoRoute(id, why) => {
                tracing::error!(outbox, event_id = %id, why, "event has no route and waits");
            }
            Report::Unroutable(id, destination, why) => {
                tracing::error!(outbox, event_id = %id, %destination, why, "message was unroutable");
            }
            Report::Dead(id, why) => tracing::error!(outbox, event_id = %id, why, "event went DEAD"),
            Report::BrakeOn(id) => tracing::error!(
                outbox,
                event_id = %id,
                "too many events would go DEAD at once: dead-lettering is paused, look at the destination"
            ),
            Report::CircuitOpened(destination, why) => {
                tracing::warn!(outbox, %destination, why, "destination keeps failing and is left alone for a while");
            }
            Report::Available(destination) => {
                tracing::info!(outbox, %destination, "destination is available");
            }
            Report::Unavailable(destination, why) => {
                tracing::warn!(outbox, %destination, why, "destination is unavailable, claims pause");
            }
            Report::Fenced(id) => tracing::warn!(
                outbox,
                event_id = %id,
                "settle was fenced: the lease had passed to another relay"
            ),
            Report::Quarantined(destination, why) => tracing::warn!(
                outbox,
                %destination,
                why,
                "channel died: its messages are published one at a time"
            ),
            Report::Store(what, error) => {
                tracing::warn!(outbox, unit = what, %error, "store failed, trying again");
            }
        }
    }
}

fn watch_readiness<D: Destination + 'static>(
    name: DestinationName,
    destination: Arc<D>,
    known: Readiness,
) -> Work {
    Box::pin(async move { Input::Readiness(name, destination.readiness_after(&known).await) })
}
