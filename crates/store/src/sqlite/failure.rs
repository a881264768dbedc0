//! What SQLite's errors mean.

use consign_core::ports::{CommitError, StoreError};
use sqlx::error::DatabaseError;

use crate::sqlite::connection::UnitError;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const FULL: i32 = 13;
const READONLY: i32 = 8;
const CONSTRAINT: i32 = 19;

/// What an error means for the unit of work that met it. Nothing of the unit is committed.
pub(crate) fn store_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => classify(database.as_ref()),
        sqlx::Error::PoolTimedOut => StoreError::Contended(
            "the database was busy: its write lock or all connections were taken".into(),
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
    match primary_code(error) {
        // A write that failed for want of room never had its commit mark; a deferred constraint refuses before it.
        Some(BUSY | LOCKED | FULL | READONLY | CONSTRAINT) => CommitError::RolledBack(store_error(error)),
        // An I/O error may come after the commit mark reached the disk.
        _ => CommitError::Unknown(StoreError::CommitUnknown(error.to_string())),
    }
}

/// True when a primary key or unique index over `column` refused a row.
pub(crate) fn is_duplicate_of(error: &sqlx::Error, column: &str) -> bool {
    let Some(database) = error.as_database_error().filter(|database| database.is_unique_violation()) else {
        return false;
    };
    // "UNIQUE constraint failed: consumed_operation.consumer_name, consumed_operation.business_key"
    database
        .message()
        .rsplit(": ")
        .next()
        .into_iter()
        .flat_map(|columns| columns.split(", "))
        .any(|name| name.rsplit('.').next().is_some_and(|name| name.eq_ignore_ascii_case(column)))
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error().and_then(code)
}

/// The primary result code: the low byte of the extended one.
fn code(database: &dyn DatabaseError) -> Option<i32> {
    let extended: i32 = database.code()?.parse().ok()?;
    Some(extended & 0xff)
}

fn classify(database: &dyn DatabaseError) -> StoreError {
    let text = database.message().to_owned();
    match code(database) {
        // Busy, locked, interrupted, the schema changed while the statement was prepared.
        Some(BUSY | LOCKED | 9 | 17) => StoreError::Contended(text),
        // Generic: SQLite's prose tells a wrong statement from a wrong value.
        Some(1) if is_wrong_statement(&text) => StoreError::Schema(text),
        // Too big, constraint, type mismatch, out of range.
        Some(1 | 18 | CONSTRAINT | 20 | 25) => StoreError::Data(text),
        // Permission, memory, read-only, I/O, corrupt, full, cannot open, not a database.
        _ => StoreError::Unavailable(text),
    }
}

fn is_wrong_statement(text: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "no such ",
        "syntax error",
        "has no column",
        "ambiguous column",
        "incomplete input",
        "unrecognized token",
        "wrong number of arguments",
        "values for ",
        "misuse of ",
    ];
    SIGNS.iter().any(|sign| text.contains(sign))
}
