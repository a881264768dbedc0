//! A config's text and environment, read into the raw form, with the place of every value.

use std::collections::BTreeMap;
use std::ops::Range;

use consign_core::declared::nearest_name;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::overlay::{self, Override};
use super::problem::{ConfigError, Place, Problem};
use super::raw::Raw;
use super::shape::Shape;

/// Where each value was written. Offsets at and beyond the text's length stand for environment variables.
#[derive(Debug)]
pub struct Source<'a> {
    file: &'a str,
    text: &'a str,
    overrides: &'a [Override],
    /// Key paths such as `route[0].key`, and where their values begin.
    places: BTreeMap<String, usize>,
}

impl<'a> Source<'a> {
    /// Reads the text and the overrides.
    ///
    /// # Errors
    /// The text is not TOML, or keys are unknown or have values of the wrong type: all that were found.
    pub fn read(file: &'a str, text: &'a str, overrides: &'a [Override]) -> Result<(Raw, Self), ConfigError> {
        let mut source = Self { file, text, overrides, places: BTreeMap::new() };
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problems = errors.iter().map(|error| Problem {
                place: source.place_at(error.span().map_or(0, |span| span.start)),
                key: String::new(),
                text: format!("not valid TOML: {}", error.message()),
            });
            return Err(ConfigError::new(problems.collect()));
        }
        let span = root.span();
        let mut root = Spanned::new(span, DeValue::Table(root.into_inner()));
        let shape = Shape::of_config();
        let mut problems = overlay::apply(&mut root, &shape, overrides, text.len());
        index(&root, String::new(), &mut source.places);
        source.remove_unknown(&mut root, &shape, "", &mut problems);
        let raw = source.deserialize(root, &mut problems);
        if problems.is_empty() { Ok((raw, source)) } else { Err(ConfigError::new(problems)) }
    }

    /// True when the key was written, in the file or in the environment.
    pub fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Where the key was written; where its table begins when it was not.
    pub fn place(&self, key: &str) -> Place {
        let mut key = key;
        loop {
            if let Some(&at) = self.places.get(key) {
                return self.place_at(at);
            }
            match key.rfind(['.', '[']) {
                Some(end) => key = &key[..end],
                None => return self.place_at(0),
            }
        }
    }

    fn place_at(&self, at: usize) -> Place {
        if at >= self.text.len()
            && let Some(variable) = self.overrides.get(at - self.text.len())
        {
            return Place::Variable(variable.name.clone());
        }
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        Place::File { file: self.file.to_owned(), line }
    }

    /// Takes unknown keys out of the tree and reports them, so that the rest can be judged too.
    fn remove_unknown(
        &self,
        value: &mut Spanned<DeValue<'_>>,
        shape: &Shape,
        path: &str,
        problems: &mut Vec<Problem>,
    ) {
        match (shape, value.get_mut()) {
            (Shape::Table(_) | Shape::Named(_), DeValue::Table(table)) => {
                let keys: Vec<(String, usize)> =
                    table.keys().map(|key| (key.get_ref().to_string(), key.span().start)).collect();
                for (key, at) in keys {
                    let inner = join(path, &key);
                    match (shape.under(&key), table.get_mut(key.as_str())) {
                        (Some(shape), Some(value)) => self.remove_unknown(value, shape, &inner, problems),
                        (None, _) => {
                            table.remove(key.as_str());
                            let text = unknown_key(&key, shape);
                            problems.push(Problem { place: self.place_at(at), key: inner, text });
                        }
                        (Some(_), None) => unreachable!("the key was just read from the table"),
                    }
                }
            }
            (Shape::List(shape), DeValue::Array(items)) => {
                for (position, item) in items.iter_mut().enumerate() {
                    self.remove_unknown(item, shape, &format!("{path}[{position}]"), problems);
                }
            }
            // A value of another type is reported when it is read.
            _ => {}
        }
    }

    /// Reads the tree; every value of the wrong type is reported, taken out, and the rest is read again.
    fn deserialize(&self, mut root: Spanned<DeValue<'_>>, problems: &mut Vec<Problem>) -> Raw {
        loop {
            let error = match Raw::deserialize(ValueDeserializer::from(root.clone())) {
                Ok(raw) => return raw,
                Err(error) => error,
            };
            let span = error.span().unwrap_or(0..0);
            // A variable's text was taken for a number, a truth value or a table where text was wanted.
            let variable =
                span.start.checked_sub(self.text.len()).and_then(|index| self.overrides.get(index));
            if let Some(variable) = variable
                && span.is_empty()
                && replace_with_text(&mut root, &span, variable)
            {
                continue;
            }
            let key = self.places.iter().filter(|(_, at)| **at == span.start).map(|(key, _)| key);
            let key = key.max_by_key(|key| key.len()).cloned().unwrap_or_default();
            let text = wrong_type(error.message());
            problems.push(Problem { place: self.place_at(span.start), key, text });
            if !remove(&mut root, &span) {
                return Raw::default();
            }
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn index(value: &Spanned<DeValue<'_>>, path: String, places: &mut BTreeMap<String, usize>) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                index(value, join(&path, key.get_ref()), places);
            }
        }
        DeValue::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                index(item, format!("{path}[{position}]"), places);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
    places.insert(path, value.span().start);
}

