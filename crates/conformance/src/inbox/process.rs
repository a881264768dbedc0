//! What processing comes to.

use std::collections::BTreeMap;

use consign_core::event::EventId;
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::{Compared, Comparison, EarlierComparison, Operation};
use consign_core::ports::{InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;

use super::InboxFixture;
use super::story::{AWARD, Award, CONSUMER, Fates, USER, award, process, processed, with_account};

/// Applied once; every repeat is a duplicate without an effect.
pub async fn a_first_delivery_is_applied_and_a_repeat_is_a_duplicate<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();

    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Duplicate);
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Duplicate);

    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100, 1));
    assert!(fixture.conflicts().await.is_empty());
}

/// Re-wrapped under a new event id it is the same operation.
pub async fn the_same_fact_under_another_event_id_is_a_duplicate<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let rewrapped = Operation { event_id: Some(EventId::stored("another-event")), ..award("42", 100) };

    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
    assert_eq!(processed(&store, &rewrapped, &Award(100)).await, Processed::Duplicate);

    assert_eq!(fixture.points(USER).await, 100);
}

/// With another amount it is a conflict: nothing is changed, the conflict is recorded.
pub async fn another_comparison_under_the_same_key_is_a_conflict<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();

    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
    assert_eq!(processed(&store, &award("42", 999), &Award(999)).await, Processed::Conflict);

    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100, 1));
    let conflicts = fixture.conflicts().await;
    assert_eq!(conflicts.len(), 1);
    assert_eq!((conflicts[0].consumer.as_str(), conflicts[0].count), (CONSUMER, 1));
    assert_eq!(conflicts[0].business_key, "order:42:paid");
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Duplicate);
}

/// A second consumer handles the same key on its own.
pub async fn two_consumers_apply_the_same_event_each_on_its_own<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let sms = Operation { consumer: "sms".into(), ..award("42", 100) };

    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
    assert_eq!(processed(&store, &sms, &Award(1)).await, Processed::Applied);

    assert_eq!((fixture.markers(CONSUMER).await, fixture.markers("sms").await), (1, 1));
    assert_eq!(fixture.points(USER).await, 101);
}

/// The committed marker can be read back: event id, and comparison columns by name.
pub async fn the_marker_holds_the_event_and_the_comparison<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let operation = award("42", 100);
    assert_eq!(store.marker(&operation).await, Ok(None));

    processed(&store, &operation, &Award(100)).await;

    let stored =
        store.marker(&operation).await.expect("the marker can be read").expect("the marker is there");
    assert_eq!(stored.event_id.as_deref(), Some("event-of-42"));
    let columns = [("amount", "100"), ("user_id", "7")];
    let columns = columns.map(|(column, text)| (column.to_owned(), Some(text.to_owned())));
    assert_eq!(stored.columns, BTreeMap::from(columns));
}

/// A field that joins the comparison later does not turn history into conflicts: a marker is judged by the version
/// that wrote it. A table without the column could not tell, and takes the first version only.
pub async fn markers_are_judged_by_the_version_that_wrote_them<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let user = |user: i128| {
        Comparison::Columns(vec![Compared { column: "user_id".into(), value: Value::Integer(user) }])
    };
    let first = Operation { comparison: user(7), ..award("42", 100) };
    let second = |user_id| Operation {
        comparison_version: 2,
        earlier: vec![EarlierComparison { version: 1, comparison: user(user_id) }],
        ..award("42", 100)
    };
    let other = Operation { key: "order:43:paid".into(), ..second(7) };

    assert_eq!(processed(&store, &first, &Award(100)).await, Processed::Applied);

    if fixture.capabilities().fingerprint {
        assert_eq!(processed(&store, &second(7), &Award(100)).await, Processed::Duplicate);
        assert_eq!(processed(&store, &second(8), &Award(100)).await, Processed::Conflict);
        assert_eq!(processed(&store, &other, &Award(100)).await, Processed::Applied);
        let stored = store.marker(&other).await.expect("the marker can be read");
        assert_eq!(stored.and_then(|marker| marker.comparison_version), Some(2));
        assert_eq!(processed(&store, &other, &Award(100)).await, Processed::Duplicate);
        let third = Operation { comparison_version: 3, earlier: Vec::new(), ..other };
        let refused = process(&store, &Fates::default(), &third, &Award(1)).await.expect_err("unknown");
        assert!(matches!(refused.error, ProcessError::Store(StoreError::Schema(_))), "{:?}", refused.error);
    } else {
        let refused = process(&store, &Fates::default(), &other, &Award(1)).await.expect_err("no column");
        assert!(matches!(refused.error, ProcessError::Store(StoreError::Schema(_))), "{:?}", refused.error);
        assert_eq!(fixture.markers(CONSUMER).await, 1);
    }
}

