//! Ordered claims: the suite on both servers, on consign's own tables and on the contract's, and how they read.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};

use consign_conformance::ordered::{OrderedFixture, OrderedRow};
use consign_conformance::store::request;
use consign_core::finding::Severity;
use consign_core::relay::DeadHead;
use consign_store::mysql::{OrderedOutbox, PayloadColumn};
use consign_store::order::{BlockedAggregate, OrderSettings};

use crate::mysql::server::{Bench, CONTRACT_MARKERS, CONTRACT_OUTBOX, Server, ids, settle};
use crate::mysql::suites::{Contract, Json, On, OnMariaDb, OnMySql, Tables};

consign_conformance::ordered_suite!(mysql_contract, MySqlContract);
consign_conformance::ordered_suite!(mysql_migrated, MySqlMigrated);
consign_conformance::ordered_suite!(mariadb_contract, MariaDbContract);
consign_conformance::ordered_suite!(mariadb_migrated, MariaDbMigrated);

type MySqlContract = Fixture<OnMySql, Contract>;
type MySqlMigrated = Fixture<OnMySql, Json>;
type MariaDbContract = Fixture<OnMariaDb, Contract>;
type MariaDbMigrated = Fixture<OnMariaDb, Json>;

on_both_servers!(
    a_locked_row_ends_its_chain_and_no_other,
    the_contracts_table_gains_an_index_and_is_claimed_by_it,
    what_the_order_rests_on_is_reported,
    blocked_aggregates_are_told,
);

pub const BLOCK: OrderSettings = OrderSettings { partitions: 0, dead: DeadHead::Block };

pub struct Fixture<S, T> {
    bench: Bench,
    appended: AtomicI64,
    kind: PhantomData<(S, T)>,
}

impl<S: On, T: Tables> OrderedFixture for Fixture<S, T> {
    type Store = OrderedOutbox;

    const FULL: bool = T::PAYLOAD.is_some();

    async fn fresh() -> Self {
        let bench = Bench::with_collation(S::SERVER, Some(S::SERVER.exact_collation())).await;
        if let Some(payload) = T::PAYLOAD {
            bench.migrate_for_order(payload).await;
        } else {
            bench.run(CONTRACT_OUTBOX).await;
            bench.run(CONTRACT_MARKERS).await;
        }
        Self { bench, appended: AtomicI64::new(0), kind: PhantomData }
    }

    async fn store(&self, dead: DeadHead) -> OrderedOutbox {
        self.bench.outbox().ordered(OrderSettings { partitions: 0, dead })
    }

    async fn append(&self, rows: &[OrderedRow]) {
        append(&self.bench, rows, Self::FULL, &self.appended).await;
    }

    async fn status(&self, id: &str) -> String {
        self.bench.status_of(id).await
    }

    async fn set_status(&self, id: &str, status: &str) {
        self.bench.run(&format!("UPDATE outbox_event SET status = '{status}' WHERE event_id = '{id}'")).await;
    }

    async fn due_in_millis(&self, id: &str) -> i64 {
        let due = format!(
            "SELECT TIMESTAMPDIFF(MICROSECOND, NOW(6), available_at) DIV 1000 FROM outbox_event WHERE event_id = '{id}'"
        );
        self.bench.number(&due).await
    }

    async fn set_due(&self, id: &str, millis: i64) {
        self.bench
            .run(&format!(
                "UPDATE outbox_event SET available_at = NOW(6) + INTERVAL {millis} * 1000 MICROSECOND WHERE event_id = '{id}'"
            ))
            .await;
    }

    async fn expire_lease(&self, id: &str) {
        self.bench
            .run(&format!(
                "UPDATE outbox_event SET locked_until = NOW(6) - INTERVAL 1 SECOND WHERE event_id = '{id}'"
            ))
            .await;
    }
}

async fn append(bench: &Bench, rows: &[OrderedRow], full: bool, appended: &AtomicI64) {
    let mut tx = bench.begin().await;
    for row in rows {
        let (kind, place) = if full { (", aggregate_type", ", ?") } else { ("", "") };
        let insert = format!(
            "INSERT INTO outbox_event (event_id, event_type, payload, aggregate_id, attempts, status, created_at, \
             available_at{kind}) VALUES (?, 'OrderPaid', '{{}}', ?, ?, ?, \
             TIMESTAMP('2026-01-01') + INTERVAL ? MICROSECOND, NOW(6) + INTERVAL ? MICROSECOND{place})"
        );
        let insert = sqlx::query(sqlx::AssertSqlSafe(insert))
            .bind(&row.id)
            .bind(&row.aggregate)
            .bind(row.attempts)
            .bind(row.status)
            .bind(appended.fetch_add(1, Ordering::SeqCst))
            .bind(row.due_in_millis * 1000);
        let insert = if full { insert.bind(&row.kind) } else { insert };
        insert.execute(&mut *tx).await.expect("the row is inserted");
    }
    tx.commit().await.expect("the commit succeeds");
}

fn rows(aggregate: u32, count: u32) -> Vec<OrderedRow> {
    (0..count).map(|step| OrderedRow::new(format!("{aggregate}-{step:05}"), aggregate.to_string())).collect()
}

