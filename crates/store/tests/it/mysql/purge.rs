//! Purging markers beyond their retention.

use std::ops::ControlFlow;
use std::time::Duration;

use consign_core::ports::StoreError;
use consign_store::mysql::PayloadColumn;
use consign_store::record::{PurgeMarkers, PurgePlan, PurgeReport};

use crate::mysql::server::{Bench, Server};

const DAY: Duration = Duration::from_hours(24);

on_both_servers!(
    only_old_markers_go_whatever_the_page,
    a_limit_ends_the_purge_and_the_next_one_goes_on,
    a_purge_stops_when_it_is_told_to,
    markers_under_way_make_no_purge_wait,
    every_page_is_found_by_the_primary_key,
    an_empty_table_and_those_without_dates,
);

fn beyond_a_week(page: u32) -> PurgeMarkers {
    PurgeMarkers { retention: 7 * DAY, page, limit: None }
}

/// Eleven old markers of three consumers between ten young ones; one without a date, and one with a date that is none.
/// Keys compare without case, as in many tables.
async fn filled(server: Server) -> Bench {
    let bench = Bench::new(server).await;
    bench
        .run(
            "CREATE TABLE consumed_operation (consumer_name VARCHAR(64), business_key VARCHAR(128), amount BIGINT,
                 applied_at DATETIME(6) NULL, PRIMARY KEY (consumer_name, business_key))
                 DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_general_ci",
        )
        .await;
    bench
        .run(
            "INSERT INTO consumed_operation (consumer_name, business_key, applied_at)
             WITH RECURSIVE at (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM at WHERE n < 20)
             SELECT IF(n <= 7, 'a', 'B'), CONCAT(IF(n % 3, 'Key-', 'key-'), n * 7 % 20),
                 NOW(6) - INTERVAL IF(n % 2, 8, 6) DAY FROM at",
        )
        .await;
    bench
        .run(
            "SET SESSION sql_mode = '';
             INSERT INTO consumed_operation (consumer_name, business_key, applied_at) VALUES
                 ('a', 'undated', NULL), ('b', 'other', '0000-00-00 00:00:00'), ('', '', '2020-01-01 00:00:00')",
        )
        .await;
    bench
}

async fn only_old_markers_go_whatever_the_page(server: Server) {
    for page in [1, 2, 7, 22, 23, 24, 1000] {
        let bench = filled(server).await;
        let plan = bench.inbox().plan_purge(&beyond_a_week(page)).await.unwrap();
        let PurgePlan { examined, old, undated, oldest_applied_at } = plan;
        assert_eq!((examined, old, undated), (23, 11, 2), "page {page}");
        assert_eq!(oldest_applied_at.as_deref(), Some("2020-01-01 00:00:00.000000"));

        let report = bench.inbox().purge_markers(&beyond_a_week(page)).await.unwrap();

        assert_eq!((report.examined, report.purged, report.undated), (23, 11, 2), "page {page}");
        assert!(report.finished && report.pages <= 11 && report.pages >= 1, "{report:?}");
        let young = "SELECT COUNT(*) FROM consumed_operation WHERE applied_at > NOW(6) - INTERVAL 7 DAY";
        assert_eq!(bench.number(young).await, 10);
        assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 12);
    }
}

async fn a_limit_ends_the_purge_and_the_next_one_goes_on(server: Server) {
    for page in [1, 4, 100] {
        let bench = filled(server).await;
        let inbox = bench.inbox();
        let purge = PurgeMarkers { limit: Some(4), ..beyond_a_week(page) };

        let mut purged = Vec::new();
        for _ in 0..3 {
            let report = inbox.purge_markers(&purge).await.unwrap();
            assert_eq!(report.finished, report.purged < 4, "{report:?}");
            purged.push(report.purged);
        }

        assert_eq!(purged, [4, 4, 3], "page {page}");
    }
}

