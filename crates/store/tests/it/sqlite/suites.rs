//! The conformance suites, on consign's own tables and on the contract's.

use std::fmt;
use std::marker::PhantomData;

use consign_conformance::inbox::{ConflictRecord, InboxCapabilities, InboxFixture};
use consign_conformance::store::{NewRow, StoreCapabilities, StoreFixture, StoredRow};
use consign_store::retention::{Keeping, OnSent};
use consign_store::sqlite::{Inbox, Outbox};
use sqlx::{AssertSqlSafe, Row, Sqlite, query};

use crate::sqlite::file::File;

consign_conformance::store_suite!(outbox_contract, SqliteContract);
consign_conformance::store_suite!(outbox_migrated, SqliteMigrated);
consign_conformance::store_suite!(outbox_deleting, SqliteDeleting);
consign_conformance::inbox_suite!(inbox_contract, SqliteContract);
consign_conformance::inbox_suite!(inbox_migrated, SqliteMigrated);

type SqliteContract = Fixture<Contract>;
type SqliteMigrated = Fixture<Migrated>;
type SqliteDeleting = Fixture<Deleting>;

/// Which tables.
pub trait Tables: Send + Sync + 'static {
    const FULL: bool;
    /// Whether sent rows are deleted.
    const ON_SENT: OnSent = OnSent::Keep;

    fn keeping() -> Keeping {
        Keeping { on_sent: Self::ON_SENT, ..Keeping::default() }
    }
}

pub struct Contract;
pub struct Migrated;
pub struct Deleting;

impl Tables for Contract {
    const FULL: bool = false;
}
impl Tables for Deleting {
    const FULL: bool = true;
    const ON_SENT: OnSent = OnSent::Delete;
}
impl Tables for Migrated {
    const FULL: bool = true;
}

pub struct Fixture<T> {
    file: File,
    outbox: Outbox,
    inbox: Inbox,
    kind: PhantomData<T>,
}

/// The write lock, held by a transaction of its own.
pub struct Lock(sqlx::Transaction<'static, Sqlite>);

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lock")
    }
}

impl<T: Tables> Fixture<T> {
    async fn make() -> Self {
        let file = if T::FULL { File::migrated().await } else { File::contract().await };
        file.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
        let (outbox, inbox) = (file.outbox_keeping(T::keeping()).await, file.inbox().await);
        Self { file, outbox, inbox, kind: PhantomData }
    }

    async fn move_date(&self, column: &str, id: &str) {
        let update = format!(
            "UPDATE outbox_event SET {column} = strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 seconds') \
             WHERE event_id = ?"
        );
        query(AssertSqlSafe(update)).bind(id).execute(&self.file.eye).await.expect("the row is changed");
    }
}

impl<T: Tables> StoreFixture for Fixture<T> {
    type Store = Outbox;
    type Lock = Lock;

    async fn fresh() -> Self {
        Self::make().await
    }

    fn capabilities(&self) -> StoreCapabilities {
        // A column declared JSON has numeric affinity, which converts bare numbers and nothing else.
        StoreCapabilities {
            skip_locked: false,
            exact_payload: T::FULL,
            exact_json_text: true,
            keeps_sent: T::ON_SENT == OnSent::Keep,
            full_table: T::FULL,
        }
    }

    fn store(&self) -> Outbox {
        self.outbox.clone()
    }

    async fn another_store(&self) -> Outbox {
        self.file.outbox_keeping(T::keeping()).await
    }

