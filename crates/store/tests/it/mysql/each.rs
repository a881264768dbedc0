//! Many operations in one statement: the rows and the results of one after another, or no result at all.

use consign_core::declared::{ExpectRows, Statement};
use consign_core::ports::{EachError, InboxStore, InboxTransaction, StoreError};
use consign_core::value::Value;
use consign_store::mysql::Transaction;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    random_batches_come_to_what_one_after_another_comes_to,
    a_hundred_operations_take_few_statements,
    text_arrives_byte_for_byte,
    what_is_in_doubt_runs_one_after_another,
    the_operation_at_fault_is_named,
    a_total_that_is_wrong_can_not_be_committed,
    values_of_many_kilobytes_travel_in_pieces,
);

const NAMES: [&str; 4] = ["amount", "user_id", "note", "price"];

fn statement(sql: &str) -> Statement {
    Statement::parse(sql, NAMES, ExpectRows::default()).expect("a statement")
}

async fn bench(server: Server) -> Bench {
    let bench = Bench::contract(server).await;
    bench
        .run(
            "CREATE TABLE account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL, small INT NOT NULL,
             natural_number BIGINT UNSIGNED NOT NULL, balance DECIMAL(20, 2) NOT NULL, note VARCHAR(50) NULL,
             price DECIMAL(10, 2) NULL, code VARCHAR(20) NOT NULL, changed DATETIME(6) NULL,
             other BIGINT NULL UNIQUE)",
        )
        .await;
    bench
        .run(
            "INSERT INTO account (user_id, points, small, natural_number, balance, code) VALUES
             (-1, 5, 5, 5, 5, '5'), (0, 0, 0, 0, 0, '00'), (1, 1, 1, 1, 1.5, '01'), (2, 1000, 1000, 1000, 99.99, '2'),
             (3, 9223372036854775800, 2147483600, 18446744073709551600, 999999999999999999.99, ''),
             (4, -9223372036854775800, -2147483600, 0, -999999999999999999.99, '4'), (5, 1, 2, 3, 4, '5'),
             (9007199254740993, 9007199254740993, 0, 9007199254740993, 0, 'y')",
        )
        .await;
    bench
        .run(
            "CREATE TABLE ledger (user_id BIGINT NOT NULL, amount BIGINT NOT NULL, note VARCHAR(50) NOT NULL,
             price DECIMAL(10, 2) NULL, PRIMARY KEY (user_id, amount))",
        )
        .await;
    bench
}

/// Everything the statements write, but for the time.
async fn rows(tx: &mut Transaction) -> Vec<String> {
    let live = tx.inner().await.expect("the transaction is open");
    let mut texts = Vec::new();
    for sql in [
        "SELECT CONCAT_WS('|', user_id, points, small, natural_number, balance, COALESCE(HEX(note), 'NULL'),
         COALESCE(price, 'NULL'), code, other) FROM account ORDER BY user_id",
        "SELECT CONCAT_WS('|', user_id, amount, HEX(note), COALESCE(price, 'NULL')) FROM ledger ORDER BY 1",
    ] {
        let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(&mut **live).await.expect("the rows can be read");
        texts.extend(rows.iter().map(|row| row.try_get_unchecked::<String, _>(0).expect("text")));
    }
    texts
}

/// How many prepared statements the session ran.
async fn executed(tx: &mut Transaction) -> u64 {
    let live = tx.inner().await.expect("the transaction is open");
    let row = raw_sql("SHOW SESSION STATUS LIKE 'Com_stmt_execute'").fetch_one(&mut **live).await;
    let text: String = row.expect("a count").try_get_unchecked(1).expect("text");
    text.parse().expect("a number")
}

/// What the operations come to in one transaction, one after another: the rows each matched, up to a failure.
async fn loop_over(
    bench: &Bench,
    statement: &Statement,
    each: &[&[Value]],
) -> (Option<Vec<u64>>, Vec<String>) {
    let mut tx = bench.inbox().begin().await.expect("a transaction");
    let mut matched = Some(Vec::new());
    for values in each {
        match tx.execute(statement.sql(), values).await {
            Ok(rows) => matched.iter_mut().for_each(|matched| matched.push(rows)),
            Err(StoreError::Data(_)) => matched = None,
            Err(error) => panic!("{error}"),
        }
    }
    let found = rows(&mut tx).await;
    tx.rollback().await.expect("the transaction rolls back");
    (matched, found)
}

