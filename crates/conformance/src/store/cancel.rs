//! Dropped futures: they lose at most time.
//!
//! Cases B82 (`transact-rs/sqlx#4385`: a cancelled BEGIN leaves its transaction on a pooled connection) and B83
//! (`tokio-rs/tokio#5947`: what a dropped future held is lost).

use std::time::Duration;

use consign_core::ports::OutboxStore;
use consign_core::settle::{SettleBatch, Settled};

use super::request::{claim, ids, request, settle};
use super::settle::assert_sent;
use super::settlement::sent;
use super::{NewRow, StoreFixture, insert_all, row};
use crate::waiting::{drop_after, eventually};

const PATIENCE: Duration = Duration::from_secs(30);
/// Futures are dropped after 0, 1, 2 … polls.
const DROPS: usize = 12;

async fn quiet<F: StoreFixture>(fixture: &F) {
    eventually(PATIENCE, || async { fixture.open_transactions().await == 0 }).await;
}

/// After a dropped claim every row is either untouched or owned whole, and no transaction stays open.
pub async fn a_dropped_claim_leaves_nothing_half_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let names: Vec<String> = (0..DROPS).map(|number| format!("event-{number:02}")).collect();
    insert_all(&fixture, names.iter().map(NewRow::new)).await;
    let store = fixture.store();

    for polls in 0..DROPS {
        drop_after(polls, store.claim(request(1))).await;
    }

    quiet(&fixture).await;
    for id in &names {
        let stored = row(&fixture, id).await;
        let whole = (stored.status == "NEW", stored.attempts, stored.token.is_some(), stored.leased);
        assert!([(true, 0, false, false), (false, 1, true, true)].contains(&whole), "row {id}: {stored:?}");
        fixture.expire_lease(id).await;
    }
    super::sweep::sweep(&store, 100, Duration::ZERO).await;
    assert_usable(&fixture).await;
}

/// After a dropped settle every row is settled or still owned, and a repeat of the batch ends it.
pub async fn a_dropped_settle_leaves_nothing_half_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store();
    for polls in 0..DROPS {
        let id = format!("event-{polls:02}");
        insert_all(&fixture, [NewRow::new(&id)]).await;
        let settlements = claim(&store, 1).await.claims.into_iter().map(sent).collect();
        let batch = SettleBatch { settlements, repeat: false };

        drop_after(polls, store.settle(&batch)).await;

        quiet(&fixture).await;
        if fixture.row(&id).await.is_none_or(|row| row.status != "SENDING") {
            assert_sent(&fixture, &id).await;
        }
        let repeat = SettleBatch { settlements: batch.settlements, repeat: true };
        let answers = super::request::settle_batch(&store, &repeat).await;
        assert!(!answers.contains(&Settled::Fenced), "the batch is the row's own");
        assert_sent(&fixture, &id).await;
    }
    assert_usable(&fixture).await;
}

/// After a dropped sweep every row is swept or not, and no transaction stays open.
pub async fn a_dropped_sweep_leaves_nothing_half_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store();
    insert_all(&fixture, (0..DROPS).map(|number| NewRow::new(format!("event-{number:02}")))).await;
    let claimed = claim(&store, 100).await;
    assert_eq!(claimed.claims.len(), DROPS);
    for id in ids(&claimed) {
        fixture.expire_lease(id).await;
    }

    for polls in 0..DROPS {
        drop_after(polls, store.sweep(1, Duration::ZERO, 20)).await;
    }

    quiet(&fixture).await;
    super::sweep::sweep(&store, 100, Duration::ZERO).await;
    for id in ids(&claimed) {
        let stored = row(&fixture, id).await;
        assert_eq!((stored.status.as_str(), stored.attempts, stored.token), ("NEW", 1, None), "row {id}");
    }
    assert_usable(&fixture).await;
}

/// The store's connections commit what they are told: what one store writes, another one sees.
async fn assert_usable<F: StoreFixture>(fixture: &F) {
    insert_all(fixture, [NewRow::new("afterwards")]).await;
    let store = fixture.store();
    let claims = claim(&store, 100).await.claims;
    let one = claims.into_iter().find(|claim| claim.event().id.as_str() == "afterwards");
    let one = one.expect("the row is due");
    assert_eq!(settle(&store, vec![sent(one)]).await, [Settled::Applied]);
    assert_sent(fixture, "afterwards").await;
    quiet(fixture).await;
}
