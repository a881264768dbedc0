//! Dates: the database's clock, in the producers' time zone.

use consign_store::mapping::OutboxMapping;
use consign_store::mysql::{Database, Outbox};

use crate::mysql::server::{Bench, Server, claim, ids};

on_both_servers!(
    a_relay_in_the_producers_time_zone_claims_what_is_due_and_nothing_else,
    a_session_is_read_committed_and_strict_in_the_configured_zone,
);

fn in_zone(bench: &Bench, zone: &str) -> Outbox {
    let mut options = bench.options();
    options.time_zone = Some(zone.into());
    Outbox::new(Database::open(&options).unwrap(), OutboxMapping::default(), "relay-test")
}

/// B52 (`humanmade/Cavalcade#55`): a DATETIME has no zone, so a relay in another one claims hours late or early.
async fn a_relay_in_the_producers_time_zone_claims_what_is_due_and_nothing_else(server: Server) {
    let bench = Bench::contract(server).await;
    let mut producer = bench.pool.acquire().await.unwrap();
    sqlx::query("SET time_zone = '+09:00'").execute(&mut *producer).await.unwrap();
    for (id, delay) in [("due", "- INTERVAL 1 SECOND"), ("in-an-hour", "+ INTERVAL 1 HOUR")] {
        let insert = format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             VALUES ('{id}', 1, 'OrderPaid', '{{}}', 'NEW', NOW(6) {delay}, NOW(6))"
        );
        sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&mut *producer).await.unwrap();
    }

    let elsewhere = claim(&in_zone(&bench, "+00:00"), 10).await;
    let at_home = claim(&in_zone(&bench, "+09:00"), 10).await;

    assert!(ids(&elsewhere).is_empty(), "nine hours behind the producers nothing is due");
    assert_eq!(ids(&at_home), ["due"]);
}

/// B49 (`transact-rs/sqlx#1553`) and the isolation every guard rests on.
async fn a_session_is_read_committed_and_strict_in_the_configured_zone(server: Server) {
    let bench = Bench::contract(server).await;
    let mut options = bench.options();
    options.time_zone = Some("+05:30".into());
    let database = Database::open(&options).unwrap();
    let isolation = match server {
        Server::MySql => "@@transaction_isolation",
        Server::MariaDb => "@@tx_isolation",
    };

    let sql = format!("SELECT CONCAT({isolation}, ' ', @@sql_mode, ' ', @@time_zone)");
    let session: String =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(database.pool()).await.unwrap();

    assert!(session.starts_with("READ-COMMITTED "), "{session}");
    assert!(session.contains("STRICT_TRANS_TABLES"), "{session}");
    assert!(session.ends_with(" +05:30"), "{session}");
}
