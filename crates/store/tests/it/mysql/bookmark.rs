//! Claims that go on where the last one ended, and rows that lie before that place.

use std::collections::BTreeSet;
use std::time::Duration;

use consign_conformance::waiting::eventually;
use consign_core::ports::OutboxStore;
use consign_store::mapping::OutboxMapping;
use consign_store::mysql::{Database, Options, Outbox};
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::mysql::server::{Bench, CONTRACT_OUTBOX, Server, claim, ids, request};

on_both_servers!(
    from_a_place_the_claim_reads_two_ranges_of_the_index,
    a_backlog_is_claimed_in_order_and_once,
    rows_of_one_moment_are_claimed_once,
    an_old_row_before_the_place_is_found_among_a_backlog,
    an_old_row_before_the_place_is_found_when_claims_run_empty,
    a_row_that_commits_late_is_not_passed_by,
    unlocked_rows_before_the_place_are_found,
    two_claimers_with_one_bookmark_take_everything_once,
    odd_columns_and_a_table_without_the_index_are_claimed_as_before,
);

const FROM: &str = include_str!("../../../src/mysql/sql/claim_select_from.sql");

/// Inserts `count` rows due since `seconds`, one microsecond apart or all in one moment.
async fn backlog(bench: &Bench, prefix: &str, count: usize, seconds: u32, apart: bool) {
    let step = u8::from(apart);
    let digits = "WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                  SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS number FROM ten a, ten b, ten c, ten d";
    bench
        .run(&format!(
            "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at)
             SELECT CONCAT('{prefix}', LPAD(number, 5, '0')), 'T', '{{}}', 'NEW', 0,
                 NOW(6) - INTERVAL {seconds} SECOND + INTERVAL number * {step} MICROSECOND, NOW(6)
             FROM ({digits}) AS numbers WHERE number < {count}"
        ))
        .await;
}

async fn insert_old(bench: &Bench, id: &str) {
    bench
        .run(&format!(
            "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at)
             VALUES ('{id}', 'T', '{{}}', 'NEW', 0, NOW(6) - INTERVAL 1 DAY, NOW(6))"
        ))
        .await;
}

async fn from_a_place_the_claim_reads_two_ranges_of_the_index(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 5_000, 3_600, true).await;
    bench.run("ANALYZE TABLE outbox_event").await;
    let middle = "SELECT DATE_FORMAT(available_at, '%Y-%m-%d %H:%i:%s.%f') FROM outbox_event WHERE event_id = 'e02500'";
    for date in [bench.text(middle).await.expect("a date"), "2999-01-01 00:00:00.000000".into()] {
        let explain = AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {FROM}"));
        let values = sqlx::query(explain).bind(&date).bind(&date).bind("e02500").bind(&date).bind(200);
        let row = values.fetch_one(&bench.pool).await.expect("a plan");
        let cell = |column: &str| row.try_get_unchecked::<String, _>(column).expect("text");

        assert_eq!((cell("key").as_str(), cell("type").as_str()), ("idx_pending", "range"));
        assert!(!cell("Extra").contains("filesort"), "it sorts: {}", cell("Extra"));
    }
}

async fn a_backlog_is_claimed_in_order_and_once(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 700, 3_600, true).await;
    let outbox = bench.outbox();
    let mut taken = Vec::new();
    loop {
        let claimed = claim(&outbox, 7).await;
        if claimed.claims.is_empty() {
            break;
        }
        taken.extend(ids(&claimed).into_iter().map(str::to_owned));
    }

    let expected = (0..700).map(|number| format!("e{number:05}")).collect::<Vec<_>>();
    assert_eq!(taken, expected);
}

/// A bulk INSERT gives all its rows one date.
async fn rows_of_one_moment_are_claimed_once(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 300, 3_600, false).await;
    backlog(&bench, "f", 300, 1, false).await;
    let outbox = bench.outbox();
    let mut taken = Vec::new();
    for _ in 0..60 {
        taken.extend(ids(&claim(&outbox, 10).await).into_iter().map(str::to_owned));
    }

    let expected = ["e", "f"].iter().flat_map(|prefix| (0..300).map(move |n| format!("{prefix}{n:05}")));
    assert_eq!(taken, expected.collect::<Vec<_>>());
}

async fn an_old_row_before_the_place_is_found_among_a_backlog(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 5_000, 3_600, true).await;
    let outbox = bench.outbox();
    assert_eq!(ids(&claim(&outbox, 1).await), ["e00000"]);
    insert_old(&bench, "late").await;

    let mut claims = 1;
    while ids(&claim(&outbox, 1).await) != ["late"] {
        claims += 1;
        assert!(claims < 5_000, "the old row was never found");
    }

    assert!(claims > 1, "the place was not used");
}

