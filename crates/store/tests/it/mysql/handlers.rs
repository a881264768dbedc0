//! Handlers that end the inbox's transaction themselves: found out before anything of it is taken for committed.

use consign_core::delivery::Message;
use consign_core::inbox::{Handler, HandlerError, ProcessError, Processed};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{CommitError, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use consign_store::mysql::Transaction;
use sqlx::{AssertSqlSafe, query, raw_sql};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    a_handler_that_uses_the_transaction_itself_is_committed,
    a_handler_that_commits_is_found_out,
    a_handler_that_changes_the_schema_is_found_out,
    a_handler_that_goes_on_after_a_deadlock_commits_nothing,
    a_statement_that_ends_the_transaction_is_found_out_through_execute,
    a_savepoint_of_the_handlers_own_is_no_offence,
);

fn award(key: &str) -> Operation {
    let compared = |column: &str, value| Compared { column: column.into(), value: Value::Integer(value) };
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        comparison: Comparison::Columns(vec![compared("user_id", 7), compared("amount", 100)]),
        ..Operation::default()
    }
}

async fn bench(server: Server) -> Bench {
    let bench = Bench::contract(server).await;
    bench.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    bench.run("INSERT INTO points_account VALUES (7, 0), (8, 0)").await;
    bench
}

/// Runs these texts on the raw transaction, and takes every error for nothing.
struct Careless(&'static [&'static str]);

impl Handler<Transaction> for Careless {
    async fn apply(&self, tx: &mut Transaction, _: &Operation, _: &Message) -> Result<(), HandlerError> {
        let live = tx.inner().await?;
        for sql in self.0 {
            let _ = raw_sql(AssertSqlSafe(*sql)).execute(&mut **live).await;
        }
        Ok(())
    }
}

async fn process(bench: &Bench, key: &str, handler: &Careless) -> Result<Processed, ProcessError> {
    let inbox = consign_core::inbox::Inbox::new(bench.inbox());
    let delivery = consign_core::delivery::Delivery { message: Message::default(), receipt: Forgetful };
    match inbox.process(delivery, &award(key), handler).await {
        Ok(committed) => Ok(committed.processed),
        Err(failed) => Err(failed.error),
    }
}

#[derive(Debug)]
struct Forgetful;

impl consign_core::delivery::Receipt for Forgetful {
    async fn ack(
        self,
        _: consign_core::delivery::AckPermit,
    ) -> Result<(), consign_core::delivery::ReceiptLost> {
        Ok(())
    }

    async fn retry(self, _: std::time::Duration) -> Result<(), consign_core::delivery::ReceiptLost> {
        Ok(())
    }
}

fn assert_found_out(result: &Result<Processed, ProcessError>) {
    let Err(ProcessError::Handler(reason)) = result else { panic!("{result:?}") };
    assert!(reason.contains("ended the transaction itself"), "{reason}");
}

const AWARD: &str = "UPDATE points_account SET points = points + 100 WHERE user_id = 7";

async fn points(bench: &Bench) -> i64 {
    bench.number("SELECT points FROM points_account WHERE user_id = 7").await
}

async fn a_handler_that_uses_the_transaction_itself_is_committed(server: Server) {
    let bench = bench(server).await;

    assert_eq!(process(&bench, "k", &Careless(&[AWARD])).await, Ok(Processed::Applied));
    assert_eq!(process(&bench, "k", &Careless(&[AWARD])).await, Ok(Processed::Duplicate));

    assert_eq!(points(&bench).await, 100);
}

async fn a_handler_that_commits_is_found_out(server: Server) {
    let bench = bench(server).await;
    for ending in ["COMMIT", "ROLLBACK", "BEGIN", "COMMIT AND CHAIN"] {
        let handler: &'static [&'static str] = Box::leak(Box::new([AWARD, ending, AWARD]));

        let result = process(&bench, ending, &Careless(handler)).await;

        assert_found_out(&result);
    }
    // The connection serves others afterwards, outside any transaction.
    assert_eq!(process(&bench, "next", &Careless(&[AWARD])).await, Ok(Processed::Applied));
    assert_eq!(bench.open_transactions().await, 0);
}

async fn a_handler_that_changes_the_schema_is_found_out(server: Server) {
    let bench = bench(server).await;

    let result = process(&bench, "k", &Careless(&["CREATE TABLE surprise (id INT)", AWARD])).await;

    assert_found_out(&result);
}

/// The server rolled back everything, the marker too; what the handler did afterwards would commit alone.
async fn a_handler_that_goes_on_after_a_deadlock_commits_nothing(server: Server) {
    let bench = bench(server).await;
    let inbox = bench.inbox();
    let mut other = bench.begin().await;
    // The other transaction changed more rows: the inbox's is the one to be rolled back.
    bench.run("CREATE TABLE ballast (id INT PRIMARY KEY)").await;
    for id in 0..50 {
        query("INSERT INTO ballast VALUES (?)").bind(id).execute(&mut *other).await.expect("it runs");
    }
    let lock = "UPDATE points_account SET points = points + 1 WHERE user_id = 8";
    raw_sql(lock).execute(&mut *other).await.expect("the row is locked");
    let mut tx = inbox.begin().await.expect("a transaction");
    assert_eq!(tx.mark(&award("k")).await, Ok(Mark::Inserted));
    let live = tx.inner().await.expect("it is open");
    raw_sql(AWARD).execute(&mut **live).await.expect("the row is locked");
    let waiting = tokio::spawn(async move {
        raw_sql(AWARD).execute(&mut *other).await.expect("it is not the victim");
        other
    });
    // Each waits for the other's row now, or as soon as this statement begins to wait.
    let victim = raw_sql("UPDATE points_account SET points = points + 1 WHERE user_id = 8");
    let deadlock = victim.execute(&mut **live).await;
    let other = waiting.await.expect("no panic");
    other.rollback().await.expect("it rolls back");
    assert!(deadlock.is_err(), "one of the two had to be rolled back");
    raw_sql(AWARD).execute(&mut **live).await.expect("the handler goes on");

    let committed = tx.commit().await;

    assert!(matches!(committed, Err(CommitError::RolledBack(StoreError::Data(_)))), "{committed:?}");
    assert_eq!(points(&bench).await, 0);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
}

async fn a_statement_that_ends_the_transaction_is_found_out_through_execute(server: Server) {
    let bench = bench(server).await;
    bench.run("CREATE TABLE gone (id INT)").await;
    for ending in
        ["COMMIT", "  commit", "/* why */ COMMIT", "DROP TABLE gone", "TRUNCATE TABLE points_account"]
    {
        let mut tx = bench.inbox().begin().await.expect("a transaction");
        assert_eq!(tx.mark(&award(ending)).await, Ok(Mark::Inserted));
        tx.execute(AWARD, &[]).await.expect("it runs");
        // A server that does not prepare such a statement refuses it.
        let ran = tx.execute(ending, &[]).await;

        let committed = tx.commit().await;

        assert!(matches!(committed, Err(CommitError::RolledBack(_))), "{ending}: {ran:?}, {committed:?}");
    }
}

async fn a_savepoint_of_the_handlers_own_is_no_offence(server: Server) {
    let bench = bench(server).await;
    let handler =
        Careless(&["SAVEPOINT mine", AWARD, "ROLLBACK TO SAVEPOINT mine", "RELEASE SAVEPOINT mine", AWARD]);

    assert_eq!(process(&bench, "k", &handler).await, Ok(Processed::Applied));

    assert_eq!(points(&bench).await, 100);
}
