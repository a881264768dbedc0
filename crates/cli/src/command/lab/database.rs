//! A side's database, for code that people write by hand and for the audit: the same SQL in both dialects.

use std::time::Duration;

use anyhow::Context;
use consign_store::{mysql, sqlite};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{MySql, Sqlite, SqlitePool};

use super::place::Store;

/// The database.
#[derive(Clone)]
pub enum Database {
    /// A SQLite file: consign's connections, and those of hand-written code.
    Sqlite(sqlite::Database, SqlitePool),
    /// A MySQL database.
    MySql(mysql::Database),
}

/// A transaction of hand-written code.
pub enum Transaction {
    /// On SQLite.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// On MySQL.
    MySql(sqlx::Transaction<'static, MySql>),
}

/// A value bound to a statement.
#[derive(Clone, Copy, Debug)]
pub enum Bound<'a> {
    /// A number.
    Number(i64),
    /// Text.
    Text(&'a str),
}

impl From<i64> for Bound<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Bound<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

macro_rules! bind {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match *value {
                Bound::Number(number) => query.bind(number),
                Bound::Text(text) => query.bind(text.to_owned()),
            };
        }
        query
    }};
}

impl Database {
    /// Opens it; a file is created, a server is connected to when it is needed.
    pub async fn open(store: &Store) -> anyhow::Result<Self> {
        // Many sides run at once: a busy machine is no window.
        const PATIENCE: Duration = Duration::from_secs(30);
        Self::open_within(store, PATIENCE).await
    }

    /// The same for calls that wait no longer for a server.
    pub async fn open_within(store: &Store, connect_timeout: Duration) -> anyhow::Result<Self> {
        match store {
            Store::File(path) => {
                let database = sqlite::Database::open(path, sqlite::Creation::IfMissing).await?;
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .journal_mode(SqliteJournalMode::Wal)
                    .busy_timeout(Duration::from_secs(10));
                let pool = SqlitePoolOptions::new().max_connections(6).connect_with(options).await?;
                Ok(Self::Sqlite(database, pool))
            }
            Store::Server(address) => {
                let mut options = mysql::Options::new(address.url.as_str());
                options.connect_timeout = connect_timeout;
                options.certificate_authority.clone_from(&address.ca);
                if address.ca.is_some() {
                    options.encryption = mysql::Encryption::VerifyIdentity;
                }
                Ok(Self::MySql(mysql::Database::open(&options).context("cannot use the MySQL url")?))
            }
        }
    }

    /// Runs a statement by itself; the rows it changed.
    pub async fn execute(&self, sql: &'static str, values: &[Bound<'_>]) -> anyhow::Result<u64> {
        Ok(match self {
            Self::Sqlite(_, pool) => bind!(sqlx::query(sql), values).execute(pool).await?.rows_affected(),
            Self::MySql(store) => {
                bind!(sqlx::query(sql), values).execute(store.pool()).await?.rows_affected()
            }
        })
    }

    /// Runs a query that gives one number.
    pub async fn number(&self, sql: &'static str, values: &[Bound<'_>]) -> anyhow::Result<i64> {
        Ok(match self {
            Self::Sqlite(_, pool) => bind!(sqlx::query_scalar(sql), values).fetch_one(pool).await?,
            Self::MySql(store) => bind!(sqlx::query_scalar(sql), values).fetch_one(store.pool()).await?,
        })
    }

    /// Runs a query that gives rows of an order and a text.
    pub async fn rows(&self, sql: &'static str) -> anyhow::Result<Vec<(i64, String)>> {
        Ok(match self {
            Self::Sqlite(_, pool) => sqlx::query_as(sql).fetch_all(pool).await?,
            Self::MySql(store) => sqlx::query_as(sql).fetch_all(store.pool()).await?,
        })
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> anyhow::Result<Transaction> {
        Ok(match self {
            // A deferred one may find the file locked at its first write.
            Self::Sqlite(_, pool) => Transaction::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Self::MySql(store) => Transaction::MySql(store.pool().begin().await?),
        })
    }

    /// Runs statements that are separated by semicolons.
    pub async fn script(&self, sql: &'static str) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(_, pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop)?,
            Self::MySql(store) => sqlx::raw_sql(sql).execute(store.pool()).await.map(drop)?,
        }
        Ok(())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(store, pool) => {
                pool.close().await;
                store.close().await;
            }
            Self::MySql(store) => store.close().await,
        }
    }
}

impl Transaction {
    /// Runs a statement; the rows it changed.
    pub async fn execute(&mut self, sql: &'static str, values: &[Bound<'_>]) -> anyhow::Result<u64> {
        Ok(match self {
            Self::Sqlite(tx) => bind!(sqlx::query(sql), values).execute(&mut **tx).await?.rows_affected(),
            Self::MySql(tx) => bind!(sqlx::query(sql), values).execute(&mut **tx).await?.rows_affected(),
        })
    }

    /// Commits.
    pub async fn commit(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(tx) => tx.commit().await?,
            Self::MySql(tx) => tx.commit().await?,
        }
        Ok(())
    }
}
