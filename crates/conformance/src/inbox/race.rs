//! Copies that come at the same time: the unique key decides.

use std::sync::Arc;
use std::time::Duration;

use consign_core::guard::{Guard, Step};
use consign_core::inbox::{Inbox, ProcessError, Processed, Unit};
use consign_core::operation::Operation;
use consign_core::ports::StoreError;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::InboxFixture;
use super::story::{Award, AwardThenRefuse, CONSUMER, Fates, USER, award, message, process, with_account};
use crate::waiting::within;

const CONSUMERS: usize = 8;
const PATIENCE: Duration = Duration::from_mins(1);

/// What one of the racing consumers came to; a contended delivery comes again, as a broker would redeliver it.
async fn race<F, M>(fixture: &F, work: M) -> Vec<Result<Processed, ProcessError>>
where
    F: InboxFixture,
    M: Fn(usize) -> (consign_core::operation::Operation, bool),
{
    let barrier = Arc::new(Barrier::new(CONSUMERS));
    let mut consumers = JoinSet::new();
    for number in 0..CONSUMERS {
        let (store, barrier) = (fixture.another_store().await, Arc::clone(&barrier));
        let (operation, refuses) = work(number);
        consumers.spawn(async move {
            let fates = Fates::default();
            barrier.wait().await;
            loop {
                let result = if refuses {
                    process(&store, &fates, &operation, &AwardThenRefuse).await
                } else {
                    process(&store, &fates, &operation, &Award(100)).await
                };
                match result {
                    Ok(committed) => return committed.ack().await.map_err(|_| unreachable!()),
                    Err(failed) => match failed.error {
                        ProcessError::Store(StoreError::Contended(_)) => {}
                        error => return Err(error),
                    },
                }
            }
        });
    }
    within(PATIENCE, consumers.join_all()).await
}

fn count(results: &[Result<Processed, ProcessError>], wanted: Processed) -> usize {
    results.iter().filter(|result| **result == Ok(wanted)).count()
}

/// One effect for any number of copies at the same time.
/// Case B38 (`idempot-dev/idempot-js#182`): check-then-set lets two copies through.
pub async fn concurrent_copies_make_one_effect<F: InboxFixture>() {
    let fixture = with_account::<F>().await;

    let results = race(&fixture, |_| (award("42", 100), false)).await;

    assert_eq!(count(&results, Processed::Applied), 1, "{results:?}");
    assert_eq!(count(&results, Processed::Duplicate), CONSUMERS - 1, "{results:?}");
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100, 1));
}

/// When holders of the key roll back, exactly one of the waiting copies is applied.
/// Case B11 (`mysqljs/mysql#2575`): waiters on a rolled-back key deadlock; that is a retry, never a conflict.
pub async fn concurrent_copies_survive_the_first_ones_rollback<F: InboxFixture>() {
    let fixture = with_account::<F>().await;

    let results = race(&fixture, |number| (award("42", 100), number % 2 == 0)).await;

    assert_eq!(count(&results, Processed::Applied), 1, "{results:?}");
    assert!(
        results.iter().all(|result| match result {
            Ok(processed) => *processed != Processed::Conflict,
            Err(error) => *error == ProcessError::Handler("not today".into()),
        }),
        "{results:?}"
    );
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100, 1));
    assert!(fixture.conflicts().await.is_empty());
}

/// Different keys never shut each other out, also where writers have to wait for each other.
pub async fn concurrent_different_keys_are_all_applied<F: InboxFixture>() {
    let fixture = with_account::<F>().await;

    let results = race(&fixture, |number| (award(&number.to_string(), 100), false)).await;

    assert_eq!(count(&results, Processed::Applied), CONSUMERS, "{results:?}");
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (800, 8));
}

/// Batches that share keys and aggregates, in different orders, side by side: every operation has one effect, and what
/// is contended comes again.
/// Case B14 (`cenkalti/dalga#25`): rows locked in different orders.
pub async fn concurrent_batches_with_common_keys_make_one_effect_each<F: InboxFixture>() {
    const OPERATIONS: i64 = 60;
    let fixture = with_account::<F>().await;
    let barrier = Arc::new(Barrier::new(CONSUMERS));
    let mut consumers = JoinSet::new();
    for number in 0..CONSUMERS {
        let (store, barrier) = (fixture.another_store().await, Arc::clone(&barrier));
        consumers.spawn(async move {
            let mut left: Vec<i64> = (0..OPERATIONS).collect();
            let shift = number * 7 % left.len();
            left.rotate_left(shift);
            if number % 2 == 0 {
                left.reverse();
            }
            barrier.wait().await;
            let (mut applied, mut look_first) = (0, false);
            while !left.is_empty() {
                let fates = Fates::default();
                let units = left.iter().map(|order| Unit {
                    delivery: fates.delivery(message("")),
                    operation: guarded(*order),
                    handler: Award(1),
                });
                let concluded = Inbox::new(store.clone()).process_all(units.collect(), look_first).await;
                let mut again = Vec::new();
                for (order, concluded) in left.into_iter().zip(concluded) {
                    match concluded.result {
                        Ok(committed) => applied += usize::from(committed.processed == Processed::Applied),
                        Err(failed) => match failed.error {
                            ProcessError::Store(StoreError::Contended(_)) => again.push(order),
                            error => panic!("{error}"),
                        },
                    }
                }
                left = again;
                look_first = true;
            }
            applied
        });
    }

    let applied: usize = within(PATIENCE, consumers.join_all()).await.into_iter().sum();

    let markers = fixture.markers(CONSUMER).await;
    assert_eq!((applied, markers), (usize::try_from(OPERATIONS).expect("few"), applied as u64));
    assert_eq!(fixture.points(USER).await, OPERATIONS);
}

/// Some of the operations are guarded, each by an aggregate of its own.
fn guarded(order: i64) -> Operation {
    let step = Step::ApplyIfNewer { version: order };
    let guard = (order % 3 == 0).then(|| Guard { aggregate: format!("order:{order}"), step });
    Operation { guard, ..award(&order.to_string(), order) }
}
