//! What became of each record that somebody decided about: told line by line, or as one document at the end.

use std::io;

use serde_json::{Map, Value, json};

use super::{print, print_json, printable};
use crate::exit::Exit;

/// The answers of a command that was given several records.
#[derive(Debug)]
pub struct Decisions {
    form: Form,
    done: Vec<Value>,
    failed: Vec<Value>,
}

/// How answers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each, at once.
    Lines,
    /// One JSON document.
    Json,
}

impl Form {
    /// JSON when it was asked for.
    pub const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Lines }
    }
}

impl Decisions {
    /// No answers yet.
    pub const fn new(form: Form) -> Self {
        Self { form, done: Vec::new(), failed: Vec::new() }
    }

    /// A record was changed; `word` says how, and `text` what that means.
    ///
    /// # Errors
    /// Stdout is gone.
    pub fn done(&mut self, id: impl Into<Value>, word: &str, text: &str) -> io::Result<()> {
        let id = id.into();
        let line = format!("{}: {word}: {text}\n", plain(&id));
        self.done.push(json!({ "id": id, "done": word }));
        match self.form {
            Form::Lines => print(line),
            Form::Json => Ok(()),
        }
    }

    /// A record was not changed.
    pub fn failed(&mut self, id: impl Into<Value>, error: &anyhow::Error) {
        let (id, text) = (id.into(), format!("{error:#}"));
        if self.form == Form::Lines {
            eprintln!("error: {}: {}", plain(&id), printable(&text));
        }
        self.failed.push(json!({ "id": id, "error": text }));
    }

    /// How many records were changed.
    pub fn count(&self) -> usize {
        self.done.len()
    }

    /// Tells the rest. The command failed when one of its records did.
    ///
    /// # Errors
    /// Stdout is gone.
    pub fn end(self, verb: &str, further: Map<String, Value>) -> io::Result<Exit> {
        let exit = if self.failed.is_empty() { Exit::Fine } else { Exit::Failed };
        if self.form == Form::Json {
            let mut document = Map::new();
            document.insert(verb.into(), self.done.into());
            document.insert("failed".into(), self.failed.into());
            document.extend(further);
            print_json(&document)?;
        }
        Ok(exit)
    }
}

fn plain(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), printable)
}
