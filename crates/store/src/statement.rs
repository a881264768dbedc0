//! SQL files, and how they are rendered for the names and columns at hand.
//!
//! Every file runs as it is in a SQL client on the contract's tables. What depends on the database at hand is
//! written in comments, so that it does not get in the way there:
//!
//! ```text
//! -- ? sent_at: , `sent_at` = NOW(6)    a line for tables that have the column sent_at
//! -- ? !sent_at: …                      a line for tables that lack it
//! `payload` JSON, -- ? !longblob        the line a client runs; here it has its condition, too
//! -- * comparison: , `comparison`       a line for each name of a list
//! -- @row … -- @end                     lines for each row of a multi-row INSERT, joined by commas
//! -- @row UNION ALL … -- @end           the same, joined by these words
//! IN (?)                                as many placeholders as the list is long
//! ```
//!
//! MySQL takes two hyphens for a comment only when a space follows.
//!
//! Quoted identifiers are replaced token by token, in one pass: strings and comments are never touched, and a name
//! that was put in is never looked at again.

use std::collections::{BTreeMap, BTreeSet};

use crate::mapping::{Identifier, Names};

/// The longest list one statement takes. Longer ones are split, so that a list of ids stays below 12 KiB: a larger packet
/// waits some 40 ms on its way (measured: claims and settles of 500 rows took half as long in lists of 128 as of 512).
pub const LIST_MAX: usize = 128;

/// Splits `items` into lists of at most [`LIST_MAX`].
pub fn lists<T>(items: &[T]) -> std::slice::Chunks<'_, T> {
    items.chunks(LIST_MAX)
}

/// The size a list of `length` is padded to: the next power of two. Each text is prepared once per connection, so
/// the number of different texts must be small (B73).
pub fn bucket(length: usize) -> usize {
    length.max(1).next_power_of_two()
}

/// The list's items, the last one repeated up to the bucket's size.
pub fn padded<T>(items: &[T]) -> impl Iterator<Item = &T> {
    let last = items.last();
    items.iter().chain(last.into_iter().cycle()).take(if items.is_empty() { 0 } else { bucket(items.len()) })
}

/// How a file becomes a statement.
#[derive(Clone, Debug)]
pub struct Rendering<'a> {
    quote: char,
    names: Option<&'a Names>,
    present: Option<&'a BTreeSet<String>>,
    lists: BTreeMap<&'a str, Vec<&'a Identifier>>,
    rows: usize,
    placeholders: usize,
}

impl<'a> Rendering<'a> {
    /// A rendering that changes no name, for tables of consign's own. `quote` surrounds identifiers.
    pub fn new(quote: char) -> Self {
        Self { quote, names: None, present: None, lists: BTreeMap::new(), rows: 1, placeholders: 1 }
    }

    /// Replaces quoted contract names by these.
    #[must_use]
    pub fn names(mut self, names: &'a Names) -> Self {
        self.names = Some(names);
        self
    }

    /// Takes the optional lines of these contract columns, and the negated lines of all others.
    #[must_use]
    pub fn present(mut self, present: &'a BTreeSet<String>) -> Self {
        self.present = Some(present);
        self
    }

    /// Repeats the `--* list` lines for each of `items`.
    #[must_use]
    pub fn list(mut self, list: &'a str, items: Vec<&'a Identifier>) -> Self {
        self.lists.insert(list, items);
        self
    }

    /// Repeats the row section `rows` times.
    #[must_use]
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }

    /// Gives every `IN (?)` this many placeholders.
    #[must_use]
    pub fn placeholders(mut self, placeholders: usize) -> Self {
        self.placeholders = placeholders;
        self
    }

    /// Renders `text`.
    pub fn render(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut row: Option<(String, &str)> = None;
        for line in text.lines() {
            let trimmed = line.trim();
            if let Some(joiner) = trimmed.strip_prefix("-- @row") {
                row = Some((String::new(), if joiner.is_empty() { "," } else { joiner }));
            } else if trimmed == "-- @end" {
                let (section, joiner) = row.take().unwrap_or_default();
                out.push_str(&vec![section.as_str(); self.rows].join(joiner));
            } else {
                self.line(line, row.as_mut().map_or(&mut out, |(section, _)| section));
            }
        }
        out.truncate(out.trim_end().trim_end_matches(';').len());
        out
    }

    fn line(&self, line: &str, out: &mut String) {
        let trimmed = line.trim_start();
        if let Some((condition, rest)) = directive(trimmed, "-- ?") {
            if self.holds(condition) {
                self.tokens(rest, None, out);
            }
        } else if let Some((list, rest)) = directive(trimmed, "-- *") {
            for item in self.lists.get(list).into_iter().flatten() {
                self.tokens(rest, Some((list, item)), out);
            }
        } else if trimmed.starts_with("--") || trimmed.is_empty() {
            // A comment for readers.
        } else if let Some((line, condition)) = line.rsplit_once("-- ? ") {
            if self.holds(condition.trim()) {
                self.tokens(line, None, out);
            }
        } else {
            self.tokens(line, None, out);
        }
    }

    fn holds(&self, condition: &str) -> bool {
        let has = |column: &str| self.present.is_some_and(|present| present.contains(column));
        condition.strip_prefix('!').map_or_else(|| has(condition), |column| !has(column))
    }

    /// Copies one line, replacing quoted identifiers. Files keep strings and comments within a line.
    fn tokens(&self, line: &str, item: Option<(&str, &Identifier)>, out: &mut String) {
        let mut rest = line;
        while let Some(next) = rest.chars().next() {
            let length = if next == self.quote || next == '\'' {
                1 + rest[1..].find(next).map_or(rest.len() - 1, |at| at + 1)
            } else if rest.starts_with("--") {
                rest.len()
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |at| at + 2)
            } else if rest.starts_with("IN (?)") {
                "IN (?)".len()
            } else {
                next.len_utf8()
            };
            let (token, after) = rest.split_at(length);
            rest = after;
            if next == self.quote {
                self.identifier(token, item, out);
            } else if token == "IN (?)" {
                out.push_str("IN (");
                out.push_str(&vec!["?"; self.placeholders].join(", "));
                out.push(')');
            } else if !token.starts_with("--") {
                out.push_str(token);
            }
        }
        out.push('\n');
    }

    fn identifier(&self, token: &str, item: Option<(&str, &Identifier)>, out: &mut String) {
        let name = token.trim_matches(self.quote);
        let replaced = item
            .and_then(|(list, item)| (list == name).then_some(item))
            .or_else(|| self.names.and_then(|names| names.get(name)));
        match replaced {
            Some(identifier) => out.push_str(&identifier.quoted(self.quote)),
            None => out.push_str(token),
        }
    }
}

