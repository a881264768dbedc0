//! What an ordered claim takes.

use std::time::Duration;

use consign_core::ports::OutboxStore;
use consign_core::relay::DeadHead;

use super::{OrderedFixture, OrderedRow, rows, send_all};
use crate::store::request::{claim, ids, settle};

const BLOCK: DeadHead = DeadHead::Block;

/// The head and its followers come in one claim, in their order, whatever their ids and dates.
pub async fn a_chain_is_claimed_together_in_order<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    fixture
        .append(&[
            OrderedRow::new("c", "1").due_in_millis(-1000),
            OrderedRow::new("x", "2").due_in_millis(-2000),
            OrderedRow::new("a", "1").due_in_millis(-5000),
            OrderedRow::new("b", "1").due_in_millis(-3000),
        ])
        .await;

    let claimed = claim(&fixture.store(BLOCK).await, 10).await;

    let mine: Vec<&str> = ids(&claimed).into_iter().filter(|id| *id != "x").collect();
    assert_eq!(mine, ["c", "a", "b"]);
    assert_eq!(claimed.claims.len(), 4);
}

/// While a row is SENDING its aggregate waits; when it is SENT the next one comes.
pub async fn nothing_is_claimed_behind_a_row_that_is_sending<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let (store, other) = (fixture.store(BLOCK).await, fixture.store(BLOCK).await);
    fixture.append(&rows("1", 0..3)).await;

    let first = claim(&store, 1).await;
    assert_eq!(ids(&first), ["1-0000"]);
    fixture.append(&rows("2", 0..1)).await;
    let beside = claim(&other, 10).await;
    assert_eq!(ids(&beside), ["2-0000"], "another aggregate is not held up");
    send_all(&store, first).await;

    assert_eq!(ids(&claim(&other, 10).await), ["1-0001", "1-0002"]);
}

/// A head that waits is not overtaken, and its followers wait as long as it does.
pub async fn a_head_that_is_not_due_holds_up_its_own_aggregate_only<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    fixture.append(&rows("1", 0..3)).await;
    fixture.set_due("1-0000", 60_000).await;
    fixture.append(&rows("2", 0..2)).await;

    let claimed = claim(&store, 10).await;

    assert_eq!(ids(&claimed), ["2-0000", "2-0001"]);
    for follower in ["1-0001", "1-0002"] {
        let due = fixture.due_in_millis(follower).await;
        assert!((50_000..70_000).contains(&due), "{follower} is due in {due} ms");
    }
    for row in ["1-0000", "1-0001", "1-0002"] {
        fixture.set_due(row, -1000).await;
    }
    assert_eq!(ids(&claim(&store, 10).await), ["1-0000", "1-0001", "1-0002"]);
}

/// A chain has no gaps.
pub async fn a_chain_ends_before_a_row_that_is_not_due<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    fixture.append(&rows("1", 0..4)).await;
    fixture.set_due("1-0002", 60_000).await;

    let claimed = claim(&store, 10).await;

    assert_eq!(ids(&claimed), ["1-0000", "1-0001"]);
    send_all(&store, claimed).await;
    assert!(ids(&claim(&store, 10).await).is_empty());
    assert!(fixture.due_in_millis("1-0003").await > 50_000, "it waits for the one before it");
}

/// As after a retry of the head: more followers are due before it than a claim looks at.
pub async fn a_head_that_became_due_after_its_followers_is_claimed_before_them<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    fixture.append(&rows("1", 0..100)).await;
    fixture.set_due("1-0000", -1000).await;

    let claimed = claim(&store, 10).await;

    let expected: Vec<String> = (0..10).map(|number| format!("1-{number:04}")).collect();
    assert_eq!(ids(&claimed), expected);
}

