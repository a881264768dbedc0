//! Declared statements: SQL with `:name` parameters, and how many rows it must change.

use std::fmt;
use std::str::FromStr;

use crate::declared::binding::Fields;
use crate::declared::spelling::nearest_name;
use crate::value::Value;

mod scan;
mod shape;

use scan::{Piece, pieces};
pub use shape::{InsertShape, Role, SetShape, UpdateShape};

/// One SQL statement of a declared consumer, ready to run with `?` placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    sql: String,
    parameters: Vec<String>,
    shape: Option<SetShape>,
    /// How many rows it must change.
    pub expect_rows: ExpectRows,
}

/// How many rows a statement must change for the operation to count as applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectRows {
    /// This many.
    Exactly(u64),
    /// This many or more.
    AtLeast(u64),
    /// Whatever it changes.
    Any,
}

/// Why a statement cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStatement {
    /// Nothing but white space and comments.
    #[error("the statement is empty: write one INSERT, UPDATE or DELETE")]
    Empty,
    /// More text follows a semicolon.
    #[error("the statement goes on after a semicolon: write one statement per entry")]
    Several,
    /// A kind of statement that does not belong inside the operation's transaction.
    #[error(
        "the statement begins with {word}, which cannot be part of an operation: use INSERT, UPDATE, DELETE, REPLACE or WITH, because others may commit by themselves or change no rows"
    )]
    Kind {
        /// The first word.
        word: String,
    },
    /// A parameter names no binding.
    #[error("parameter :{name} is unknown: {fix}")]
    UnknownParameter {
        /// The name behind the colon.
        name: String,
        /// The nearest known name, or how to add one.
        fix: String,
    },
    /// A quote or comment has no end.
    #[error("a {what} is not closed")]
    Unclosed {
        /// The quote or comment that was opened.
        what: &'static str,
    },
    /// Databases would read the text in different ways, so that a parameter could end up inside a string.
    #[error("{what}")]
    Ambiguous {
        /// What was found, and what to write instead.
        what: &'static str,
    },
}

/// The text is not a row count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a row count: write a number, \">=n\" or \"any\"")]
pub struct InvalidRowCount(String);

impl Default for ExpectRows {
    /// Exactly one row: an operation that silently changes nothing, or too much, is an error.
    fn default() -> Self {
        Self::Exactly(1)
    }
}

impl fmt::Display for ExpectRows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(rows) => write!(formatter, "exactly {rows}"),
            Self::AtLeast(rows) => write!(formatter, "at least {rows}"),
            Self::Any => formatter.write_str("any number"),
        }
    }
}

impl FromStr for ExpectRows {
    type Err = InvalidRowCount;

    fn from_str(text: &str) -> Result<Self, InvalidRowCount> {
        let number = |digits: &str| match digits.trim_start() {
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        match text.trim() {
            "any" => Some(Self::Any),
            text => match text.strip_prefix(">=") {
                Some(least) => number(least).map(Self::AtLeast),
                None => number(text).map(Self::Exactly),
            },
        }
        .ok_or_else(|| InvalidRowCount(text.into()))
    }
}

impl ExpectRows {
    /// True when `rows` is what was expected.
    pub fn accepts(self, rows: u64) -> bool {
        match self {
            Self::Exactly(wanted) => rows == wanted,
            Self::AtLeast(least) => rows >= least,
            Self::Any => true,
        }
    }
}

impl Statement {
    /// Reads a statement whose `:name` parameters are among `known`, once, at start. Names inside quotes, comments
    /// and after `::` are left alone; a trailing semicolon is dropped.
    ///
    /// # Errors
    /// The statement is empty, is more than one, may commit by itself, uses an unknown name, or could be read
    /// differently by different databases.
    pub fn parse<'a>(
        sql: &str,
        known: impl IntoIterator<Item = &'a str>,
        expect_rows: ExpectRows,
    ) -> Result<Self, InvalidStatement> {
        let known: Vec<&str> = known.into_iter().collect();
        let mut out = String::with_capacity(sql.len());
        let mut parameters = Vec::new();
        let mut first_word = None;
        let mut ended = false;
        let pieces = pieces(sql)?;
        for &piece in &pieces {
            match piece {
                Piece::Parameter(name) if !known.contains(&name) => return Err(unknown(name, &known)),
                Piece::Semicolon if first_word.is_none() => return Err(InvalidStatement::Empty),
                Piece::Semicolon => ended = true,
                Piece::Word(_) | Piece::Parameter(_) | Piece::Quoted(_) | Piece::Other(_) if ended => {
                    return Err(InvalidStatement::Several);
                }
                Piece::Word(word) => {
                    first_word.get_or_insert(word);
                    out.push_str(word);
                }
                Piece::Parameter(name) => {
                    out.push('?');
                    parameters.push(name.to_owned());
                }
                Piece::Other(text) => {
                    // A statement begins with a word; anything else is reported as its kind.
                    first_word.get_or_insert(text);
                    out.push_str(text);
                }
                Piece::Quoted(text) | Piece::Space(text) => out.push_str(text),
            }
        }
        let word = first_word.ok_or(InvalidStatement::Empty)?.to_uppercase();
        if !matches!(word.as_str(), "INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "WITH") {
            return Err(InvalidStatement::Kind { word });
        }
        Ok(Self { sql: out.trim().to_owned(), parameters, shape: shape::recognize(&pieces), expect_rows })
    }