fn unknown_key(key: &str, shape: &Shape) -> String {
    match nearest_name(key, shape.keys()) {
        Some(near) => format!("unknown key, did you mean {near:?}?"),
        None => format!("unknown key: known here are {}", shape.keys().collect::<Vec<_>>().join(", ")),
    }
}

fn wrong_type(message: &str) -> String {
    discreet(message)
        .replace("invalid type: ", "wrong type: ")
        .replace("invalid value: ", "wrong value: ")
        .replace("u64", "a whole number from 0 up")
        .replace("i64", "a whole number")
        .replace("a boolean", "true or false")
        .replace("struct ", "the table ")
}

/// The message with a text that stood in the wrong place left out, unless it is a plain word: it may be a url with its
/// password.
fn discreet(message: &str) -> String {
    const LONGEST: usize = 20;
    let Some((before, quoted)) = message.split_once(": string \"") else { return message.to_owned() };
    let Some((text, expected)) = quoted.rsplit_once("\", expected ") else { return message.to_owned() };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-. ".contains(&byte);
    if text.len() <= LONGEST && text.bytes().all(is_plain) {
        return message.to_owned();
    }
    format!("{before}: a text, expected {expected}")
}

/// Puts the variable's plain text where its parsed value stood; false when it stands there already.
fn replace_with_text(root: &mut Spanned<DeValue<'_>>, span: &Range<usize>, variable: &Override) -> bool {
    let Some(value) = find(root, span) else { return false };
    if matches!(value.get_ref(), DeValue::String(_)) {
        return false;
    }
    *value.get_mut() = DeValue::String(variable.text.clone().into());
    true
}

/// The value that has this span; every value has its own.
fn find<'v, 'i>(
    value: &'v mut Spanned<DeValue<'i>>,
    span: &Range<usize>,
) -> Option<&'v mut Spanned<DeValue<'i>>> {
    if value.span() == *span {
        return Some(value);
    }
    match value.get_mut() {
        DeValue::Table(table) => table.iter_mut().find_map(|(_, value)| find(value, span)),
        DeValue::Array(items) => items.iter_mut().find_map(|value| find(value, span)),
        _ => None,
    }
}

/// Takes the value that has this span out of its table or array.
fn remove(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => {
            let key = table
                .iter()
                .find(|(_, value)| value.span() == *span)
                .map(|(key, _)| key.get_ref().to_string());
            match key {
                Some(key) => table.remove(key.as_str()).is_some(),
                None => table.iter_mut().any(|(_, value)| remove(value, span)),
            }
        }
        DeValue::Array(items) => {
            if items.iter().any(|item| item.span() == *span) {
                let kept = std::mem::replace(items, DeArray::new()).into_iter();
                *items = kept.filter(|item| item.span() != *span).collect();
                return true;
            }
            items.iter_mut().any(|item| remove(item, span))
        }
        _ => false,
    }
}
