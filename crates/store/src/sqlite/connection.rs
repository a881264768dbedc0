//! Connections: one that writes, a few that read, and units of work that run to their end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_core::ports::{CommitError, StoreError};
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions, Connection, Sqlite, raw_sql};

use crate::sqlite::{failure, statement};

/// The first pause before a unit that met a lock begins again; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// What happens when the file does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// Opening fails.
    #[default]
    Never,
    /// An empty file is created.
    IfMissing,
}

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// What happens when the file does not exist.
    pub creation: Creation,
    /// How long a unit of work waits for the file's write lock before it is contended.
    pub busy_timeout: Duration,
    /// Connections for reading: status, marker reads, findings.
    pub readers_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { creation: Creation::Never, busy_timeout: Duration::from_secs(5), readers_max: 4 }
    }
}

/// A SQLite file. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Database {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    busy_timeout: Duration,
    /// One connection: writers of this process queue here, in order, instead of polling for the file's lock.
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Database {
    /// Opens a file with the default options.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the file cannot be opened.
    pub async fn open(path: impl AsRef<Path>, creation: Creation) -> Result<Self, StoreError> {
        Self::open_with(path, Options { creation, ..Options::default() }).await
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the file cannot be opened. [`StoreError::Contended`]: others held it for too
    /// long.
    pub async fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        let connect = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(options.creation == Creation::IfMissing)
            .busy_timeout(options.busy_timeout)
            .disable_statement_logging();
        // A little longer than SQLite waits, so that its own answer comes first.
        let acquire = options.busy_timeout + Duration::from_millis(500);
        let writer = pool(1, acquire, Access::Write).connect_lazy_with(connect.clone());
        let readers = pool(options.readers_max.max(1), acquire, Access::Read).connect_lazy_with(connect);
        let database =
            Self { shared: Arc::new(Shared { path, busy_timeout: options.busy_timeout, writer, readers }) };
        database.reach().await?;
        Ok(database)
    }

    /// Makes a first connection, outside the pools, which would try a hopeless file again until their time is up.
    /// Several processes that open a new file at once shut each other out for a moment while it becomes a WAL file,
    /// and SQLite's busy handler does not wait for that.
    async fn reach(&self) -> Result<(), StoreError> {
        let options = self.shared.writer.connect_options();
        let attempt = || {
            let options = Arc::clone(&options);
            async move {
                let mut connection = options.connect().await?;
                raw_sql(statement::SESSION).execute(&mut connection).await?;
                connection.close().await
            }
        };
        patiently(self.shared.busy_timeout, attempt).await.map_err(|error| match error {
            StoreError::Unavailable(reason) => {
                StoreError::Unavailable(format!("{}: {reason}", self.shared.path.display()))
            }
            other => other,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Begins a transaction that holds the write lock, for a producer's business writes together with
    /// [`Outbox::append`](super::Outbox::append). Units of work of this process wait until it ends.
    ///
    /// # Errors
    /// [`StoreError::Contended`]: others held the lock for too long. [`StoreError::Unavailable`]: the file is gone,
    /// read-only or broken.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, Sqlite>, StoreError> {
        self.begin_with(statement::BEGIN).await
    }

    /// Begins a transaction that notices when a statement ends it.
    pub(crate) async fn begin_unit(&self) -> Result<sqlx::Transaction<'static, Sqlite>, StoreError> {
        self.begin_with(statement::BEGIN_UNIT).await
    }

    async fn begin_with(
        &self,
        begin: &'static str,
    ) -> Result<sqlx::Transaction<'static, Sqlite>, StoreError> {
        let database = self.clone();
        shielded(async move { database.begin_here(begin).await })
            .await
            .unwrap_or_else(|| Err(StoreError::Unavailable("the runtime ended".into())))
    }

    /// A connection of its own, outside the pools. The caller closes it.
    pub(crate) async fn dedicated(&self) -> Result<SqliteConnection, StoreError> {
        let options = self.shared.writer.connect_options();
        options.connect().await.map_err(|error| failure::store_error(&error))
    }

    /// Closes all connections, after the units of work that are under way.
    pub async fn close(&self) {
        self.shared.readers.close().await;
        self.shared.writer.close().await;
    }

    /// Runs a unit of work in one transaction and a task of its own: dropping the returned future does not stop it.
    /// An error rolls back.
    pub(crate) async fn transact<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, UnitError>> + Send + 'static,
    {
        let database = self.clone();
        shielded(async move { database.transact_here(work).await })
            .await
            .unwrap_or_else(|| Err(StoreError::CommitUnknown("the runtime ended".into())))
    }

    /// Runs reads of one moment: they share a snapshot and never wait for a writer.
    pub(crate) async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, UnitError>> + Send + 'static,
    {
        let database = self.clone();
        let unit = async move {
            let mut snapshot =
                database.shared.readers.begin().await.map_err(|error| failure::store_error(&error))?;
            let result = work(&mut snapshot).await.map_err(UnitError::judged);
            let _ = snapshot.rollback().await;
            result
        };
        shielded(unit).await.unwrap_or_else(|| Err(StoreError::Unavailable("the runtime ended".into())))
    }

    async fn begin_here(
        &self,
        begin: &'static str,
    ) -> Result<sqlx::Transaction<'static, Sqlite>, StoreError> {
        let attempt = || {
            let writer = self.shared.writer.clone();
            async move { writer.begin_with(begin).await }
        };
        patiently(self.shared.busy_timeout, attempt).await
    }

    async fn transact_here<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, UnitError>>,
    {
        let mut tx = self.begin_here(statement::BEGIN).await?;
        match work(&mut tx).await {
            Ok(value) => match tx.commit().await.map_err(|error| failure::commit_error(&error)) {
                Ok(()) => Ok(value),
                Err(CommitError::RolledBack(error) | CommitError::Unknown(error)) => Err(error),
            },
            Err(error) => {
                // Should this fail, the pool rolls the connection back or closes it.
                let _ = tx.rollback().await;
                Err(error.judged())
            }
        }
    }
}

/// Tries again while the file is locked. SQLite's own waiting covers most of it; some locks it reports at once, as
/// while another process recovers the log of one that was killed.
async fn patiently<T, F>(patience: Duration, attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        match attempt().await.map_err(|error| failure::store_error(&error)) {
            Err(StoreError::Contended(_)) if started.elapsed() < patience => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
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
    /// What it means; nothing of the unit is committed.
    pub(crate) fn judged(self) -> StoreError {
        match self {
            Self::Sql(error) => failure::store_error(&error),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn pool(connections: u32, acquire: Duration, access: Access) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(acquire)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                raw_sql(statement::SESSION).execute(&mut *connection).await?;
                if access == Access::Read {
                    raw_sql("PRAGMA query_only = ON").execute(connection).await?;
                }
                Ok(())
            })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                // Whatever its last user left open ends here. Without a transaction this fails, which is the rule.
                let _ = raw_sql("ROLLBACK").execute(&mut *connection).await;
                // When SQLite ended a transaction by itself, sqlx still counts it: such a connection is of no use.
                Ok(!connection.is_in_transaction())
            })
        })
}