async fn an_old_row_before_the_place_is_found_when_claims_run_empty(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 20, 3_600, true).await;
    let outbox = bench.outbox();
    for _ in 0..2 {
        assert_eq!(claim(&outbox, 10).await.claims.len(), 10);
    }
    insert_old(&bench, "late").await;

    // At once, unless the first look was uncommonly slow.
    eventually(Duration::from_secs(20), || async { ids(&claim(&outbox, 10).await) == ["late"] }).await;
}

/// Its date is the moment of the INSERT, and others with later dates were claimed before its COMMIT.
async fn a_row_that_commits_late_is_not_passed_by(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let mut late = bench.begin().await;
    let insert =
        "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at)
                  VALUES ('late', 'T', '{}', 'NEW', 0, NOW(6), NOW(6))";
    raw_sql(insert).execute(&mut *late).await.expect("it is inserted");
    backlog(&bench, "e", 40, 0, false).await;
    assert_eq!(claim(&outbox, 10).await.claims.len(), 10);
    late.commit().await.expect("it commits");

    // From the place, with rows left behind it: no full look is due.
    let claimed = claim(&outbox, 10).await;

    assert_eq!(ids(&claimed)[0], "late");
}

async fn unlocked_rows_before_the_place_are_found(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "a", 50, 3_600, true).await;
    backlog(&bench, "b", 2_000, 1_800, true).await;
    let outbox = bench.outbox();
    let mut holder = bench.begin().await;
    let lock = "SELECT event_id FROM outbox_event WHERE event_id LIKE 'a%' FOR UPDATE";
    assert_eq!(raw_sql(lock).fetch_all(&mut *holder).await.expect("they are locked").len(), 50);
    for _ in 0..40 {
        let claimed = claim(&outbox, 10).await;
        assert!(ids(&claimed).iter().all(|id| id.starts_with('b')));
        assert_eq!(claimed.claims.len(), 10);
    }
    holder.rollback().await.expect("they are unlocked");

    let mut found = BTreeSet::new();
    for _ in 0..160 {
        let claimed = claim(&outbox, 10).await;
        found.extend(ids(&claimed).into_iter().filter(|id| id.starts_with('a')).map(str::to_owned));
    }

    assert_eq!(found.len(), 50);
}

async fn two_claimers_with_one_bookmark_take_everything_once(server: Server) {
    let bench = Bench::contract(server).await;
    backlog(&bench, "e", 2_000, 3_600, true).await;
    let outbox = bench.outbox();
    let claimers = (0..2).map(|_| {
        let outbox = outbox.clone();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..100 {
                // A contended claim took nothing, and what it passed is looked at again.
                if let Ok(claimed) = outbox.claim(request(10)).await {
                    taken.extend(ids(&claimed).into_iter().map(str::to_owned));
                }
            }
            taken
        })
    });
    let mut taken = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        taken.extend(claimer.await.expect("no claimer panics"));
    }
    eventually(Duration::from_secs(20), || async {
        claim(&outbox, 500).await.claims.is_empty()
            && bench.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW'").await == 0
    })
    .await;

    let different = taken.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(different, taken.len(), "a row was claimed twice");
    assert!(taken.len() > 1_500, "the claimers took only {}", taken.len());
}

async fn odd_columns_and_a_table_without_the_index_are_claimed_as_before(server: Server) {
    for change in [
        "ALTER TABLE outbox_event MODIFY available_at DATETIME",
        "ALTER TABLE outbox_event MODIFY available_at TIMESTAMP(6) NULL",
        "ALTER TABLE outbox_event MODIFY available_at DATE",
        "ALTER TABLE outbox_event MODIFY available_at VARCHAR(40)",
        "ALTER TABLE outbox_event MODIFY status ENUM('SENT', 'SENDING', 'NEW', 'DEAD', 'DISCARDED')",
        "ALTER TABLE outbox_event DROP INDEX idx_pending",
    ] {
        let bench = Bench::new(server).await;
        bench.run(CONTRACT_OUTBOX).await;
        bench.run(change).await;
        let insert = "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at)";
        for number in 0..30 {
            let date = format!("NOW(6) - INTERVAL {} SECOND", 90_000 * (30 - number));
            bench
                .run(&format!("{insert} VALUES ('e{number:02}', 'T', '{{}}', 'NEW', 0, {date}, NOW(6))"))
                .await;
        }
        bench.run(&format!("{insert} VALUES ('never', 'T', '{{}}', 'NEW', 0, NULL, NOW(6))")).await;
        // In another zone than the server's, as producers may be.
        let options = Options { time_zone: Some("+01:30".into()), ..bench.options() };
        let database = Database::open(&options).expect("valid options");
        let outbox = Outbox::new(database, OutboxMapping::default(), "relay-test");
        let mut taken = Vec::new();
        for _ in 0..6 {
            taken.extend(ids(&claim(&outbox, 5).await).into_iter().map(str::to_owned));
        }

        let expected = (0..30).map(|number| format!("e{number:02}")).collect::<Vec<_>>();
        assert_eq!(taken, expected, "{change}");
        assert_eq!(bench.status_of("never").await, "NEW");
    }
}
