//! A destination that breaks its contract and never answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use consign::clock::ProcessClock;
use consign::relay::RelayRuntime;
use consign::reload::Reload;
use consign::shutdown::shutdown;
use consign::wakeup::Wakeup;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::lease::{ClaimRequest, Publish};
use consign_core::outcome::Outcome;
use consign_core::ports::{Claimed, Destination, Lane, OutboxStore, Readiness, StoreError};
use consign_core::relay::RelaySettings;
use consign_core::route::{DestinationName, RouteTable};
use consign_core::settle::{SettleBatch, Settled, Swept, Transition};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::{Instant, timeout};

/// A table of one row, which is claimed once and tells where it goes.
struct OneRow {
    claimed: AtomicBool,
    settled: UnboundedSender<Transition>,
}

impl OutboxStore for OneRow {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let event = Event {
            id: EventId::stored("event"),
            aggregate: Aggregate::default(),
            event_type: "OrderPaid".into(),
            business_key: None,
            payload: Some("{}".into()),
            headers: Vec::new(),
            destination: Some("mute".into()),
            route_key: None,
            created_at_micros: None,
        };
        let first = !self.claimed.swap(true, Ordering::SeqCst);
        let claims = first.then(|| request.claim(event, 1, Duration::ZERO)).into_iter().collect();
        Ok(Claimed { claims, malformed: Vec::new(), more: false })
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        for settlement in &batch.settlements {
            self.settled.send(settlement.to().clone()).expect("the test looks");
        }
        Ok(vec![Settled::Applied; batch.settlements.len()])
    }

    async fn sweep(&self, _: u32, _: Duration, _: u32) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}

/// Takes messages and never says what became of them.
struct Mute;

impl Destination for Mute {
    async fn publish(&self, _: Lane, _: Publish) -> Outcome {
        std::future::pending().await
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        if *known == Readiness::Accepting {
            std::future::pending::<()>().await;
        }
        Readiness::Accepting
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_is_never_answered_is_unknown_soon_after_its_deadline() {
    let (settled, mut settlements) = mpsc::unbounded_channel();
    let (trigger, asked) = shutdown();
    let name = DestinationName::new("mute");
    let settings = RelaySettings::default();
    let (deadline, lease) = (settings.publish.deadline, settings.lease);
    let runtime = RelayRuntime {
        name: "outbox".into(),
        store: Arc::new(OneRow { claimed: AtomicBool::new(false), settled }),
        destinations: BTreeMap::from([(name.clone(), Arc::new(Mute))]),
        routes: RouteTable::new(Vec::new(), vec![name]),
        settings,
        clock: ProcessClock::start(),
        wakeup: Wakeup::default(),
        reload: Reload::default(),
    };
    let started = Instant::now();
    let relay = tokio::spawn(runtime.run(asked));

    let settlement =
        timeout(Duration::from_mins(5), settlements.recv()).await.expect("it is given up").unwrap();

    assert!(matches!(settlement, Transition::Retry { .. }), "{settlement:?}");
    let waited = started.elapsed();
    assert!(waited >= deadline && waited < lease, "{waited:?}");
    // Its place is free again: nothing is left to wait for.
    let asked_at = Instant::now();
    trigger.request();
    let totals = timeout(Duration::from_mins(5), relay).await.expect("it drains").unwrap();
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    assert_eq!((totals.sent, totals.unknown, totals.retried), (0, 1, 1), "{totals:?}");
}