/// Rows without an aggregate are claimed freely, also beside one that is SENDING or DEAD.
pub async fn rows_without_an_aggregate_have_no_order<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let free = |id: &str| OrderedRow { aggregate: None, ..OrderedRow::new(id, "") };
    fixture
        .append(&[free("dead").status("DEAD"), free("later").due_in_millis(60_000), free("a"), free("b")])
        .await;
    let store = fixture.store(BLOCK).await;

    let first = claim(&store, 1).await;
    fixture.append(&[free("c")]).await;
    let second = claim(&store, 10).await;

    assert_eq!(first.claims.len(), 1);
    assert_eq!(second.claims.len(), 2, "{:?}", ids(&second));
}

/// Keys that differ by case, by a space at the end or by the type are different aggregates; where keys are numbers, one
/// number is one aggregate, however it was written.
pub async fn aggregates_are_told_apart_by_every_byte_of_their_keys<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    let typed = |id: &str, kind: Option<&str>, aggregate: &str| OrderedRow {
        kind: kind.map(str::to_owned),
        ..OrderedRow::new(id, aggregate)
    };
    if F::FULL {
        let first = [
            typed("upper", Some("order"), "A1"),
            typed("lower", Some("order"), "a1"),
            typed("space", Some("order"), "a1 "),
            typed("untyped", None, "a1"),
            typed("other", Some("Order"), "a1"),
        ];
        fixture.append(&first).await;
        fixture.append(&[typed("again", Some("order"), "a1"), typed("again untyped", None, "a1")]).await;

        let claimed = claim(&store, 5).await;
        assert_eq!(claimed.claims.len(), 5, "the first of each: {:?}", ids(&claimed));
        assert!(ids(&claim(&store, 10).await).is_empty());
        send_all(&store, claimed).await;
        assert_eq!(claim(&store, 10).await.claims.len(), 2);
    } else {
        fixture.append(&[OrderedRow::new("first", "7"), OrderedRow::new("second", "007")]).await;

        assert_eq!(ids(&claim(&store, 1).await), ["first"]);
        assert!(ids(&claim(&store, 10).await).is_empty());
    }
}

/// Every aggregate's first row comes before anyone's second one.
pub async fn a_limit_cuts_the_ends_of_chains<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    fixture.append(&rows("1", 0..4)).await;
    fixture.append(&rows("2", 0..4)).await;

    let claimed = claim(&store, 5).await;

    let mut sorted = ids(&claimed);
    sorted.sort_unstable();
    assert_eq!(sorted, ["1-0000", "1-0001", "1-0002", "2-0000", "2-0001"]);
    assert!(claimed.more);
}

/// A relay was killed in the middle of a chain: as long as one row of it is SENDING, nothing of it is claimed.
pub async fn a_swept_chain_waits_until_all_of_it_is_swept<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let (killed, store) = (fixture.store(BLOCK).await, fixture.store(BLOCK).await);
    fixture.append(&rows("1", 0..3)).await;
    let mut chain = claim(&killed, 10).await;
    let rest = chain.claims.split_off(1);
    send_all(&killed, chain).await;
    assert_eq!(rest.len(), 2);
    for id in ["1-0001", "1-0002"] {
        fixture.expire_lease(id).await;
    }

    let first = store.sweep(1, Duration::ZERO, 20).await.expect("the sweep succeeds");
    let between = claim(&store, 10).await;
    store.sweep(1, Duration::ZERO, 20).await.expect("the sweep succeeds");
    let after = claim(&store, 10).await;

    assert_eq!(first.returned, 1);
    assert!(ids(&between).is_empty(), "{:?}", ids(&between));
    assert_eq!(ids(&after), ["1-0001", "1-0002"]);
}

/// Rows that go back keep their places.
pub async fn a_chain_given_back_comes_again_in_order<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(BLOCK).await;
    fixture.append(&rows("1", 0..3)).await;
    let claimed = claim(&store, 10).await;

    let back = claimed.claims.into_iter().rev().map(|claim| claim.release(Duration::ZERO, "")).collect();
    settle(&store, back).await;

    assert_eq!(ids(&claim(&store, 10).await), ["1-0000", "1-0001", "1-0002"]);
}
