//! `[store]`, `[[outbox]]` and `[inbox]`: the database and the names of its tables and columns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use consign_store::retention::OnSent;

use super::checker::{Checker, Named};
use super::raw::{RawInbox, RawOutbox, RawStore};
use super::url::ConnectionUrl;

/// The contract's columns of an outbox table, the optional ones last.
pub const OUTBOX_COLUMNS: [&str; 20] = [
    "event_id",
    "aggregate_id",
    "event_type",
    "payload",
    "status",
    "attempts",
    "available_at",
    "lease_token",
    "locked_until",
    "created_at",
    "aggregate_type",
    "sequence",
    "aggregate_version",
    "destination",
    "route_key",
    "headers",
    "business_key",
    "last_error",
    "last_outcome",
    "sent_at",
];

/// The contract's columns of a marker table, the optional ones last.
pub const INBOX_COLUMNS: [&str; 7] = [
    "consumer_name",
    "business_key",
    "event_id",
    "fingerprint",
    "comparison_version",
    "applied_at",
    "aggregate_version",
];

/// A hundred years: longer spans are a misunderstanding.
const DAYS_MAX: u64 = 36_500;

/// The database.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Which one.
    pub database: Database,
    /// How many connections the pool holds at most.
    pub connections: u32,
}

/// Where the tables are.
#[derive(Clone, Debug)]
pub enum Database {
    /// A MySQL or MariaDB server.
    MySql {
        /// Its url; the path is the database's name.
        url: ConnectionUrl,
        /// The session's time zone; `None` for the server's global one.
        time_zone: Option<String>,
        /// A file with the certificate authorities to trust.
        tls_ca_file: Option<PathBuf>,
    },
    /// A SQLite file.
    Sqlite {
        /// Its path.
        path: PathBuf,
    },
}

/// One outbox table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxConfig {
    /// Its name in messages and metrics.
    pub name: String,
    /// The table, with or without its schema.
    pub table: String,
    /// Contract columns that have other names here, and those names.
    pub columns: BTreeMap<String, String>,
    /// What becomes of a row that was sent.
    pub on_sent: OnSent,
    /// How long sent rows are kept; `None` keeps them for ever.
    pub retention: Option<Duration>,
}

/// The marker table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxConfig {
    /// The table, with or without its schema.
    pub table: String,
    /// Contract columns that have other names here, and those names.
    pub columns: BTreeMap<String, String>,
    /// How long markers are kept; `None` keeps them for ever.
    pub retention: Option<Duration>,
    /// How far back somebody may publish events again.
    pub replay_horizon: Duration,
}

impl InboxConfig {
    /// What a contract column is called in this table.
    pub fn actual<'a>(&'a self, column: &'a str) -> &'a str {
        self.columns.get(column).map_or(column, String::as_str)
    }
}

/// Checks `[store]`.
pub fn store(checker: &mut Checker<'_>, raw: Option<RawStore>) -> Option<StoreConfig> {
    const EXAMPLE: &str = "url = \"mysql://user@host:3306/database\" or \"sqlite:file.db\"";
    let Some(raw) = raw else {
        checker.refuse("store", format!("the section is missing: write [store] with {EXAMPLE}"));
        return None;
    };
    let connections = checker.within("store.connections", raw.connections, 1..=1000);
    let url = checker.required("store.url", raw.url, EXAMPLE)?;
    let database = match url.strip_prefix("sqlite:") {
        Some(path) => sqlite(checker, path),
        None => mysql(checker, &url, raw.password_file, raw.time_zone, raw.tls_ca_file),
    };
    Some(StoreConfig { database: database?, connections })
}

fn sqlite(checker: &mut Checker<'_>, path: &str) -> Option<Database> {
    for key in ["password_file", "time_zone", "tls_ca_file"] {
        let key = format!("store.{key}");
        if checker.has(&key) {
            checker.refuse(&key, "does not apply to sqlite: remove it");
        }
    }
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.contains([':', '?']) {
        // A memory database is private to one connection, and several connections share the work.
        checker.refuse("store.url", "is not a file: write \"sqlite:file.db\"");
        return None;
    }
    Some(Database::Sqlite { path: checker.path(path) })
}

fn mysql(
    checker: &mut Checker<'_>,
    url: &str,
    password_file: Option<String>,
    time_zone: Option<String>,
    tls_ca_file: Option<String>,
) -> Option<Database> {
    let tls_ca_file = checker.file("store.tls_ca_file", tls_ca_file);
    if let Some(zone) = &time_zone
        && !is_time_zone(zone)
    {
        checker.refuse(
            "store.time_zone",
            format!("{zone:?} is not a time zone: write an offset such as \"+09:00\", or a name such as \"Asia/Tokyo\""),
        );
    }
    let password = ("store.password_file", password_file);
    let url = checker.url("store.url", url, &["mysql", "mariadb"], password)?;
    if url.path.is_none() {
        checker.refuse("store.url", "names no database: write mysql://user@host:3306/database");
    }
    Some(Database::MySql { url, time_zone, tls_ca_file })
}

