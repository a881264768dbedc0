//! Cuts SQL into pieces, so that parameters are told from text that only looks like them.
//!
//! MySQL, SQLite and PostgreSQL quote and comment in slightly different ways. Text that they agree on is cut; text
//! that they would read differently is refused, because guessing wrong moves a parameter into or out of a string.

use super::InvalidStatement;

/// A piece of a statement. The pieces in order make up the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// White space or a comment.
    Space(&'a str),
    /// A keyword, a name or a number.
    Word(&'a str),
    /// A quoted string or name, quotes included.
    Quoted(&'a str),
    /// A parameter; the name without its colon.
    Parameter(&'a str),
    /// A semicolon.
    Semicolon,
    /// Anything else: operators, parentheses.
    Other(&'a str),
}

/// Cuts `sql` into pieces.
pub(super) fn pieces(sql: &str) -> Result<Vec<Piece<'_>>, InvalidStatement> {
    let mut pieces = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let piece = next(rest, first)?;
        let length = match piece {
            Piece::Space(text) | Piece::Word(text) | Piece::Quoted(text) | Piece::Other(text) => text.len(),
            Piece::Parameter(name) => name.len() + 1,
            Piece::Semicolon => 1,
        };
        pieces.push(piece);
        rest = &rest[length..];
    }
    Ok(pieces)
}

fn next(rest: &str, first: char) -> Result<Piece<'_>, InvalidStatement> {
    match first {
        ';' => Ok(Piece::Semicolon),
        '\'' | '"' | '`' => quoted(rest, first).map(Piece::Quoted),
        ':' => colon(rest),
        '-' if rest.starts_with("--") => line_comment(rest).map(Piece::Space),
        '/' if rest.starts_with("/*") => block_comment(rest).map(Piece::Space),
        '#' => ambiguous("# is a comment in MySQL and an error elsewhere: write comments as -- text"),
        '?' => ambiguous("? is an unnamed parameter: write :name"),
        '$' | '@' => ambiguous(
            "$ and @ begin session variables or parameters: use :name, and bind what the statement needs",
        ),
        space if space.is_whitespace() => Ok(Piece::Space(leading(rest, char::is_whitespace))),
        word if is_word(word) => {
            Ok(Piece::Word(leading(rest, |character| is_word(character) || character == '$')))
        }
        other => Ok(Piece::Other(&rest[..other.len_utf8()])),
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn leading(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|character| !belongs(character)).unwrap_or(text.len())]
}

fn ambiguous<T>(what: &'static str) -> Result<T, InvalidStatement> {
    Err(InvalidStatement::Ambiguous { what })
}

fn colon(rest: &str) -> Result<Piece<'_>, InvalidStatement> {
    if rest.starts_with("::") || rest.starts_with(":=") {
        return Ok(Piece::Other(&rest[..2]));
    }
    let name = leading(&rest[1..], is_word);
    if name.is_empty() || name.starts_with(|first: char| first.is_numeric()) {
        return ambiguous("a colon begins a parameter: write :name, with a name that starts with a letter");
    }
    Ok(Piece::Parameter(name))
}

/// A quoted text up to its closing quote; a doubled quote stands for itself.
fn quoted(rest: &str, quote: char) -> Result<&str, InvalidStatement> {
    let standard = closing(rest, quote, false);
    // In MySQL a backslash escapes the next character; in SQLite and standard SQL it is just a character.
    if quote != '`' && closing(rest, quote, true) != standard {
        return ambiguous(
            "a backslash before a quote ends the text in some databases only: double the quote instead",
        );
    }
    standard.map(|end| &rest[..end]).ok_or(InvalidStatement::Unclosed {
        what: match quote {
            '\'' => "single quote",
            '"' => "double quote",
            _ => "backtick",
        },
    })
}

/// The length of the quoted text that `rest` begins with; `None` when it does not end.
fn closing(rest: &str, quote: char, backslash_escapes: bool) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character == '\\' && backslash_escapes {
            characters.next();
        } else if character == quote {
            if characters.peek().is_none_or(|(_, following)| *following != quote) {
                return Some(at + quote.len_utf8());
            }
            characters.next();
        }
    }
    None
}

fn line_comment(rest: &str) -> Result<&str, InvalidStatement> {
    if !rest[2..].is_empty() && !rest[2..].starts_with(char::is_whitespace) {
        // MySQL reads `a--1` as a minus of a negative number, others as a comment.
        return ambiguous("-- without a space is a comment in some databases only: put a space behind it");
    }
    Ok(leading(rest, |character| character != '\n'))
}

fn block_comment(rest: &str) -> Result<&str, InvalidStatement> {
    // The star that opens it does not close it.
    let end = rest[2..].find("*/").ok_or(InvalidStatement::Unclosed { what: "comment" })? + 4;
    let comment = &rest[..end];
    if comment.starts_with("/*!") || comment.starts_with("/*M!") {
        return ambiguous("/*! … */ is executed by MySQL and a comment elsewhere: write the SQL without it");
    }
    if comment[2..].contains("/*") {
        return ambiguous("a comment inside a comment ends at different places: remove the inner one");
    }
    Ok(comment)
}