/// As when an operator, or a claimer that is just committing, has a row of the chain.
async fn a_locked_row_ends_its_chain_and_no_other(server: Server) {
    let bench = Bench::migrated_for_order(server, PayloadColumn::Json).await;
    let appended = AtomicI64::new(0);
    append(&bench, &[rows(1, 3), rows(2, 2)].concat(), true, &appended).await;
    let mut tx = bench.begin().await;
    let lock = sqlx::query("SELECT event_id FROM outbox_event WHERE event_id = '1-00001' FOR UPDATE");
    lock.fetch_one(&mut *tx).await.expect("the row is locked");

    let claimed = request::claim(&bench.outbox().ordered(BLOCK), 10).await;

    tx.rollback().await.expect("the lock is released");
    assert_eq!(ids(&claimed), ["1-00000", "2-00000", "2-00001"]);
    assert_eq!(bench.status_of("1-00002").await, "NEW");
}

/// The table people have, after `consign migrate`.
async fn the_contracts_table_gains_an_index_and_is_claimed_by_it(server: Server) {
    let bench = Bench::contract(server).await;
    let appended = AtomicI64::new(0);
    append(&bench, &rows(1, 3), false, &appended).await;
    let slow = bench.outbox().ordered(BLOCK);
    let first = request::claim(&slow, 1).await;
    assert_eq!(ids(&first), ["1-00000"]);

    bench.migrate(PayloadColumn::Json).await;
    let ran = bench.migrate_for_order(PayloadColumn::Json).await;

    assert!(ran.iter().any(|statement| statement.contains("idx_aggregate")), "{ran:#?}");
    assert_eq!(ran.len(), 1, "competing relays need no such index: {ran:#?}");
    assert_eq!(bench.migrate_for_order(PayloadColumn::Json).await, Vec::<String>::new());
    settle(
        slow.outbox(),
        first.claims.into_iter().map(consign_conformance::store::settlement::sent).collect(),
    )
    .await;
    let fast = bench.outbox().ordered(BLOCK);
    let codes: Vec<_> = fast.ordered_findings().await.expect("findings");
    assert!(
        codes
            .iter()
            .any(|finding| finding.code == "outbox-order-index" && finding.severity == Severity::Fine)
    );
    assert_eq!(ids(&request::claim(&fast, 10).await), ["1-00001", "1-00002"]);
    bench.run("ALTER TABLE outbox_event DROP KEY idx_aggregate").await;
    append(&bench, &rows(2, 1), true, &appended).await;
    let refused = consign_core::ports::OutboxStore::claim(&fast, request::request(10)).await;
    assert!(matches!(refused, Err(consign_core::ports::StoreError::Schema(_))), "{refused:?}");
    assert_eq!(ids(&request::claim(&fast, 10).await), ["2-00000"], "it looks again");
}

async fn what_the_order_rests_on_is_reported(server: Server) {
    let bench = Bench::with_collation(server, Some(server.exact_collation())).await;
    bench.migrate_for_order(PayloadColumn::Json).await;
    let shared = OrderSettings { partitions: 8, ..BLOCK };
    let severities = |findings: Vec<consign_core::finding::Finding>| -> Vec<_> {
        findings.into_iter().map(|finding| (finding.code, finding.severity)).collect()
    };
    let findings = bench.outbox().ordered(shared).ordered_findings().await.expect("findings");
    assert_eq!(
        severities(findings),
        [("outbox-order-sequence", Severity::Fine), ("outbox-order-index", Severity::Fine)]
    );

    let contract = Bench::contract(server).await;
    let findings = contract.outbox().ordered(shared).ordered_findings().await.expect("findings");
    let ddl = findings[1].fix.split_once("or ").expect("a statement").1.to_owned();
    assert_eq!(
        severities(findings),
        [
            ("outbox-order-sequence", Severity::Warning),
            ("outbox-order-index", Severity::Warning),
            ("outbox-order-table-missing", Severity::Error),
            ("outbox-order-table-missing", Severity::Error),
        ]
    );
    contract.run(&ddl).await;
    contract.run("ALTER TABLE outbox_event MODIFY aggregate_id DOUBLE").await;
    let findings = contract.outbox().ordered(BLOCK).ordered_findings().await.expect("findings");
    assert_eq!(
        severities(findings),
        [
            ("outbox-order-sequence", Severity::Warning),
            ("outbox-order-type", Severity::Error),
            ("outbox-order-index", Severity::Fine),
        ]
    );
    contract.run("ALTER TABLE outbox_event MODIFY aggregate_id VARCHAR(64) COLLATE utf8mb4_general_ci").await;
    let findings = contract.outbox().ordered(BLOCK).ordered_findings().await.expect("findings");
    assert!(severities(findings).contains(&("outbox-order-collation", Severity::Warning)));
}

async fn blocked_aggregates_are_told(server: Server) {
    for full in [true, false] {
        let bench = if full {
            Bench::migrated_for_order(server, PayloadColumn::Json).await
        } else {
            Bench::contract(server).await
        };
        let rows = [
            OrderedRow::new("a", "1").status("DEAD"),
            OrderedRow::new("b", "1"),
            OrderedRow::new("c", "1"),
            OrderedRow::new("d", "2"),
            OrderedRow::new("e", "2").status("DEAD"),
        ];
        append(&bench, &rows, full, &AtomicI64::new(0)).await;

        let status = bench.outbox().ordered(BLOCK).order_status().await.expect("a status");

        let blocked =
            BlockedAggregate { aggregate_type: None, aggregate_id: "1".into(), dead: 1, waiting: 2 };
        assert_eq!((status.blocked, status.relays, status.free), (vec![blocked], vec![], 0));
    }
}
