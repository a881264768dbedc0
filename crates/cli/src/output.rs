//! Output on stdout: aligned tables that read well without colour, and JSON with the same facts.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use serde::Serialize;

mod decisions;
mod payload;
mod progress;

pub use decisions::{Decisions, Form};
pub use payload::Payload;
pub use progress::Progress;

/// A table of text, aligned in columns. Cells that are numbers are aligned to the right.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table under these headings.
    pub fn new(header: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self { header: cells(header), rows: Vec::new() }
    }

    /// Adds a row. Missing cells stay empty; further ones than there are headings are a mistake of the caller.
    pub fn row(&mut self, row: impl IntoIterator<Item = impl AsRef<str>>) -> &mut Self {
        let row = cells(row);
        assert!(row.len() <= self.header.len(), "a row has at most as many cells as there are headings");
        self.rows.push(row);
        self
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.header.len();
        let cell = |row: &'_ [String], column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).chain(self.header.get(column));
                cells.map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let numeric: Vec<bool> = (0..columns)
            .map(|column| {
                let mut cells = self.rows.iter().filter_map(|row| row.get(column)).peekable();
                cells.peek().is_some() && cells.all(|cell| is_number(cell))
            })
            .collect();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            for column in 0..columns {
                let text = cell(row, column);
                let padding = " ".repeat(widths[column] - width(&text));
                let gap = if column == 0 { "" } else { "  " };
                if numeric[column] {
                    let _ = write!(line, "{gap}{padding}{text}");
                } else {
                    let _ = write!(line, "{gap}{text}{padding}");
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text that is safe to show in a terminal: control characters, line breaks and marks that reorder text are written
/// as visible escapes, so that stored data can neither forge lines nor drive the terminal.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// A text of at most so many characters; a longer one ends in dots.
pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// Writes one JSON document, indented, with a line break at its end.
///
/// # Errors
/// The value cannot be written as JSON, or the output is gone.
pub fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints one JSON document on stdout.
///
/// # Errors
/// The value cannot be written as JSON, or stdout is gone.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    write_json(&mut io::stdout().lock(), value)
}

/// Prints text on stdout.
///
/// # Errors
/// Stdout is gone, as when a pager was closed.
pub fn print(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()
}

fn cells(cells: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    cells.into_iter().map(|cell| printable(cell.as_ref())).collect()
}

fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    cell.is_empty()
        || digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || b".,".contains(&byte))
}

/// Zero-width characters and marks that change the direction of text: they make two different keys look the same.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// How many terminal columns a text takes: wide East Asian characters take two, combining marks none.
fn width(text: &str) -> usize {
    text.chars().map(character_width).sum()
}

fn character_width(character: char) -> usize {
    match u32::from(character) {
        0x0300..=0x036F | 0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0x303E
        | 0x3041..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1FAFF
        | 0x2_0000..=0x3_FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_end_at_the_right() {
        let mut table = Table::new(["STATUS", "COUNT"]);
        table.row(["NEW", "5"]).row(["SENDING", "1200"]);

        assert_eq!(table.to_string(), "STATUS   COUNT\nNEW          5\nSENDING   1200\n");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(["KEY", "NOTE"]);
        table.row(["订单", "a"]).row(["abcd", "b"]);

        assert_eq!(table.to_string(), "KEY   NOTE\n订单  a\nabcd  b\n");
    }

    /// B92: a stored id with line breaks or escape sequences must not forge output or drive the terminal.
    #[test]
    fn control_characters_never_reach_the_terminal() {
        let mut table = Table::new(["ID"]);
        table.row(["a\r\nX-Admin: 1"]).row(["topic\u{1b}[2J"]).row(["x\u{202e}y\u{9b}"]);

        let text = table.to_string();

        assert_eq!(text.lines().count(), 4);
        assert!(
            !text
                .chars()
                .any(|character| character != '\n' && (character.is_control() || character == '\u{202e}'))
        );
        assert!(text.contains(r"a\r\nX-Admin: 1"), "{text}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("订单订单", 2), "订单...");
        assert_eq!(shortened("订单", 2), "订单");
    }

    #[test]
    fn json_is_one_document_that_ends_its_line() {
        let mut out = Vec::new();

        write_json(&mut out, &serde_json::json!({ "id": "a\u{1b}[2J" })).unwrap();

        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("}\n"));
        assert!(!text.contains('\u{1b}'));
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
