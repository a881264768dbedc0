//! Ordered claims: the suite on consign's own tables and on the contract's, and what is SQLite's own.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};

use consign_conformance::ordered::{OrderedFixture, OrderedRow};
use consign_core::finding::Severity;
use consign_core::relay::DeadHead;
use consign_store::order::{BlockedAggregate, OrderSettings};
use consign_store::sqlite::OrderedOutbox;
use sqlx::query;

use crate::sqlite::file::File;
use crate::sqlite::suites::{Contract, Migrated, Tables};

consign_conformance::ordered_suite!(ordered_contract, SqliteContract);
consign_conformance::ordered_suite!(ordered_migrated, SqliteMigrated);

type SqliteContract = Fixture<Contract>;
type SqliteMigrated = Fixture<Migrated>;

const BLOCK: OrderSettings = OrderSettings { partitions: 0, dead: DeadHead::Block };

pub struct Fixture<T> {
    file: File,
    appended: AtomicI64,
    kind: PhantomData<T>,
}

impl<T: Tables> OrderedFixture for Fixture<T> {
    type Store = OrderedOutbox;

    const FULL: bool = T::FULL;

    async fn fresh() -> Self {
        let file = if T::FULL { File::migrated_for_order().await } else { File::contract().await };
        Self { file, appended: AtomicI64::new(0), kind: PhantomData }
    }

    async fn store(&self, dead: DeadHead) -> OrderedOutbox {
        self.file.outbox().await.ordered(OrderSettings { partitions: 0, dead })
    }

    async fn append(&self, rows: &[OrderedRow]) {
        let mut tx = self.file.eye.begin_with("BEGIN IMMEDIATE").await.expect("a transaction begins");
        for row in rows {
            let (kind, place) = if T::FULL { (", aggregate_type", ", ?") } else { ("", "") };
            let insert = format!(
                "INSERT INTO outbox_event (event_id, event_type, payload, aggregate_id, attempts, status, created_at, \
                 available_at{kind}) VALUES (?, 'OrderPaid', '{{}}', ?, ?, ?, printf('2026-01-01 00:00:00.%06d', ?), \
                 strftime('%Y-%m-%d %H:%M:%f000', 'now', ?){place})"
            );
            let insert = query(sqlx::AssertSqlSafe(insert))
                .bind(&row.id)
                .bind(&row.aggregate)
                .bind(row.attempts)
                .bind(row.status)
                .bind(self.appended.fetch_add(1, Ordering::SeqCst))
                .bind(seconds(row.due_in_millis));
            let insert = if T::FULL { insert.bind(&row.kind) } else { insert };
            insert.execute(&mut *tx).await.expect("the row is inserted");
        }
        tx.commit().await.expect("the commit succeeds");
    }

    async fn status(&self, id: &str) -> String {
        let select = query("SELECT status FROM outbox_event WHERE event_id = ?").bind(id);
        sqlx::Row::get(&select.fetch_one(&self.file.eye).await.expect("the row is there"), 0)
    }

    async fn set_status(&self, id: &str, status: &str) {
        let update = query("UPDATE outbox_event SET status = ? WHERE event_id = ?").bind(status).bind(id);
        update.execute(&self.file.eye).await.expect("the row is changed");
    }

    async fn due_in_millis(&self, id: &str) -> i64 {
        let due = format!(
            "SELECT CAST(ROUND((julianday(available_at) - julianday('now')) * 86400000) AS INTEGER) \
             FROM outbox_event WHERE event_id = '{id}'"
        );
        self.file.number(&due).await
    }

    async fn set_due(&self, id: &str, millis: i64) {
        let update = query(
            "UPDATE outbox_event SET available_at = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?) WHERE event_id = ?",
        );
        let update = update.bind(seconds(millis)).bind(id);
        update.execute(&self.file.eye).await.expect("the row is changed");
    }

    async fn expire_lease(&self, id: &str) {
        let update = query(
            "UPDATE outbox_event SET locked_until = strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 seconds') \
             WHERE event_id = ?",
        );
        update.bind(id).execute(&self.file.eye).await.expect("the row is changed");
    }
}

fn seconds(millis: i64) -> String {
    let sign = if millis < 0 { '-' } else { '+' };
    format!("{sign}{}.{:03} seconds", millis.abs() / 1000, millis.abs() % 1000)
}

#[test]
fn what_the_order_rests_on_is_reported() {
    consign_conformance::waiting::run(async {
        let migrated = SqliteMigrated::fresh().await;
        let findings = migrated.store(DeadHead::Block).await.ordered_findings().await.expect("findings");
        assert!(findings.iter().all(|finding| finding.severity == Severity::Fine), "{findings:#?}");

        let contract = SqliteContract::fresh().await;
        let findings = contract.store(DeadHead::Block).await.ordered_findings().await.expect("findings");
        let codes: Vec<_> = findings.iter().map(|finding| (finding.code, finding.severity)).collect();
        assert_eq!(
            codes,
            [("outbox-order-sequence", Severity::Warning), ("outbox-order-index", Severity::Warning)]
        );
        let ddl = findings[1].fix.split_once("or ").expect("a statement").1;
        contract.file.run(ddl).await;
        let findings = contract.store(DeadHead::Block).await.ordered_findings().await.expect("findings");
        assert_eq!(findings[1].severity, Severity::Fine, "{findings:#?}");
    });
}

#[test]
fn blocked_aggregates_are_told() {
    consign_conformance::waiting::run(async {
        let fixture = SqliteMigrated::fresh().await;
        let rows = [
            OrderedRow::new("a", "1").status("DEAD"),
            OrderedRow::new("b", "1"),
            OrderedRow::new("c", "1"),
            OrderedRow::new("d", "2"),
            OrderedRow::new("e", "2").status("DEAD"),
        ];
        fixture.append(&rows).await;

        let outbox = fixture.file.outbox().await.ordered(BLOCK);
        let status = outbox.order_status().await.expect("a status");

        let blocked =
            BlockedAggregate { aggregate_type: None, aggregate_id: "1".into(), dead: 1, waiting: 2 };
        assert_eq!((status.blocked, status.relays, status.free), (vec![blocked], vec![], 0));
    });
}
