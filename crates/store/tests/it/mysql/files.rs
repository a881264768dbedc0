//! The SQL files themselves: each runs without its optional lines, by the index its header names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use consign_store::mysql::PayloadColumn;
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    every_statement_reads_the_index_its_header_names,
    every_definition_runs_as_it_is,
    the_claim_locks_one_row_for_a_limit_of_one,
    an_ordered_claim_reads_what_it_looks_at_and_nothing_behind,
);

/// How a statement reads its table.
enum Access {
    /// By this index, without a sort.
    Index(&'static str),
    /// It only inserts, counts a small table on purpose, or reads more or less depending on how much is pending.
    Any,
}

/// Statements on tables, with the number of leading placeholders that are numbers.
fn statements() -> BTreeMap<&'static str, (Access, usize)> {
    use Access::{Any, Index};
    BTreeMap::from([
        ("claim_select", (Index("idx_pending"), 1)),
        // See the tests of the bookmark: it needs dates.
        ("claim_select_from", (Any, 0)),
        ("claim_mark", (Index("PRIMARY"), 0)),
        ("claim_fetch", (Index("PRIMARY"), 0)),
        ("settle_sent", (Index("PRIMARY"), 0)),
        ("settle_retry", (Index("PRIMARY"), 1)),
        ("settle_release", (Index("PRIMARY"), 1)),
        ("settle_dead", (Index("PRIMARY"), 0)),
        ("settle_inspect", (Index("PRIMARY"), 0)),
        ("sweep_select", (Index("idx_pending"), 1)),
        ("sweep_return", (Index("PRIMARY"), 1)),
        ("sweep_dead", (Index("PRIMARY"), 0)),
        ("outbox_status", (Index("idx_pending"), 0)),
        ("outbox_pending", (Any, 0)),
        ("outbox_future", (Index("idx_pending"), 0)),
        ("marker_select", (Index("PRIMARY"), 0)),
        ("attempt_count", (Index("idx_outcome"), 0)),
        ("marker_count", (Any, 0)),
        ("conflict_count", (Any, 0)),
        ("dead_delivery_count", (Any, 0)),
        ("append", (Any, 0)),
        ("attempt_insert", (Any, 0)),
        ("attempt_page", (Index("PRIMARY"), 0)),
        ("attempt_purge", (Index("PRIMARY"), 2)),
        // The rows of the INSERT come first in the plan; the settles' own tests look at what they read.
        ("attempt_settle", (Any, 0)),
        ("attempt_sweep", (Any, 0)),
        ("sent_page", (Index("idx_pending"), 0)),
        ("sent_purge", (Index("PRIMARY"), 0)),
        ("settle_delete", (Index("PRIMARY"), 0)),
        ("marker_insert", (Any, 0)),
        ("progress_select", (Index("PRIMARY"), 0)),
        ("progress_insert", (Any, 0)),
        ("progress_update", (Any, 0)),
        ("conflict_record", (Any, 0)),
        ("dead_delivery_record", (Any, 0)),
        ("conflict_select", (Index("idx_id"), 3)),
        ("conflict_resolve", (Index("idx_id"), 2)),
        ("dead_delivery_select", (Index("idx_id"), 2)),
        ("dead_delivery_resolve", (Index("idx_id"), 2)),
        ("dead_event_select", (Index("idx_pending"), 2)),
        ("dead_event_requeue", (Index("PRIMARY"), 0)),
        ("event_discard", (Index("PRIMARY"), 0)),
        ("event_replay", (Index("PRIMARY"), 0)),
        ("events_standing", (Index("PRIMARY"), 0)),
        ("event_payload", (Index("PRIMARY"), 1)),
        ("audit_insert", (Any, 0)),
        ("transaction_mark", (Any, 0)),
        ("transaction_fence", (Any, 0)),
        // The plan's first row is the one of the time beside it; see the tests of transactions.
        ("transaction_look", (Any, 0)),
        ("transaction_now", (Any, 0)),
        ("transaction_unconfirmed", (Index("idx_open"), 1)),
        ("transaction_put_off", (Index("PRIMARY"), 1)),
        ("transaction_confirm", (Index("PRIMARY"), 0)),
        ("transaction_ended", (Index("idx_open"), 4)),
        ("transaction_unfound", (Index("idx_open"), 2)),
        ("transaction_forget", (Index("PRIMARY"), 0)),
        ("transaction_standing", (Index("idx_open"), 0)),
        ("replay_page", (Index("PRIMARY"), 1)),
        ("park", (Any, 0)),
        ("parked_count", (Any, 0)),
        ("parked_fetch", (Index("PRIMARY"), 1)),
        ("parked_lease", (Index("PRIMARY"), 3)),
        ("parked_lock", (Index("PRIMARY"), 1)),
        // See below, where there is a long aggregate to look at.
        ("ordered_page", (Any, 1)),
        ("ordered_chain", (Any, 2)),
        ("ordered_chains", (Any, 1)),
        ("ordered_scan", (Any, 1)),
        ("ordered_lock", (Index("PRIMARY"), 0)),
        ("ordered_defer_lock", (Index("PRIMARY"), 0)),
        ("ordered_defer", (Index("PRIMARY"), 1)),
        ("blocked_select", (Any, 1)),
        // Small tables that are read by their key's beginning, with values of different types.
        ("partition_held", (Any, 3)),
        ("partition_lock", (Any, 2)),
        ("partition_insert", (Any, 3)),
        ("partition_renew", (Any, 4)),
        ("partition_take", (Any, 6)),
        ("partition_give", (Any, 4)),
        ("partition_status", (Any, 2)),
        ("relay_seen", (Any, 4)),
        ("relay_live", (Any, 2)),
        ("relay_leave", (Any, 3)),
        // See the tests of parking, which look at all of their tables.
        ("parked_look", (Any, 0)),
        ("parked_select", (Any, 0)),
        ("unpark", (Index("PRIMARY"), 1)),
        ("marker_delete", (Index("PRIMARY"), 0)),
        ("marker_page", (Index("PRIMARY"), 2)),
        ("purge_limit", (Any, 1)),
        ("packet_limit", (Any, 0)),
        ("marker_purge", (Index("PRIMARY"), 0)),
    ])
}

