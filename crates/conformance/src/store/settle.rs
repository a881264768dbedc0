//! Settles.

use std::time::Duration;

use consign_core::lease::Claim;
use consign_core::settle::{SettleBatch, Settled};

use super::request::{claim, settle, settle_batch};
use super::settlement::{retry, sent};
use super::{NewRow, StoreFixture, insert_all, row};

/// How far a delay may be off: the statement's own time and the reading's.
const TOLERANCE_MILLIS: i64 = 5_000;
const DELAY: Duration = Duration::from_mins(1);

async fn claim_one<F: StoreFixture>(fixture: &F) -> Claim {
    claim(&fixture.store(), 1).await.claims.pop().expect("a row is due")
}

async fn with_one_claim<F: StoreFixture>() -> (F, Claim) {
    let fixture = F::fresh().await;
    insert_all(&fixture, [NewRow::new("event")]).await;
    let claim = claim_one(&fixture).await;
    (fixture, claim)
}

fn assert_due_after_delay(due_in_millis: i64) {
    let wanted = i64::try_from(DELAY.as_millis()).expect("a short delay");
    assert!((wanted - TOLERANCE_MILLIS..=wanted).contains(&due_in_millis), "due in {due_in_millis} ms");
}

/// Sent: the row ends as SENT and its lease is cleared, or it is gone.
pub async fn sent_ends_the_row<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;

    let answers = settle(&fixture.store(), vec![sent(claim)]).await;

    assert_eq!(answers, [Settled::Applied]);
    assert_sent(&fixture, "event").await;
    if fixture.capabilities().keeps_sent {
        let stored = row(&fixture, "event").await;
        assert_eq!(stored.attempts, 1);
        assert_eq!((stored.token, stored.leased), (None, false));
    }
}

/// The row is SENT, or gone where the store keeps no sent rows.
pub(super) async fn assert_sent<F: StoreFixture>(fixture: &F, id: &str) {
    let stored = fixture.row(id).await.map(|row| row.status);
    let wanted = fixture.capabilities().keeps_sent.then_some("SENT");
    assert_eq!(stored.as_deref(), wanted, "row {id:?}");
}

/// Retry: NEW again, due after the delay, and the attempt counts.
pub async fn retry_keeps_the_attempt_and_waits_for_the_delay<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;

    let answers = settle(&fixture.store(), vec![retry(claim, DELAY)]).await;

    assert_eq!(answers, [Settled::Applied]);
    let stored = row(&fixture, "event").await;
    assert_eq!((stored.status.as_str(), stored.attempts), ("NEW", 1));
    assert_eq!((stored.token, stored.leased), (None, false));
    assert_due_after_delay(stored.due_in_millis);
    if fixture.capabilities().full_table {
        assert!(stored.last_error.is_some_and(|error| error.contains("NO_ROUTE")));
    }
}

/// Release: NEW again, due after the delay, and the attempt is given back.
pub async fn release_gives_the_attempt_back<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;

    let answers = settle(&fixture.store(), vec![claim.release(DELAY, "broker down")]).await;

    assert_eq!(answers, [Settled::Applied]);
    let stored = row(&fixture, "event").await;
    assert_eq!((stored.status.as_str(), stored.attempts), ("NEW", 0));
    assert_eq!((stored.token, stored.leased), (None, false));
    assert_due_after_delay(stored.due_in_millis);
    if fixture.capabilities().full_table {
        assert!(stored.last_error.is_some_and(|error| error.contains("broker down")));
    }
}

/// Dead: the row ends as DEAD with its reason, and its attempt counts.
pub async fn dead_keeps_its_reason<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;

    let answers = settle(&fixture.store(), vec![claim.dead("body too large")]).await;

    assert_eq!(answers, [Settled::Applied]);
    let stored = row(&fixture, "event").await;
    assert_eq!((stored.status.as_str(), stored.attempts), ("DEAD", 1));
    assert_eq!((stored.token, stored.leased), (None, false));
    if fixture.capabilities().full_table {
        assert!(stored.last_error.is_some_and(|error| error.contains("body too large")));
    }
}

