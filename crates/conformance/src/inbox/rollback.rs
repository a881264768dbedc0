//! All or nothing.

use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::inbox::{Handler, HandlerError, ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::{InboxStore, InboxTransaction, Mark, StoreError};

use super::InboxFixture;
use super::story::{
    Award, AwardThenRefuse, CONSUMER, Fate, Fates, USER, award, message, process, processed, with_account,
};
use crate::waiting::{drop_after, eventually};

const PATIENCE: Duration = Duration::from_secs(30);

async fn assert_untouched<F: InboxFixture>(fixture: &F) {
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (0, 0));
}

async fn quiet<F: InboxFixture>(fixture: &F) {
    eventually(PATIENCE, || async { fixture.open_transactions().await == 0 }).await;
}

/// A handler's error rolls back everything, the marker too; the next delivery is applied.
pub async fn a_refusing_handler_leaves_neither_marker_nor_effect<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());

    let failed = process(&store, &fates, &award("42", 100), &AwardThenRefuse).await.expect_err("refused");

    assert_eq!(failed.error, ProcessError::Handler("not today".into()));
    assert_untouched(&fixture).await;
    assert!(fates.all().is_empty(), "nothing is acknowledged");
    failed.retry(Duration::ZERO).await.expect("the receipt is live");
    assert_eq!(fates.all(), [Fate::Retried]);
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
}

/// A wrong row count is a refusal: here the account does not exist.
pub async fn an_effect_on_no_row_is_refused_and_rolled_back<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let (store, fates) = (fixture.store(), Fates::default());

    let failed = process(&store, &fates, &award("42", 100), &Award(100)).await.expect_err("refused");

    assert_eq!(failed.error, ProcessError::Handler("expected 1 row, changed 0".into()));
    assert_eq!(fixture.markers(CONSUMER).await, 0);
    fixture.open_account(USER).await;
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
}

/// Awards, then runs a statement that the server refuses.
struct AwardThenFail;

impl<Tx: InboxTransaction> Handler<Tx> for AwardThenFail {
    async fn apply(&self, tx: &mut Tx, operation: &Operation, message: &Message) -> Result<(), HandlerError> {
        Award(1).apply(tx, operation, message).await?;
        tx.execute("UPDATE no_such_table SET points = 0", &[]).await?;
        Ok(())
    }
}

/// A statement's failure rolls back what came before it.
/// Case B10 (`zodb/relstorage#313`): a failed statement must not be followed by a COMMIT of the rest.
pub async fn a_failing_statement_leaves_neither_marker_nor_effect<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());

    let failed = process(&store, &fates, &award("42", 100), &AwardThenFail).await.expect_err("fails");

    assert!(matches!(failed.error, ProcessError::Store(StoreError::Schema(_))), "{:?}", failed.error);
    assert_untouched(&fixture).await;
    assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Applied);
}

/// Marker and business change become visible together.
pub async fn an_open_transaction_is_invisible_until_it_commits<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let operation = award("42", 100);
    let mut tx = store.begin().await.expect("a transaction begins");
    assert_eq!(tx.mark(&operation).await, Ok(Mark::Inserted));
    Award(100).apply(&mut tx, &operation, &message("")).await.expect("the award is made");

    assert_untouched(&fixture).await;
    tx.commit().await.expect("the transaction commits");

    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100, 1));
}

/// Dropping is the net under the rollback by name: nothing stays, the store goes on.
pub async fn a_dropped_transaction_leaves_nothing<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let operation = award("42", 100);
    let mut tx = store.begin().await.expect("a transaction begins");
    assert_eq!(tx.mark(&operation).await, Ok(Mark::Inserted));
    Award(100).apply(&mut tx, &operation, &message("")).await.expect("the award is made");

    drop(tx);

    quiet(&fixture).await;
    assert_untouched(&fixture).await;
    assert_eq!(processed(&store, &operation, &Award(100)).await, Processed::Applied);
}

/// After a taken key and its rollback the connection serves others; no transaction stays open behind it.
pub async fn a_taken_key_leaves_the_connection_usable<F: InboxFixture>() {
    const REPEATS: usize = 20;
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    processed(&store, &award("42", 100), &Award(100)).await;

    for _ in 0..REPEATS {
        assert_eq!(processed(&store, &award("42", 100), &Award(100)).await, Processed::Duplicate);
    }

    quiet(&fixture).await;
    assert_eq!(processed(&store, &award("43", 100), &Award(100)).await, Processed::Applied);
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (200, 2));
}

/// However far a dropped process got, its operation was applied whole or not at all.
/// Case B82 (`transact-rs/sqlx#4385`).
pub async fn a_dropped_process_leaves_nothing_half_done<F: InboxFixture>() {
    const DROPS: usize = 12;
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());

    for polls in 0..DROPS {
        let operation = award(&polls.to_string(), 1);
        drop_after(polls, process(&store, &fates, &operation, &Award(1))).await;
    }

    quiet(&fixture).await;
    let markers = i64::try_from(fixture.markers(CONSUMER).await).expect("a small number");
    assert_eq!(fixture.points(USER).await, markers, "as many effects as markers");
    for number in 0..DROPS {
        processed(&store, &award(&number.to_string(), 1), &Award(1)).await;
    }
    assert_eq!(fixture.points(USER).await, i64::try_from(DROPS).expect("a small number"));
}
