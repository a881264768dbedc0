//! What runs came to, for people and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use crate::run::Report;
use crate::situation::all;

/// A range of fewer seeds is not blamed for a situation that it never met.
pub const SEEDS_TO_MEET_ALL: u64 = 100_000;
/// So many failures are named; all are counted.
const NAMED_MAX: usize = 20;

impl Report {
    /// True when no invariant broke, and the range was too small to meet every situation or met them all.
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && (self.seeds < SEEDS_TO_MEET_ALL || self.missed().is_empty())
    }

    /// One JSON document.
    pub fn json(&self, took: Duration) -> String {
        let mut json = format!(
            r#"{{"seeds":{},"violations":{},"situations":{},"situations_missed":{},"seconds":{:.3},"trace_hash":"{:016x}","steps":{},"passed":{}"#,
            self.seeds,
            self.violations.len(),
            self.situations(),
            self.missed().len(),
            took.as_secs_f64(),
            self.trace_hash,
            self.steps,
            self.passed()
        );
        let faults = self.strikes.by_kind().map(|(fault, count)| format!(r#""{}":{count}"#, fault.name()));
        let _ = write!(json, r#","faults":{{{}}}"#, joined(faults));
        let missed = self.missed().into_iter().map(|entry| quoted(entry.name));
        let _ = write!(json, r#","missed":[{}]"#, joined(missed));
        let failed = self.violations.iter().take(NAMED_MAX).map(|(seed, violation)| {
            let (invariant, what) = (quoted(violation.invariant), quoted(&violation.what));
            format!(r#"{{"seed":{seed},"invariant":{invariant},"what":{what}}}"#)
        });
        let _ = write!(json, r#","failed":[{}]}}"#, joined(failed));
        json
    }

    /// The same for people.
    pub fn text(&self, took: Duration) -> String {
        let mut text = format!(
            "{} seeds, {} steps, {:.1} s, trace hash {:016x}\n",
            self.seeds,
            self.steps,
            took.as_secs_f64(),
            self.trace_hash
        );
        let _ = writeln!(text, "violations: {}", self.violations.len());
        for (seed, violation) in self.violations.iter().take(NAMED_MAX) {
            let _ = writeln!(text, "  seed {seed}: {}: {}", violation.invariant, violation.what);
        }
        let _ = writeln!(text, "situations met: {} of {}", self.situations(), all().count());
        for entry in self.missed() {
            let _ = writeln!(text, "  never met: {}: {}", entry.name, entry.meaning);
        }
        let faults = self.strikes.by_kind().filter(|(_, count)| *count > 0);
        let faults = faults.map(|(fault, count)| format!("{} {count}", fault.name()));
        let _ = writeln!(text, "faults: {}", faults.collect::<Vec<_>>().join(", "));
        text
    }
}

pub(crate) fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::from('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            plain => json.push(plain),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_string_escapes_what_it_must() {
        assert_eq!(quoted("a \"b\" \\ \n é"), r#""a \"b\" \\ \u000a é""#);
    }

    #[test]
    fn a_short_range_is_not_blamed_for_what_it_never_met() {
        let mut report = Report { seeds: SEEDS_TO_MEET_ALL - 1, ..Report::default() };
        assert!(report.passed());

        report.seeds += 1;
        assert!(!report.passed(), "nothing was met");
    }
}
