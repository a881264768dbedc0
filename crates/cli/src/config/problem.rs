//! What is wrong with a config, and where: file and line, or the environment variable.

use std::fmt;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the config file.
    File {
        /// The file's name as given.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable that overrides a value.
    Variable(String),
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written.
    pub place: Place,
    /// The key it is about, as a path; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what to write instead. Never holds a secret.
    pub text: String,
}

/// A config that cannot be used, with every mistake that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The mistakes, in the order of the file; never empty.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// An error of these mistakes, put in the order of the file; those of variables come last.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match &problem.place {
            Place::File { line, .. } => *line,
            Place::Variable(_) => usize::MAX,
        });
        Self { problems }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(formatter, "{file}:{line}"),
            Self::Variable(name) => write!(formatter, "variable {name}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(formatter, "{}: {}", self.place, self.text)
        } else {
            write!(formatter, "{}: {}: {}", self.place, self.key, self.text)
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(formatter, "{problem}"),
            problems => {
                write!(formatter, "the config has {} problems", problems.len())?;
                problems.iter().try_for_each(|problem| write!(formatter, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}
