//! Findings about the server and the sessions on it.

use consign_core::finding::Finding;
use sqlx::mysql::MySqlRow;

use crate::mysql::findings::cell;

/// The process's clock may differ from the database's by this much before it is worth a word.
const SKEW_MICROS_MAX: i64 = 2_000_000;
/// Packets smaller than this refuse payloads that brokers take.
const PACKET_BYTES_MIN: u64 = 16 << 20;
/// The server closes idle connections after this many seconds at the earliest.
const WAIT_SECONDS_MIN: u64 = 60;

pub(super) fn findings(
    facts: &MySqlRow,
    time_zone: Option<&str>,
    process_micros: i64,
) -> Result<Vec<Finding>, sqlx::Error> {
    let number = |name: &str| cell(facts, name).map(|text| text.parse::<u64>().unwrap_or(0));
    let mut findings = vec![
        Finding::fine("server-version", "server", cell(facts, "version")?),
        isolation(&cell(facts, "isolation")?),
        zone(&cell(facts, "session_time_zone")?, &cell(facts, "global_time_zone")?, time_zone),
        clock(&cell(facts, "now_micros")?, process_micros),
    ];
    let mode = cell(facts, "global_sql_mode")?;
    if !mode.contains("STRICT_TRANS_TABLES") && !mode.contains("STRICT_ALL_TABLES") {
        findings.push(Finding::warning(
            "server-sql-mode",
            "server",
            "sql_mode is not strict: producers' values that are too long are cut in silence",
            "add STRICT_TRANS_TABLES to sql_mode; consign's own sessions have it",
        ));
    }
    if matches!(cell(facts, "read_only")?.as_str(), "1" | "ON") {
        findings.push(Finding::error(
            "server-read-only",
            "server",
            "the server is read-only",
            "connect to the primary",
        ));
    }
    if cell(facts, "log_bin")? == "1" && cell(facts, "binlog_format")? == "STATEMENT" {
        findings.push(Finding::error(
            "server-binlog-format",
            "server",
            "binlog_format is STATEMENT, which refuses writes under READ COMMITTED",
            "set binlog_format to ROW or MIXED",
        ));
    }
    let packet = number("max_allowed_packet")?;
    if packet < PACKET_BYTES_MIN {
        findings.push(Finding::warning(
            "server-packet",
            "server",
            format!("max_allowed_packet is {packet} bytes: larger events cannot be appended"),
            "raise it to at least 16 MiB",
        ));
    }
    let wait = number("wait_timeout")?;
    if wait < WAIT_SECONDS_MIN {
        findings.push(Finding::warning(
            "server-wait-timeout",
            "server",
            format!("idle connections are closed after {wait} s, so consign connects again and again"),
            "raise wait_timeout to at least 60",
        ));
    }
    Ok(findings)
}

fn isolation(level: &str) -> Finding {
    if level == "READ-COMMITTED" {
        return Finding::fine("session-isolation", "session", "READ COMMITTED is in force");
    }
    Finding::error(
        "session-isolation",
        "session",
        format!("{level} is in force although READ COMMITTED was asked for"),
        "look for a proxy that resets sessions",
    )
}

fn zone(session: &str, global: &str, configured: Option<&str>) -> Finding {
    if session == global {
        return Finding::fine(
            "session-time-zone",
            "session",
            format!("time zone {session}, the server's own"),
        );
    }
    Finding::warning(
        "session-time-zone",
        "session",
        format!(
            "the session's time zone is {session} ({}), the server's is {global}",
            if configured.is_some() { "configured" } else { "not configured" }
        ),
        "right only if all producers write their dates in the session's zone",
    )
}

fn clock(now_micros: &str, process_micros: i64) -> Finding {
    let skew = now_micros.parse::<i64>().map_or(i64::MAX, |now| now.saturating_sub(process_micros));
    let seconds = skew / 1_000_000;
    if skew.abs() <= SKEW_MICROS_MAX {
        return Finding::fine("clock-skew", "server", "the server's clock agrees with this machine's");
    }
    Finding::warning(
        "clock-skew",
        "server",
        format!("the server's clock is {seconds} s ahead of this machine's (negative: behind)"),
        "leases use the server's clock only, but logs will not line up: synchronise both",
    )
}
