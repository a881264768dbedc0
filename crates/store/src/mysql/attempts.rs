//! The log of attempts: rows of `consign_attempt`, in the transactions of settles and sweeps.

use sqlx::{MySqlConnection, query};

use crate::diagnostic::cut;
use crate::introspection::TableShape;
use crate::mapping::Names;
use crate::mysql::connection::UnitError;
use crate::mysql::schema::own_columns;
use crate::mysql::statement::{ATTEMPT_INSERT, ATTEMPT_SETTLE, ATTEMPT_SWEEP, ListText, Text};
use crate::retention::{AttemptLog, Keeping};
use crate::settling::{Change, Order, micros};
use crate::statement::padded;

/// Ids in records are cut to this many bytes.
const ID_BYTES_MAX: usize = 255;
/// Relay names in records are cut to this many bytes.
const RELAY_BYTES_MAX: usize = 128;
/// Details are cut to this many bytes.
const DETAIL_BYTES_MAX: usize = 1024;

/// The statements of the log, as far as there is one.
#[derive(Debug)]
pub(crate) struct AttemptTexts {
    relay: String,
    log: AttemptLog,
    /// `None` in a database without the table.
    texts: Option<Texts>,
    /// How far back from its end a lease began; `None` where the table does not keep it.
    lease: Option<i64>,
}

#[derive(Debug)]
struct Texts {
    insert: Text,
    settle: ListText,
    sweep: ListText,
}

impl AttemptTexts {
    /// Looks at the table.
    pub(crate) async fn read(
        connection: &mut MySqlConnection,
        names: &Names,
        shape: &TableShape,
        keeping: Keeping,
        relay: &str,
    ) -> Result<Self, UnitError> {
        let columns = own_columns(connection, "consign_attempt", &["started_at"]).await?;
        let started = columns.as_ref().is_some_and(|columns| columns.contains("started_at"));
        let list = |file| ListText::with_words(file, names, shape, [("started", started)]);
        Ok(Self {
            relay: cut(relay, RELAY_BYTES_MAX).to_owned(),
            log: keeping.attempts,
            texts: columns.is_some().then(|| Texts {
                insert: Text::own(ATTEMPT_INSERT),
                settle: list(ATTEMPT_SETTLE),
                sweep: list(ATTEMPT_SWEEP),
            }),
            lease: started.then(|| micros(keeping.lease)),
        })
    }

    /// Whether there is a table.
    pub(crate) const fn exists(&self) -> bool {
        self.texts.is_some()
    }

    /// Before the rows of one list are settled.
    pub(crate) async fn settled(
        &self,
        connection: &mut MySqlConnection,
        token: &str,
        change: &Change,
        ids: &[&str],
    ) -> Result<(), UnitError> {
        let Some(texts) = self.texts.as_ref().filter(|_| self.logs(change)) else { return Ok(()) };
        let (outcome, detail) = match change {
            Change::Sent => ("confirmed", None),
            Change::Retry { why, .. } => ("retry", Some(why)),
            Change::Release { why, .. } => ("released", Some(why)),
            Change::Dead { reason } => ("dead", Some(reason)),
        };
        let detail = detail.map(|detail| cut(detail, DETAIL_BYTES_MAX));
        let mut insert =
            query(texts.settle.sized(ids.len()).sql()).bind(&self.relay).bind(outcome).bind(detail);
        if let Some(lease) = &self.lease {
            insert = insert.bind(lease);
        }
        for id in padded(ids) {
            insert = insert.bind(*id);
        }
        // A row that is not there any more is the settle's own business.
        insert.bind(token).execute(connection).await?;
        Ok(())
    }

    /// Before the rows of one list are swept.
    pub(crate) async fn swept(
        &self,
        connection: &mut MySqlConnection,
        detail: &str,
        ids: &[String],
    ) -> Result<(), UnitError> {
        let Some(texts) = self.texts.as_ref().filter(|_| self.log != AttemptLog::Off) else { return Ok(()) };
        let mut insert =
            query(texts.sweep.sized(ids.len()).sql()).bind(&self.relay).bind(cut(detail, DETAIL_BYTES_MAX));
        if let Some(lease) = &self.lease {
            insert = insert.bind(lease);
        }
        for id in padded(ids) {
            insert = insert.bind(id.as_str());
        }
        insert.execute(connection).await?;
        Ok(())
    }

    /// A settlement that came too late.
    pub(crate) async fn fenced(
        &self,
        connection: &mut MySqlConnection,
        order: &Order,
        detail: &str,
    ) -> Result<(), UnitError> {
        let Some(texts) = &self.texts else { return Ok(()) };
        query(texts.insert.sql())
            .bind(cut(&order.id, ID_BYTES_MAX))
            .bind(&order.token)
            .bind(&self.relay)
            .bind("fenced")
            .bind(detail)
            .execute(connection)
            .await?;
        Ok(())
    }

    fn logs(&self, change: &Change) -> bool {
        match (self.log, change) {
            (AttemptLog::Off, _) | (AttemptLog::Failures, Change::Sent) => false,
            // Given back untried: no attempt was made.
            (_, Change::Release { why, .. }) => !why.is_empty(),
            (AttemptLog::All | AttemptLog::Failures, _) => true,
        }
    }
}
