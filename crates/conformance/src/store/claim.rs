//! Claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consign_core::ports::{OutboxStore, StoreError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::request::{claim, claim_as, ids, request, request_with_bytes, settle};
use super::{NewRow, StoreFixture, insert_all, row};
use crate::waiting::within;

const PATIENCE: Duration = Duration::from_secs(30);

/// NEW rows whose `available_at` has come, oldest first.
pub async fn a_claim_takes_the_oldest_due_rows_first<F: StoreFixture>() {
    let fixture = F::fresh().await;
    // Neither the order of insertion nor that of the ids is the order of time.
    let due = [("b", -1000), ("d", -4000), ("a", -2000), ("c", -3000)];
    insert_all(&fixture, due.map(|(id, millis)| NewRow::new(id).due_in_millis(millis * 60))).await;

    let claimed = claim(&fixture.store(), 3).await;

    assert_eq!(ids(&claimed), ["d", "c", "a"]);
}

/// At most `limit` rows; `more` tells whether to come again at once.
pub async fn a_claim_takes_at_most_its_limit_and_says_that_more_are_due<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, (0..5).map(|number| NewRow::new(format!("event-{number}")))).await;

    let first = claim(&fixture.store(), 3).await;
    let second = claim(&fixture.store(), 3).await;

    assert_eq!((first.claims.len(), first.more), (3, true));
    assert_eq!((second.claims.len(), second.more), (2, false));
}

/// Each becomes SENDING under the request's token with its attempts raised by one.
pub async fn a_claim_writes_status_token_and_attempt<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let tried = NewRow { attempts: 1, ..NewRow::new("tried") };
    insert_all(&fixture, [NewRow::new("fresh"), tried]).await;

    let asked = request(10);
    let token = asked.token().to_hex();
    let claimed = fixture.store().claim(asked).await.expect("the claim succeeds");

    assert_eq!(claimed.claims.len(), 2);
    for (id, attempts) in [("fresh", 1), ("tried", 2)] {
        let stored = row(&fixture, id).await;
        assert_eq!(stored.status, "SENDING");
        assert_eq!(stored.attempts, attempts);
        assert_eq!(stored.token.as_deref(), Some(token.as_str()));
        assert!(stored.leased, "locked_until is set");
    }
}

/// A new token for every claim, also for the same row and the same store.
pub async fn every_claim_writes_its_own_token<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("event")]).await;
    let store = fixture.store();
    let mut tokens = BTreeSet::new();

    for _ in 0..3 {
        let mut claimed = claim(&store, 1).await;
        tokens.insert(row(&fixture, "event").await.token.expect("a claimed row has a token"));
        let claim = claimed.claims.pop().expect("the row is due");
        settle(&store, vec![claim.release(Duration::ZERO, "")]).await;
    }

    assert_eq!(tokens.len(), 3);
}

/// Rows whose `available_at` has not come are left alone.
pub async fn rows_of_the_future_wait<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("later").due_in_millis(60_000), NewRow::new("now")]).await;

    let claimed = claim(&fixture.store(), 10).await;

    assert_eq!(ids(&claimed), ["now"]);
    assert!(!claimed.more);
    let later = row(&fixture, "later").await;
    assert_eq!((later.status.as_str(), later.attempts), ("NEW", 0));
    fixture.make_due("later").await;
    assert_eq!(ids(&claim(&fixture.store(), 10).await), ["later"]);
}

/// Only NEW is claimed, whatever `available_at` says.
pub async fn rows_that_are_not_new_are_never_claimed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let ended = ["SENT", "DEAD", "DISCARDED"];
    insert_all(&fixture, ended.map(|status| NewRow { status, ..NewRow::new(status) })).await;

    let claimed = claim(&fixture.store(), 10).await;

    assert!(ids(&claimed).is_empty());
    for status in ended {
        assert_eq!(row(&fixture, status).await.status, status);
    }
}

/// Nothing due is no error.
pub async fn an_empty_table_gives_an_empty_claim<F: StoreFixture>() {
    let fixture = F::fresh().await;

    let claimed = claim(&fixture.store(), 10).await;

    assert!(claimed.claims.is_empty() && claimed.malformed.is_empty() && !claimed.more);
}

/// Rows locked by others are skipped; where a lock covers the table, the claim is contended and owns nothing.
/// Case B02 (`OneUptime/oneuptime#3117`): one claimed row must not starve every other claimer.
pub async fn a_locked_row_does_not_hold_up_the_others<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, ["a", "b", "c"].map(NewRow::new)).await;
    let lock = fixture.lock("a").await;
    let store = fixture.store();

    if fixture.capabilities().skip_locked {
        let claimed = within(PATIENCE, claim(&store, 10)).await;

        assert_eq!(ids(&claimed), ["b", "c"]);
        fixture.unlock(lock).await;
    } else {
        let refused = within(PATIENCE, store.claim(request(10))).await;

        assert!(matches!(refused, Err(StoreError::Contended(_))), "{refused:?}");
        fixture.unlock(lock).await;
        assert_eq!(row(&fixture, "b").await.status, "NEW");
        assert_eq!(ids(&claim(&store, 10).await), ["a", "b", "c"]);
    }
}