    async fn insert(&self, row: NewRow) -> Result<(), String> {
        if !T::FULL && row.payload.as_deref() == Some(b"") {
            return Err("stands for a server that checks JSON".into());
        }
        let insert = query(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_id, attempts, status, available_at, \
             created_at, payload) VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f000', 'now', ?), \
             strftime('%Y-%m-%d %H:%M:%f000', 'now'), ?)",
        )
        .bind(&row.id)
        .bind(&row.event_type)
        .bind(row.aggregate_id)
        .bind(row.attempts)
        .bind(row.status)
        .bind(format!(
            "{:+}.{:03} seconds",
            row.due_in_millis / 1000,
            row.due_in_millis.abs() % 1000
        ));
        let insert = match row.payload.map(String::from_utf8) {
            Some(Ok(text)) => insert.bind(text),
            Some(Err(bytes)) => insert.bind(bytes.into_bytes()),
            None => insert.bind(None::<String>),
        };
        insert.execute(&self.file.eye).await.map_err(|error| error.to_string())?;
        if let Some(headers) = &row.headers {
            let update =
                query("UPDATE outbox_event SET headers = ? WHERE event_id = ?").bind(headers).bind(&row.id);
            update.execute(&self.file.eye).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn row(&self, id: &str) -> Option<StoredRow> {
        let error = if T::FULL { "last_error" } else { "NULL" };
        let select = format!(
            "SELECT status, attempts, lease_token, locked_until IS NOT NULL, \
             CAST(ROUND((julianday(available_at) - julianday('now')) * 86400000) AS INTEGER), {error} \
             FROM outbox_event WHERE event_id = ?"
        );
        let row = query(AssertSqlSafe(select)).bind(id).fetch_optional(&self.file.eye).await;
        row.expect("the table can be read").map(|row| StoredRow {
            status: row.get(0),
            attempts: row.get(1),
            token: row.get(2),
            leased: row.get(3),
            due_in_millis: row.get(4),
            last_error: row.get(5),
        })
    }

    async fn delete(&self, id: &str) {
        let delete = query("DELETE FROM outbox_event WHERE event_id = ?").bind(id);
        delete.execute(&self.file.eye).await.expect("the row is deleted");
    }

    async fn expire_lease(&self, id: &str) {
        self.move_date("locked_until", id).await;
    }

    async fn make_due(&self, id: &str) {
        self.move_date("available_at", id).await;
    }

    async fn lock(&self, id: &str) -> Lock {
        let mut tx = self.file.eye.begin_with("BEGIN IMMEDIATE").await.expect("a transaction begins");
        let update = query("UPDATE outbox_event SET attempts = attempts WHERE event_id = ?").bind(id);
        update.execute(&mut *tx).await.expect("the row is locked");
        Lock(tx)
    }

    async fn unlock(&self, lock: Lock) {
        lock.0.rollback().await.expect("the lock is released");
    }

    async fn open_transactions(&self) -> u32 {
        u32::from(self.file.is_locked().await)
    }
}

impl<T: Tables> InboxFixture for Fixture<T> {
    type Store = Inbox;

    const KEY_CHARS_MAX: usize = 128;

    async fn fresh() -> Self {
        Self::make().await
    }

    fn capabilities(&self) -> InboxCapabilities {
        InboxCapabilities { fingerprint: T::FULL, concurrent_writers: false }
    }

    fn store(&self) -> Inbox {
        self.inbox.clone()
    }

    async fn another_store(&self) -> Inbox {
        self.file.inbox().await
    }

    async fn open_account(&self, user_id: i64) {
        self.file.run(&format!("INSERT INTO points_account VALUES ({user_id}, 0)")).await;
    }

    async fn points(&self, user_id: i64) -> i64 {
        self.file.number(&format!("SELECT points FROM points_account WHERE user_id = {user_id}")).await
    }

    async fn markers(&self, consumer: &str) -> u64 {
        let count = format!("SELECT COUNT(*) FROM consumed_operation WHERE consumer_name = '{consumer}'");
        self.file.number(&count).await.unsigned_abs()
    }

    async fn conflicts(&self) -> Vec<ConflictRecord> {
        let select = query(
            "SELECT consumer_name, business_key, \"count\" FROM consign_conflict ORDER BY 1, 2, content_digest",
        );
        let rows = select.fetch_all(&self.file.eye).await.expect("the table can be read");
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
        self.file.number(&count).await.unsigned_abs()
    }

    async fn open_transactions(&self) -> u32 {
        u32::from(self.file.is_locked().await)
    }
}
