//! The conformance suites, on both servers and on the tables people have: the contract's, consign's own with a JSON
//! payload, consign's own with a payload of bytes.

use std::fmt;
use std::marker::PhantomData;

use consign_conformance::inbox::{ConflictRecord, InboxCapabilities, InboxFixture};
use consign_conformance::store::{NewRow, StoreCapabilities, StoreFixture, StoredRow};
use consign_store::mysql::{Inbox, Outbox, PayloadColumn};
use consign_store::retention::{Keeping, OnSent};
use sqlx::{MySql, Row};

use crate::mysql::server::{Bench, CONTRACT_MARKERS, CONTRACT_OUTBOX, Server};

consign_conformance::store_suite!(mysql_contract, MySqlContract);
consign_conformance::store_suite!(mysql_json, MySqlJson);
consign_conformance::store_suite!(mysql_bytes, MySqlBytes);
consign_conformance::store_suite!(mysql_deleting, MySqlDeleting);
consign_conformance::store_suite!(mariadb_contract, MariaDbContract);
consign_conformance::store_suite!(mariadb_json, MariaDbJson);
consign_conformance::store_suite!(mariadb_bytes, MariaDbBytes);
consign_conformance::inbox_suite!(mysql_inbox, MySqlInbox);
consign_conformance::inbox_suite!(mariadb_inbox, MariaDbInbox);
consign_conformance::inbox_suite!(mysql_inbox_contract, MySqlInboxContract);
consign_conformance::inbox_suite!(mariadb_inbox_contract, MariaDbInboxContract);

type MySqlContract = Fixture<OnMySql, Contract>;
type MySqlJson = Fixture<OnMySql, Json>;
type MySqlDeleting = Fixture<OnMySql, Deleting>;
type MySqlBytes = Fixture<OnMySql, Bytes>;
type MariaDbContract = Fixture<OnMariaDb, Contract>;
type MariaDbJson = Fixture<OnMariaDb, Json>;
type MariaDbBytes = Fixture<OnMariaDb, Bytes>;
type MySqlInbox = Fixture<OnMySql, Json>;
type MariaDbInbox = Fixture<OnMariaDb, Json>;
type MySqlInboxContract = Fixture<OnMySql, Contract>;
type MariaDbInboxContract = Fixture<OnMariaDb, Contract>;

/// Which server.
pub trait On: Send + Sync + 'static {
    const SERVER: Server;
}

/// Which tables.
pub trait Tables: Send + Sync + 'static {
    /// `None` for the contract's tables.
    const PAYLOAD: Option<PayloadColumn>;
    /// Whether sent rows are deleted.
    const ON_SENT: OnSent = OnSent::Keep;

    fn keeping() -> Keeping {
        Keeping { on_sent: Self::ON_SENT, ..Keeping::default() }
    }
}

pub struct OnMySql;
pub struct OnMariaDb;
pub struct Contract;
pub struct Json;
pub struct Bytes;
pub struct Deleting;

impl On for OnMySql {
    const SERVER: Server = Server::MySql;
}
impl On for OnMariaDb {
    const SERVER: Server = Server::MariaDb;
}
impl Tables for Contract {
    const PAYLOAD: Option<PayloadColumn> = None;
}
impl Tables for Json {
    const PAYLOAD: Option<PayloadColumn> = Some(PayloadColumn::Json);
}
impl Tables for Deleting {
    const PAYLOAD: Option<PayloadColumn> = Some(PayloadColumn::Json);
    const ON_SENT: OnSent = OnSent::Delete;
}
impl Tables for Bytes {
    const PAYLOAD: Option<PayloadColumn> = Some(PayloadColumn::LongBlob);
}

pub struct Fixture<S, T> {
    bench: Bench,
    inbox: Inbox,
    kind: PhantomData<(S, T)>,
}

/// A row lock held by a transaction of its own.
pub struct Lock(sqlx::Transaction<'static, MySql>);

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lock")
    }
}

impl<S: On, T: Tables> Fixture<S, T> {
    async fn make() -> Self {
        // The contract's DDL names no collation: the database's decides, and keys must be told apart.
        let bench = Bench::with_collation(S::SERVER, Some(S::SERVER.exact_collation())).await;
        bench.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
        if let Some(payload) = T::PAYLOAD {
            bench.migrate(payload).await;
            bench.run("ALTER TABLE consumed_operation ADD user_id BIGINT, ADD amount BIGINT").await;
        } else {
            bench.run(CONTRACT_OUTBOX).await;
            bench.run(CONTRACT_MARKERS).await;
            // The suite's amounts go beyond every float, and records need their tables.
            bench.run("ALTER TABLE consumed_operation MODIFY amount BIGINT").await;
            let records = consign_store::mysql::Schema::new(bench.database())
                .with_markers(consign_store::mapping::MarkerMapping::default());
            for statement in records.plan().await.expect("a plan") {
                if statement.starts_with("CREATE") {
                    bench.run(&statement).await;
                }
            }
        }
        let inbox = bench.inbox();
        Self { bench, inbox, kind: PhantomData }
    }

    fn full() -> bool {
        T::PAYLOAD.is_some()
    }
}

impl<S: On, T: Tables> StoreFixture for Fixture<S, T> {
    type Store = Outbox;
    type Lock = Lock;

    async fn fresh() -> Self {
        Self::make().await
    }

    fn capabilities(&self) -> StoreCapabilities {
        let bytes = T::PAYLOAD == Some(PayloadColumn::LongBlob);
        StoreCapabilities {
            skip_locked: true,
            exact_payload: bytes,
            exact_json_text: bytes || S::SERVER == Server::MariaDb,
            keeps_sent: T::ON_SENT == OnSent::Keep,
            full_table: Self::full(),
        }
    }

