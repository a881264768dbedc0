//! An audit that cannot fail proves nothing: each kind of damage is done, and found.
//!
//! The database is the one of `CONSIGN_TEST_MYSQL_URL`.

use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, raw_sql};

use super::*;
use crate::stage::TABLES;

/// As much of the product's tables as the audit looks at.
const PRODUCT: &str = "
CREATE TABLE outbox_event (event_id VARCHAR(64) PRIMARY KEY, status VARCHAR(16) NOT NULL, payload JSON NOT NULL);
CREATE TABLE consumed_operation (consumer_name VARCHAR(64), business_key VARCHAR(128), PRIMARY KEY (consumer_name, business_key));
CREATE TABLE consign_attempt (id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL, outcome VARCHAR(16) NOT NULL);
CREATE TABLE consign_dead_delivery (id BIGINT PRIMARY KEY AUTO_INCREMENT);
CREATE TABLE consign_conflict (id BIGINT PRIMARY KEY AUTO_INCREMENT);";

/// Three events that went well; the third took two attempts and two copies.
const WELL: &str = "
INSERT INTO purchase_order (number, user_id, amount) VALUES (1, 1, 10), (2, 2, 10), (3, 3, 10);
INSERT INTO ledger (number, event_id) VALUES (1, 'e-1'), (2, 'e-2'), (3, 'e-3');
INSERT INTO acknowledged (number) VALUES (1), (2), (3);
INSERT INTO outbox_event VALUES ('e-1', 'SENT', '{\"n\": 1}'), ('e-2', 'SENT', '{\"n\": 2}'), ('e-3', 'SENT', '{\"n\": 3}');
INSERT INTO copy (event_id, body) VALUES ('e-1', '{\"n\":1}'), ('e-2', '{\"n\":2}'), ('e-3', '{\"n\":3}'), ('e-3', '{\"n\":3}');
INSERT INTO consign_attempt (event_id, outcome) VALUES
    ('e-1', 'confirmed'), ('e-2', 'confirmed'), ('e-3', 'swept'), ('e-3', 'confirmed');
INSERT INTO consumed_operation VALUES ('effects', 'event:1'), ('effects', 'event:2'), ('effects', 'event:3');
INSERT INTO effect (number, user_id, amount) VALUES (1, 1, 10), (2, 2, 10), (3, 3, 10);";

/// What the audit says after `damage` was done to what went well.
async fn findings(damage: &str) -> Findings {
    let url = std::env::var("CONSIGN_TEST_MYSQL_URL").expect(
        "CONSIGN_TEST_MYSQL_URL is not set: start the servers with `cargo xtask services up` and export their urls",
    );
    let server: MySqlConnectOptions = url.parse().expect("the url can be read");
    let name = format!("torture_audit_{:016x}", getrandom::u64().expect("the system has random bytes"));
    let mut connection = server.connect().await.expect("the database server answers");
    let run = async |connection: &mut sqlx::MySqlConnection, statements: String| {
        raw_sql(AssertSqlSafe(statements)).execute(connection).await.expect("the statements run")
    };
    run(&mut connection, format!("CREATE DATABASE {name}; USE {name}; {TABLES} {PRODUCT} {WELL} {damage}"))
        .await;
    let pool = MySqlPool::connect_lazy_with(server.database(&name));
    let findings = ask(&pool).await;
    pool.close().await;
    run(&mut connection, format!("DROP DATABASE {name}")).await;
    connection.close().await.expect("the connection ends");
    findings.expect("the audit answers")
}

#[tokio::test]
async fn what_went_well_is_clean_and_a_copy_that_a_sweep_explains_is_no_offence() {
    let found = findings("").await;

    let wanted =
        Findings { committed: 3, copies: 4, duplicates: 1, unclear_attempts: 1, ..Findings::default() };
    assert_eq!(found, wanted);
    assert!(found.is_clean());
}

#[tokio::test]
async fn every_kind_of_damage_is_found() {
    /// The damage, what is to be seen, and how often.
    type Damage = (&'static str, fn(&Findings) -> u64, u64);
    const DAMAGES: &[Damage] = &[
        ("DELETE FROM effect WHERE number = 1", |found| found.lost, 1),
        ("DELETE FROM purchase_order WHERE number = 1", |found| found.lost, 1),
        ("INSERT INTO acknowledged (number) VALUES (4)", |found| found.lost, 1),
        ("INSERT INTO effect (number, user_id, amount) VALUES (2, 2, 10)", |found| found.doubled, 1),
        (
            "INSERT INTO copy (event_id, body) VALUES ('e-1', '{\"n\": 1}'), ('e-3', '{\"n\": 3}')",
            |found| found.unexplained_duplicates,
            2,
        ),
        ("UPDATE outbox_event SET status = 'NEW' WHERE event_id = 'e-1'", |found| found.unfinished, 1),
        ("DELETE FROM outbox_event WHERE event_id = 'e-1'", |found| found.unfinished, 1),
        ("DELETE FROM copy WHERE event_id = 'e-2'", |found| found.sent_unseen, 1),
        ("INSERT INTO copy (event_id, body) VALUES ('e-9', '{\"n\": 9}')", |found| found.phantoms, 1),
        ("UPDATE copy SET body = '{\"n\": 7}' WHERE event_id = 'e-2'", |found| found.changed, 1),
        ("DELETE FROM effect WHERE number = 1", |found| found.markers_alone, 1),
        ("DELETE FROM consumed_operation WHERE business_key = 'event:1'", |found| found.effects_alone, 1),
        ("INSERT INTO consign_dead_delivery VALUES (1)", |found| found.put_aside, 1),
        ("INSERT INTO consign_conflict VALUES (1)", |found| found.put_aside, 1),
    ];
    for (damage, seen, times) in DAMAGES {
        let found = findings(damage).await;

        assert_eq!(seen(&found), *times, "{damage}: {found:?}");
        assert!(!found.is_clean(), "{damage}");
    }
}
