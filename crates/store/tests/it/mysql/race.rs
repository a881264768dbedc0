//! Many at once: claimers, settlers, consumers, and callers that lose patience.

use std::time::Duration;

use consign_conformance::proxy::{Direction, Flow};
use consign_conformance::waiting::eventually;
use consign_core::event::EventId;
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{CommitError, InboxStore, InboxTransaction, Mark, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled};
use consign_core::value::Value;
use consign_store::mapping::{MarkerMapping, OutboxMapping};
use consign_store::mysql::{Database, Inbox, Options, Outbox};

use crate::mysql::server::{Bench, Server, claim, ids, released, request, settle};

on_both_servers!(
    eight_claimers_take_two_hundred_rows_once,
    every_worker_gets_its_share_in_one_round,
    shuffled_settles_of_eight_relays_never_deadlock,
    fresh_markers_of_sixteen_consumers_never_deadlock,
    a_lock_wait_timeout_can_not_be_committed_as_half,
    impatient_callers_leave_no_transaction_open,
    settles_do_not_starve_behind_claims,
    claimers_settlers_and_producers_never_fail_each_other,
);

async fn fill(bench: &Bench, count: usize) {
    for number in 0..count {
        bench.insert(&format!("event-{number:04}")).await;
    }
}

/// B03, `dotnetcore/CAP#1257`: instances that start together must not take the same rows.
async fn eight_claimers_take_two_hundred_rows_once(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 200).await;
    let claimers = (0..8).map(|_| {
        let outbox = bench.outbox();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let claimed = outbox.claim(request(7)).await.expect("a claim never fails");
                if claimed.claims.is_empty() && !claimed.more {
                    return taken;
                }
                taken.extend(ids(&claimed).into_iter().map(str::to_owned));
            }
        })
    });
    let mut taken = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        taken.extend(claimer.await.expect("no claimer panics"));
    }

    taken.sort_unstable();
    let claimed_by_nobody_else = taken.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(claimed_by_nobody_else, "a row was claimed twice");
    // A claimer that met only locked rows stopped early; what it left, a later claim takes.
    let left = bench.outbox().claim(request(200)).await.expect("the claim succeeds").claims.len();
    assert_eq!(taken.len() + left, 200);
    assert!(taken.len() > 100, "the claimers took only {}", taken.len());
}

/// B15, `cockroachdb/cockroach#121917`: a sort above the lock takes more rows than it gives.
async fn every_worker_gets_its_share_in_one_round(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 40).await;
    let select = include_str!("../../../src/mysql/sql/claim_select.sql");
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut tx = bench.begin().await;
        let level = "ROLLBACK; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN";
        sqlx::raw_sql(level).execute(&mut *tx).await.expect("it begins");

        let rows = sqlx::query(select).bind(10).fetch_all(&mut *tx).await.expect("it reads");

        assert_eq!(rows.len(), 10);
        open.push(tx);
    }
}

/// B14, `cenkalti/dalga#25`: rows locked in different orders.
async fn shuffled_settles_of_eight_relays_never_deadlock(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 320).await;
    let relays = (0..8_usize).map(|relay| {
        let outbox = bench.outbox();
        tokio::spawn(async move {
            let mut settled = 0;
            for round in 0..6 {
                let claims = outbox.claim(request(40)).await.expect("a claim never fails").claims;
                let mut settlements = claims
                    .into_iter()
                    .map(|claim| {
                        if (round + relay) % 2 == 0 {
                            claim.dead("over")
                        } else {
                            claim.release(Duration::ZERO, "again")
                        }
                    })
                    .collect::<Vec<_>>();
                let length = settlements.len().max(1);
                settlements.rotate_left((relay * 7 + round * 3) % length);
                let batch = SettleBatch { settlements, repeat: false };
                let answers = outbox.settle(&batch).await.expect("a settle never deadlocks");
                assert!(answers.iter().all(|answer| *answer == Settled::Applied));
                settled += answers.len();
            }
            settled
        })
    });
    let mut settled = 0;
    for relay in relays.collect::<Vec<_>>() {
        settled += relay.await.expect("no relay panics");
    }

    assert!(settled >= 320, "only {settled} rows were settled");
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENDING'").await, 0);
}

fn operation(key: &str) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        event_id: Some(EventId::stored("event")),
        comparison: Comparison::Columns(vec![
            Compared { column: "user_id".into(), value: Value::Integer(7) },
            Compared { column: "amount".into(), value: Value::Integer(100) },
        ]),
        ..Operation::default()
    }
}

/// B12, `TencentBlueKing/bk-ci#11779`: gap locks of locking reads and upserts on an empty table.
async fn fresh_markers_of_sixteen_consumers_never_deadlock(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    for user in 0..16 {
        bench.run(&format!("INSERT INTO points_account VALUES ({user}, 0)")).await;
    }
    let database =
        Database::open(&Options { connections_max: 16, ..bench.options() }).expect("valid options");
    let inbox = Inbox::new(database, MarkerMapping::default());
    let consumers = (0..16_i128).map(|consumer| {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            for number in 0..40 {
                let mut tx = inbox.begin().await.expect("a transaction");
                let key = format!("order:{}", number * 16 + consumer);
                assert_eq!(tx.mark(&operation(&key)).await, Ok(Mark::Inserted));
                let add = "UPDATE points_account SET points = points + 1 WHERE user_id = ?";
                assert_eq!(tx.execute(add, &[Value::Integer(consumer)]).await, Ok(1));
                tx.commit().await.expect("the commit succeeds");
            }
        })
    });
    for consumer in consumers.collect::<Vec<_>>() {
        consumer.await.expect("no consumer deadlocks");
    }

    assert_eq!(bench.number("SELECT SUM(points) FROM points_account").await, 640);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 640);
}

