//! Connections: pools whose connections are ready for use, and units of work that run to their end.
//!
//! sqlx 0.9 puts a connection whose `begin` was dropped back into its pool with the transaction open (B82,
//! `transact-rs/sqlx#4385`). Three things prevent that here: units of work run in tasks of their own that nobody
//! aborts, each connection is rolled back on its way into the pool, and a unit that outlives its limit loses its
//! connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use consign_core::ports::{CommitError, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlSslMode};
use sqlx::pool::{PoolConnection, PoolConnectionMetadata};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySql, MySqlConnection, raw_sql};

use crate::mysql::{failure, statement};

/// How long a ROLLBACK or a check of a connection may take before the connection is given up.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);

/// A connection idle for longer is checked before use.
const IDLE_CHECK_AFTER: Duration = Duration::from_secs(1);

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the url says; without a word there, encrypted when the server offers it.
    #[default]
    AsUrl,
    /// Never.
    Off,
    /// Always, without verifying the server.
    Required,
    /// Always, the server's certificate verified.
    VerifyCertificate,
    /// Always, the server's certificate and its name verified.
    VerifyIdentity,
}

/// How to reach a server.
#[derive(Clone)]
pub struct Options {
    /// `mysql://user:password@host:port/database`.
    pub url: String,
    /// Overrides the url's password.
    pub password: Option<String>,
    /// The session time zone: the one producers write dates in. `None` is the server's own.
    pub time_zone: Option<String>,
    /// Encryption.
    pub encryption: Encryption,
    /// A file with the certificate authority to trust.
    pub certificate_authority: Option<PathBuf>,
    /// Connections for inbox transactions, status and migrations; claims and settles have their own few.
    pub connections_max: u32,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a unit of work may take before its connection is closed; shorter than a lease. The server itself ends
    /// single statements after 10 s (MariaDB: any, MySQL: SELECTs) and lock waits after 2 s.
    pub unit_timeout: Duration,
}

impl Options {
    /// The defaults for a server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            time_zone: None,
            encryption: Encryption::default(),
            certificate_authority: None,
            connections_max: 8,
            connect_timeout: Duration::from_secs(5),
            unit_timeout: Duration::from_secs(15),
        }
    }

    fn connect_options(&self) -> Result<MySqlConnectOptions, StoreError> {
        let refused = |text: String| StoreError::Unavailable(text);
        let malformed = || refused("url is not of the form mysql://user:password@host:port/database".into());
        // Without the two slashes sqlx would take everything, the password too, for the database's name.
        if !["mysql://", "mariadb://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(malformed());
        }
        // sqlx's own message may quote parts of the url.
        let mut options = self
            .url
            .parse::<MySqlConnectOptions>()
            .map_err(|_| malformed())?
            .pipes_as_concat(false)
            .timezone(self.time_zone.clone());
        if let Some(zone) = &self.time_zone {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-:/".contains(&byte);
            if zone.is_empty() || !zone.bytes().all(plain) {
                return Err(refused(format!(
                    "time_zone {zone:?} is no time zone: use one like '+09:00' or 'Europe/Paris'"
                )));
            }
        }
        if let Some(password) = &self.password {
            options = options.password(password);
        }
        options = match self.encryption {
            Encryption::AsUrl => options,
            Encryption::Off => options.ssl_mode(MySqlSslMode::Disabled),
            Encryption::Required => options.ssl_mode(MySqlSslMode::Required),
            Encryption::VerifyCertificate => options.ssl_mode(MySqlSslMode::VerifyCa),
            Encryption::VerifyIdentity => options.ssl_mode(MySqlSslMode::VerifyIdentity),
        };
        if let Some(file) = &self.certificate_authority {
            options = options.ssl_ca(file);
        }
        Ok(options)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("time_zone", &self.time_zone)
            .field("encryption", &self.encryption)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// The kinds of work that must not wait for each other: each has connections of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Claims.
    Claim,
    /// Settles and sweeps: they must not starve behind claims.
    Settle,
    /// Inbox transactions, status, findings, migrations.
    General,
}

/// A server as consign uses it. Cloning it shares the connections.
#[derive(Clone)]
pub struct Database {
    claims: MySqlPool,
    settles: MySqlPool,
    general: MySqlPool,
    standing: Arc<Standing>,
    options: Arc<MySqlConnectOptions>,
    time_zone: Option<String>,
    unit_timeout: Duration,
}

impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Database")
            .field("host", &self.options.get_host())
            .field("port", &self.options.get_port())
            .field("database", &self.options.get_database())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pools and connects once, to tell a wrong address or password at once.
    ///
    /// # Errors
    /// An option is invalid, the server cannot be reached, or it refuses READ COMMITTED.
    pub async fn connect(options: &Options) -> Result<Self, StoreError> {
        let database = Self::open(options)?;
        let connection = database.dedicated().await?;
        // The server takes the session down in any case.
        let _ = connection.close().await;
        Ok(database)
    }

    /// Prepares the pools and connects when the first unit of work needs it. Needs a tokio runtime.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn open(options: &Options) -> Result<Self, StoreError> {
        const FEW: u32 = 3;
        let connect = options.connect_options()?;
        let standing = Arc::new(Standing::default());
        let pool = |connections: u32| {
            pool_options(options, &standing).max_connections(connections).connect_lazy_with(connect.clone())
        };
        Ok(Self {
            claims: pool(FEW),
            settles: pool(FEW),
            general: pool(options.connections_max.max(1)),
            standing,
            options: Arc::new(connect.clone()),
            time_zone: options.time_zone.clone(),
            unit_timeout: options.unit_timeout,
        })
    }

    /// The pool behind inbox transactions; for producers that have none of their own.
    pub fn pool(&self) -> &MySqlPool {
        &self.general
    }

    /// The session time zone, when one is configured.
    pub fn time_zone(&self) -> Option<&str> {
        self.time_zone.as_deref()
    }

    /// Closes all connections, after the units under way.
    pub async fn close(&self) {
        self.claims.close().await;
        self.settles.close().await;
        self.general.close().await;
    }

    pub(crate) fn unit_timeout(&self) -> Duration {
        self.unit_timeout
    }

    /// A connection outside the pools, ready for use, for work that may take long.
    pub(crate) async fn dedicated(&self) -> Result<MySqlConnection, StoreError> {
        let limit = CLEANUP_LIMIT;
        let connect = async {
            let mut connection = self.options.connect().await?;
            prepare_session(&mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(limit, connect).await {
            Ok(result) => result.map_err(|error| failure::store_error(&error)),
            Err(_) => Err(StoreError::Unavailable(format!("no connection within {limit:?}"))),
        }
    }

    /// Notes what an error says about the whole server, and gives its meaning.
    pub(crate) fn judge(&self, error: &sqlx::Error) -> StoreError {
        if failure::is_read_only(error) {
            self.standing.condemn();
        }
        failure::store_error(error)
    }

    /// Notes what a failed COMMIT says about the whole server, and gives its meaning.
    pub(crate) fn judge_commit(&self, error: &sqlx::Error) -> CommitError {
        if failure::is_read_only(error) {
            self.standing.condemn();
        }
        failure::commit_error(error)
    }

    /// Runs a unit of work in one transaction and a task of its own: dropping the returned future does not stop it.
    /// An error rolls back.
    pub(crate) async fn transact<T, W>(&self, lane: Lane, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, UnitError>> + Send + 'static,
    {
        let database = self.clone();
        shielded(async move { database.transact_here(lane, work).await })
            .await
            .unwrap_or_else(|| Err(StoreError::CommitUnknown("the runtime ended".into())))
    }

    /// Runs reads, each its own transaction, in a task of their own.
    pub(crate) async fn read<T, W>(&self, lane: Lane, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, UnitError>> + Send + 'static,
    {
        let database = self.clone();
        let unit = async move {
            let mut connection = database.acquire(lane).await?;
            let limit = database.unit_timeout;
            if let Ok(result) = tokio::time::timeout(limit, work(&mut connection)).await {
                result.map_err(|error| error.judged(&database))
            } else {
                discard(connection);
                Err(database.overdue())
            }
        };
        shielded(unit).await.unwrap_or_else(|| Err(StoreError::Unavailable("the runtime ended".into())))
    }

    async fn acquire(&self, lane: Lane) -> Result<PoolConnection<MySql>, StoreError> {
        let pool = match lane {
            Lane::Claim => &self.claims,
            Lane::Settle => &self.settles,
            Lane::General => &self.general,
        };
        pool.acquire().await.map_err(|error| self.judge(&error))
    }

    async fn transact_here<T, W>(&self, lane: Lane, work: W) -> Result<T, StoreError>
    where
        W: for<'c> FnOnce(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, UnitError>>,
    {
        let mut connection = self.acquire(lane).await?;
        let body = async {
            raw_sql(statement::BEGIN).execute(&mut *connection).await?;
            work(&mut connection).await
        };
        let value = match tokio::time::timeout(self.unit_timeout, body).await {
            Ok(Ok(value)) => value,
            Ok(Err(error)) => {
                let error = error.judged(self);
                roll_back(connection).await;
                return Err(error);
            }
            Err(_) => {
                discard(connection);
                return Err(self.overdue());
            }
        };
        let commit = raw_sql(statement::COMMIT).execute(&mut *connection);
        match tokio::time::timeout(self.unit_timeout, commit).await {
            Ok(Ok(_)) => Ok(value),
            Ok(Err(error)) => {
                roll_back(connection).await;
                match self.judge_commit(&error) {
                    CommitError::RolledBack(error) | CommitError::Unknown(error) => Err(error),
                }
            }
            Err(_) => {
                discard(connection);
                Err(StoreError::CommitUnknown(format!("no answer within {:?}", self.unit_timeout)))
            }
        }
    }

    fn overdue(&self) -> StoreError {
        StoreError::Unavailable(format!("the unit of work took longer than {:?}", self.unit_timeout))
    }
}

/// Why a unit of work stopped.
#[derive(Debug)]
pub(crate) enum UnitError {
    /// A statement failed.
    Sql(sqlx::Error),
    /// The unit itself found something wrong.
    Store(StoreError),
}

impl UnitError {
    fn judged(self, database: &Database) -> StoreError {
        match self {
            Self::Sql(error) => database.judge(&error),
            Self::Store(error) => error,
        }
    }
}

impl From<sqlx::Error> for UnitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for UnitError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Runs `unit` in a task that nobody aborts; `None` when the runtime ends under it.
pub(crate) async fn shielded<T: Send + 'static>(unit: impl Future<Output = T> + Send + 'static) -> Option<T> {
    match tokio::spawn(unit).await {
        Ok(value) => Some(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Ends the transaction by name; a connection that cannot even do that is closed.
async fn roll_back(mut connection: PoolConnection<MySql>) {
    let rolled_back =
        tokio::time::timeout(CLEANUP_LIMIT, raw_sql(statement::ROLLBACK).execute(&mut *connection)).await;
    if !matches!(rolled_back, Ok(Ok(_))) {
        discard(connection);
    }
}

/// Closes the socket without a word: the server rolls back when it notices.
fn discard(connection: PoolConnection<MySql>) {
    drop(connection.detach());
}

/// Whether the server can still be trusted with connections that look healthy.
///
/// After a failover the old primary answers pings and refuses every write (B13, `brettwooldridge/HikariCP#1971`).
/// One refusal condemns all connections made before it.
#[derive(Debug, Default)]
struct Standing {
    condemned: Mutex<Option<Instant>>,
}

impl Standing {
    fn condemn(&self) {
        *self.condemned.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn admits(&self, connection: &PoolConnectionMetadata) -> bool {
        let condemned = *self.condemned.lock().unwrap_or_else(PoisonError::into_inner);
        condemned.is_none_or(|since| connection.age < since.elapsed())
    }
}

fn pool_options(options: &Options, standing: &Arc<Standing>) -> MySqlPoolOptions {
    let (on_acquire, on_release) = (Arc::clone(standing), Arc::clone(standing));
    MySqlPoolOptions::new()
        .acquire_timeout(options.connect_timeout)
        .test_before_acquire(false)
        .after_connect(move |connection, _| prepare_session(connection).boxed())
        .before_acquire(move |connection, metadata| {
            let admitted = on_acquire.admits(&metadata);
            async move {
                if !admitted || metadata.idle_for < IDLE_CHECK_AFTER {
                    return Ok(admitted);
                }
                // An idle connection may have been closed by the server or dropped silently by a firewall (B78).
                Ok(matches!(tokio::time::timeout(CLEANUP_LIMIT, connection.ping()).await, Ok(Ok(()))))
            }
            .boxed()
        })
        .after_release(move |connection, metadata| {
            let admitted = on_release.admits(&metadata);
            async move {
                if !admitted {
                    return Ok(false);
                }
                match tokio::time::timeout(CLEANUP_LIMIT, raw_sql(statement::RESET).execute(connection)).await
                {
                    Ok(result) => result.map(|_| true),
                    Err(_) => Err(sqlx::Error::Protocol("no answer to ROLLBACK".into())),
                }
            }
            .boxed()
        })
}

/// Gives a session what every unit relies on, and verifies the isolation level.
async fn prepare_session(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let plain = crate::statement::Rendering::new('`');
    raw_sql(AssertSqlSafe(plain.render(statement::SESSION))).execute(&mut *connection).await?;
    let row =
        raw_sql(AssertSqlSafe(plain.render(statement::SESSION_ISOLATION))).fetch_one(connection).await?;
    let level: String = sqlx::Row::try_get_unchecked(&row, 0)?;
    if level != "READ-COMMITTED" {
        return Err(sqlx::Error::Configuration(
            format!("the session's isolation level is {level} although READ COMMITTED was asked for").into(),
        ));
    }
    Ok(())
}
