//! Many claimers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::ports::OutboxStore;
use consign_core::relay::DeadHead;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{OrderedFixture, rows};
use crate::store::request::{claim, settle};
use crate::store::settlement::sent;
use crate::waiting::within;

const CLAIMERS: usize = 4;
const AGGREGATES: u32 = 12;
const EVENTS: u32 = 9;
const PATIENCE: Duration = Duration::from_mins(1);

/// What was published, by aggregate, and who is publishing.
#[derive(Default)]
struct Seen {
    holders: BTreeMap<String, usize>,
    published: BTreeMap<String, Vec<String>>,
}

/// Four relays, some of whose rows go back: nobody gets rows of an aggregate that another one is publishing, and each
/// aggregate's events are published in order.
pub async fn claimers_side_by_side_keep_the_order_of_every_aggregate<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    for step in 0..EVENTS {
        let round: Vec<_> =
            (1..=AGGREGATES).flat_map(|aggregate| rows(&aggregate.to_string(), step..step + 1)).collect();
        fixture.append(&round).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let barrier = Arc::new(Barrier::new(CLAIMERS));
    let mut claimers = JoinSet::new();
    for me in 0..CLAIMERS {
        let (store, seen, barrier) =
            (fixture.store(DeadHead::Block).await, Arc::clone(&seen), Arc::clone(&barrier));
        claimers.spawn(async move {
            barrier.wait().await;
            for round in me.. {
                if publish(&store, &seen, me, round).await >= (AGGREGATES * EVENTS) as usize {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
    }

    within(PATIENCE, claimers.join_all()).await;

    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.published.len(), AGGREGATES as usize);
    for (aggregate, published) in &seen.published {
        let expected: Vec<String> = (0..EVENTS).map(|step| format!("{aggregate}-{step:04}")).collect();
        assert_eq!(published, &expected, "aggregate {aggregate}");
    }
}

/// Claims, publishes and settles once; gives the number of events published by all so far.
async fn publish<S: OutboxStore>(store: &S, seen: &Mutex<Seen>, me: usize, round: usize) -> usize {
    let claimed = claim(store, 7).await;
    let mut chains: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for claim in claimed.claims {
        let aggregate = claim.event().aggregate.id.clone().expect("every row has one");
        chains.entry(aggregate).or_default().push(claim);
    }
    {
        let mut seen = seen.lock().expect("no panic");
        for aggregate in chains.keys() {
            let other = seen.holders.insert(aggregate.clone(), me);
            assert_eq!(other, None, "aggregate {aggregate} has two publishers");
        }
    }
    tokio::task::yield_now().await;
    let mut settlements = Vec::new();
    {
        let mut seen = seen.lock().expect("no panic");
        for (place, (aggregate, claims)) in chains.into_iter().enumerate() {
            // Of some chains only the first row is published; the rest goes back.
            let published = if (round + place).is_multiple_of(3) { 1 } else { claims.len() };
            for (step, claim) in claims.into_iter().enumerate() {
                if step < published {
                    let id = claim.event().id.as_str().to_owned();
                    seen.published.entry(aggregate.clone()).or_default().push(id);
                    settlements.push(sent(claim));
                } else {
                    settlements.push(claim.release(Duration::ZERO, ""));
                }
            }
            // From the settle on another relay may have it.
            seen.holders.remove(&aggregate);
        }
    }
    if !settlements.is_empty() {
        settle(store, settlements).await;
    }
    seen.lock().expect("no panic").published.values().map(Vec::len).sum()
}
