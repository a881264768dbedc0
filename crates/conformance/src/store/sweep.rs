//! Sweeps.

use std::sync::Arc;
use std::time::Duration;

use consign_core::ports::{OutboxStore, StoreError};
use consign_core::settle::{Settled, Swept};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::request::{claim, ids, settle};
use super::settle::assert_sent;
use super::settlement::{is_suspected, retry, sent};
use super::{NewRow, StoreFixture, insert_all, row};
use crate::waiting::within;

const PATIENCE: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_secs(10);
const ATTEMPTS_MAX: u32 = 20;

/// Sweeps; a contended store is asked again.
pub(crate) async fn sweep<S: OutboxStore>(store: &S, limit: u32, delay: Duration) -> Swept {
    sweep_with_cap(store, limit, delay, ATTEMPTS_MAX).await
}

async fn sweep_with_cap<S: OutboxStore>(store: &S, limit: u32, delay: Duration, attempts_max: u32) -> Swept {
    const TRIES: u32 = 50;
    for _ in 1..TRIES {
        match store.sweep(limit, delay, attempts_max).await {
            Err(StoreError::Contended(_)) => {}
            result => return result.expect("the sweep succeeds"),
        }
    }
    store.sweep(limit, delay, attempts_max).await.expect("the sweep succeeds")
}

async fn with_expired<F: StoreFixture>(names: &[&str]) -> F {
    let fixture = F::fresh().await;
    insert_all(&fixture, names.iter().map(|id| NewRow::new(*id))).await;
    let rows = u32::try_from(names.len()).expect("a few rows");
    assert_eq!(claim(&fixture.store(), rows).await.claims.len(), names.len());
    for id in names {
        fixture.expire_lease(id).await;
    }
    fixture
}

/// Claims the row and lets its lease end, as a relay that crashes does, then sweeps it.
async fn crash_on<F: StoreFixture>(fixture: &F, id: &str) {
    fixture.make_due(id).await;
    let claimed = claim(&fixture.store(), 100).await;
    assert!(ids(&claimed).contains(&id), "row {id} is claimed");
    fixture.expire_lease(id).await;
    let swept = sweep(&fixture.store(), 100, Duration::ZERO).await;
    assert_eq!(swept, Swept { returned: 1, dead: 0 });
    fixture.make_due(id).await;
}

/// Back to NEW, due after the delay; the attempt counts.
pub async fn an_expired_lease_goes_back_to_new_after_the_delay<F: StoreFixture>() {
    let fixture = with_expired::<F>(&["event"]).await;

    let swept = sweep(&fixture.store(), 10, DELAY).await;

    assert_eq!(swept, Swept { returned: 1, dead: 0 });
    let stored = row(&fixture, "event").await;
    assert_eq!((stored.status.as_str(), stored.attempts), ("NEW", 1));
    assert_eq!((stored.token, stored.leased), (None, false));
    assert!((5_000..=10_000).contains(&stored.due_in_millis), "due in {} ms", stored.due_in_millis);
    assert!(ids(&claim(&fixture.store(), 10).await).is_empty());
}

/// A lease that has not ended is nobody else's business.
pub async fn a_live_lease_is_left_alone<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("event")]).await;
    let mut claimed = claim(&fixture.store(), 1).await;

    let swept = sweep(&fixture.another_store().await, 10, DELAY).await;

    assert_eq!(swept, Swept::default());
    assert_eq!(row(&fixture, "event").await.status, "SENDING");
    let claim = claimed.claims.pop().expect("the row is due");
    assert_eq!(settle(&fixture.store(), vec![sent(claim)]).await, [Settled::Applied]);
}

/// DEAD when the attempts reached the cap.
pub async fn a_row_at_the_attempts_cap_goes_dead<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let rows = [("last", 2), ("first", 0)].map(|(id, attempts)| NewRow { attempts, ..NewRow::new(id) });
    insert_all(&fixture, rows).await;
    claim(&fixture.store(), 10).await;
    for id in ["last", "first"] {
        if row(&fixture, id).await.status == "NEW" {
            claim(&fixture.store(), 10).await;
        }
        fixture.expire_lease(id).await;
    }

    let swept = sweep_with_cap(&fixture.store(), 10, DELAY, 3).await;

    assert_eq!(swept, Swept { returned: 1, dead: 1 });
    let last = row(&fixture, "last").await;
    assert_eq!((last.status.as_str(), last.attempts, last.token), ("DEAD", 3, None));
    assert_eq!(row(&fixture, "first").await.status, "NEW");
}

/// At most `limit` rows at a time.
pub async fn a_sweep_takes_at_most_its_limit<F: StoreFixture>() {
    let fixture = with_expired::<F>(&["a", "b", "c"]).await;

    let first = sweep(&fixture.store(), 2, DELAY).await;
    let second = sweep(&fixture.store(), 2, DELAY).await;
    let third = sweep(&fixture.store(), 2, DELAY).await;

    assert_eq!((first.returned, second.returned, third.returned), (2, 1, 0));
}