/// A generator that needs nothing but its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }
}

fn values(dice: &mut Dice, statement: &Statement, wild: bool) -> Vec<Value> {
    let long = "x".repeat(60);
    let notes =
        ["", "a", "it's \"q\" \\ \u{1f600}", "\n\t\r\u{8}", "trailing  ", "\u{e9}\u{301}", "NULL", "0.10"];
    statement
        .parameters()
        .iter()
        .map(|name| match (name.as_str(), wild) {
            ("user_id", false) => Value::Integer(dice.pick(&[-1, 0, 1, 2, 5, 5, 9_007_199_254_740_993])),
            ("user_id", true) => Value::Integer(dice.pick(&[0, 1, 2, 3, 4, 77, i128::from(i64::MIN)])),
            ("amount", false) => dice.pick(&[
                Value::Integer(0),
                Value::Integer(1),
                Value::Integer(7),
                Value::Boolean(true),
                Value::Integer(40),
            ]),
            ("amount", true) => Value::Integer(dice.pick(&[
                0,
                -1,
                3,
                -70_000,
                9_007_199_254_740_993,
                i128::from(i64::MAX),
                i128::from(i64::MIN),
                i128::from(u64::MAX),
            ])),
            ("note", false) => Value::Text(dice.pick(&notes).to_owned()),
            ("note", true) => dice.pick(&[Value::Null, Value::Text(long.clone()), Value::Text("\0".into())]),
            (_, false) => {
                let digits = ["0", "1.5", "-2.255", "99999999.99", "0.001", "-0.5", "12345678901234567.005"];
                Value::Decimal(dice.pick(&digits).to_owned())
            }
            (_, true) => dice.pick(&[
                Value::Null,
                Value::Integer(3),
                Value::Decimal("123456789012345678901234567890123456.7".into()),
                Value::Decimal("100000000".into()),
                Value::Decimal(format!("99999999999999999999.{}", "9".repeat(30))),
                Value::Decimal("-9223372036854775808.5".into()),
            ]),
        })
        .collect()
}

const STATEMENTS: [&str; 17] = [
    "UPDATE account SET points = points + :amount WHERE user_id = :user_id",
    "UPDATE account SET points = :amount * points - 1, changed = NOW(6) WHERE account.user_id = :user_id",
    "UPDATE account SET points = points - :amount WHERE points >= :amount AND user_id = :user_id",
    "UPDATE account SET points = GREATEST(points - :amount, 0) WHERE user_id = :user_id AND code <> 'y'",
    "UPDATE account SET small = small + :amount WHERE user_id = :user_id",
    "UPDATE account SET natural_number = natural_number + :amount WHERE user_id = :user_id",
    "UPDATE account SET natural_number = natural_number - :amount WHERE user_id = :user_id AND NOT (points < :amount)",
    "UPDATE account SET balance = balance - :amount WHERE user_id = :user_id",
    "UPDATE account SET balance = balance + :price WHERE user_id = :user_id AND balance >= :price",
    "UPDATE account SET balance = GREATEST(balance - :price, 0), small = small + 1 WHERE user_id = :user_id",
    "UPDATE account SET points = points - :price WHERE user_id = :user_id AND small <> :price",
    "UPDATE account SET natural_number = :price + small WHERE user_id = :user_id",
    "UPDATE account SET small = :amount, note = :note, price = :price, code = 'n' WHERE user_id = :user_id",
    "UPDATE account SET note = :amount, price = :amount WHERE user_id = :user_id AND note IS NULL",
    "UPDATE account SET points = COALESCE(points + :amount, 1) WHERE user_id = :user_id AND small <> :amount",
    "INSERT INTO ledger (user_id, amount, note, price) VALUES (:user_id, :amount, :note, :price)",
    "INSERT INTO ledger (user_id, amount, note) VALUES (:user_id + 1, -:amount, CONCAT(:note, '!'))",
];