    /// As a relay has it that has just started: a bookmark of earlier claims may pass old dates by for some seconds.
    fn store(&self) -> Outbox {
        self.bench.outbox_keeping(T::keeping())
    }

    async fn another_store(&self) -> Outbox {
        self.bench.outbox_keeping(T::keeping())
    }

    async fn insert(&self, row: NewRow) -> Result<(), String> {
        let insert = sqlx::query(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_id, attempts, status, available_at, created_at, \
             payload) VALUES (?, ?, ?, ?, ?, NOW(6) + INTERVAL ? MICROSECOND, NOW(6), ?)",
        )
        .bind(&row.id)
        .bind(&row.event_type)
        .bind(row.aggregate_id)
        .bind(row.attempts)
        .bind(row.status)
        .bind(row.due_in_millis * 1000);
        let insert = if T::PAYLOAD == Some(PayloadColumn::LongBlob) {
            insert.bind(row.payload.clone())
        } else {
            let text = row.payload.clone().map(String::from_utf8).transpose();
            insert.bind(text.map_err(|error| error.to_string())?)
        };
        insert.execute(&self.bench.pool).await.map_err(|error| error.to_string())?;
        if let Some(headers) = &row.headers {
            let update = sqlx::query("UPDATE outbox_event SET headers = ? WHERE event_id = ?");
            let update = update.bind(headers).bind(&row.id).execute(&self.bench.pool).await;
            update.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn row(&self, id: &str) -> Option<StoredRow> {
        let error = if Self::full() { "last_error" } else { "NULL" };
        let select = format!(
            "SELECT status, attempts, lease_token, locked_until IS NOT NULL, \
             TIMESTAMPDIFF(MICROSECOND, NOW(6), available_at) DIV 1000, {error} FROM outbox_event WHERE event_id = ?"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(select)).bind(id).fetch_optional(&self.bench.pool).await;
        row.expect("the table can be read").map(|row| StoredRow {
            status: row.try_get_unchecked(0).expect("a status"),
            attempts: row.try_get_unchecked(1).expect("attempts"),
            token: row.try_get_unchecked(2).expect("a token"),
            leased: row.try_get_unchecked::<i64, _>(3).expect("a truth value") == 1,
            due_in_millis: row.try_get_unchecked(4).expect("a number"),
            last_error: row.try_get_unchecked(5).expect("text"),
        })
    }

    async fn delete(&self, id: &str) {
        let delete = sqlx::query("DELETE FROM outbox_event WHERE event_id = ?").bind(id);
        delete.execute(&self.bench.pool).await.expect("the row is deleted");
    }

    async fn expire_lease(&self, id: &str) {
        let update = sqlx::query(
            "UPDATE outbox_event SET locked_until = NOW(6) - INTERVAL 1 SECOND WHERE event_id = ?",
        );
        update.bind(id).execute(&self.bench.pool).await.expect("the row is changed");
    }

    async fn make_due(&self, id: &str) {
        let update = sqlx::query(
            "UPDATE outbox_event SET available_at = NOW(6) - INTERVAL 1 SECOND WHERE event_id = ?",
        );
        update.bind(id).execute(&self.bench.pool).await.expect("the row is changed");
    }

    async fn lock(&self, id: &str) -> Lock {
        let mut tx = self.bench.begin().await;
        let select = sqlx::query("SELECT event_id FROM outbox_event WHERE event_id = ? FOR UPDATE").bind(id);
        select.fetch_one(&mut *tx).await.expect("the row is locked");
        Lock(tx)
    }

    async fn unlock(&self, lock: Lock) {
        lock.0.rollback().await.expect("the lock is released");
    }

    async fn open_transactions(&self) -> u32 {
        self.bench.open_transactions().await.try_into().expect("a count")
    }
}

impl<S: On, T: Tables> InboxFixture for Fixture<S, T> {
    type Store = Inbox;

    const KEY_CHARS_MAX: usize = 128;

    async fn fresh() -> Self {
        Self::make().await
    }

    fn capabilities(&self) -> InboxCapabilities {
        InboxCapabilities { fingerprint: Self::full(), concurrent_writers: true }
    }

    fn store(&self) -> Inbox {
        self.inbox.clone()
    }

    async fn another_store(&self) -> Inbox {
        self.bench.inbox()
    }

    async fn open_account(&self, user_id: i64) {
        self.bench.run(&format!("INSERT INTO points_account VALUES ({user_id}, 0)")).await;
    }

    async fn points(&self, user_id: i64) -> i64 {
        self.bench.number(&format!("SELECT points FROM points_account WHERE user_id = {user_id}")).await
    }

    async fn markers(&self, consumer: &str) -> u64 {
        let count = format!("SELECT COUNT(*) FROM consumed_operation WHERE consumer_name = '{consumer}'");
        self.bench.number(&count).await.unsigned_abs()
    }

    async fn conflicts(&self) -> Vec<ConflictRecord> {
        let select = sqlx::query(
            "SELECT consumer_name, business_key, `count` FROM consign_conflict ORDER BY 1, 2, content_digest",
        );
        let rows = select.fetch_all(&self.bench.pool).await.expect("the table can be read");
        rows.iter()
            .map(|row| ConflictRecord {
                consumer: row.get(0),
                business_key: row.get(1),
                count: row.get::<i64, _>(2).unsigned_abs(),
            })
            .collect()
    }

    async fn dead_deliveries(&self, consumer: &str) -> u64 {
        let count = format!("SELECT COUNT(*) FROM consign_dead_delivery WHERE consumer_name = '{consumer}'");
        self.bench.number(&count).await.unsigned_abs()
    }

    async fn open_transactions(&self) -> u32 {
        self.bench.open_transactions().await.try_into().expect("a count")
    }
}
