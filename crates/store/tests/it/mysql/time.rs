//! Time zones and date columns.

use std::time::Duration;

use consign_core::event::NewEvent;
use consign_core::ports::OutboxStore;
use consign_store::mapping::OutboxMapping;
use consign_store::mysql::{Database, Options, Outbox};

use crate::mysql::server::{Bench, Server, claim, ids};

on_both_servers!(
    an_event_appended_in_any_time_zone_is_due_at_once,
    rows_written_by_plain_sql_are_due_in_the_configured_time_zone,
    a_row_keeps_its_age_and_its_date_in_every_time_zone,
    whole_second_dates_still_work_and_are_reported,
    a_time_zone_that_could_carry_sql_is_refused,
    a_configured_time_zone_is_the_sessions,
);

fn in_zone(bench: &Bench, zone: &str) -> Outbox {
    let options = Options { time_zone: Some(zone.into()), ..bench.options() };
    let database = Database::open(&options).expect("valid options");
    Outbox::new(database, OutboxMapping::default(), "relay-test")
}

/// B52, `humanmade/Cavalcade#55` and `kestra-io/kestra#13006`: writer and reader in different zones, hours late.
async fn an_event_appended_in_any_time_zone_is_due_at_once(server: Server) {
    for relay in [None, Some("-05:00"), Some("+13:00")] {
        for producer in ["+09:00", "-11:00", "+00:00"] {
            let bench = Bench::contract(server).await;
            let outbox = relay.map_or_else(|| bench.outbox(), |zone| in_zone(&bench, zone));
            let mut tx = bench.pool.begin().await.expect("a connection");
            let zone = format!("SET SESSION time_zone = '{producer}'");
            sqlx::raw_sql(sqlx::AssertSqlSafe(zone)).execute(&mut *tx).await.expect("a zone");
            let id = outbox.append(&mut tx, NewEvent::new("T", 1, "{}")).await.expect("the event fits");
            tx.commit().await.expect("the commit succeeds");

            let claimed = claim(&outbox, 10).await;

            assert_eq!(ids(&claimed), [id.as_str()], "relay {relay:?}, producer {producer}");
        }
    }
}

async fn rows_written_by_plain_sql_are_due_in_the_configured_time_zone(server: Server) {
    let bench = Bench::contract(server).await;
    let write = "SET SESSION time_zone = '+09:00'; INSERT INTO outbox_event (event_id, status, available_at, created_at)
                 VALUES ('a', 'NEW', NOW(6), NOW(6))";
    bench.run(write).await;

    let (west, same) = (in_zone(&bench, "-05:00"), in_zone(&bench, "+09:00"));

    assert!(claim(&west, 10).await.claims.is_empty());
    assert_eq!(ids(&claim(&same, 10).await), ["a"]);
}

async fn a_row_keeps_its_age_and_its_date_in_every_time_zone(server: Server) {
    let bench = Bench::contract(server).await;
    for zone in ["-05:00", "+13:00"] {
        let outbox = in_zone(&bench, zone);
        let mut tx = bench.pool.begin().await.expect("a connection");
        outbox.append(&mut tx, NewEvent::new("T", 1, "{}")).await.expect("the event fits");
        tx.commit().await.expect("the commit succeeds");

        let claimed = claim(&outbox, 1).await;

        let created = claimed.claims[0].event().created_at_micros.expect("a date");
        let now = bench.number("SELECT ROUND(UNIX_TIMESTAMP(NOW(6)) * 1000000)").await;
        assert!((0..60_000_000).contains(&(now - created)), "{zone}: {}", now - created);
        let oldest = outbox.status().await.expect("a status").oldest_pending.expect("the row is in flight");
        assert!(oldest < Duration::from_mins(1), "{zone}: {oldest:?}");
        bench.run("DELETE FROM outbox_event").await;
    }
}

/// B53, `Effect-TS/effect#8126`: dates without a fraction are rounded (MySQL) or cut (MariaDB).
async fn whole_second_dates_still_work_and_are_reported(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event MODIFY available_at DATETIME, MODIFY locked_until DATETIME").await;
    bench.insert("a").await;
    let outbox = bench.outbox();

    let claimed = claim(&outbox, 1).await;
    let swept = outbox.sweep(10, Duration::ZERO, 20).await.expect("the sweep succeeds");
    let findings = outbox.findings().await.expect("findings");

    assert_eq!(ids(&claimed), ["a"]);
    assert_eq!(swept.returned, 0, "the lease is live");
    let reported = findings.iter().filter(|finding| finding.code == "outbox-date-precision");
    assert_eq!(reported.count(), 2);
}

async fn a_time_zone_that_could_carry_sql_is_refused(server: Server) {
    let bench = Bench::new(server).await;
    let options = Options { time_zone: Some("+00:00', sql_mode='".into()), ..bench.options() };

    assert!(Database::open(&options).is_err());
}

async fn a_configured_time_zone_is_the_sessions(server: Server) {
    let bench = Bench::new(server).await;
    let options = Options { time_zone: Some("+05:30".into()), ..bench.options() };
    let database = Database::open(&options).expect("valid options");

    let zone: String =
        sqlx::query_scalar("SELECT @@SESSION.time_zone").fetch_one(database.pool()).await.expect("a session");

    assert_eq!(zone, "+05:30");
}
