//! `[filter]`: the memory of repeats outside the database.

use std::path::PathBuf;
use std::time::Duration;

use consign_core::filter::check_ttl;

use super::checker::Checker;
use super::horizon::Horizon;
use super::raw::RawFilter;
use super::url::ConnectionUrl;

/// A filter on Redis.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Its url, `redis` or `rediss`; the path is the database's number.
    pub url: ConnectionUrl,
    /// A file with the certificate authorities to trust.
    pub tls_ca_file: Option<PathBuf>,
    /// What every key begins with.
    pub prefix: String,
    /// How long an operation is remembered.
    pub ttl: Duration,
    /// How long a call may take.
    pub timeout: Duration,
}

/// Checks `[filter]`; without the section there is no filter.
pub fn filter(checker: &mut Checker<'_>, raw: Option<RawFilter>, horizon: Horizon) -> Option<FilterConfig> {
    const LONGEST: u64 = 100 * 365 * 86_400;
    let raw = raw?;
    if let Some(kind) = checker.required("filter.type", raw.kind, "type = \"redis\"") {
        checker.choice("filter.type", &kind, &[("redis", ())]);
    }
    let printable = raw.prefix.bytes().all(|byte| byte.is_ascii_graphic());
    if !printable || !(1..=64).contains(&raw.prefix.len()) {
        let text =
            format!("{:?} is not usable: write 1 to 64 characters of ASCII without spaces", raw.prefix);
        checker.refuse("filter.prefix", text);
    }
    let ttl = match raw.ttl_seconds {
        Some(seconds) => checker.seconds("filter.ttl_seconds", seconds, 1..=LONGEST),
        None => horizon.total(),
    };
    if let Err(problem) = check_ttl(ttl, horizon.total()) {
        checker.refuse("filter.ttl_seconds", problem);
    }
    let timeout = checker.milliseconds("filter.timeout_milliseconds", raw.timeout_milliseconds, 1..=10_000);
    let tls_ca_file = checker.file("filter.tls_ca_file", raw.tls_ca_file);
    let url = checker.required("filter.url", raw.url, "url = \"redis://user@host:6379/0\"")?;
    let password = ("filter.password_file", raw.password_file);
    let url = checker.url("filter.url", &url, &["redis", "rediss"], password)?;
    check_url(checker, &url);
    if tls_ca_file.is_some() && url.scheme != "rediss" {
        checker.refuse("filter.url", "is not encrypted although a tls file is given: write rediss://");
    }
    Some(FilterConfig { url, tls_ca_file, prefix: raw.prefix, ttl, timeout })
}

/// Neither the path nor the query is shown: they may be the rest of a password that has a raw slash or question mark.
fn check_url(checker: &mut Checker<'_>, url: &ConnectionUrl) {
    let number = |path: &str| path.bytes().all(|byte| byte.is_ascii_digit()) && path.len() <= 4;
    if !url.path.as_deref().is_none_or(number) {
        checker.refuse("filter.url", "names a database that is no number: write redis://user@host:6379/0");
    }
    if !url.query.is_empty() {
        checker.refuse(
            "filter.url",
            "has a query, which is not used: remove the part from the ? on, and write a ? of the password as %3F",
        );
    }
}
