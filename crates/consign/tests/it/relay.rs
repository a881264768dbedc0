//! What a relay asks its store when nothing is there to claim, and how wake-ups change that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use consign::clock::ProcessClock;
use consign::relay::RelayRuntime;
use consign::reload::Reload;
use consign::shutdown::{ShutdownTrigger, shutdown};
use consign::wakeup::Wakeup;
use consign_core::lease::{ClaimRequest, Publish};
use consign_core::outcome::Outcome;
use consign_core::ports::{Claimed, Destination, Lane, OutboxStore, Readiness, StoreError};
use consign_core::relay::{RelaySettings, Totals};
use consign_core::route::{DestinationName, RouteTable};
use consign_core::settle::{SettleBatch, Settled, Swept};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// An empty table that counts claims, and answers each one when it is let.
struct Empty {
    claims: AtomicUsize,
    answers: Semaphore,
}

impl OutboxStore for Empty {
    async fn claim(&self, _request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        self.answers.acquire().await.expect("never closed").forget();
        Ok(Claimed { claims: Vec::new(), malformed: Vec::new(), more: false })
    }

    async fn settle(&self, _batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        unreachable!("nothing was claimed")
    }

    async fn sweep(&self, _: u32, _: Duration, _: u32) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}

struct Ready;

impl Destination for Ready {
    async fn publish(&self, _: Lane, _: Publish) -> Outcome {
        unreachable!("nothing was claimed")
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        if *known == Readiness::Accepting {
            std::future::pending::<()>().await;
        }
        Readiness::Accepting
    }
}

struct Running {
    store: Arc<Empty>,
    wakeup: Wakeup,
    trigger: ShutdownTrigger,
    relay: JoinHandle<Totals>,
}

impl Running {
    fn start(answers: usize) -> Self {
        let store = Arc::new(Empty { claims: AtomicUsize::new(0), answers: Semaphore::new(answers) });
        let (trigger, asked) = shutdown();
        let (wakeup, name) = (Wakeup::default(), DestinationName::new("a"));
        let runtime = RelayRuntime {
            name: "outbox".into(),
            store: Arc::clone(&store),
            destinations: BTreeMap::from([(name.clone(), Arc::new(Ready))]),
            routes: RouteTable::new(Vec::new(), vec![name]),
            settings: RelaySettings::default(),
            clock: ProcessClock::start(),
            wakeup: wakeup.clone(),
            reload: Reload::default(),
        };
        Self { store, wakeup, trigger, relay: tokio::spawn(runtime.run(asked)) }
    }

    fn claims(&self) -> usize {
        self.store.claims.load(Ordering::SeqCst)
    }

    async fn reach(&self, claims: usize) {
        let reached = async {
            while self.claims() < claims {
                sleep(Duration::from_micros(100)).await;
            }
        };
        timeout(Duration::from_mins(1), reached).await.expect("the claims come");
    }

    async fn stop(self) {
        self.trigger.request();
        self.store.answers.add_permits(1);
        timeout(Duration::from_mins(1), self.relay)
            .await
            .expect("it drains")
            .expect("it breaks no invariant");
    }
}

/// Lets so much of the paused clock's time pass, which takes no time.
async fn pass(span: Duration) {
    sleep(span).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_relay_claims_about_once_a_second() {
    let running = Running::start(Semaphore::MAX_PERMITS / 2);
    pass(Duration::from_secs(10)).await;
    let before = running.claims();

    pass(Duration::from_mins(1)).await;

    let claims = running.claims() - before;
    assert!((55..=61).contains(&claims), "{claims} claims in a minute");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_makes_an_idle_relay_claim_at_once() {
    let running = Running::start(Semaphore::MAX_PERMITS / 2);
    sleep(Duration::from_millis(10_100)).await;
    let (before, started) = (running.claims(), Instant::now());

    running.wakeup.wake();
    running.reach(before + 1).await;

    assert!(started.elapsed() < Duration::from_millis(3), "{:?}", started.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_wake_ups_during_a_claim_is_one_more_claim_right_after_it() {
    let running = Running::start(0);
    running.reach(1).await;
    for _ in 0..10_000 {
        running.wakeup.wake();
    }
    pass(Duration::from_secs(1)).await;
    assert_eq!(running.claims(), 1, "one claim at a time");
    let started = Instant::now();

    running.store.answers.add_permits(1);
    running.reach(2).await;

    assert!(started.elapsed() < Duration::from_millis(3), "{:?}", started.elapsed());
    running.store.answers.add_permits(1);
    sleep(Duration::from_millis(5)).await;
    assert_eq!(running.claims(), 2, "the storm is over: the next claim is a poll");
    running.stop().await;
}