    /// The SQL with a `?` for every parameter.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The names behind the placeholders, in order.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// The form in which many runs of it can become one, when it has a form that is known.
    pub fn shape(&self) -> Option<&SetShape> {
        self.shape.as_ref()
    }

    /// The values behind the placeholders, in order.
    pub fn values(&self, fields: &Fields) -> Vec<Value> {
        self.parameters.iter().map(|name| fields.get(name).cloned().unwrap_or(Value::Null)).collect()
    }
}

fn unknown(name: &str, known: &[&str]) -> InvalidStatement {
    let fix = nearest_name(name, known.iter().copied()).map_or_else(
        || format!("bind it with bind.{name} = {{ pointer = \"/…\", type = \"…\" }}"),
        |near| format!("did you mean :{near}?"),
    );
    InvalidStatement::UnknownParameter { name: name.into(), fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["amount", "user_id", "event_id"];

    fn parse(sql: &str) -> Result<Statement, InvalidStatement> {
        Statement::parse(sql, KNOWN, ExpectRows::default())
    }

    #[test]
    fn parameters_become_placeholders_in_the_order_of_their_use() {
        let statement = parse(
            "UPDATE points SET points = points + :amount, e = :event_id, b=b+:amount WHERE u=:user_id;\n",
        )
        .unwrap();

        assert_eq!(statement.sql(), "UPDATE points SET points = points + ?, e = ?, b=b+? WHERE u=?");
        assert_eq!(statement.parameters(), ["amount", "event_id", "amount", "user_id"]);
    }

    #[test]
    fn quotes_comments_and_casts_are_left_alone() {
        for untouched in [
            "INSERT INTO t VALUES (':amount')",
            "INSERT INTO t VALUES ('it''s :amount')",
            "INSERT INTO t VALUES ('\\\\', ':amount')",
            "INSERT INTO t VALUES (\":amount\"\":amount\")",
            "INSERT INTO `a:amount` VALUES (1)",
            "INSERT INTO `a``:amount` VALUES (1)",
            "INSERT INTO t /* :amount ; ' */ VALUES (1)",
            "INSERT INTO t -- :amount ; '\nVALUES (1)",
            "INSERT INTO t VALUES (1::amount)",
            "INSERT INTO t VALUES (N'ünï:amount')",
            "INSERT INTO t VALUES (1) -- ; the end",
            "INSERT INTO t VALUES (1) --",
            "UPDATE `a\\` SET b$1 = 1",
            "UPDATE t SET a = 1 /**/",
            "UPDATE t SET a = 1 /*/ + :amount */",
        ] {
            let statement = parse(untouched).unwrap();

            assert_eq!(statement.sql(), untouched);
            assert!(statement.parameters().is_empty(), "{untouched}");
        }
    }

    /// What one database reads as the end of a string another reads as its middle; a parameter must not depend on it.
    #[test]
    fn sql_that_databases_read_differently_is_refused() {
        for sql in [
            r"INSERT INTO t VALUES ('it\'s', :amount)",
            r"INSERT INTO t VALUES ('\', :amount, ' ')",
            r#"INSERT INTO t VALUES ("\", :amount, " ")"#,
            "UPDATE t SET a = a--:amount",
            "UPDATE t SET a = 1 # :amount",
            "UPDATE t SET a = 1 /*! + :amount */",
            "UPDATE t SET a = 1 /*M! + :amount */",
            "UPDATE t SET a = 1 /* /* */ + :amount */",
            "UPDATE t SET a = ?",
            "UPDATE t SET a = $1",
            "UPDATE t SET a = @a",
            "UPDATE t SET a = :1",
            "UPDATE t SET a = : amount",
        ] {
            assert!(matches!(parse(sql), Err(InvalidStatement::Ambiguous { .. })), "{sql}");
        }
    }

    #[test]
    fn open_quotes_and_comments_are_refused() {
        for (sql, what) in [
            ("UPDATE t SET a = 'x", "single quote"),
            ("UPDATE t SET a = \"x", "double quote"),
            ("UPDATE `t SET a = 1", "backtick"),
            ("UPDATE t /* x", "comment"),
            ("UPDATE t /*/", "comment"),
        ] {
            assert_eq!(parse(sql), Err(InvalidStatement::Unclosed { what }), "{sql}");
        }
    }

    #[test]
    fn exactly_one_statement_is_accepted() {
        for (sql, error) in [
            ("", InvalidStatement::Empty),
            (" -- nothing\n/* at all */ ", InvalidStatement::Empty),
            (";", InvalidStatement::Empty),
            ("; UPDATE t SET a = 1", InvalidStatement::Empty),
            ("UPDATE t SET a = 1;; UPDATE t SET a = 2", InvalidStatement::Several),
            ("UPDATE t SET a = 1; DROP TABLE t", InvalidStatement::Several),
            ("UPDATE t SET a = 1; 'x'", InvalidStatement::Several),
            ("UPDATE t SET a = 1; :amount", InvalidStatement::Several),
        ] {
            assert_eq!(parse(sql), Err(error), "{sql}");
        }
        assert!(parse("UPDATE t SET a = 1 ; -- done").is_ok());
    }

    /// DDL and transaction words commit in the middle, and the marker would stand without its effect.
    #[test]
    fn statements_that_may_commit_by_themselves_are_refused() {
        for word in ["COMMIT", "BEGIN", "SET", "CREATE", "TRUNCATE", "CALL", "LOCK", "SELECT"] {
            let refused = parse(&format!("{} x", word.to_lowercase()));

            assert_eq!(refused, Err(InvalidStatement::Kind { word: word.into() }));
        }
        assert!(parse("/* why */ insert into t values (1)").is_ok());
        assert!(matches!(parse("(UPDATE t)"), Err(InvalidStatement::Kind { .. })));
    }

    #[test]
    fn an_unknown_parameter_names_the_nearest_known_one() {
        let slip = parse("UPDATE t SET a = :amuont").unwrap_err();
        let stranger = parse("UPDATE t SET a = :colour").unwrap_err();

        assert_eq!(slip.to_string(), "parameter :amuont is unknown: did you mean :amount?");
        assert!(stranger.to_string().contains("bind.colour = "));
        assert!(parse("UPDATE t SET a = :amounté").is_err());
    }

    #[test]
    fn row_counts_are_numbers_lower_bounds_or_any() {
        for (text, expected) in [
            ("1", Some(ExpectRows::Exactly(1))),
            ("0", Some(ExpectRows::Exactly(0))),
            (">=2", Some(ExpectRows::AtLeast(2))),
            (">= 2", Some(ExpectRows::AtLeast(2))),
            ("any", Some(ExpectRows::Any)),
            ("", None),
            ("-1", None),
            ("+1", None),
            (">2", None),
            (">=", None),
            (">=+2", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
        for (expected, text, accepted) in [
            (ExpectRows::Exactly(1), "exactly 1", [false, true, false, false]),
            (ExpectRows::AtLeast(2), "at least 2", [false, false, true, true]),
            (ExpectRows::Any, "any number", [true; 4]),
        ] {
            assert_eq!([0, 1, 2, 3].map(|rows| expected.accepts(rows)), accepted, "{text}");
            assert_eq!(expected.to_string(), text);
        }
    }
}
