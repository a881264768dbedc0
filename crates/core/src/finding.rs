//! Findings: what `doctor` and `topology check` report, each with its fix.

/// One observation about the configured parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable code, for instance `outbox-index-missing`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: a table, a column, a queue, a server.
    pub subject: String,
    /// What was found.
    pub text: String,
    /// What to do about it; empty for [`Severity::Fine`].
    pub fix: String,
}

/// How bad a finding is. Only errors make `doctor` exit with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Checked and in order.
    Fine,
    /// Works, but costs something worth knowing.
    Warning,
    /// Loses, doubles or stops something.
    Error,
}

impl Finding {
    /// A check that passed.
    pub fn fine(code: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Fine,
            subject: subject.into(),
            text: text.into(),
            fix: String::new(),
        }
    }

    /// Something that works at a cost.
    pub fn warning(
        code: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            code,
            severity: Severity::Warning,
            subject: subject.into(),
            text: text.into(),
            fix: fix.into(),
        }
    }

    /// Something that loses, doubles or stops work.
    pub fn error(
        code: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { code, severity: Severity::Error, subject: subject.into(), text: text.into(), fix: fix.into() }
    }
}