async fn claimed_again<F: StoreFixture>(fixture: &F) -> Claim {
    let store = fixture.store();
    fixture.expire_lease("event").await;
    super::sweep::sweep(&store, 10, Duration::ZERO).await;
    fixture.make_due("event").await;
    claim_one(fixture).await
}

/// A row that no longer carries its token is fenced and untouched, whichever way it was to go.
/// Case B01 (`xavierjohn/Trellis#644`): a slow relay settles under a lease that another one took over.
pub async fn an_old_token_is_fenced_and_changes_nothing<F: StoreFixture>() {
    type Way = fn(Claim) -> consign_core::settle::Settlement;
    let ways: [(&str, Way); 4] = [
        ("sent", sent),
        ("retry", |claim| retry(claim, DELAY)),
        ("release", |claim| claim.release(DELAY, "late")),
        ("dead", |claim| claim.dead("late")),
    ];
    for (name, way) in ways {
        let (fixture, old) = with_one_claim::<F>().await;
        let current = claimed_again(&fixture).await;
        let before = row(&fixture, "event").await;

        let answers = settle(&fixture.store(), vec![way(old)]).await;

        assert_eq!(answers, [Settled::Fenced], "{name}");
        let after = row(&fixture, "event").await;
        assert_eq!((&after.status, after.attempts), (&before.status, before.attempts), "{name}");
        assert_eq!((&after.token, &after.last_error), (&before.token, &before.last_error), "{name}");
        assert_eq!(settle(&fixture.store(), vec![sent(current)]).await, [Settled::Applied], "{name}");
    }
}

/// A late settle changes nothing once the row was settled by its new owner.
/// Case B64 (`Particular/ServiceControl#5812`): the last write must not win over the right one.
pub async fn a_late_settle_does_not_undo_a_later_one<F: StoreFixture>() {
    let (fixture, old) = with_one_claim::<F>().await;
    let current = claimed_again(&fixture).await;
    settle(&fixture.store(), vec![current.dead("refused for good")]).await;

    let answers = settle(&fixture.store(), vec![sent(old)]).await;

    assert_eq!(answers, [Settled::Fenced]);
    assert_eq!(row(&fixture, "event").await.status, "DEAD");
}

/// May be repeated after a lost answer: rows stand where the first try put them.
pub async fn a_repeated_settle_is_already_applied<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, ["a", "b", "c", "d"].map(NewRow::new)).await;
    let store = fixture.store();
    let mut claims = claim(&store, 4).await.claims.into_iter();
    let mut next = || claims.next().expect("four rows are due");
    let settlements =
        vec![sent(next()), retry(next(), DELAY), next().release(DELAY, ""), next().dead("refused for good")];
    let first = SettleBatch { settlements, repeat: false };
    assert_eq!(settle_batch(&store, &first).await, [Settled::Applied; 4]);

    let repeat = SettleBatch { settlements: first.settlements, repeat: true };
    let answers = settle_batch(&store, &repeat).await;

    assert_eq!(answers, [Settled::AlreadyApplied; 4]);
    assert_sent(&fixture, "a").await;
    let [b, c, d] = ["b", "c", "d"].map(|id| row_attempts(&fixture, id));
    assert_eq!((b.await, c.await, d.await), (1, 0, 1), "nothing is counted twice");
}

async fn row_attempts<F: StoreFixture>(fixture: &F, id: &str) -> u32 {
    row(fixture, id).await.attempts
}

/// A repeat finds the row in other hands: fenced, whatever became of the first try.
pub async fn a_repeated_settle_after_another_claim_is_fenced<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;
    let first = SettleBatch { settlements: vec![claim.release(Duration::ZERO, "")], repeat: false };
    settle_batch(&fixture.store(), &first).await;
    fixture.make_due("event").await;
    let current = claim_one(&fixture).await;
    let before = row(&fixture, "event").await;

    let repeat = SettleBatch { settlements: first.settlements, repeat: true };
    let answers = settle_batch(&fixture.store(), &repeat).await;

    assert_eq!(answers, [Settled::Fenced]);
    assert_eq!(row(&fixture, "event").await.token, before.token);
    assert_eq!(settle(&fixture.store(), vec![sent(current)]).await, [Settled::Applied]);
}

