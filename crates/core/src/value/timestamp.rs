//! Instants: RFC 3339 text read exactly, without a calendar library and without a float.

use std::fmt;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// An instant of the years 0000 to 9999 in UTC, exact to the microsecond.
///
/// Shown as `YYYY-MM-DD HH:MM:SS.ffffff`, which MySQL's `DATETIME(6)` keeps as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Microseconds since 0000-01-01 00:00:00 UTC.
    micros: i64,
}

/// Why text is not an instant; the parts of a sentence such as "is …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTimestamp {
    /// The text has another form, or a part that does not exist, such as the 30th of February.
    #[error("text that is not a time of the form 2026-01-31T23:59:59.123456Z")]
    Malformed,
    /// It says no offset, so nobody knows which instant is meant.
    #[error("a time without an offset")]
    NoOffset,
    /// Second 60: databases have no such second.
    #[error("a leap second")]
    LeapSecond,
    /// More than six digits of a second, and not all of them zeros.
    #[error("a time finer than microseconds")]
    TooFine,
    /// In UTC it lies before the year 0000 or after the year 9999.
    #[error("a time outside the years 0000 to 9999")]
    OutOfRange,
}

impl Timestamp {
    /// Reads RFC 3339 text: an offset or `Z` is required; `T` and `Z` may be lower case, and a space may stand for `T`.
    ///
    /// # Errors
    /// The text has another form, no offset, a leap second, or digits beyond the microsecond that are not zeros.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        let (local, rest) = Self::local(text)?;
        let minutes = match rest.as_bytes() {
            [] => return Err(InvalidTimestamp::NoOffset),
            [b'Z' | b'z'] => 0,
            [sign @ (b'+' | b'-'), hours @ .., b':', tens, ones] => {
                let (hours, minutes) = (number(hours, 2)?, number(&[*tens, *ones], 2)?);
                if hours > 23 || minutes > 59 {
                    return Err(InvalidTimestamp::Malformed);
                }
                (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return Err(InvalidTimestamp::Malformed),
        };
        Self::of(local - minutes * 60 * MICROS_PER_SECOND)
    }

    /// Reads the text of a database's column, which is in UTC when it has no offset; `None` when it is no time.
    pub fn parse_stored(text: &str) -> Option<Self> {
        match Self::local(text) {
            Ok((local, "")) => Self::of(local).ok(),
            Ok(_) => Self::parse(text).ok(),
            Err(_) => None,
        }
    }

    /// True when a column that keeps `digits` digits of a second keeps this instant unrounded.
    pub fn fits(self, digits: u32) -> bool {
        self.micros % 10_i64.pow(6_u32.saturating_sub(digits)) == 0
    }

    fn of(micros: i64) -> Result<Self, InvalidTimestamp> {
        let end = days_before(10_000) * SECONDS_PER_DAY * MICROS_PER_SECOND;
        if (0..end).contains(&micros) { Ok(Self { micros }) } else { Err(InvalidTimestamp::OutOfRange) }
    }

    /// Reads `YYYY-MM-DDTHH:MM:SS` and a fraction; the microseconds since the year 0000, and the text behind them.
    fn local(text: &str) -> Result<(i64, &str), InvalidTimestamp> {
        let (date_time, rest) = text.split_at_checked(19).ok_or(InvalidTimestamp::Malformed)?;
        let bytes = date_time.as_bytes();
        let separators = [bytes[4], bytes[7], bytes[10], bytes[13], bytes[16]];
        if !matches!(separators, [b'-', b'-', b'T' | b't' | b' ', b':', b':']) {
            return Err(InvalidTimestamp::Malformed);
        }
        let part = |from: usize, digits: usize| number(&bytes[from..from + digits], digits);
        let (year, month, day) = (part(0, 4)?, part(5, 2)?, part(8, 2)?);
        let (hour, minute, second) = (part(11, 2)?, part(14, 2)?, part(17, 2)?);
        let exists = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        if !exists || hour > 23 || minute > 59 || second > 60 {
            return Err(InvalidTimestamp::Malformed);
        }
        if second == 60 {
            return Err(InvalidTimestamp::LeapSecond);
        }
        let (fraction, rest) = fraction(rest)?;
        let days = days_before(year) + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1;
        let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        Ok((seconds * MICROS_PER_SECOND + fraction, rest))
    }
}

/// The microseconds of a fraction of a second, when there is one, and the text behind it.
fn fraction(text: &str) -> Result<(i64, &str), InvalidTimestamp> {
    let Some(text) = text.strip_prefix('.') else { return Ok((0, text)) };
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Err(InvalidTimestamp::Malformed);
    }
    let (kept, beyond) = digits.split_at(digits.len().min(6));
    if beyond.bytes().any(|digit| digit != b'0') {
        return Err(InvalidTimestamp::TooFine);
    }
    let micros = kept.bytes().chain(std::iter::repeat(b'0')).take(6);
    Ok((micros.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')), rest))
}

fn number(digits: &[u8], length: usize) -> Result<i64, InvalidTimestamp> {
    if digits.len() != length || !digits.iter().all(u8::is_ascii_digit) {
        return Err(InvalidTimestamp::Malformed);
    }
    Ok(digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of the year 0000, a leap year, to the first of `year`.
fn days_before(year: i64) -> i64 {
    let leap_years = if year == 0 { 0 } else { (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 + 1 };
    year * 365 + leap_years
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.micros / MICROS_PER_SECOND, self.micros % MICROS_PER_SECOND);
        let (mut days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
        // A year has 365.2425 days on average; the estimate is never too late and at most one year early.
        let mut year = days * 400 / 146_097;
        if days_before(year) > days {
            year -= 1;
        }
        if days_before(year + 1) <= days {
            year += 1;
        }
        days -= days_before(year);
        let mut month = 1;
        while days >= days_in(year, month) {
            days -= days_in(year, month);
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let day = days + 1;
        write!(formatter, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_has_one_text_whatever_the_offset() {
        for (text, instant) in [
            ("2026-01-31T23:59:59Z", "2026-01-31 23:59:59.000000"),
            ("2026-01-31T23:59:59.5Z", "2026-01-31 23:59:59.500000"),
            ("2026-02-01t08:59:59.123456+09:00", "2026-01-31 23:59:59.123456"),
            ("2026-01-31 20:29:59.1234560000-03:30", "2026-01-31 23:59:59.123456"),
            ("2026-01-31T23:59:59-00:00", "2026-01-31 23:59:59.000000"),
            ("2026-01-31T23:59:59+23:59", "2026-01-31 00:00:59.000000"),
            ("2026-01-31T00:00:00-23:59", "2026-01-31 23:59:00.000000"),
            ("2024-02-29T00:00:00z", "2024-02-29 00:00:00.000000"),
            ("2000-02-29T12:00:00Z", "2000-02-29 12:00:00.000000"),
            ("1970-01-01T00:00:00.000001Z", "1970-01-01 00:00:00.000001"),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31 23:59:59.999999"),
            ("0000-01-01T00:00:00Z", "0000-01-01 00:00:00.000000"),
            ("0000-12-31T23:59:59Z", "0000-12-31 23:59:59.000000"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999"),
        ] {
            assert_eq!(
                Timestamp::parse(text).map(|instant| instant.to_string()).as_deref(),
                Ok(instant),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_exactly_an_instant_is_refused() {
        use InvalidTimestamp::{LeapSecond, Malformed, NoOffset, OutOfRange, TooFine};
        for (text, problem) in [
            ("", Malformed),
            ("2026-01-31", Malformed),
            ("2026-01-31T23:59Z", Malformed),
            ("2026-01-31T23:59:59", NoOffset),
            ("2026-01-31T23:59:59.5", NoOffset),
            ("2026-01-31T23:59:59,5Z", Malformed),
            ("2026-01-31T23:59:59.Z", Malformed),
            ("2026-01-31T23:59:59+0900", Malformed),
            ("2026-01-31T23:59:59+9:00", Malformed),
            ("2026-01-31T23:59:59+24:00", Malformed),
            ("2026-01-31T23:59:59+00:60", Malformed),
            ("2026-01-31T23:59:59Z ", Malformed),
            (" 2026-01-31T23:59:59Z", Malformed),
            ("+026-01-31T23:59:59Z", Malformed),
            ("2026-02-29T00:00:00Z", Malformed),
            ("1900-02-29T00:00:00Z", Malformed),
            ("2026-04-31T00:00:00Z", Malformed),
            ("2026-00-01T00:00:00Z", Malformed),
            ("2026-13-01T00:00:00Z", Malformed),
            ("2026-01-00T00:00:00Z", Malformed),
            ("2026-01-01T24:00:00Z", Malformed),
            ("2026-01-01T00:60:00Z", Malformed),
            ("2026-06-30T23:59:61Z", Malformed),
            ("2016-12-31T23:59:60Z", LeapSecond),
            ("2026-01-31T23:59:59.1234567Z", TooFine),
            ("2026-01-31T23:59:59.0000000001Z", TooFine),
            ("0000-01-01T00:00:00+00:01", OutOfRange),
            ("9999-12-31T23:59:59-00:01", OutOfRange),
            ("２026-01-31T23:59:59Z", Malformed),
            ("2026-01-31T23:59:5９Z", Malformed),
        ] {
            assert_eq!(Timestamp::parse(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn every_day_of_a_leap_cycle_is_read_back() {
        let mut before = Timestamp::parse("1899-12-31T12:34:56.789Z").unwrap();
        for year in 1900..2301 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    let text = format!("{year:04}-{month:02}-{day:02} 12:34:56.789000");

                    let instant = Timestamp::parse_stored(&text).unwrap();

                    assert_eq!(instant.to_string(), text);
                    assert_eq!(instant.micros - before.micros, SECONDS_PER_DAY * MICROS_PER_SECOND, "{text}");
                    before = instant;
                }
            }
        }
    }

    #[test]
    fn every_year_begins_where_the_one_before_it_ends() {
        for year in 0..10_000 {
            let first = Timestamp::parse(&format!("{year:04}-01-01T00:00:00Z")).unwrap();
            let last = Timestamp::parse(&format!("{year:04}-12-31T23:59:59Z")).unwrap();

            assert_eq!(first.to_string(), format!("{year:04}-01-01 00:00:00.000000"));
            assert_eq!(last.to_string(), format!("{year:04}-12-31 23:59:59.000000"));
        }
    }

    #[test]
    fn columns_of_any_precision_give_the_instant_back() {
        let instant = Timestamp::parse("2026-01-31T23:59:59.5Z").unwrap();

        for stored in [
            "2026-01-31 23:59:59.5",
            "2026-01-31 23:59:59.500",
            "2026-01-31 23:59:59.500000",
            "2026-01-31T23:59:59.500Z",
            "2026-02-01 08:59:59.5+09:00",
        ] {
            assert_eq!(Timestamp::parse_stored(stored), Some(instant), "{stored}");
        }
        assert_eq!(Timestamp::parse_stored("2026-01-31"), None);
        assert_eq!(Timestamp::parse_stored("0000-00-00 00:00:00"), None);
    }

    /// A column that rounds would make every repeat a conflict: adapters ask before they write.
    #[test]
    fn an_instant_fits_a_column_that_keeps_all_its_digits() {
        let fits = |text: &str, digits| Timestamp::parse(text).unwrap().fits(digits);

        assert!(fits("2026-01-31T23:59:59Z", 0));
        assert!(!fits("2026-01-31T23:59:59.5Z", 0));
        assert!(fits("2026-01-31T23:59:59.123Z", 3));
        assert!(!fits("2026-01-31T23:59:59.1234Z", 3));
        assert!(fits("2026-01-31T23:59:59.123456Z", 6) && fits("2026-01-31T23:59:59.123456Z", 9));
    }
}
