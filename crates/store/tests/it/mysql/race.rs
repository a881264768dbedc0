//! Claimers, settlers and producers side by side: what InnoDB's locks make of the shipped statements.

use consign_core::ports::{OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled};
use sqlx::Executor;

use crate::mysql::server::{Bench, Server, claim, ids, released, request, settle};

on_both_servers!(
    a_claim_locks_what_it_takes_and_no_more,
    claimers_settlers_and_producers_never_fail_each_other,
    the_claim_reads_the_pending_index_without_a_sort,
);

const CLAIM: &str = include_str!("../../../src/mysql/sql/claim_select.sql");

/// The shipped claim on the contract's table, as a DBA would paste it.
fn shipped_claim(limit: u32) -> String {
    let lines = CLAIM.lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").replace("LIMIT ?", &format!("LIMIT {limit}"))
}

async fn fill(bench: &Bench, rows: u32) {
    bench
        .run(&format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, attempts, available_at, created_at)
             WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
             SELECT CONCAT('row-', a.n, b.n, c.n, d.n), 1, 'OrderPaid', '{{}}', 'NEW', 0, NOW(6) - INTERVAL 1 MINUTE, NOW(6)
             FROM ten a, ten b, ten c, ten d LIMIT {rows}"
        ))
        .await;
}

/// B02 (`OneUptime/oneuptime#3117`): a claim that sorts locks every due row, and everybody else gets none.
async fn a_claim_locks_what_it_takes_and_no_more(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 10_000).await;
    let mut by_hand = bench.begin().await;
    by_hand.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.ok();
    let taken = by_hand.fetch_all(sqlx::AssertSqlSafe(shipped_claim(1))).await.unwrap();

    let claimed = claim(&bench.outbox(), 500).await;

    assert_eq!(taken.len(), 1);
    assert_eq!(claimed.claims.len(), 500);
    by_hand.rollback().await.unwrap();
}

/// The access path that the test above rests on.
async fn the_claim_reads_the_pending_index_without_a_sort(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 10_000).await;
    bench.run("ANALYZE TABLE outbox_event").await;

    let form = match server {
        Server::MySql => "FORMAT = TRADITIONAL",
        Server::MariaDb => "",
    };
    let explain = format!("EXPLAIN {form} {}", shipped_claim(100));
    let row = sqlx::query(sqlx::AssertSqlSafe(explain)).fetch_one(&bench.pool).await.unwrap();
    let key: Option<String> = sqlx::Row::try_get_unchecked(&row, "key").unwrap();
    let extra: Option<String> = sqlx::Row::try_get_unchecked(&row, "Extra").unwrap();

    assert_eq!(key.as_deref(), Some("idx_pending"));
    assert!(!extra.unwrap_or_default().contains("filesort"));
}

/// B12 and B14 (`TencentBlueKing/bk-ci#11779`, `cenkalti/dalga#25`): rows locked in different orders deadlock. Settles
/// arrive shuffled here and must still lock in key order; whatever loses a race is contended and succeeds later.
async fn claimers_settlers_and_producers_never_fail_each_other(server: Server) {
    const ROWS: u32 = 2000;
    let bench = Bench::contract(server).await;
    fill(&bench, ROWS).await;
    let outbox = bench.outbox();
    let workers = (0..8).map(|_| {
        let outbox = outbox.clone();
        tokio::spawn(async move {
            let mut settled = 0;
            loop {
                let claimed = match outbox.claim(request(60)).await {
                    Ok(claimed) => claimed,
                    Err(StoreError::Contended(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                let mut claims = claimed.claims;
                if claims.is_empty() {
                    return settled;
                }
                claims.reverse();
                let settlements = claims.into_iter().map(|claim| claim.dead("test")).collect();
                let batch = SettleBatch { settlements, repeat: false };
                loop {
                    match outbox.settle(&batch).await {
                        Ok(answers) => {
                            assert!(answers.iter().all(|answer| *answer == Settled::Applied));
                            settled += answers.len();
                            break;
                        }
                        Err(StoreError::Contended(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();

    for number in 0..200 {
        bench.insert(&format!("late-{number}")).await;
    }
    let mut settled = 0;
    for worker in workers {
        settled += worker.await.unwrap();
    }

    // What was inserted after the last worker had gone home is claimed here.
    let rest = claim(&outbox, 500).await;
    let late = ids(&rest).len();
    let _ = settle(&outbox, released(rest.claims)).await;
    assert_eq!(settled + late, ROWS as usize + 200);
    let dead = bench.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await;
    assert_eq!(usize::try_from(dead).unwrap(), settled);
}
