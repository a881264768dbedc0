//! The checker: collects every mistake while the raw form becomes the checked one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::declared::nearest_name;

use super::problem::Problem;
use super::secret::Secret;
use super::source::Source;
use super::url::ConnectionUrl;

/// The environment a config is read in.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The process's environment variables.
    pub variables: BTreeMap<String, String>,
}

impl Environment {
    /// The environment of this process; variables that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { variables: variables.collect() }
    }
}

/// One pass over a config. Methods return a usable value even when they report a mistake, so that the pass goes on;
/// the config is only used when nothing was reported.
pub struct Checker<'a> {
    source: &'a Source<'a>,
    environment: &'a Environment,
    directory: &'a Path,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    /// A checker for the config whose relative paths start at `directory`.
    pub fn new(source: &'a Source<'a>, environment: &'a Environment, directory: &'a Path) -> Self {
        Self { source, environment, directory, problems: Vec::new() }
    }

    /// Everything that was reported.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Reports a mistake.
    pub fn refuse(&mut self, key: &str, text: impl Display) {
        let place = self.source.place(key);
        self.problems.push(Problem { place, key: key.to_owned(), text: text.to_string() });
    }

    /// True when the key was written.
    pub fn has(&self, key: &str) -> bool {
        self.source.has(key)
    }

    /// A text that must be there and not be empty.
    pub fn required(&mut self, key: &str, value: Option<String>, example: &str) -> Option<String> {
        match value {
            Some(text) if !text.trim().is_empty() => Some(text),
            Some(_) => {
                self.refuse(key, format!("is empty: write {example}"));
                None
            }
            None => {
                self.refuse(key, format!("is missing: write {example}"));
                None
            }
        }
    }

    /// A name of our own: letters, digits, `-`, `_` and `.`, at most `length` characters, no double underscore.
    pub fn name(&mut self, key: &str, name: &str, length: usize) {
        let valid =
            |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
        if name.is_empty() || name.len() > length || !name.chars().all(valid) || name.contains("__") {
            let rule = format!("use 1 to {length} letters, digits, -, _ and . without a double underscore");
            self.refuse(key, format!("{name:?} is not a usable name: {rule}"));
        }
    }

    /// A number within bounds.
    pub fn within<N>(&mut self, key: &str, number: u64, range: RangeInclusive<N>) -> N
    where
        N: TryFrom<u64> + PartialOrd + Copy + Display,
    {
        match N::try_from(number) {
            Ok(number) if range.contains(&number) => number,
            _ => {
                let (low, high) = (range.start(), range.end());
                self.refuse(key, format!("{number} is out of range: use {low} to {high}"));
                *low
            }
        }
    }

    /// A span of whole seconds within bounds.
    pub fn seconds(&mut self, key: &str, seconds: u64, range: RangeInclusive<u64>) -> Duration {
        Duration::from_secs(self.within(key, seconds, range))
    }

    /// A span of whole milliseconds within bounds.
    pub fn milliseconds(&mut self, key: &str, milliseconds: u64, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(key, milliseconds, range))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, key: &str, word: &str, choices: &[(&str, T)]) -> Option<T> {
        let found = choices.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice);
        if found.is_none() {
            let known = choices.iter().map(|(known, _)| *known);
            let fix = nearest_name(word, known.clone()).map_or_else(
                || format!("use one of {}", known.collect::<Vec<_>>().join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            self.refuse(key, format!("{word:?} is not known: {fix}"));
        }
        found
    }

    /// Reports a name that is not among the known ones, with the nearest.
    pub fn known(&mut self, key: &str, name: &str, known: &[&str], fix: &str) -> bool {
        if known.contains(&name) {
            return true;
        }
        let near = nearest_name(name, known.iter().copied());
        let fix = near.map_or_else(|| fix.to_owned(), |near| format!("did you mean {near:?}?"));
        self.refuse(key, format!("{name:?} is unknown: {fix}"));
        false
    }

    /// Reports names that stand in a list twice. `key_of` gives the key of an entry.
    pub fn unique(&mut self, names: &[&str], key_of: impl Fn(usize) -> String) {
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                self.refuse(&key_of(index), format!("{name:?} is used twice: give every entry its own"));
            }
        }
    }

    /// A table or column name, safe to put into SQL.
    pub fn identifier(&mut self, key: &str, name: &str, kind: Named) {
        let parts: Vec<&str> = name.split('.').collect();
        let dots = match kind {
            Named::Table => 1,
            Named::Column => 0,
        };
        if parts.len() <= dots + 1 && parts.iter().all(|part| is_identifier(part)) {
            return;
        }
        let dot = match kind {
            Named::Table => ", with at most one dot between schema and table",
            Named::Column => "",
        };
        self.refuse(
            key,
            format!(
                "{name:?} is not a usable name: use letters, digits, _ and $, not starting with a digit, at most \
                 64 characters{dot}"
            ),
        );
    }

    /// A path; relative ones start at the config's folder.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// A path to a file that must exist.
    pub fn file(&mut self, key: &str, path: Option<String>) -> Option<PathBuf> {
        let path = self.path(&path?);
        if !path.is_file() {
            let shown = path.display();
            self.refuse(
                key,
                format!("{shown} is not a readable file: relative paths start at the config's folder"),
            );
        }
        Some(path)
    }

    /// A url with the password from its file, when there is one.
    pub fn url(
        &mut self,
        key: &str,
        text: &str,
        schemes: &[&str],
        password: (&str, Option<String>),
    ) -> Option<ConnectionUrl> {
        let variables = &self.environment.variables;
        let parsed = ConnectionUrl::parse(text, |name| variables.get(name).cloned());
        let mut url = match parsed {
            Ok(url) => url,
            Err(problem) => {
                self.refuse(key, problem);
                return None;
            }
        };
        if !schemes.contains(&url.scheme.as_str()) {
            self.refuse(key, format!("scheme {:?} is not known: use {}", url.scheme, schemes.join(" or ")));
        }
        let (password_key, file) = password;
        if let Some(secret) = self.password(password_key, file) {
            if url.password.is_some() {
                self.refuse(password_key, "the url holds a password too: keep one of them");
            }
            url.password = Some(secret);
        }
        Some(url)
    }

    fn password(&mut self, key: &str, path: Option<String>) -> Option<Secret> {
        let path = self.path(&path?);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                // Editors and `echo` end files with a line break that is no part of the password.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if text.is_empty() {
                    self.refuse(key, format!("{} is empty: put the password into it", path.display()));
                }
                Some(Secret::new(text))
            }
            Err(error) => {
                self.refuse(key, format!("{} cannot be read: {error}", path.display()));
                None
            }
        }
    }
}

/// What an identifier names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A table, which may stand behind its schema and a dot.
    Table,
    /// A column.
    Column,
}

fn is_identifier(part: &str) -> bool {
    let mut characters = part.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters
            .all(|character| character.is_ascii_alphanumeric() || character == '_' || character == '$')
        && part.len() <= 64
}
