//! Dates on the command line, and the key with which a stopped replay goes on.

use std::time::Duration;

use crate::age;

/// A moment as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// So long ago, by the database's clock.
    Ago(Duration),
    /// A date as the database has it, `YYYY-MM-DD HH:MM:SS.ffffff`.
    Date(String),
}

/// From when to when events were sent; set once for a whole replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The earliest date; `None` for any.
    pub from: Option<String>,
    /// The latest date.
    pub until: String,
}

/// Where a stopped replay goes on: its window, and its position in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The window.
    pub window: Window,
    /// The position.
    pub position: String,
}

impl Window {
    /// The key of a position, as [`parse_key`] reads it: `FROM..UNTIL/POSITION`, without spaces in the dates.
    pub fn key(&self, position: &str) -> String {
        let from = self.from.as_deref().unwrap_or_default().replace(' ', "T");
        format!("{from}..{}/{position}", self.until.replace(' ', "T"))
    }
}

/// Reads a key.
pub fn parse_key(text: &str) -> Result<Key, String> {
    const FORM: &str = "is no key of a replay: give the one that it told, FROM..UNTIL/POSITION";
    // A position may hold anything, dates do not.
    let (window, position) = text.split_once('/').filter(|(_, position)| !position.is_empty()).ok_or(FORM)?;
    let (from, until) = window.split_once("..").ok_or(FORM)?;
    let from = if from.is_empty() { None } else { Some(date(from).ok_or(FORM)?) };
    let until = date(until).ok_or(FORM)?;
    Ok(Key { window: Window { from, until }, position: position.to_owned() })
}

/// Reads an age or a date.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    if let Ok(age) = age::parse(text) {
        return Ok(Moment::Ago(age));
    }
    date(text).map(Moment::Date).ok_or_else(|| {
        "write an age such as 1h or 7d, or a date such as 2026-03-01 or \"2026-03-01 12:30:00\" in the time zone of the \
         store, without an offset"
            .to_owned()
    })
}

/// A date with or without a time, in full.
fn date(text: &str) -> Option<String> {
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let [year, month, date] = numbers(day, '-')?;
    if day.len() != 10 || !(1..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=days(year, month)).contains(&date) {
        return None;
    }
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let with_seconds = if whole.len() == 5 { format!("{whole}:00") } else { whole.to_owned() };
    let [hour, minute, second] = numbers(&with_seconds, ':')?;
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && fraction.len() <= 6;
    if with_seconds.len() != 8 || hour > 23 || minute > 59 || second > 59 || !digits {
        return None;
    }
    Some(format!("{day} {with_seconds}.{fraction:0<6}"))
}

fn numbers(text: &str, between: char) -> Option<[u32; 3]> {
    let mut parts = text
        .split(between)
        .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

const fn days(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_age_or_a_date() {
        let date = |text: &str| Ok(Moment::Date(text.to_owned()));

        assert_eq!(parse_moment("1h"), Ok(Moment::Ago(Duration::from_hours(1))));
        assert_eq!(parse_moment("2026-03-01"), date("2026-03-01 00:00:00.000000"));
        assert_eq!(parse_moment("2026-03-01 12:30"), date("2026-03-01 12:30:00.000000"));
        assert_eq!(parse_moment("2024-02-29T12:30:07.25"), date("2024-02-29 12:30:07.250000"));
        for text in [
            "",
            "yesterday",
            "2026-02-29",
            "2026-13-01",
            "2026-3-1",
            "2026-03-01 24:00",
            "2026-03-01T12:30:00Z",
            "2026-03-01 12:30:00+02:00",
            "2026-03-01 12:30:00.1234567",
            "-1h",
        ] {
            assert!(parse_moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_read_as_it_was_told() {
        for (from, position) in [(None, "41"), (Some("2026-03-01 12:00:00.000001"), "order/7..8")] {
            let window =
                Window { from: from.map(str::to_owned), until: "2026-03-02 00:00:00.000000".to_owned() };

            let told = window.key(position);

            assert!(!told.contains(' '), "{told}");
            assert_eq!(parse_key(&told), Ok(Key { window, position: position.to_owned() }));
        }
        for text in ["", "41", "../", "..2026-03-02/", "x..2026-03-02/1", "2026-03-02/1"] {
            assert!(parse_key(text).is_err(), "{text}");
        }
    }
}
