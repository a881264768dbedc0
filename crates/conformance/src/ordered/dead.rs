//! What a DEAD row means for those behind it.

use std::collections::BTreeSet;

use consign_core::relay::DeadHead;

use super::{OrderedFixture, OrderedRow, rows, send_all};
use crate::store::request::{claim, ids, settle};

/// Behind a DEAD row everything waits until people decide.
pub async fn a_dead_row_blocks_its_aggregate_and_no_other<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Block).await;
    fixture.append(&[OrderedRow::new("dead", "1").status("DEAD")]).await;
    fixture.append(&rows("1", 0..2)).await;
    fixture.append(&rows("2", 0..2)).await;

    let claimed = claim(&store, 10).await;

    assert_eq!(ids(&claimed), ["2-0000", "2-0001"]);
    for row in ["1-0000", "1-0001"] {
        let due = fixture.due_in_millis(row).await;
        assert!((20_000..40_000).contains(&due), "{row} is looked at again in {due} ms");
    }
}

/// The policy `skip`: the others go on.
pub async fn a_dead_row_is_skipped_where_the_policy_says_so<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Skip).await;
    fixture.append(&[OrderedRow::new("dead", "1").status("DEAD")]).await;
    fixture.append(&rows("1", 0..2)).await;

    assert_eq!(ids(&claim(&store, 10).await), ["1-0000", "1-0001"]);
}

/// An operator requeues one of two DEAD rows: it goes, and what is behind the other one stays.
pub async fn a_requeued_row_goes_before_those_it_blocked<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Block).await;
    fixture.append(&rows("1", 0..4)).await;
    for id in ["1-0000", "1-0002"] {
        fixture.set_status(id, "DEAD").await;
    }
    assert!(ids(&claim(&store, 10).await).is_empty());
    for id in ["1-0001", "1-0003"] {
        fixture.set_due(id, -1000).await;
    }

    fixture.set_status("1-0000", "NEW").await;

    let claimed = claim(&store, 10).await;
    assert_eq!(ids(&claimed), ["1-0000", "1-0001"]);
    send_all(&store, claimed).await;
    assert!(ids(&claim(&store, 10).await).is_empty(), "the other one still blocks");
}

/// Put aside is finished.
pub async fn a_discarded_row_blocks_nothing<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Block).await;
    fixture.append(&[OrderedRow::new("aside", "1").status("DISCARDED")]).await;
    fixture.append(&rows("1", 0..1)).await;

    assert_eq!(ids(&claim(&store, 10).await), ["1-0000"]);
}

/// A row that can never be published is as good as DEAD.
pub async fn a_malformed_row_sends_back_what_is_behind_it<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Block).await;
    append_malformed(&fixture).await;

    let claimed = claim(&store, 10).await;

    let mut taken = ids(&claimed);
    taken.sort_unstable();
    assert_eq!(taken, ["1-0000", "2-0000"]);
    assert_eq!(claimed.malformed.len(), 2);
    settle(&store, claimed.malformed).await;
    assert_eq!(fixture.status("bad").await, "DEAD");
    assert_eq!(fixture.status("1-0001").await, "NEW");
    assert!(fixture.due_in_millis("1-0001").await > 20_000);
}

/// The policy `skip`: those behind it come with it.
pub async fn a_malformed_row_is_skipped_where_the_policy_says_so<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Skip).await;
    append_malformed(&fixture).await;

    let claimed = claim(&store, 10).await;

    let mut taken = ids(&claimed);
    taken.sort_unstable();
    assert_eq!(taken, ["1-0000", "1-0001", "2-0000"]);
    assert_eq!(claimed.malformed.len(), 1);
}

async fn append_malformed<F: OrderedFixture>(fixture: &F) {
    fixture.append(&rows("1", 0..1)).await;
    fixture.append(&[OrderedRow { attempts: -5, ..OrderedRow::new("bad", "1") }]).await;
    fixture.append(&rows("1", 1..2)).await;
    fixture.append(&rows("2", 0..1)).await;
}

/// 1,000 healthy aggregates are claimed within few claims, although 600 rows of a blocked one are due before them.
pub async fn healthy_aggregates_behind_a_blocked_one_are_claimed<F: OrderedFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store(DeadHead::Block).await;
    fixture.append(&[OrderedRow::new("dead", "1").status("DEAD")]).await;
    let blocked: Vec<_> = rows("1", 0..600).into_iter().map(|row| row.due_in_millis(-60_000)).collect();
    fixture.append(&blocked).await;
    let healthy: Vec<_> = (0..1000)
        .map(|number| OrderedRow::new(format!("h-{number:04}"), (number + 10).to_string()))
        .collect();
    fixture.append(&healthy).await;

    let mut claimed = BTreeSet::new();
    for _ in 0..6 {
        claimed.extend(ids(&claim(&store, 500).await).into_iter().map(str::to_owned));
    }

    assert_eq!(claimed.len(), 1000);
    assert!(claimed.iter().all(|id| id.starts_with("h-")));
}