/// B10, `zodb/relstorage#313`: a lock wait timeout undoes one statement; what came before is still there to commit.
async fn a_lock_wait_timeout_can_not_be_committed_as_half(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    bench.run("INSERT INTO points_account VALUES (1, 0), (2, 0)").await;
    let inbox = bench.inbox();
    let mut holder = bench.begin().await;
    let hold = "UPDATE points_account SET points = points WHERE user_id = 2";
    sqlx::raw_sql(hold).execute(&mut *holder).await.expect("the row is locked");
    let mut tx = inbox.begin().await.expect("a transaction");
    assert_eq!(tx.mark(&operation("order:1")).await, Ok(Mark::Inserted));
    let add = "UPDATE points_account SET points = points + 1 WHERE user_id = ?";
    assert_eq!(tx.execute(add, &[Value::Integer(1)]).await, Ok(1));

    let waited = tx.execute(add, &[Value::Integer(2)]).await;
    let committed = tx.commit().await;

    assert!(matches!(waited, Err(StoreError::Contended(_))), "{waited:?}");
    assert!(matches!(committed, Err(CommitError::RolledBack(StoreError::Contended(_)))), "{committed:?}");
    assert_eq!(bench.number("SELECT SUM(points) FROM points_account").await, 0);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
    holder.rollback().await.expect("the rollback succeeds");
    let mut tx = inbox.begin().await.expect("the connection is usable");
    assert_eq!(tx.mark(&operation("order:1")).await, Ok(Mark::Inserted));
    tx.commit().await.expect("the commit succeeds");
}

/// B82, `transact-rs/sqlx#4385`: a cancelled BEGIN leaves its transaction open on a pooled connection, and the next
/// user's writes are lost in it.
async fn impatient_callers_leave_no_transaction_open(server: Server) {
    let bench = Bench::contract(server).await;
    fill(&bench, 60).await;
    let (proxy, options) = bench.proxied().await;
    let options = Options { connections_max: 1, ..options };
    let database = Database::open(&options).expect("valid options");
    let outbox = Outbox::new(database.clone(), OutboxMapping::default(), "relay-test");
    let inbox = Inbox::new(database, MarkerMapping::default());
    outbox.claim(request(0)).await.expect("the claim succeeds");
    proxy.set(Direction::ToClient, Flow::Delay(Duration::from_millis(3)));
    let mut cut_short = 0;
    for round in 0..150_u64 {
        let patience = Duration::from_micros(round * 200);
        cut_short += i32::from(tokio::time::timeout(patience, outbox.claim(request(1))).await.is_err());
        let work = async {
            let mut tx = inbox.begin().await?;
            tx.mark(&operation(&format!("order:{round}"))).await?;
            tx.execute("UPDATE outbox_event SET aggregate_id = 1 WHERE event_id = 'event-0000'", &[]).await?;
            tx.commit().await.map_err(|error| match error {
                CommitError::RolledBack(error) | CommitError::Unknown(error) => error,
            })
        };
        let done = tokio::time::timeout(patience, work).await;
        cut_short += i32::from(done.is_err());
    }
    proxy.heal();

    assert!(cut_short > 50, "only {cut_short} calls were cut short");
    eventually(Duration::from_secs(30), || async { bench.open_transactions().await == 0 }).await;
    let mut tx = inbox.begin().await.expect("a transaction");
    assert_eq!(tx.mark(&operation("afterwards")).await, Ok(Mark::Inserted));
    tx.commit().await.expect("the commit succeeds");
    let seen = "SELECT COUNT(*) FROM consumed_operation WHERE business_key = 'afterwards'";
    assert_eq!(bench.number(seen).await, 1);
    let half = "SELECT COUNT(*) FROM outbox_event WHERE (status = 'SENDING') <> (lease_token IS NOT NULL)";
    assert_eq!(bench.number(half).await, 0);
}

/// Claims that hang on a locked table definition must not keep settles from their connections.
async fn settles_do_not_starve_behind_claims(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    let outbox = bench.outbox();
    let claims = outbox.claim(request(1)).await.expect("the claim succeeds").claims;
    let hanging = (0..20)
        .map(|_| {
            let outbox = outbox.clone();
            tokio::spawn(async move { outbox.claim(request(1)).await })
        })
        .collect::<Vec<_>>();

    let batch = SettleBatch { settlements: released(claims), repeat: false };
    let settled = outbox.settle(&batch).await;

    assert_eq!(settled, Ok(vec![Settled::Applied]));
    for claim in hanging {
        claim.await.expect("no claim panics").expect("a claim waits for its connection");
    }
}

/// B12 and B14 (`TencentBlueKing/bk-ci#11779`, `cenkalti/dalga#25`): rows locked in different orders deadlock. Settles
/// arrive shuffled here and must still lock in key order; whatever loses a race is contended and succeeds later.
async fn claimers_settlers_and_producers_never_fail_each_other(server: Server) {
    const ROWS: usize = 600;
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
        settled += worker.await.expect("no worker panics");
    }

    // What was inserted after the last worker had gone home is claimed here.
    let rest = claim(&outbox, 500).await;
    let late = ids(&rest).len();
    let _ = settle(&outbox, released(rest.claims)).await;
    assert_eq!(settled + late, ROWS + 200);
    let dead = bench.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await;
    assert_eq!(usize::try_from(dead).expect("a count"), settled);
}
