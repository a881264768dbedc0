//! Many operations at once come to what each comes to alone.

use consign_core::declared::{ExpectRows, Statement};
use consign_core::inbox::{Inbox, ProcessError, Processed, Unit};
use consign_core::operation::Operation;
use consign_core::ports::{EachError, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;

use super::InboxFixture;
use super::story::{Award, CONSUMER, Fate, Fates, USER, award, message, processed, with_account};

const MANY: i64 = 300;

fn many() -> Vec<Operation> {
    (0..MANY).map(|number| award(&number.to_string(), number)).collect()
}

/// Every marker of a list is found, in the list's order, whatever its length; keys without one are told apart.
pub async fn many_markers_are_read_in_order_at_once<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let operations = many();
    let (marked, unmarked): (Vec<_>, Vec<_>) =
        operations.iter().partition(|operation| operation.key.len() % 2 == 0);
    let mut tx = store.begin().await.expect("a transaction begins");
    assert_eq!(tx.mark_all(&marked).await, Ok(Mark::Inserted));
    tx.commit().await.expect("the transaction commits");

    let wanted: Vec<&Operation> = operations.iter().rev().collect();
    let markers = store.markers(&wanted).await.expect("the markers can be read");

    assert_eq!(fixture.markers(CONSUMER).await, marked.len() as u64);
    assert!(!marked.is_empty() && !unmarked.is_empty());
    for (operation, marker) in wanted.iter().zip(markers) {
        let expected = marked.contains(operation);
        assert_eq!(marker.is_some(), expected, "{}", operation.key);
        assert!(marker.is_none_or(|marker| operation.same_as(&marker) == Ok(true)), "{}", operation.key);
    }
    assert_eq!(store.markers(&[]).await, Ok(Vec::new()));
}

/// One taken key among many leaves none of the others behind.
pub async fn a_taken_key_among_many_takes_none<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    processed(&store, &award("250", 250), &Award(1)).await;
    let operations = many();

    let mut tx = store.begin().await.expect("a transaction begins");
    let mark = tx.mark_all(&operations.iter().collect::<Vec<_>>()).await;

    assert_eq!(mark, Ok(Mark::Taken));
    tx.rollback().await.expect("the transaction rolls back");
    assert_eq!(fixture.markers(CONSUMER).await, 1);
}

/// A batch with repeats, conflicts, copies of one key and a delivery that is refused comes to what its deliveries
/// come to one by one, each with its receipt.
pub async fn a_batch_comes_to_what_its_deliveries_come_to_alone<F: InboxFixture>() {
    for look_first in [false, true] {
        let fixture = with_account::<F>().await;
        let store = fixture.store();
        processed(&store, &award("old", 100), &Award(100)).await;
        let long = Operation { key: "k".repeat(F::KEY_CHARS_MAX + 1), ..award("long", 1) };
        let operations = [
            award("new", 1),
            award("old", 100),
            award("twice", 20),
            long,
            award("old", 999),
            award("twice", 20),
            award("twice", 21),
            award("last", 300),
        ];
        let fates = Fates::default();
        let points = [1, 100, 20, 4000, 999, 20, 21, 300];
        let units = operations.iter().zip(points).map(|(operation, points)| Unit {
            delivery: fates.delivery(message(r#"{"orderId":42}"#)),
            operation: operation.clone(),
            handler: Award(points),
        });

        let concluded = Inbox::new(store.clone()).process_all(units.collect(), look_first).await;

        let mut results = Vec::new();
        for concluded in concluded {
            results.push(match concluded.result {
                Ok(committed) => Some(committed.ack().await.expect("the receipt is live")),
                Err(failed) => {
                    assert!(matches!(failed.error, ProcessError::Handler(_)), "{:?}", failed.error);
                    None
                }
            });
        }
        let (applied, repeat) = (Some(Processed::Applied), Some(Processed::Duplicate));
        let conflict = Some(Processed::Conflict);
        assert_eq!(results, [applied, repeat, applied, None, conflict, repeat, conflict, applied]);
        assert_eq!(fates.all(), [Fate::Acknowledged; 7]);
        assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (100 + 1 + 20 + 300, 4));
        assert_eq!(fixture.conflicts().await.len(), 2);
    }
}

const ACCOUNTS: i64 = 40;

fn add_points() -> Statement {
    let sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id";
    Statement::parse(sql, ["amount", "user_id"], ExpectRows::default()).expect("a statement")
}

fn values(amount: i64, user_id: i64) -> [Value; 2] {
    [Value::Integer(amount.into()), Value::Integer(user_id.into())]
}

async fn with_accounts<F: InboxFixture>() -> F {
    let fixture = F::fresh().await;
    for user_id in 0..ACCOUNTS {
        fixture.open_account(user_id).await;
    }
    fixture
}

/// Some accounts once, some often, some by nothing: each row ends where one statement after another leaves it.
pub async fn a_statement_for_each_comes_to_what_one_after_another_does<F: InboxFixture>() {
    let fixture = with_accounts::<F>().await;
    let bound: Vec<[Value; 2]> =
        (0..MANY).map(|number| values((number % 7) * 1_000_003 - 9, number * number % ACCOUNTS)).collect();
    let each: Vec<&[Value]> = bound.iter().map(<[Value; 2]>::as_slice).collect();

    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let rows = tx.execute_each(&add_points(), &each).await;
    tx.commit().await.expect("the transaction commits");

    assert_eq!(rows, Ok(vec![1; each.len()]));
    for user_id in 0..ACCOUNTS {
        let mine = (0..MANY).filter(|number| number * number % ACCOUNTS == user_id);
        let expected: i64 = mine.map(|number| (number % 7) * 1_000_003 - 9).sum();
        assert_eq!(fixture.points(user_id).await, expected, "account {user_id}");
    }
}

/// An account that is missing is told, whether or not anybody knows whose it was; nothing of it can be taken for done.
pub async fn a_statement_for_each_never_hides_a_wrong_row_count<F: InboxFixture>() {
    let fixture = with_accounts::<F>().await;
    let bound: Vec<[Value; 2]> =
        (0..ACCOUNTS).map(|number| values(1, if number == 17 { 404 } else { number })).collect();
    let each: Vec<&[Value]> = bound.iter().map(<[Value; 2]>::as_slice).collect();

    let mut tx = fixture.store().begin().await.expect("a transaction begins");
    let rows = tx.execute_each(&add_points(), &each).await;

    match rows {
        Ok(rows) => {
            let expected: Vec<u64> = (0..ACCOUNTS).map(|number| u64::from(number != 17)).collect();
            assert_eq!(rows, expected);
        }
        Err(EachError { at, error }) => {
            assert!(matches!(error, StoreError::Mismatch(_)), "{error}");
            assert!(at.is_none_or(|at| at == 17), "{at:?}");
        }
    }
    tx.rollback().await.expect("the transaction rolls back");
    assert_eq!(fixture.points(3).await, 0);
}