async fn a_purge_stops_when_it_is_told_to(server: Server) {
    let bench = filled(server).await;
    let mut seen = Vec::new();

    let stopped = bench
        .inbox()
        .purge_markers_while(&beyond_a_week(5), |report| {
            seen.push(report.examined);
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await
        .unwrap();

    assert_eq!((seen, stopped.examined, stopped.finished), (vec![5, 10], 10, false));
    let kept = bench.number("SELECT COUNT(*) FROM consumed_operation").await;
    assert_eq!(u64::try_from(kept).unwrap() + stopped.purged, 23);
}

/// The markers of operations under way lie anywhere between old ones.
async fn markers_under_way_make_no_purge_wait(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    bench
        .run(
            "INSERT INTO consumed_operation (consumer_name, business_key, applied_at)
             WITH RECURSIVE at (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM at WHERE n < 900)
             SELECT 'c', LPAD(n * 2, 6, '0'), NOW(6) - INTERVAL IF(n <= 300, 8, 6) DAY FROM at",
        )
        .await;
    bench.run("ANALYZE TABLE consumed_operation").await;
    let mut holder = bench.begin().await;
    for key in ["000001", "000301", "000599"] {
        let insert = "INSERT INTO consumed_operation (consumer_name, business_key) VALUES ('c', ?)";
        sqlx::query(insert).bind(key).execute(&mut *holder).await.unwrap();
    }

    let report = bench.inbox().purge_markers(&beyond_a_week(500)).await.unwrap();

    assert_eq!((report.examined, report.purged, report.pages), (900, 300, 1));
    holder.commit().await.unwrap();
}

async fn every_page_is_found_by_the_primary_key(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    bench
        .run(
            "INSERT INTO consumed_operation (consumer_name, business_key)
             WITH RECURSIVE at (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM at WHERE n < 900)
             SELECT IF(n % 2, 'a', 'b'), LPAD(n, 6, '0') FROM at",
        )
        .await;
    bench.run("ANALYZE TABLE consumed_operation").await;
    let file = include_str!("../../../src/mysql/sql/marker_page.sql");
    let page = file.replacen("CAST(? AS", "CAST('2026-01-01' AS", 1).replace("LIMIT ?", "LIMIT 100");
    let after = "AND (`consumer_name` > 'a' OR (`consumer_name` = 'a' AND `business_key` > '000400'))";
    let (start, rest) = page.split_once("-- ? after:").unwrap();
    let (_, end) = rest.split_once('\n').unwrap();
    for (page, kinds) in
        [(format!("{start}{end}"), ["index", "range"]), (format!("{start}{after}\n{end}"), ["range"; 2])]
    {
        let explain = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {page}")));
        let row = explain.fetch_one(&bench.pool).await.unwrap();
        let cell = |column| {
            let text: Option<String> = sqlx::Row::try_get_unchecked(&row, column).unwrap();
            text.unwrap_or_default()
        };
        assert_eq!(cell("key"), "PRIMARY", "{}", cell("Extra"));
        assert!(kinds.contains(&cell("type").as_str()), "{}", cell("type"));
        assert!(!cell("Extra").contains("filesort"), "{}", cell("Extra"));
    }
}

async fn an_empty_table_and_those_without_dates(server: Server) {
    let (migrated, contract) =
        (Bench::migrated(server, PayloadColumn::Json).await, Bench::contract(server).await);
    let report = migrated.inbox().purge_markers(&beyond_a_week(10)).await;
    assert_eq!(report, Ok(PurgeReport { finished: true, ..PurgeReport::default() }));

    let error = contract.inbox().purge_markers(&beyond_a_week(10)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Schema(text) if text.contains("no column applied_at")), "{error}");
    contract.run("ALTER TABLE consumed_operation ADD applied_at BIGINT").await;
    contract
        .run("INSERT INTO consumed_operation (consumer_name, business_key, applied_at) VALUES ('c', 'k', 1700000000)")
        .await;
    let error = contract.inbox().purge_markers(&beyond_a_week(10)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Schema(text) if text.contains("bigint")), "{error}");
}
