//! Overrides from the environment: `CONSIGN__SECTION__KEY`, entries of lists by index or by name.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{Place, Problem};
use super::shape::Shape;

/// What overriding variables begin with.
const PREFIX: &str = "CONSIGN__";

/// One environment variable that overrides a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The variable's name.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Override {
    /// The overriding ones among `variables`, sorted by name.
    pub fn among<'a>(variables: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<Self> {
        let mut overrides: Vec<Self> = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, text)| Self { name: name.clone(), text: text.clone() })
            .collect();
        overrides.sort_by(|left, right| left.name.cmp(&right.name));
        overrides
    }
}

/// Puts the overrides into the tree. The value of override `n` gets the empty span at `base + n` as its place;
/// everything that comes with it, inside it or around it, gets a span that begins there and ends nowhere else.
pub fn apply<'i>(
    root: &mut Spanned<DeValue<'i>>,
    shape: &Shape,
    overrides: &'i [Override],
    base: usize,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut spans = Spans { at: base, end: base + overrides.len() };
    for (index, variable) in overrides.iter().enumerate() {
        spans.at = base + index;
        let segments: Vec<&str> = variable.name[PREFIX.len()..].split("__").collect();
        let value = value(&variable.text, &mut spans);
        if let Err(text) = put(root, shape, &segments, value, &mut spans) {
            let place = Place::Variable(variable.name.clone());
            problems.push(Problem { place, key: String::new(), text });
        }
    }
    problems
}

/// Hands out spans for what comes from variables.
struct Spans {
    at: usize,
    end: usize,
}

impl Spans {
    fn whole(&self) -> Range<usize> {
        self.at..self.at
    }

    fn part(&mut self) -> Range<usize> {
        self.end += 1;
        self.at..self.end
    }
}

/// A number, truth value, array, table or quoted text is read as TOML; anything else is plain text.
fn value<'i>(text: &'i str, spans: &mut Spans) -> Spanned<DeValue<'i>> {
    let value = match DeValue::parse(text).map(Spanned::into_inner) {
        Ok(DeValue::Float(_) | DeValue::Datetime(_)) | Err(_) => DeValue::String(text.into()),
        Ok(value) => value,
    };
    Spanned::new(spans.whole(), placed(value, spans))
}

/// The value with the place of its variable in everything inside it.
fn placed<'i>(value: DeValue<'i>, spans: &mut Spans) -> DeValue<'i> {
    let mut part = |value: Spanned<DeValue<'i>>| {
        let span = spans.part();
        Spanned::new(span, placed(value.into_inner(), spans))
    };
    match value {
        DeValue::Array(items) => DeValue::Array(items.into_iter().map(part).collect()),
        DeValue::Table(table) => {
            let entry = |(key, value): (Spanned<_>, _)| {
                let value = part(value);
                (Spanned::new(value.span(), key.into_inner()), value)
            };
            DeValue::Table(table.into_iter().map(entry).collect())
        }
        scalar => scalar,
    }
}

fn put<'i>(
    target: &mut Spanned<DeValue<'i>>,
    shape: &Shape,
    segments: &[&'i str],
    value: Spanned<DeValue<'i>>,
    spans: &mut Spans,
) -> Result<(), String> {
    let Some((&segment, rest)) = segments.split_first() else {
        *target = value;
        return Ok(());
    };
    if segment.is_empty() {
        return Err(format!("the name has an empty part: write {PREFIX}SECTION__KEY"));
    }
    match (shape, target.get_mut()) {
        (Shape::List(entry), DeValue::Array(items)) => {
            let position = position(items, segment)?;
            if position == items.len() {
                items.push(Spanned::new(spans.part(), DeValue::Table(DeTable::new())));
            }
            let target = items.get_mut(position).expect("the position is inside the list");
            put(target, entry, rest, value, spans)
        }
        (_, DeValue::Table(table)) => {
            let key = existing_key(table, segment)?.unwrap_or_else(|| segment.to_lowercase());
            // An unknown key is put in all the same: it is reported like one in the file, with the suggestion.
            let inner = shape.under(&key).unwrap_or(&Shape::Value);
            if table.get(key.as_str()).is_none() {
                let empty = match inner {
                    Shape::List(_) => DeValue::Array(DeArray::new()),
                    Shape::Value | Shape::Table(_) | Shape::Named(_) => DeValue::Table(DeTable::new()),
                };
                table.insert(
                    Spanned::new(spans.part(), key.clone().into()),
                    Spanned::new(spans.part(), empty),
                );
            }
            let target = table.get_mut(key.as_str()).expect("the key is there or was just inserted");
            put(target, inner, rest, value, spans)
        }
        _ => Err(format!("{segment} goes deeper than the value it overrides: shorten the name")),
    }
}

/// Where in a list an entry is: by index, or by its name. The index behind the last entry appends one.
fn position(items: &DeArray<'_>, segment: &str) -> Result<usize, String> {
    if let Ok(index) = segment.parse::<usize>() {
        return if index <= items.len() {
            Ok(index)
        } else {
            Err(format!("there is no entry {index}: the list has {} entries, counted from 0", items.len()))
        };
    }
    let matching: Vec<usize> = items
        .iter()
        .enumerate()
        .filter(|(_, item)| {
            item.get_ref()
                .get("name")
                .and_then(|name| name.get_ref().as_str())
                .is_some_and(|name| same(name, segment))
        })
        .map(|(index, _)| index)
        .collect();
    match matching.as_slice() {
        [index] => Ok(*index),
        [] => Err(format!("no entry of the list is called {segment}: use its index from 0, or its name")),
        _ => Err(format!("several entries of the list are called {segment}: use the index from 0")),
    }
}

fn existing_key(table: &DeTable<'_>, segment: &str) -> Result<Option<String>, String> {
    let matching: Vec<String> =
        table.keys().map(|key| key.get_ref().to_string()).filter(|key| same(key, segment)).collect();
    match matching.as_slice() {
        [] => Ok(None),
        [key] => Ok(Some(key.clone())),
        several => Err(format!("{segment} may mean {}: rename one of them", several.join(" or "))),
    }
}

/// Variables are upper case and have no hyphens.
fn same(name: &str, segment: &str) -> bool {
    name.replace('-', "_").eq_ignore_ascii_case(segment)
}