/// The others, in an order in which they run on an empty database.
const DEFINITIONS: [&str; 27] = [
    "session",
    "session_unlimited",
    "session_isolation",
    "session_facts",
    "create_outbox_event",
    "create_consumed_operation",
    "create_consign_attempt",
    "create_consign_conflict",
    "create_consign_dead_delivery",
    "create_consign_progress",
    "create_consign_parked_delivery",
    "create_consign_audit",
    "create_consign_transaction",
    "create_consign_partition",
    "create_consign_relay",
    "extend_outbox_event",
    "extend_consumed_operation",
    "extend_consign_attempt",
    "extend_consign_conflict",
    "extend_consign_dead_delivery",
    "add_comparison_column",
    "migrate_lock",
    "migrate_unlock",
    "introspect_table",
    "introspect_columns",
    "introspect_indexes",
    "introspect_triggers",
];

fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mysql/sql");
    let paths =
        std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
    paths
        .map(|path| {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
            (name, std::fs::read_to_string(&path).expect("readable"))
        })
        .collect()
}

/// The file without comments, in which no placeholder counts.
fn bare(text: &str) -> String {
    text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// 10,000 waiting rows, 1,000 in flight and 10,000 sent ones.
async fn filled(server: Server) -> Bench {
    let bench = Bench::migrated_for_order(server, PayloadColumn::Json).await;
    let numbers = "WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                   SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS number FROM ten a, ten b, ten c, ten d";
    bench.run(&format!("CREATE TABLE numbers AS {numbers}")).await;
    for (status, count) in [("NEW", 10_000), ("SENDING", 1_000), ("SENT", 10_000)] {
        bench
            .run(&format!(
                "INSERT INTO outbox_event
                     (event_id, event_type, payload, status, available_at, created_at, locked_until)
                 SELECT CONCAT('{status}', number), 'T', '{{}}', '{status}',
                     NOW(6) - INTERVAL number + 1 SECOND, NOW(6), NOW(6)
                 FROM numbers WHERE number < {count}"
            ))
            .await;
    }
    bench
        .run(
            "INSERT INTO consumed_operation (consumer_name, business_key)
             SELECT 'c', number FROM numbers WHERE number < 1000",
        )
        .await;
    bench
        .run(
            "INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome)
             SELECT 'e', 't', 'r', NOW(6), IF(number < 5, 'fenced', 'other') FROM numbers WHERE number < 1000",
        )
        .await;
    bench.run("ANALYZE TABLE outbox_event, consumed_operation, consign_attempt").await;
    bench
}

async fn every_statement_reads_the_index_its_header_names(server: Server) {
    let bench = filled(server).await;
    let files = files();
    // MariaDB has no LATERAL, and gets ordered_chain instead.
    let read = |name: &str| server == Server::MySql || name != "ordered_chains";
    for (name, (access, numbers)) in statements().into_iter().filter(|(name, _)| read(name)) {
        let sql = format!("EXPLAIN FORMAT=TRADITIONAL {}", files[name]);
        let bare = bare(&files[name]);
        let placeholders = bare.matches('?').count();
        let limit = placeholders.checked_sub(1).filter(|_| bare.contains("LIMIT ?"));
        let mut explain = sqlx::query(AssertSqlSafe(sql));
        for place in 0..placeholders {
            explain = match name {
                "sent_page" | "attempt_page" if Some(place) != limit => explain.bind("2030-01-01"),
                "attempt_purge" if place == numbers => explain.bind("2030-01-01"),
                "sent_purge" if place + 1 == placeholders => explain.bind("2030-01-01"),
                "transaction_mark" | "transaction_forget" if place + 1 == placeholders => {
                    explain.bind(100_i64)
                }
                "transaction_mark" => explain.bind("NEW1"),
                _ if place < numbers || Some(place) == limit => explain.bind(100_i64),
                _ => explain.bind("NEW1"),
            };
        }
        let rows = explain.fetch_all(&bench.pool).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let cell = |column: &str| {
            rows[0].try_get_unchecked::<Option<String>, _>(column).ok().flatten().unwrap_or_default()
        };
        match access {
            Access::Index(index) => {
                // A row looked up by its primary key while planning, and missing or ruled out.
                let looked_up = index == "PRIMARY" && cell("Extra").contains("const table");
                assert!(looked_up || cell("key") == index, "{name}: {:?}, {}", cell("key"), cell("Extra"));
                assert!(!cell("Extra").contains("filesort"), "{name} sorts: {}", cell("Extra"));
                assert_ne!(cell("type"), "ALL", "{name} reads the whole table");
            }
            Access::Any => assert!(!rows.is_empty(), "{name}"),
        }
    }
}

async fn every_definition_runs_as_it_is(server: Server) {
    let bench = Bench::new(server).await;
    let files = files();
    let statements = statements();
    let known = statements.keys().copied().chain(DEFINITIONS).collect::<BTreeSet<_>>();
    assert_eq!(files.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "every file has its test");
    let mut connection = bench.pool.acquire().await.expect("a connection");
    for name in DEFINITIONS {
        let placeholders = bare(&files[name]).matches('?').count();
        let text = AssertSqlSafe(files[name].clone());
        let ran = if placeholders == 0 {
            raw_sql(text).execute(&mut *connection).await
        } else {
            sqlx::query(text).bind(&bench.name).bind("outbox_event").execute(&mut *connection).await
        };
        ran.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// B02, `OneUptime/oneuptime#3117`: a claim that sorts locks every row it scans, so that other claimers get nothing.
async fn the_claim_locks_one_row_for_a_limit_of_one(server: Server) {
    let bench = filled(server).await;
    let claim = files()["claim_select"].clone();
    let mut first = bench.begin().await;
    let mut second = bench.begin().await;
    for tx in [&mut first, &mut second] {
        // The level holds from the next transaction on.
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; ROLLBACK; BEGIN";
        raw_sql(level).execute(&mut **tx).await.expect("it begins");
    }

    let held = sqlx::query(AssertSqlSafe(claim.clone())).bind(1).fetch_all(&mut *first).await;
    let rest = sqlx::query(AssertSqlSafe(claim.clone())).bind(20_000).fetch_all(&mut *second).await;

    assert_eq!((held.expect("it reads").len(), rest.expect("it reads").len()), (1, 9_999));
    second.rollback().await.expect("the rollback succeeds");
    if server == Server::MySql {
        let locks = format!(
            "SELECT COUNT(*) FROM performance_schema.data_locks
             WHERE object_schema = '{}' AND object_name = 'outbox_event' AND lock_type = 'RECORD'",
            bench.name
        );
        // One entry of the index and one row.
        assert_eq!(bench.number(&locks).await, 2);
    }
}

/// An aggregate of thousands of rows costs what one of a few rows costs.
async fn an_ordered_claim_reads_what_it_looks_at_and_nothing_behind(server: Server) {
    const LONG: i64 = 5_000;
    const LIMIT: i64 = 16;
    let bench = Bench::contract(server).await;
    bench
        .run("CREATE INDEX idx_aggregate ON outbox_event (aggregate_id, status, created_at, event_id)")
        .await;
    let columns = "event_id, aggregate_id, event_type, payload, status, available_at, created_at";
    for (first, status, aggregate) in [(0, "NEW", 1), (LONG, "SENT", 1), (2 * LONG, "SENDING", 2)] {
        bench
            .run(&format!(
                "INSERT INTO outbox_event ({columns})
                 WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                 SELECT {first} + a.n + 10 * b.n + 100 * c.n + 1000 * d.n, {aggregate}, 'T', '{{}}', '{status}',
                     NOW(6) - INTERVAL 1 SECOND, NOW(6) FROM ten a, ten b, ten c, ten d WHERE d.n < 5"
            ))
            .await;
    }
    bench.run("ANALYZE TABLE outbox_event").await;
    let (page, chain) = (files()["ordered_page"].clone(), files()["ordered_chain"].clone());
    let mut session = bench.another_session().await;

    let page = sqlx::query(AssertSqlSafe(page)).bind(LIMIT);
    let (rows, page_reads) = counted(&mut session, page).await;
    let head: String = rows[0].try_get_unchecked("head").expect("a head");
    let chain = sqlx::query(AssertSqlSafe(chain)).bind(&head).bind(LIMIT);
    let (chained, chain_reads) = counted(&mut session, chain).await;
    if server == Server::MySql {
        let together = sqlx::query(AssertSqlSafe(files()["ordered_chains"].clone())).bind(LIMIT).bind(&head);
        let (same, reads) = counted(&mut session, together).await;
        let ids = |rows: &[sqlx::mysql::MySqlRow]| -> Vec<String> {
            rows.iter().map(|row| row.try_get_unchecked(0).expect("an id")).collect()
        };
        assert_eq!(ids(&same), ids(&chained));
        assert!(reads < 12 * LIMIT, "the chains together read {reads} entries");
    }

    assert_eq!((rows.len(), chained.len()), (16, 16));
    assert!(page_reads < 12 * LIMIT, "the page read {page_reads} entries");
    assert!(chain_reads < 6 * LIMIT, "the chain read {chain_reads} entries");
}

/// The rows of a query and how many entries it read.
async fn counted(
    session: &mut sqlx::MySqlConnection,
    query: sqlx::query::Query<'_, sqlx::MySql, sqlx::mysql::MySqlArguments>,
) -> (Vec<sqlx::mysql::MySqlRow>, i64) {
    raw_sql("FLUSH STATUS").execute(&mut *session).await.expect("the counters start again");
    let rows = query.fetch_all(&mut *session).await.expect("it reads");
    let counters = raw_sql("SHOW SESSION STATUS LIKE 'Handler_read%'").fetch_all(session).await;
    let count = |row: &sqlx::mysql::MySqlRow| {
        row.try_get_unchecked::<String, _>(1).expect("text").parse::<i64>().expect("a number")
    };
    (rows, counters.expect("they can be read").iter().map(count).sum())
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    for (name, text) in files() {
        assert!(text.starts_with("-- Purpose: "), "{name}");
    }
}
