//! Guards: how far each consumer came with each aggregate.

use consign_core::guard::{Guard, Progress, Step};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::{Advance, InboxStore, InboxTransaction, StoreError};

use super::InboxFixture;
use super::story::{Award, CONSUMER, Fates, USER, award, process, processed, with_account};

fn at(version: i64) -> Progress {
    Progress { version: Some(version), state: None }
}

fn step(version: i64, step: impl FnOnce(i64) -> Step) -> Operation {
    let guard = Guard { aggregate: "order:42".into(), step: step(version) };
    Operation { guard: Some(guard), ..award(&format!("42/{version}"), version) }
}

async fn save<F: InboxFixture>(fixture: &F, consumer: &str, advances: &[(&str, Progress)]) {
    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let aggregates: Vec<&str> = advances.iter().map(|(aggregate, _)| *aggregate).collect();
    let found = tx.lock_progress(consumer, &aggregates).await.expect("progress can be read");
    let advances: Vec<Advance<'_>> = advances
        .iter()
        .zip(found)
        .map(|((aggregate, progress), found)| Advance {
            aggregate,
            progress: progress.clone(),
            first: found.is_none(),
        })
        .collect();
    tx.save_progress(consumer, &advances).await.expect("progress can be written");
    tx.commit().await.expect("the transaction commits");
}

async fn progress<F: InboxFixture>(
    fixture: &F,
    consumer: &str,
    aggregates: &[&str],
) -> Vec<Option<Progress>> {
    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let found = tx.lock_progress(consumer, aggregates).await.expect("progress can be read");
    tx.rollback().await.expect("the transaction rolls back");
    found
}

/// Versions and states come back as written, for any number of aggregates; names that differ by case, accent or a space
/// at the end are different aggregates, and each consumer has its own view.
pub async fn progress_is_kept_for_each_consumer_and_aggregate<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let names: Vec<String> = (0..150).map(|number| format!("order:{number:03}")).collect();
    let mut aggregates: Vec<&str> = names.iter().map(String::as_str).collect();
    aggregates.extend(["Order:001", "order:001 ", "\u{f6}rder:001"]);
    aggregates.sort_unstable();
    let state = Progress { version: None, state: Some("PAID".into()) };
    let first: Vec<(&str, Progress)> =
        aggregates.iter().zip(0..).map(|(aggregate, version)| (*aggregate, at(version))).collect();

    save(&fixture, CONSUMER, &first).await;
    save(&fixture, CONSUMER, &[("order:001", at(i64::MIN)), ("order:002", state.clone())]).await;
    save(&fixture, "sms", &[("order:001", at(i64::MAX))]).await;

    let mut expected: Vec<Option<Progress>> = first.into_iter().map(|(_, progress)| Some(progress)).collect();
    for (aggregate, progress) in [("order:001", at(i64::MIN)), ("order:002", state)] {
        let place = aggregates.iter().position(|known| *known == aggregate).expect("a known aggregate");
        expected[place] = Some(progress);
    }
    assert_eq!(progress(&fixture, CONSUMER, &aggregates).await, expected);
    assert_eq!(progress(&fixture, "sms", &["order:000", "order:001"]).await, [None, Some(at(i64::MAX))]);
    assert_eq!(progress(&fixture, "sms", &[]).await, []);
}

/// Between reading nothing and writing the first step somebody else may have written it: the unit runs again.
pub async fn a_first_step_somebody_else_took_is_contended<F: InboxFixture>() {
    let fixture = F::fresh().await;
    save(&fixture, CONSUMER, &[("order:42", at(1))]).await;
    let first = Advance { aggregate: "order:42", progress: at(1), first: true };

    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let saved = tx.save_progress(CONSUMER, &[first]).await;

    assert!(matches!(saved, Err(StoreError::Contended(_))), "{saved:?}");
    tx.rollback().await.expect("the transaction rolls back");
}

/// An old version is stale and leaves nothing, its marker neither; a version that comes early waits.
pub async fn versions_are_skipped_when_older_and_wait_when_early<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());
    let newer = |version| step(version, |version| Step::ApplyIfNewer { version });
    let next = |version| Operation {
        consumer: "ledger".into(),
        ..step(version, |version| Step::Sequential { version, first: 1 })
    };

    assert_eq!(processed(&store, &newer(3), &Award(1)).await, Processed::Applied);
    assert_eq!(processed(&store, &newer(2), &Award(10)).await, Processed::Stale);
    assert_eq!(processed(&store, &newer(7), &Award(100)).await, Processed::Applied);
    assert_eq!(processed(&store, &newer(3), &Award(1)).await, Processed::Duplicate);
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (101, 2));

    let early = process(&store, &fates, &next(2), &Award(1000)).await.expect_err("too early");
    assert!(matches!(early.error, ProcessError::Gap { expected: 1, version: 2, .. }), "{:?}", early.error);
    for version in [1, 2] {
        assert_eq!(processed(&store, &next(version), &Award(1000)).await, Processed::Applied);
    }
    assert_eq!((fixture.points(USER).await, fixture.markers("ledger").await), (2101, 2));
    assert_eq!(progress(&fixture, "ledger", &["order:42"]).await, [Some(at(2))]);
}

/// A cut aggregate would be another one.
pub async fn an_aggregate_longer_than_its_column_is_refused<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let (longest, longer) = ("\u{4e2d}".repeat(255), "a".repeat(256));
    save(&fixture, CONSUMER, &[(&longest, at(1))]).await;

    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let refused = tx.lock_progress(CONSUMER, &[&longer]).await;

    assert!(matches!(refused, Err(StoreError::Data(_))), "{refused:?}");
    tx.rollback().await.expect("the transaction rolls back");
    assert_eq!(progress(&fixture, CONSUMER, &[&longest]).await, [Some(at(1))]);
}
