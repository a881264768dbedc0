//! Odd rows, as people and other programs write them.

use bytes::Bytes;
use consign_core::event::{EventId, NewEvent};
use consign_core::json::Json;
use consign_core::ports::OutboxStore;
use consign_core::settle::Settled;
use consign_store::mysql::PayloadColumn;

use crate::mysql::server::{Bench, Server, claim, ids, released, request, settle};

on_both_servers!(
    odd_payloads_arrive_as_the_column_gives_them,
    empty_long_and_absent_types_are_told_apart_from_impossible_ones,
    rows_with_nulls_where_the_table_allows_them_are_claimed,
    rows_due_in_the_future_wait_and_rows_without_a_due_date_stay,
    unreadable_headers_end_the_row_and_spare_its_neighbours,
    ids_longer_than_a_broker_takes_end_the_row,
    negative_and_exhausted_attempts_do_not_stop_a_claim,
    a_json_column_keeps_the_value_and_a_blob_keeps_the_bytes,
    payload_columns_of_every_text_type_work,
    a_claim_reads_a_payload_larger_than_the_servers_packet,
    a_claim_that_must_sort_does_not_carry_payloads_along,
);

async fn set(bench: &Bench, id: &str, assignment: &str) {
    bench.run(&format!("UPDATE outbox_event SET {assignment} WHERE event_id = '{id}'")).await;
}

async fn odd_payloads_arrive_as_the_column_gives_them(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    let outbox = bench.outbox();
    let payloads: [&[u8]; 5] =
        [b"", b"\0a\0", "\u{1f600} \u{4e2d}".as_bytes(), b"\xff\xfe", br#"{"id":9007199254740993}"#];
    let mut tx = bench.begin().await;
    for (number, payload) in payloads.iter().enumerate() {
        let id = EventId::new(format!("{number}")).expect("a valid id");
        let event = NewEvent::new("T", number, payload.to_vec()).with_id(id);
        outbox.append(&mut tx, event).await.expect("the event fits");
    }
    tx.commit().await.expect("the commit succeeds");

    let claimed = claim(&outbox, 10).await;

    let mut found = claimed.claims.iter().map(|claim| claim.event().clone()).collect::<Vec<_>>();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let found = found.iter().map(|event| event.payload.as_deref().expect("a payload")).collect::<Vec<_>>();
    assert_eq!(found, payloads);
}

async fn empty_long_and_absent_types_are_told_apart_from_impossible_ones(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event MODIFY event_type VARCHAR(1000)").await;
    for (id, event_type) in [
        ("a", "''"),
        ("b", "NULL"),
        ("c", "REPEAT('x', 255)"),
        ("d", "REPEAT('x', 256)"),
        ("e", "'\u{1f600}'"),
    ] {
        bench.insert(id).await;
        set(&bench, id, &format!("event_type = {event_type}")).await;
    }

    let claimed = claim(&bench.outbox(), 10).await;

    let mut types = claimed.claims.iter().map(|claim| claim.event().event_type.len()).collect::<Vec<_>>();
    types.sort_unstable();
    assert_eq!(types, [0, 0, 4, 255]);
    assert_eq!(claimed.malformed.iter().map(|row| row.id().as_str()).collect::<Vec<_>>(), ["d"]);
}

async fn rows_with_nulls_where_the_table_allows_them_are_claimed(server: Server) {
    let bench = Bench::contract(server).await;
    let bare = "INSERT INTO outbox_event (event_id, status, available_at, attempts)
                VALUES ('a', 'NEW', '2026-01-01', NULL)";
    bench.run(bare).await;
    let outbox = bench.outbox();

    let claimed = claim(&outbox, 10).await;

    let event = claimed.claims[0].event().clone();
    assert_eq!((event.payload, event.aggregate.id, event.created_at_micros), (None, None, None));
    assert_eq!(settle(&outbox, released(claimed.claims)).await, [Settled::Applied]);
}

async fn rows_due_in_the_future_wait_and_rows_without_a_due_date_stay(server: Server) {
    let bench = Bench::contract(server).await;
    for (id, due) in [("a", "NOW(6) + INTERVAL 1 HOUR"), ("b", "NULL"), ("c", "NOW(6)")] {
        bench.insert(id).await;
        set(&bench, id, &format!("available_at = {due}")).await;
    }

    assert_eq!(ids(&claim(&bench.outbox(), 10).await), ["c"]);
}

async fn unreadable_headers_end_the_row_and_spare_its_neighbours(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event ADD headers LONGBLOB").await;
    for (id, headers) in
        [("a", "'{'"), ("b", "'{\"x\":\"1\"}'"), ("c", "'[]'"), ("d", "NULL"), ("e", "X'ff'"), ("f", "''")]
    {
        bench.insert(id).await;
        set(&bench, id, &format!("headers = {headers}, available_at = '2026-01-01'")).await;
    }
    let outbox = bench.outbox();

    let claimed = claim(&outbox, 10).await;

    assert_eq!(ids(&claimed), ["b", "d"]);
    assert_eq!(settle(&outbox, claimed.malformed).await, [Settled::Applied; 4]);
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await, 4);
}