fn directive<'l>(line: &'l str, mark: &str) -> Option<(&'l str, &'l str)> {
    let (name, rest) = line.strip_prefix(mark)?.split_once(':')?;
    Some((name.trim(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::OutboxMapping;

    fn one_line(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// B87, `apache/madlib#452`: chained string replacement corrupts SQL when one name holds another.
    #[test]
    fn swapped_and_nested_names_are_each_replaced_once() {
        let mapping = OutboxMapping::new(Identifier::table("shop.status").unwrap())
            .with_column("status", Identifier::column("payload").unwrap())
            .and_then(|mapping| mapping.with_column("payload", Identifier::column("status").unwrap()))
            .unwrap();
        let rendering = Rendering::new('`').names(mapping.names());

        let sql = rendering
            .render("SELECT `payload`, '`payload`' FROM `outbox_event` WHERE `status` = 'status';\n");

        assert_eq!(
            one_line(&sql),
            "SELECT `status`, '`payload`' FROM `shop`.`status` WHERE `payload` = 'status'"
        );
    }

    #[test]
    fn optional_lines_follow_the_columns_there_are() {
        let present = BTreeSet::from(["sent_at".to_owned()]);
        let rendering = Rendering::new('`').present(&present);

        let sql = rendering.render(
            "-- a comment\nUPDATE `t` -- trailing\nSET a = 1\n-- ? sent_at: , `sent_at` = 2\n-- ? last_error: , x = 3\n-- ? !last_error: , y = 4\n",
        );

        assert_eq!(one_line(&sql), "UPDATE `t` SET a = 1 , `sent_at` = 2 , y = 4");
    }

    #[test]
    fn a_line_that_clients_run_can_have_a_condition() {
        let present = BTreeSet::from(["bytes".to_owned()]);
        let file = "CREATE TABLE t (\n    p JSON -- ? !bytes\n-- ? bytes: p BLOB\n);\n";

        let bytes = Rendering::new('`').present(&present).render(file);
        let json = Rendering::new('`').render(file);

        assert_eq!(
            (one_line(&bytes), one_line(&json)),
            ("CREATE TABLE t ( p BLOB )".into(), "CREATE TABLE t ( p JSON )".into())
        );
    }

    #[test]
    fn lists_rows_and_placeholders_are_repeated() {
        let (a, b) = (Identifier::column("a").unwrap(), Identifier::column("b").unwrap());
        let rendering = Rendering::new('`').list("comparison", vec![&a, &b]).rows(2).placeholders(3);

        let sql = rendering.render(
            "INSERT `t` (k\n-- * comparison: , `comparison`\n) VALUES\n-- @row\n(?\n-- * comparison: , ?\n)\n-- @end\nAND k IN (?)\n",
        );

        assert_eq!(
            one_line(&sql),
            "INSERT `t` (k , `a` , `b` ) VALUES (? , ? , ? ) ,(? , ? , ? ) AND k IN (?, ?, ?)"
        );
    }

    #[test]
    fn executable_comments_pass_unchanged() {
        let sql = Rendering::new('`').render("SELECT /*!80000 `payload` */ 1;\n");

        assert_eq!(sql, "SELECT /*!80000 `payload` */ 1");
    }

    /// B73, `zio/zio-quill#1862`: lists of every length exhaust the server's prepared statements.
    #[test]
    fn lists_are_padded_to_powers_of_two() {
        assert_eq!((1..=LIST_MAX).map(bucket).collect::<BTreeSet<_>>().len(), 8);
        assert_eq!(padded(&[1, 2, 3]).copied().collect::<Vec<_>>(), [1, 2, 3, 3]);
        assert_eq!(padded::<u8>(&[]).count(), 0);
    }
}