/// Repeated keys, missing rows, changes by nothing, overflow: the set form gives the loop's rows and the loop's
/// results, or it fails where the loop fails or matches another number of rows than one.
async fn random_batches_come_to_what_one_after_another_comes_to(server: Server) {
    const BATCHES: u64 = 16;
    let bench = bench(server).await;
    let inbox = bench.inbox();
    let (mut agreed, mut refused) = (0, 0);
    for (index, sql) in STATEMENTS.iter().enumerate() {
        let statement = statement(sql);
        assert!(statement.shape().is_some(), "{sql}");
        for seed in 0..BATCHES {
            let mut dice = Dice(seed * 31 + index as u64);
            let (length, wildness) = (2 + dice.roll(30), dice.pick(&[0, 0, 0, 1, 12]));
            let bound: Vec<Vec<Value>> = (0..length)
                .map(|_| {
                    let wild = dice.roll(24) < wildness;
                    values(&mut dice, &statement, wild)
                })
                .collect();
            let each: Vec<&[Value]> = bound.iter().map(Vec::as_slice).collect();
            let (looped, expected) = loop_over(&bench, &statement, &each).await;

            let mut tx = inbox.begin().await.expect("a transaction");
            let result = tx.execute_each(&statement, &each).await;
            let context = format!("{server:?}, seed {seed}, {sql}: {bound:?}: {result:?}");
            match result {
                Ok(matched) => {
                    assert_eq!(Some(&matched), looped.as_ref(), "{context}");
                    assert_eq!(rows(&mut tx).await, expected, "{context}");
                    agreed += 1;
                }
                Err(EachError { error: StoreError::Mismatch(_), at }) => {
                    let looped = looped.unwrap_or_default();
                    assert!(looped.iter().any(|rows| *rows != 1) || looped.is_empty(), "{context}");
                    assert_eq!(at, None, "{context}");
                    refused += 1;
                }
                Err(EachError { error: StoreError::Data(_), .. }) => {
                    assert_eq!(looped, None, "{context}");
                    refused += 1;
                }
                Err(EachError { error, .. }) => panic!("{error}: {context}"),
            }
            tx.rollback().await.expect("the transaction rolls back");
        }
    }
    assert!(agreed > 80 && refused > 20, "{agreed} agreed and {refused} were refused: neither may be rare");
}

/// Every statement of the random test is meant to run for many; here each is counted.
async fn a_hundred_operations_take_few_statements(server: Server) {
    let bench = bench(server).await;
    bench.run("DELETE FROM account").await;
    for user in 0..100 {
        bench
            .run(&format!(
                "INSERT INTO account (user_id, points, small, natural_number, balance, code) VALUES ({user}, 100, 0, 100, 100, '')"
            ))
            .await;
    }
    let inbox = bench.inbox();
    for sql in STATEMENTS {
        let statement = statement(sql);
        let mut dice = Dice(1);
        let bound: Vec<Vec<Value>> = (0..100)
            .map(|user: i128| {
                let parameters = statement.parameters().iter();
                let typical = values(&mut dice, &statement, false);
                parameters
                    .zip(typical)
                    .map(|(name, value)| match name.as_str() {
                        "user_id" => Value::Integer(user),
                        "amount" => Value::Integer(user % 3 + 1),
                        "price" => Value::Decimal("1.5".into()),
                        _ => value,
                    })
                    .collect()
            })
            .collect();
        let each: Vec<&[Value]> = bound.iter().map(Vec::as_slice).collect();
        let mut tx = inbox.begin().await.expect("a transaction");
        // The first time the table is looked at.
        tx.execute_each(&statement, &each[..2]).await.expect("it runs");
        tx.rollback().await.expect("the transaction rolls back");
        let mut tx = inbox.begin().await.expect("a transaction");
        let before = executed(&mut tx).await;

        let matched = tx.execute_each(&statement, &each).await;

        let statements = executed(&mut tx).await - before;
        assert_eq!(matched, Ok(vec![1; 100]), "{sql}");
        assert!(statements <= 4, "{sql} took {statements} statements");
        tx.rollback().await.expect("the transaction rolls back");
    }
}