/// Whoever held the lease before the sweep cannot settle any more.
pub async fn a_swept_row_is_fenced_for_its_old_owner<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("event")]).await;
    let old = claim(&fixture.store(), 1).await.claims.pop().expect("the row is due");
    fixture.expire_lease("event").await;
    sweep(&fixture.store(), 10, DELAY).await;

    let answers = settle(&fixture.store(), vec![sent(old)]).await;

    assert_eq!(answers, [Settled::Fenced]);
    assert_eq!(row(&fixture, "event").await.status, "NEW");
}

/// One sweep accuses nobody.
pub async fn a_row_swept_once_is_claimed_with_others<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("unlucky")]).await;
    crash_on(&fixture, "unlucky").await;
    insert_all(&fixture, [NewRow::new("other")]).await;

    let claimed = claim(&fixture.store(), 10).await;

    assert_eq!(claimed.claims.len(), 2);
    assert!(claimed.claims.into_iter().all(|claim| !is_suspected(claim)));
}

/// A row swept twice is claimed alone and marked as suspected, so that a row which kills relays takes only itself along.
pub async fn a_row_swept_twice_is_claimed_alone_and_suspected<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("killer")]).await;
    crash_on(&fixture, "killer").await;
    crash_on(&fixture, "killer").await;
    insert_all(&fixture, ["a", "b"].map(|id| NewRow::new(id).due_in_millis(-60_000))).await;
    insert_all(&fixture, ["y", "z"].map(|id| NewRow::new(id).due_in_millis(-1))).await;

    let before = claim(&fixture.store(), 10).await;
    let alone = claim(&fixture.store(), 10).await;
    let after = claim(&fixture.store(), 10).await;

    assert_eq!(ids(&before), ["a", "b"], "others that are due earlier go without it");
    assert_eq!(ids(&alone), ["killer"], "a suspect has no company");
    assert_eq!(ids(&after), ["y", "z"], "others that are due later wait for their turn");
    assert!((before.more, alone.more) == (true, true), "the relay comes again at once");
    assert!(alone.claims.into_iter().all(is_suspected), "the suspect is marked");
    let mut others = before.claims.into_iter().chain(after.claims);
    assert!(others.all(|claim| !is_suspected(claim)), "the others are not");
}

/// A relay that lived to settle the row clears it of suspicion, where the table can tell.
pub async fn a_suspect_that_was_sent_back_by_a_settle_is_a_suspect_no_more<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("cleared")]).await;
    crash_on(&fixture, "cleared").await;
    crash_on(&fixture, "cleared").await;
    let suspect = claim(&fixture.store(), 10).await.claims.pop().expect("the suspect is due");
    settle(&fixture.store(), vec![retry(suspect, Duration::from_millis(100))]).await;
    fixture.make_due("cleared").await;

    let claim = claim(&fixture.store(), 10).await.claims.pop().expect("the row is due again");

    if fixture.capabilities().full_table {
        assert!(!is_suspected(claim));
    } else {
        // Without `last_outcome` nobody can tell a retry from a sweep; caution is the right side to err on.
        settle(&fixture.store(), vec![sent(claim)]).await;
        assert_sent(&fixture, "cleared").await;
    }
}

/// Rows locked by others are skipped; where a lock covers the table, the sweep is contended and changes nothing.
pub async fn a_locked_expired_row_does_not_hold_up_the_sweep<F: StoreFixture>() {
    let fixture = with_expired::<F>(&["a", "b"]).await;
    let lock = fixture.lock("a").await;
    let store = fixture.store();

    if fixture.capabilities().skip_locked {
        let swept = within(PATIENCE, sweep(&store, 10, DELAY)).await;

        assert_eq!(swept.returned, 1);
        fixture.unlock(lock).await;
        assert_eq!(row(&fixture, "a").await.status, "SENDING");
    } else {
        let refused = within(PATIENCE, store.sweep(10, DELAY, ATTEMPTS_MAX)).await;

        assert!(matches!(refused, Err(StoreError::Contended(_))), "{refused:?}");
        fixture.unlock(lock).await;
        assert_eq!(row(&fixture, "b").await.status, "SENDING");
        assert_eq!(sweep(&store, 10, DELAY).await.returned, 2);
    }
}

/// Any relay may sweep; all at once they sweep every row once.
pub async fn many_sweepers_sweep_every_row_once<F: StoreFixture>() {
    const SWEEPERS: usize = 4;
    let names: Vec<String> = (0..40).map(|number| format!("event-{number:02}")).collect();
    let fixture = with_expired::<F>(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let barrier = Arc::new(Barrier::new(SWEEPERS));
    let mut sweepers = JoinSet::new();
    for _ in 0..SWEEPERS {
        let (store, barrier) = (fixture.another_store().await, Arc::clone(&barrier));
        sweepers.spawn(async move {
            barrier.wait().await;
            let mut total = 0;
            loop {
                let swept = sweep(&store, 7, DELAY).await;
                if swept == Swept::default() {
                    return total;
                }
                total += swept.returned;
            }
        });
    }

    let total: u32 = within(PATIENCE, sweepers.join_all()).await.iter().sum();
    let rest = sweep(&fixture.store(), 100, DELAY).await.returned;

    assert_eq!(total + rest, 40);
    assert_eq!(row(&fixture, "event-00").await.attempts, 1);
}