/// An offset within MySQL's range, or something that looks like the name of a zone.
fn is_time_zone(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else {
        let plain = |character: char| character.is_ascii_alphanumeric() || "_/+-".contains(character);
        return text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(plain);
    };
    let Some((hours, minutes)) = offset.split_once(':') else { return false };
    let number = |digits: &str| match digits.len() {
        2 if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<i32>().ok(),
        _ => None,
    };
    let (Some(hours), Some(minutes)) = (number(hours), number(minutes)) else { return false };
    let total = (hours * 60 + minutes) * if text.starts_with('-') { -1 } else { 1 };
    minutes < 60 && (-(13 * 60 + 59)..=14 * 60).contains(&total)
}

/// Checks `[[outbox]]`; without any there is one under the contract's names.
pub fn outboxes(checker: &mut Checker<'_>, raw: Vec<RawOutbox>) -> Vec<OutboxConfig> {
    let raw = if raw.is_empty() { vec![RawOutbox::default()] } else { raw };
    let outboxes: Vec<OutboxConfig> = raw
        .into_iter()
        .enumerate()
        .map(|(index, raw)| outbox(checker, &format!("outbox[{index}]"), raw))
        .collect();
    for (index, outbox) in outboxes.iter().enumerate() {
        let key = format!("outbox[{index}]");
        checker.name(&format!("{key}.name"), &outbox.name, 64);
        checker.identifier(&format!("{key}.table"), &outbox.table, Named::Table);
        columns(checker, &key, &outbox.columns, &OUTBOX_COLUMNS);
    }
    let names: Vec<&str> = outboxes.iter().map(|outbox| outbox.name.as_str()).collect();
    let tables: Vec<&str> = outboxes.iter().map(|outbox| outbox.table.as_str()).collect();
    checker.unique(&names, |index| format!("outbox[{index}].name"));
    checker.unique(&tables, |index| format!("outbox[{index}].table"));
    outboxes
}

fn outbox(checker: &mut Checker<'_>, key: &str, raw: RawOutbox) -> OutboxConfig {
    let RawOutbox { name, table, columns, on_sent, retention_days } = raw;
    let words = [("keep", OnSent::Keep), ("delete", OnSent::Delete)];
    let on_sent = checker.choice(&format!("{key}.on_sent"), &on_sent, &words).unwrap_or_default();
    let retention_days =
        retention_days.map(|days| checker.within(&format!("{key}.retention_days"), days, 0..=DAYS_MAX));
    OutboxConfig { name, table, columns, on_sent, retention: retention_days.map(days) }
}

/// Checks `[inbox]`.
pub fn inbox(checker: &mut Checker<'_>, raw: RawInbox) -> InboxConfig {
    checker.identifier("inbox.table", &raw.table, Named::Table);
    columns(checker, "inbox", &raw.columns, &INBOX_COLUMNS);
    let retention_days =
        raw.retention_days.map(|days| checker.within("inbox.retention_days", days, 0..=DAYS_MAX));
    let replay_days: u64 = checker.within("inbox.replay_horizon_days", raw.replay_horizon_days, 0..=DAYS_MAX);
    InboxConfig {
        table: raw.table,
        columns: raw.columns,
        retention: retention_days.map(days),
        replay_horizon: days(replay_days),
    }
}

fn days(days: u64) -> Duration {
    Duration::from_hours(days * 24)
}

/// Checks that renamed columns are the contract's, and that no two columns end up with one name.
fn columns(checker: &mut Checker<'_>, key: &str, columns: &BTreeMap<String, String>, contract: &[&str]) {
    let actual = |column: &'_ str| columns.get(column).map_or(column.to_owned(), Clone::clone);
    for (column, name) in columns {
        let key = format!("{key}.columns.{column}");
        checker.identifier(&key, name, Named::Column);
        if !contract.contains(&column.as_str()) {
            checker.known(
                &key,
                column,
                contract,
                &format!("the contract's columns are {}", contract.join(", ")),
            );
            continue;
        }
        let other =
            contract.iter().find(|other| **other != column && actual(other).eq_ignore_ascii_case(name));
        if let Some(other) = other {
            checker.refuse(&key, format!("{name:?} is the name of {other} too: every column needs its own"));
        }
    }
}