/// Two claims never return the same row.
pub async fn two_claimers_share_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, (0..10).map(|number| NewRow::new(format!("event-{number}")))).await;
    let other = fixture.another_store().await;

    let first = claim(&fixture.store(), 5).await;
    let second = claim(&other, 10).await;

    let mut all = ids(&first);
    all.extend(ids(&second));
    assert_eq!(all.len(), 10);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10);
}

/// Eight relays, started together, claim every row exactly once between them.
/// Case B03 (`dotnetcore/CAP#1257`): instances that start together must not each send the same rows.
pub async fn many_claimers_claim_every_row_once<F: StoreFixture>() {
    all_claimed_once::<F>(0).await;
}

/// The same with rows that were tried before: retries have no path of their own that could forget to claim.
/// Case B03 (`dotnetcore/CAP#1390`).
pub async fn a_row_with_a_retry_behind_it_is_claimed_once_by_eight_relays<F: StoreFixture>() {
    all_claimed_once::<F>(1).await;
}

async fn all_claimed_once<F: StoreFixture>(attempts: u32) {
    const CLAIMERS: usize = 8;
    const ROWS: usize = 200;
    let fixture = F::fresh().await;
    let rows = (0..ROWS).map(|number| NewRow { attempts, ..NewRow::new(format!("event-{number:03}")) });
    insert_all(&fixture, rows).await;
    let barrier = Arc::new(Barrier::new(CLAIMERS));
    let mut claimers = JoinSet::new();
    for _ in 0..CLAIMERS {
        let (store, barrier) = (fixture.another_store().await, Arc::clone(&barrier));
        claimers.spawn(async move {
            let mut mine = Vec::new();
            barrier.wait().await;
            // A claim may come back empty while its rows are locked by others, so only the total ends it.
            loop {
                let claimed = claim(&store, 7).await;
                if claimed.claims.is_empty() && !claimed.more {
                    return mine;
                }
                mine.extend(ids(&claimed).into_iter().map(str::to_owned));
            }
        });
    }

    let mut all = within(PATIENCE, claimers.join_all()).await.concat();
    // Rows that every claimer skipped, because another one held them at that moment, are still NEW.
    let rest = claim(&fixture.store(), u32::try_from(ROWS).expect("a small number")).await;
    all.extend(ids(&rest).into_iter().map(str::to_owned));

    assert_eq!(all.len(), ROWS, "no row is claimed twice");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), ROWS, "every row is claimed");
    assert_eq!(row(&fixture, "event-000").await.attempts, attempts + 1);
}

/// At most `bytes_max` payload bytes per claim; the rest stays NEW and is told by `more`.
pub async fn a_claim_reads_at_most_its_bytes<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let payload = format!("\"{}\"", "x".repeat(10_000));
    let big = |id: &str, millis| NewRow::new(id).with_payload(payload.clone()).due_in_millis(millis);
    insert_all(&fixture, [big("a", -4000), big("b", -3000), big("c", -2000), big("d", -1000)]).await;

    let claimed = claim_as(&fixture.store(), || request_with_bytes(10, 25_000)).await;

    assert_eq!(ids(&claimed), ["a", "b"]);
    assert!(claimed.more);
    let waiting = row(&fixture, "c").await;
    assert_eq!((waiting.status.as_str(), waiting.attempts, waiting.token), ("NEW", 0, None));
}

/// But always at least one row, or it would wait for ever.
pub async fn a_row_larger_than_the_byte_limit_is_claimed_alone<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let payload = format!("\"{}\"", "x".repeat(10_000));
    let big = NewRow::new("big").with_payload(payload).due_in_millis(-2000);
    insert_all(&fixture, [big, NewRow::new("small")]).await;

    let first = claim_as(&fixture.store(), || request_with_bytes(10, 100)).await;
    let second = claim(&fixture.store(), 10).await;

    assert_eq!((ids(&first), first.more), (vec!["big"], true));
    assert_eq!(ids(&second), ["small"]);
}

/// A row that cannot be decoded comes back as malformed, to be settled DEAD, and its neighbours are claimed.
/// Case B93 (`watt-mind/factory#1479`): one unreadable row at the head must not stop everything behind it.
pub async fn a_malformed_row_hinders_nobody<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut rows = vec![NewRow::new("").due_in_millis(-3000), NewRow::new("fine")];
    let mut broken = vec![""];
    if fixture.capabilities().full_table {
        rows.push(NewRow { headers: Some("[1]".into()), ..NewRow::new("headers").due_in_millis(-2000) });
        broken.push("headers");
    }
    insert_all(&fixture, rows).await;
    let store = fixture.store();

    let claimed = claim(&store, 10).await;

    assert_eq!(ids(&claimed), ["fine"]);
    let malformed: BTreeSet<&str> = claimed.malformed.iter().map(|row| row.id().as_str()).collect();
    assert_eq!(malformed, broken.iter().copied().collect());
    settle(&store, claimed.malformed).await;
    for id in broken {
        assert_eq!(row(&fixture, id).await.status, "DEAD");
    }
}