/// A digest of selected fields decides as named columns do.
pub async fn fingerprints_tell_a_duplicate_from_a_conflict<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let with_digest =
        |digit: &str| Operation { comparison: Comparison::Fingerprint(digit.repeat(64)), ..award("42", 100) };

    if fixture.capabilities().fingerprint {
        assert_eq!(processed(&store, &with_digest("a"), &Award(100)).await, Processed::Applied);
        assert_eq!(processed(&store, &with_digest("a"), &Award(100)).await, Processed::Duplicate);
        assert_eq!(processed(&store, &with_digest("b"), &Award(100)).await, Processed::Conflict);
        assert_eq!(fixture.points(USER).await, 100);
    } else {
        let mut tx = store.begin().await.expect("a transaction begins");
        let refused = tx.mark(&with_digest("a")).await;

        assert!(refused.is_err(), "a table without the column cannot keep a fingerprint: {refused:?}");
        tx.rollback().await.expect("the transaction rolls back");
        assert_eq!(fixture.markers(CONSUMER).await, 0);
    }
}

/// Case B48 (`serde-rs/json#1336`): two ids that are one float are two values.
pub async fn numbers_beyond_every_float_are_told_apart<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();

    let big = 9_007_199_254_740_993;
    assert_eq!(processed(&store, &award("42", big), &Award(1)).await, Processed::Applied);
    assert_eq!(processed(&store, &award("42", big - 1), &Award(1)).await, Processed::Conflict);
    assert_eq!(processed(&store, &award("42", big), &Award(1)).await, Processed::Duplicate);
}

/// Matched rows are counted, changed or not: an expected row count never depends on what the row held before.
pub async fn a_statement_counts_the_rows_it_matched<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let mut tx = store.begin().await.expect("a transaction begins");
    assert_eq!(tx.mark(&award("42", 100)).await, Ok(Mark::Inserted));

    let nothing_changes = [Value::Integer(0), Value::Integer(USER.into())];
    assert_eq!(tx.execute(AWARD, &nothing_changes).await, Ok(1));
    let nobody = [Value::Integer(1), Value::Integer(404)];
    assert_eq!(tx.execute(AWARD, &nobody).await, Ok(0));

    tx.rollback().await.expect("the transaction rolls back");
}

/// Values are bound, never pasted: quotes, question marks, zero bytes of text and large numbers arrive as they are.
pub async fn bound_values_arrive_as_they_are<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let mut tx = store.begin().await.expect("a transaction begins");
    let text = "it's \"42\"? \\ \u{1f600}";

    let sql = "UPDATE points_account SET points = points + ? WHERE user_id = ? AND ? = ? AND ? IS NULL";
    let same = [
        Value::Decimal("1".into()),
        Value::Integer(USER.into()),
        Value::Text(text.into()),
        Value::Text(text.into()),
        Value::Null,
    ];
    assert_eq!(tx.execute(sql, &same).await, Ok(1));
    let big = [Value::Integer(9_007_199_254_740_993), Value::Integer(USER.into())];
    assert_eq!(tx.execute(AWARD, &big).await, Ok(1));

    tx.commit().await.expect("the transaction commits");
    assert_eq!(fixture.points(USER).await, 9_007_199_254_740_994);
}