async fn text_arrives_byte_for_byte(server: Server) {
    let bench = bench(server).await;
    let statement = statement("UPDATE account SET note = :note WHERE user_id = :user_id");
    let notes: Vec<String> = (0..=255_u32)
        .chain([0x3b1, 0x4e2d, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x1_f600, 0x10_ffff])
        .filter_map(char::from_u32)
        .map(|character| format!("<{character}{character}>"))
        .collect();
    let inbox = bench.inbox();
    for pair in notes.chunks(2) {
        let bound: Vec<Vec<Value>> = pair
            .iter()
            .zip(1..)
            .map(|(note, user)| vec![Value::Text(note.clone()), Value::Integer(user)])
            .collect();
        let each: Vec<&[Value]> = bound.iter().map(Vec::as_slice).collect();
        let mut tx = inbox.begin().await.expect("a transaction");

        let matched = tx.execute_each(&statement, &each).await;

        assert_eq!(matched, Ok(vec![1; pair.len()]), "{pair:?}");
        let live = tx.inner().await.expect("the transaction is open");
        let read =
            raw_sql("SELECT note FROM account WHERE user_id IN (1, 2) AND note IS NOT NULL ORDER BY user_id");
        let found = read.fetch_all(&mut **live).await.expect("the notes can be read");
        let found: Vec<String> = found.iter().map(|row| row.get(0)).collect();
        assert_eq!(found, pair);
        tx.rollback().await.expect("the transaction rolls back");
    }
}

/// Each of these would have another effect, or another number of rows, in one statement.
async fn what_is_in_doubt_runs_one_after_another(server: Server) {
    let bench = bench(server).await;
    bench.run("CREATE VIEW seen AS SELECT * FROM account").await;
    bench.run("CREATE TABLE watched LIKE account").await;
    bench.run("INSERT INTO watched SELECT * FROM account").await;
    bench.run("CREATE TRIGGER log BEFORE UPDATE ON watched FOR EACH ROW SET NEW.small = 1").await;
    bench.run("CREATE TABLE twice (user_id BIGINT, points BIGINT, KEY (user_id))").await;
    bench.run("INSERT INTO twice VALUES (1, 0), (1, 0), (2, 0)").await;
    bench.run("CREATE TABLE named (user_id VARCHAR(20) PRIMARY KEY, points BIGINT)").await;
    bench.run("INSERT INTO named VALUES ('1', 0), ('2', 0)").await;
    bench.run("CREATE TABLE pair (user_id BIGINT, points BIGINT, PRIMARY KEY (user_id, points))").await;
    bench.run("INSERT INTO pair VALUES (1, 0), (2, 0)").await;
    let inbox = bench.inbox();
    for (sql, expected) in [
        ("UPDATE seen SET points = points + :amount WHERE user_id = :user_id", [1, 1]),
        ("UPDATE watched SET points = points + :amount WHERE user_id = :user_id", [1, 1]),
        ("UPDATE twice SET points = points + :amount WHERE user_id = :user_id", [2, 1]),
        ("UPDATE named SET points = points + :amount WHERE user_id = :user_id", [1, 1]),
        ("UPDATE pair SET points = points + :amount WHERE user_id = :user_id", [1, 1]),
        ("UPDATE account SET other = :amount WHERE user_id = :user_id", [1, 1]),
        ("UPDATE account SET points = code + :amount WHERE user_id = :user_id", [1, 1]),
        ("DELETE FROM account WHERE small <> :amount AND user_id = :user_id", [1, 1]),
    ] {
        let statement = statement(sql);
        let each = [[Value::Integer(10), Value::Integer(1)], [Value::Integer(20), Value::Integer(2)]];
        let each: Vec<&[Value]> = each.iter().map(<[Value; 2]>::as_slice).collect();
        let mut tx = inbox.begin().await.expect("a transaction");
        let first = tx.execute_each(&statement, &each[..1]).await;
        let before = executed(&mut tx).await;

        let matched = tx.execute_each(&statement, &each[1..]).await;
        let second = executed(&mut tx).await - before;
        tx.rollback().await.expect("the transaction rolls back");
        assert_eq!((first, matched), (Ok(vec![expected[0]]), Ok(vec![expected[1]])), "{sql}");
        assert_eq!(second, 1, "{sql}");

        let mut tx = inbox.begin().await.expect("a transaction");
        assert_eq!(tx.execute_each(&statement, &each).await, Ok(expected.to_vec()), "{sql}");
        tx.rollback().await.expect("the transaction rolls back");
        let mut tx = inbox.begin().await.expect("a transaction");
        let before = executed(&mut tx).await;
        tx.execute_each(&statement, &each).await.expect("it runs");
        assert_eq!(executed(&mut tx).await - before, 2, "{sql}");
        tx.rollback().await.expect("the transaction rolls back");
    }
}