/// Only a repeat may take a settled row for its own work.
pub async fn a_first_settle_of_a_settled_row_is_fenced<F: StoreFixture>() {
    let (fixture, old) = with_one_claim::<F>().await;
    let current = claimed_again(&fixture).await;
    settle(&fixture.store(), vec![sent(current)]).await;

    let answers = settle(&fixture.store(), vec![sent(old)]).await;

    assert_eq!(answers, [Settled::Fenced]);
}

/// The answers are in the order of the batch, whatever the store sorts by.
pub async fn a_mixed_batch_is_answered_in_its_order<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, ["a", "b", "c", "d", "e"].map(NewRow::new)).await;
    let store = fixture.store();
    let mut claims = claim(&store, 5).await.claims;
    fixture.expire_lease("d").await;
    super::sweep::sweep(&store, 10, DELAY).await;

    let mut take = |id: &str| {
        let at = claims.iter().position(|claim| claim.event().id.as_str() == id).expect("the row is due");
        claims.swap_remove(at)
    };
    let batch = vec![
        take("e").dead("refused for good"),
        sent(take("d")),
        retry(take("b"), DELAY),
        sent(take("a")),
        take("c").release(DELAY, ""),
    ];
    let answers = settle(&store, batch).await;

    let applied = Settled::Applied;
    assert_eq!(answers, [applied, Settled::Fenced, applied, applied, applied]);
    assert_sent(&fixture, "a").await;
    for (id, status, attempts) in [("b", "NEW", 1), ("c", "NEW", 0), ("d", "NEW", 1), ("e", "DEAD", 1)] {
        let stored = row(&fixture, id).await;
        assert_eq!((stored.status.as_str(), stored.attempts), (status, attempts), "row {id}");
    }
}

/// A row that somebody deleted is fenced; its neighbours are settled.
pub async fn a_settle_of_a_vanished_row_is_fenced<F: StoreFixture>() {
    let fixture = F::fresh().await;
    insert_all(&fixture, ["gone", "here"].map(NewRow::new)).await;
    let claims = claim(&fixture.store(), 2).await.claims;
    fixture.delete("gone").await;

    let batch = claims.into_iter().map(sent).collect::<Vec<_>>();
    let order: Vec<String> = batch.iter().map(|settlement| settlement.id().as_str().to_owned()).collect();
    let answers = settle(&fixture.store(), batch).await;

    for (id, answer) in order.iter().zip(answers) {
        let wanted = if id == "gone" { Settled::Fenced } else { Settled::Applied };
        assert_eq!(answer, wanted, "row {id}");
    }
    assert_sent(&fixture, "here").await;
}

/// A batch of any size is one unit: 700 rows settle together, some of them fenced.
pub async fn a_large_batch_settles_whole<F: StoreFixture>() {
    const ROWS: u32 = 700;
    let fixture = F::fresh().await;
    insert_all(&fixture, (0..ROWS).map(|number| NewRow::new(format!("event-{number:03}")))).await;
    let store = fixture.store();
    let claims = claim(&store, ROWS).await.claims;
    assert_eq!(claims.len(), 700);
    for id in ["event-007", "event-333"] {
        fixture.delete(id).await;
    }

    let answers = settle(&store, claims.into_iter().map(sent).collect()).await;

    assert_eq!(answers.len(), 700);
    assert_eq!(answers.iter().filter(|answer| **answer == Settled::Fenced).count(), 2);
    for id in ["event-000", "event-699"] {
        assert_sent(&fixture, id).await;
    }
}

/// What a broker says never fails a settle, however long and odd it is.
/// Cases B50 (`Open-Web-Analytics/Open-Web-Analytics#1032`) and B51 (`xibosignage/xibo#2702`).
pub async fn an_endless_reason_never_fails_a_settle<F: StoreFixture>() {
    let (fixture, claim) = with_one_claim::<F>().await;

    let reason = "r\u{e9}fus\u{e9} \u{1f6ab}\0".repeat(100_000);
    let answers = settle(&fixture.store(), vec![claim.dead(reason)]).await;

    assert_eq!(answers, [Settled::Applied]);
    let stored = row(&fixture, "event").await;
    assert_eq!(stored.status, "DEAD");
    if fixture.capabilities().full_table {
        assert!(stored.last_error.is_some_and(|error| error.starts_with("r\u{e9}fus\u{e9} ")));
    }
}