async fn ids_longer_than_a_broker_takes_end_the_row(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event MODIFY event_id VARCHAR(400)").await;
    let id = "x".repeat(300);
    bench.insert(&id).await;
    bench.insert("").await;
    let outbox = bench.outbox();

    let claimed = claim(&outbox, 10).await;

    assert!(claimed.claims.is_empty());
    assert_eq!(settle(&outbox, claimed.malformed).await, [Settled::Applied; 2]);
    assert_eq!(bench.status_of(&id).await, "DEAD");
}

async fn negative_and_exhausted_attempts_do_not_stop_a_claim(server: Server) {
    let bench = Bench::contract(server).await;
    for (id, attempts) in [("a", -5), ("b", i32::MAX)] {
        bench.insert(id).await;
        set(&bench, id, &format!("attempts = {attempts}, available_at = '2026-01-01'")).await;
    }
    let outbox = bench.outbox();

    let (first, second) = (claim(&outbox, 10).await, claim(&outbox, 10).await);

    assert_eq!(first.malformed.len(), 1);
    assert_eq!(ids(&second), ["b"]);
    let attempts = "SELECT attempts FROM outbox_event WHERE event_id = 'b'";
    assert_eq!(bench.number(attempts).await, i64::from(i32::MAX));
}

/// B47, `hirethunk/verbs#53` and `n8n-io/n8n#4491`: MySQL's JSON type rewrites what it stores.
async fn a_json_column_keeps_the_value_and_a_blob_keeps_the_bytes(server: Server) {
    let written = r#"{"zeta":1, "a":2,"bb":{"y":1,"x":2},"a":3,"id":9007199254740993}"#;
    for payload in [PayloadColumn::Json, PayloadColumn::LongBlob] {
        let bench = Bench::migrated(server, payload).await;
        let outbox = bench.outbox();
        let mut tx = bench.begin().await;
        outbox.append(&mut tx, NewEvent::new("T", 1, written)).await.expect("the event fits");
        tx.commit().await.expect("the commit succeeds");

        let claimed = claim(&outbox, 1).await;

        let found = claimed.claims[0].event().payload.clone().expect("a payload");
        let exact = payload == PayloadColumn::LongBlob || server == Server::MariaDb;
        assert_eq!(found == written.as_bytes(), exact, "{found:?}");
        let value = |bytes: &[u8]| Json::parse(bytes).expect("valid JSON").canonical();
        assert_eq!(value(&found), value(written.as_bytes()));
    }
}

/// B50, `Open-Web-Analytics/Open-Web-Analytics#1032`: columns in other character sets.
async fn payload_columns_of_every_text_type_work(server: Server) {
    let payload = "{\"name\":\"Zo\u{eb}\"}";
    for declared in [
        "LONGTEXT",
        "MEDIUMTEXT CHARACTER SET latin1",
        "VARCHAR(200) CHARACTER SET utf8mb3",
        "VARBINARY(200)",
    ] {
        let bench = Bench::contract(server).await;
        bench.run(&format!("ALTER TABLE outbox_event MODIFY payload {declared}")).await;
        let outbox = bench.outbox();
        let mut tx = bench.begin().await;
        outbox.append(&mut tx, NewEvent::new("T", 1, payload)).await.expect("the event fits");
        tx.commit().await.expect("the commit succeeds");

        let claimed = claim(&outbox, 1).await;

        let found = claimed.claims[0].event().payload.clone().expect("a payload");
        assert_eq!(found, payload.as_bytes(), "{declared}");
    }
}

/// B77, `mysql-net/MySqlConnector#214`: a row larger than a packet must not break every claim that meets it. It is
/// delivered: the servers send a row whatever its length, and sqlx takes it.
async fn a_claim_reads_a_payload_larger_than_the_servers_packet(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    bench.insert("small").await;
    bench.insert("large").await;
    let _lock = bench.packet_limit_lock().await;
    let limit = bench.number("SELECT @@GLOBAL.max_allowed_packet").await;
    // Only a session that begins while the limit is higher can write such a row.
    bench.run("SET GLOBAL max_allowed_packet = 1073741824").await;
    let mut writer = bench.another_session().await;
    bench.run(&format!("SET GLOBAL max_allowed_packet = {limit}")).await;
    let length = limit + 1_048_576;
    let grow = format!("UPDATE outbox_event SET payload = REPEAT('x', {length}) WHERE event_id = 'large'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(grow))
        .execute(&mut writer)
        .await
        .expect("the writer's packets are large");
    let outbox = bench.outbox();

    let first = outbox.claim(request(10)).await.expect("the claim succeeds");
    let second = outbox.claim(request(10)).await.expect("the claim succeeds");

    let claims = first.claims.iter().chain(&second.claims);
    let mut found =
        claims.map(|claim| claim.event().payload.as_ref().map_or(0, Bytes::len)).collect::<Vec<_>>();
    found.sort_unstable();
    assert_eq!(found.last().copied(), usize::try_from(length).ok());
    assert_eq!(found.len(), 2);
}

/// MySQL's sort takes a JSON column a query reads with it, and gives up with "out of sort memory" (1038) on a value
/// larger than its buffer.
async fn a_claim_that_must_sort_does_not_carry_payloads_along(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    bench.run("ALTER TABLE outbox_event DROP KEY idx_pending").await;
    for id in ["a", "b", "c"] {
        bench.insert(id).await;
        set(&bench, id, "payload = JSON_QUOTE(REPEAT('x', 3000000))").await;
    }

    let claimed = claim(&bench.outbox(), 10).await;

    assert_eq!(claimed.claims.len(), 3);
}