/// When the server refuses a value, one after another tells whose it was.
async fn the_operation_at_fault_is_named(server: Server) {
    let bench = bench(server).await;
    let update = statement("UPDATE account SET small = small + :amount WHERE user_id = :user_id");
    let insert = statement(
        "INSERT INTO ledger (user_id, amount, note, price) VALUES (:user_id, :amount, :note, :price)",
    );
    let number = Value::Integer;
    let updates = [[number(1), number(1)], [number(1 << 40), number(2)], [number(1), number(5)]];
    let row = |user| vec![number(user), number(1), Value::Text("n".into()), Value::Null];
    let inserts = [row(1), row(2), row(1), row(4)];

    let mut tx = bench.inbox().begin().await.expect("a transaction");
    let each: Vec<&[Value]> = updates.iter().map(<[Value; 2]>::as_slice).collect();
    let updated = tx.execute_each(&update, &each).await;
    tx.rollback().await.expect("the transaction rolls back");
    let mut tx = bench.inbox().begin().await.expect("a transaction");
    let each: Vec<&[Value]> = inserts.iter().map(Vec::as_slice).collect();
    let inserted = tx.execute_each(&insert, &each).await;
    tx.rollback().await.expect("the transaction rolls back");

    assert!(matches!(updated, Err(EachError { at: Some(1), error: StoreError::Data(_) })), "{updated:?}");
    assert!(matches!(inserted, Err(EachError { at: Some(2), error: StoreError::Data(_) })), "{inserted:?}");
}

/// The rows that were matched are changed already: nobody may commit them by mistake.
async fn a_total_that_is_wrong_can_not_be_committed(server: Server) {
    let bench = bench(server).await;
    let statement = statement("UPDATE account SET points = points + :amount WHERE user_id = :user_id");
    let bound = [[Value::Integer(1), Value::Integer(1)], [Value::Integer(1), Value::Integer(404)]];
    let each: Vec<&[Value]> = bound.iter().map(<[Value; 2]>::as_slice).collect();

    let mut tx = bench.inbox().begin().await.expect("a transaction");
    let matched = tx.execute_each(&statement, &each).await;
    let committed = tx.commit().await;

    assert!(matches!(matched, Err(EachError { at: None, error: StoreError::Mismatch(_) })), "{matched:?}");
    assert!(committed.is_err());
    assert_eq!(bench.number("SELECT points FROM account WHERE user_id = 1").await, 1);
}

async fn values_of_many_kilobytes_travel_in_pieces(server: Server) {
    let bench = bench(server).await;
    bench.run("ALTER TABLE account MODIFY note LONGTEXT").await;
    bench.run("ALTER TABLE ledger MODIFY note LONGTEXT").await;
    let update = statement("UPDATE account SET note = :note WHERE user_id = :user_id");
    let insert = statement("INSERT INTO ledger (note, user_id, amount) VALUES (:note, :user_id, 1)");
    let sizes = [10, 40_000, 5_000, 5_000, 5_000, 11_000, 20];
    let bound: Vec<Vec<Value>> = sizes
        .into_iter()
        .zip([-1, 0, 1, 2, 3, 4, 5])
        .map(|(size, user)| vec![Value::Text("\"".repeat(size)), Value::Integer(user)])
        .collect();
    let each: Vec<&[Value]> = bound.iter().map(Vec::as_slice).collect();

    let mut tx = bench.inbox().begin().await.expect("a transaction");
    let results = [tx.execute_each(&update, &each).await, tx.execute_each(&insert, &each).await];
    tx.commit().await.expect("the transaction commits");

    assert_eq!(results, [Ok(vec![1; 7]), Ok(vec![1; 7])]);
    let lengths = "SELECT GROUP_CONCAT(LENGTH(note) ORDER BY user_id) FROM";
    for table in ["account WHERE note IS NOT NULL", "ledger"] {
        let found = bench.text(&format!("{lengths} {table}")).await;
        assert_eq!(found.as_deref(), Some("10,40000,5000,5000,5000,11000,20"));
    }
}
