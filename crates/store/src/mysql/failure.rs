//! What the server's errors mean.

use consign_core::ports::{CommitError, StoreError};
use sqlx::mysql::MySqlDatabaseError;

use crate::mysql::connection::UnitError;

/// Longer server messages are cut.
const MESSAGE_BYTES_MAX: usize = 300;

/// What an error means for the unit of work that met it. Nothing of the unit is committed.
pub(crate) fn store_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(_) => match server_error(error) {
            Some(server) => classify(server),
            None => StoreError::Unavailable(error.to_string()),
        },
        sqlx::Error::PoolTimedOut => StoreError::Unavailable(
            "no connection in time: the server does not answer or all connections are busy".into(),
        ),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::Encode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. } => StoreError::Schema(error.to_string()),
        other => StoreError::Unavailable(other.to_string()),
    }
}

/// An error over a table of consign's own, which an older version may not have made.
pub(crate) fn migrated(error: sqlx::Error) -> UnitError {
    match store_error(&error) {
        StoreError::Schema(text) => StoreError::Schema(format!("{text}: run `consign migrate`")).into(),
        StoreError::Unavailable(_)
        | StoreError::Contended(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Data(_)
        | StoreError::Mismatch(_) => UnitError::Sql(error),
    }
}

/// What a failed COMMIT means. Only these answers prove that nothing was committed.
pub(crate) fn commit_error(error: &sqlx::Error) -> CommitError {
    // Deadlock and lock wait (certification in clusters), refused by the replication group, read-only.
    match server_error(error).map(MySqlDatabaseError::number) {
        Some(1213 | 1205 | 3101 | 1290 | 1792 | 1836) => CommitError::RolledBack(store_error(error)),
        _ => CommitError::Unknown(StoreError::CommitUnknown(error.to_string())),
    }
}

/// True when the unique key refused a row.
pub(crate) fn is_duplicate(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|server| server.number() == 1062)
}

/// True when there is no savepoint of that name: the transaction that set it has ended.
pub(crate) fn is_savepoint_gone(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|server| server.number() == 1305)
}

/// True when the server has become read-only, as after a failover: every connection to it must be given up, since
/// they look healthy.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|server| matches!(server.number(), 1290 | 1792 | 1836))
}

fn server_error(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error().and_then(|database| database.try_downcast_ref::<MySqlDatabaseError>())
}

fn classify(server: &MySqlDatabaseError) -> StoreError {
    let text = format!("{} ({})", readable(server.message()), server.number());
    match server.number() {
        // Deadlock, lock wait, NOWAIT, snapshot changed (MariaDB), statement limit (MySQL, MariaDB).
        1213 | 1205 | 3572 | 1020 | 3024 | 1969 => StoreError::Contended(text),
        // Read-only, shutting down, gone, too many connections, killed, disk or table full, group refused.
        1290 | 1792 | 1836 | 1053 | 2006 | 2013 | 1040 | 1203 | 1226 | 1317 | 1927 | 1021 | 1041 | 1114
        | 3101 | 1045 | 1044 | 1698 => StoreError::Unavailable(text),
        // Unknown column, table or database, missing privileges, syntax, no default, statement-based binary log.
        1054 | 1146 | 1049 | 1142 | 1143 | 1227 | 1370 | 1064 | 1364 | 1136 | 1305 | 1665 => {
            StoreError::Schema(text)
        }
        // Too long, out of range, invalid JSON or text, NULL, truncated, duplicate, too big a packet.
        1406 | 1264 | 3140 | 3141 | 3144 | 1366 | 1048 | 1265 | 1292 | 1690 | 1367 | 1411 | 1062 | 1451
        | 1452 | 1153 | 3819 | 4025 => StoreError::Data(text),
        _ => match server.code().map(|state| &state[..2.min(state.len())]) {
            Some("22" | "23" | "45") => StoreError::Data(text),
            Some("42") => StoreError::Schema(text),
            Some("40") => StoreError::Contended(text),
            _ => StoreError::Unavailable(text),
        },
    }
}

/// The server's message without the values it quotes: they may come from payloads. What is quoted last, after
/// `column`, `key`, `table` and the like, is a name and stays.
fn readable(message: &str) -> String {
    let shown = match (message.find(": '"), message.find("entry '")) {
        (Some(at), _) => redacted(message, at + 2),
        (None, Some(at)) => redacted(message, at + 6),
        (None, None) => message.to_owned(),
    };
    crate::diagnostic::cut(&shown, MESSAGE_BYTES_MAX).to_owned()
}

fn redacted(message: &str, opening: usize) -> String {
    let rest = &message[opening + 1..];
    let end =
        rest.rfind("' for ").or_else(|| rest.rfind('\'')).map_or(message.len(), |at| opening + 1 + at + 1);
    format!("{}(value){}", &message[..opening], &message[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_left_out_of_messages_and_names_stay() {
        assert_eq!(
            readable("Duplicate entry 'a'b' for key 'outbox_event.PRIMARY'"),
            "Duplicate entry (value) for key 'outbox_event.PRIMARY'"
        );
        assert_eq!(
            readable("Incorrect string value: '\\xF0\\x9F' for column 'payload' at row 1"),
            "Incorrect string value: (value) for column 'payload' at row 1"
        );
        assert_eq!(
            readable("Truncated incorrect DOUBLE value: 'secret'"),
            "Truncated incorrect DOUBLE value: (value)"
        );
        assert_eq!(readable("Unknown column 'x' in 'field list'"), "Unknown column 'x' in 'field list'");
    }
}
