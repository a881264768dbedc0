//! Statements that an adapter may run once for many operations.
//!
//! A strict recognizer: it knows two forms, and whatever it does not know is no shape. Being refused costs time,
//! never exactness.
//!
//! ```text
//! INSERT INTO t (columns) VALUES (expressions)
//! UPDATE t SET column = expression, … WHERE … AND key = :parameter AND …
//! ```

use super::scan::Piece;

/// The form of a statement of which many runs can become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetShape {
    /// One row, whose text can be repeated.
    Insert(InsertShape),
    /// One row by a key, whose parameters can come from a table.
    Update(UpdateShape),
}

/// `INSERT INTO t (columns) VALUES (expressions)`, and nothing behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertShape {
    /// The table as written, without quotes.
    pub table: String,
    /// The text up to and with `VALUES`.
    pub head: String,
    /// The row with its parentheses and a `?` for every parameter.
    pub row: String,
}

/// `UPDATE t SET … WHERE …`, in which one condition that all rows must meet is `key = :parameter`.
///
/// No assignment reads a column that another one writes, so that their order does not matter. There is no subquery, and
/// no function but those of time and of choosing among values. A parameter that is computed with or compared has a
/// column or a whole number for its other operand, which decides about its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateShape {
    /// The table as written, without quotes.
    pub table: String,
    /// The table as written.
    pub quoted_table: String,
    /// The column of the condition, which no assignment writes.
    pub key: String,
    /// The placeholder of the condition.
    pub key_parameter: usize,
    /// The columns that are written.
    pub assigned: Vec<String>,
    /// What each placeholder is for.
    pub roles: Vec<Role>,
    /// The columns in expressions that hold operands: unless they are exact numbers, the operands' types are in doubt.
    pub operands: Vec<String>,
    /// Something is multiplied, so that fractions grow longer.
    pub multiplies: bool,
    /// The text from `SET` on, cut at the placeholders: one part more than there are placeholders.
    pub parts: Vec<String>,
}

/// What a placeholder is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is computed with or compared.
    Operand,
    /// It is all that is assigned to this column.
    Assigned(String),
}

/// Functions in an UPDATE: they depend on their arguments and the time alone, and give one of their arguments.
const UPDATE_FUNCTIONS: [&str; 8] =
    ["ABS", "COALESCE", "CURRENT_TIMESTAMP", "GREATEST", "IFNULL", "LEAST", "NOW", "UTC_TIMESTAMP"];

/// Functions in an INSERT: whatever they give, they give it to each row on its own.
const INSERT_FUNCTIONS: [&str; 26] = [
    "ABS",
    "CEIL",
    "COALESCE",
    "CONCAT",
    "CURRENT_DATE",
    "CURRENT_TIMESTAMP",
    "FLOOR",
    "FROM_UNIXTIME",
    "GREATEST",
    "HEX",
    "IF",
    "IFNULL",
    "JSON_ARRAY",
    "JSON_OBJECT",
    "LEAST",
    "LEFT",
    "LOWER",
    "NOW",
    "NULLIF",
    "ROUND",
    "SHA2",
    "SUBSTRING",
    "TRIM",
    "UNHEX",
    "UPPER",
    "UTC_TIMESTAMP",
];

/// Words that may stand in an expression without being the name of a column.
const WORDS: [&str; 9] =
    ["AND", "CURRENT_DATE", "CURRENT_TIMESTAMP", "DEFAULT", "FALSE", "IS", "NOT", "NULL", "TRUE"];

/// Words that begin something this recognizer does not follow.
const REFUSED: [&str; 49] = [
    "ALL",
    "ANY",
    "AS",
    "BETWEEN",
    "BINARY",
    "BY",
    "CASE",
    "CAST",
    "COLLATE",
    "CONVERT",
    "DISTINCT",
    "DIV",
    "ELSE",
    "END",
    "ESCAPE",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "IGNORE",
    "IN",
    "INTERVAL",
    "INTO",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MOD",
    "NATURAL",
    "ON",
    "OR",
    "ORDER",
    "REGEXP",
    "RETURNING",
    "RIGHT",
    "RLIKE",
    "ROW",
    "SELECT",
    "SET",
    "SOME",
    "SOUNDS",
    "TABLE",
    "THEN",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "XOR",
];

/// Prefixed to the names an adapter makes up: a statement that uses such a name could be read in two ways.
const RESERVED_PREFIX: &str = "consign_";

/// The form of a statement, given its pieces.
pub(super) fn recognize(pieces: &[Piece<'_>]) -> Option<SetShape> {
    let mut tokens = Tokens::new(pieces)?;
    match tokens.word()?.to_ascii_uppercase().as_str() {
        "INSERT" => insert(tokens).map(SetShape::Insert),
        "UPDATE" => update(tokens).map(SetShape::Update),
        _ => None,
    }
}

/// A stretch of the pieces, which skips white space and comments.
#[derive(Clone, Copy)]
struct Tokens<'p, 'a> {
    pieces: &'p [Piece<'a>],
    at: usize,
    end: usize,
}

impl<'p, 'a> Tokens<'p, 'a> {
    /// All pieces but a semicolon and white space at their end; `None` when a comment may be a hint.
    fn new(pieces: &'p [Piece<'a>]) -> Option<Self> {
        if pieces.iter().any(|piece| matches!(piece, Piece::Space(text) if text.starts_with("/*"))) {
            return None;
        }
        let idle = |piece: &&Piece<'_>| matches!(piece, Piece::Space(_) | Piece::Semicolon);
        let end = pieces.len() - pieces.iter().rev().take_while(idle).count();
        Some(Self { pieces, at: 0, end })
    }

    fn stretch(&self) -> &'p [Piece<'a>] {
        &self.pieces[self.at..self.end]
    }

    /// The pieces that mean something.
    fn solid(&self) -> Vec<Piece<'a>> {
        self.stretch().iter().copied().filter(|piece| !matches!(piece, Piece::Space(_))).collect()
    }

    /// The piece, when it is the only one.
    fn only(&self) -> Option<Piece<'a>> {
        match self.solid()[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    fn peek(&self) -> Option<Piece<'a>> {
        self.stretch().iter().copied().find(|piece| !matches!(piece, Piece::Space(_)))
    }

    fn next(&mut self) -> Option<Piece<'a>> {
        let next = self.peek()?;
        let skipped = self.stretch().iter().take_while(|piece| matches!(piece, Piece::Space(_))).count();
        self.at += skipped + 1;
        Some(next)
    }

    fn word(&mut self) -> Option<&'a str> {
        match self.next()? {
            Piece::Word(word) => Some(word),
            _ => None,
        }
    }

    fn expect_word(&mut self, wanted: &str) -> Option<()> {
        self.word()?.eq_ignore_ascii_case(wanted).then_some(())
    }

    fn expect(&mut self, symbol: &str) -> Option<()> {
        (self.next()? == Piece::Other(symbol)).then_some(())
    }

    /// A name, without its quotes and as written.
    fn name(&mut self) -> Option<(&'a str, &'a str)> {
        let piece = self.next()?;
        let (Piece::Word(text) | Piece::Quoted(text)) = piece else { return None };
        Some((plain_name(piece)?, text))
    }

    /// A table, with or without its schema; without quotes and as written.
    fn table(&mut self) -> Option<(String, String)> {
        let (name, written) = self.name()?;
        if self.peek() != Some(Piece::Other(".")) {
            return Some((name.to_owned(), written.to_owned()));
        }
        self.expect(".")?;
        let (local, local_written) = self.name()?;
        Some((format!("{name}.{local}"), format!("{written}.{local_written}")))
    }

    /// A column, with or without its table.
    fn column(&mut self, table: &str) -> Option<&'a str> {
        let (name, _) = self.name()?;
        if self.peek() != Some(Piece::Other(".")) {
            return Some(name);
        }
        self.expect(".")?;
        // The table's own name, as a qualifier of its column.
        (name == table).then_some(())?;
        self.name().map(|(name, _)| name)
    }

    /// Cuts off the tokens up to the first piece outside parentheses that `ends` them, and takes that one; tells
    /// whether there was one. `None` when parentheses do not match.
    fn until(&mut self, ends: impl Fn(Piece<'_>) -> bool) -> Option<(Self, bool)> {
        let mut depth = 0_u32;
        for at in self.at..self.end {
            match self.pieces[at] {
                Piece::Other("(") => depth += 1,
                Piece::Other(")") => depth = depth.checked_sub(1)?,
                piece if depth == 0 && ends(piece) => {
                    let inside = Self { end: at, ..*self };
                    self.at = at + 1;
                    return Some((inside, true));
                }
                _ => {}
            }
        }
        let inside = *self;
        self.at = self.end;
        (depth == 0).then_some((inside, false))
    }

    /// The text, cut at the parameters; comments become a space.
    fn text(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let mut part = String::new();
        for piece in self.stretch() {
            match piece {
                Piece::Parameter(_) => parts.push(std::mem::take(&mut part)),
                Piece::Space(_) => part.push(' '),
                Piece::Word(text) | Piece::Quoted(text) | Piece::Other(text) => part.push_str(text),
                Piece::Semicolon => {}
            }
        }
        parts.push(part);
        parts
    }

    /// How many parameters stand between the statement's `start` and these tokens.
    fn parameters_since(&self, start: usize) -> usize {
        parameters(&self.pieces[start..self.at])
    }
}

fn parameters(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().filter(|piece| matches!(piece, Piece::Parameter(_))).count()
}

/// A column or table name that no word of SQL stands for.
fn plain_name(piece: Piece<'_>) -> Option<&str> {
    let (name, quoted) = match piece {
        Piece::Word(word) => (word, false),
        Piece::Quoted(text) => (text.strip_prefix('`')?.strip_suffix('`')?, true),
        Piece::Space(_) | Piece::Parameter(_) | Piece::Semicolon | Piece::Other(_) => return None,
    };
    let mut characters = name.chars();
    let first = characters.next()?;
    let plain = (first.is_ascii_alphabetic() || first == '_')
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_');
    let word = name.to_ascii_uppercase();
    let known = !quoted && (WORDS.contains(&word.as_str()) || REFUSED.contains(&word.as_str()));
    let reserved = name.to_ascii_lowercase().starts_with(RESERVED_PREFIX);
    (plain && !known && !reserved).then_some(name)
}

fn insert(mut tokens: Tokens<'_, '_>) -> Option<InsertShape> {
    tokens.expect_word("INTO")?;
    let (table, written) = tokens.table()?;
    tokens.expect("(")?;
    let mut columns = Vec::new();
    loop {
        columns.push(tokens.name()?.1);
        match tokens.next()? {
            Piece::Other(",") => {}
            Piece::Other(")") => break,
            _ => return None,
        }
    }
    tokens.expect_word("VALUES")?;
    tokens.expect("(")?;
    // Nothing may follow the row: the parenthesis that closes it is the last piece.
    if tokens.stretch().last() != Some(&Piece::Other(")")) {
        return None;
    }
    let mut rest = Tokens { end: tokens.end - 1, ..tokens };
    let (row, _) = rest.until(|_| false)?;
    each_row(&row.solid())?;
    Some(InsertShape {
        table,
        head: format!("INSERT INTO {written} ({}) VALUES", columns.join(", ")),
        row: format!("({})", row.text().join("?")),
    })
}

/// Checks that a row is made of names, texts, operators and known functions, so that each row is its own.
fn each_row(solid: &[Piece<'_>]) -> Option<()> {
    for (at, piece) in solid.iter().enumerate() {
        match piece {
            Piece::Word(word) if solid.get(at + 1) == Some(&Piece::Other("(")) => {
                INSERT_FUNCTIONS.iter().any(|known| word.eq_ignore_ascii_case(known)).then_some(())?;
            }
            Piece::Word(word) => {
                let number = word.starts_with(|first: char| first.is_ascii_digit());
                (number || is_known_word(word) || plain_name(*piece).is_some()).then_some(())?;
            }
            Piece::Quoted(_) | Piece::Parameter(_) => {}
            Piece::Other(symbol) if symbol.len() == 1 => {}
            Piece::Space(_) | Piece::Semicolon | Piece::Other(_) => return None,
        }
    }
    Some(())
}

fn update(mut tokens: Tokens<'_, '_>) -> Option<UpdateShape> {
    let (table, quoted_table) = tokens.table()?;
    tokens.expect_word("SET")?;
    let body = tokens;
    let start = body.at;
    let (assignments, found) = tokens.until(|piece| is_word(piece, "WHERE"))?;
    if !found {
        return None;
    }
    let mut shape = UpdateShape {
        table,
        quoted_table,
        key: String::new(),
        key_parameter: 0,
        assigned: Vec::new(),
        roles: vec![Role::Operand; parameters(body.stretch())],
        operands: Vec::new(),
        multiplies: body.stretch().contains(&Piece::Other("*")),
        parts: body.text(),
    };
    shape.parts.first_mut()?.insert_str(0, "SET");
    let values = read_assignments(assignments, &mut shape, start)?;
    for (at, value) in values.iter().enumerate() {
        let mut others = shape.assigned.iter().enumerate().filter(|(other, _)| *other != at);
        if others.any(|(_, column)| names(*value, column)) {
            return None;
        }
    }
    read_conditions(tokens, &mut shape, start)?;
    Some(shape)
}

/// Reads the assignments into the shape; gives their values.
fn read_assignments<'p, 'a>(
    mut tokens: Tokens<'p, 'a>,
    shape: &mut UpdateShape,
    start: usize,
) -> Option<Vec<Tokens<'p, 'a>>> {
    let mut values = Vec::new();
    loop {
        let (mut value, more) = tokens.until(|piece| piece == Piece::Other(","))?;
        let column = value.column(&shape.table)?.to_owned();
        value.expect("=")?;
        if shape.assigned.iter().any(|known| known.eq_ignore_ascii_case(&column)) {
            return None;
        }
        if let Some(Piece::Parameter(_)) = value.only() {
            shape.roles[value.parameters_since(start)] = Role::Assigned(column.clone());
        } else {
            expression(value, &mut shape.operands)?;
        }
        shape.assigned.push(column);
        values.push(value);
        if !more {
            return Some(values);
        }
    }
}

/// Reads the conditions into the shape, all of which must hold; one of them must be the key's.
fn read_conditions(mut tokens: Tokens<'_, '_>, shape: &mut UpdateShape, start: usize) -> Option<()> {
    loop {
        let (condition, more) = tokens.until(|piece| is_word(piece, "AND"))?;
        expression(condition, &mut shape.operands)?;
        let mut sides = condition;
        if shape.key.is_empty()
            && let Some(column) = sides.column(&shape.table)
            && sides.expect("=").is_some()
            && let Some(Piece::Parameter(_)) = sides.only()
            && !shape.assigned.iter().any(|known| known.eq_ignore_ascii_case(column))
        {
            column.clone_into(&mut shape.key);
            shape.key_parameter = sides.parameters_since(start);
        }
        if !more {
            return (!shape.key.is_empty()).then_some(());
        }
    }
}

/// Checks that the tokens are an expression of columns, whole numbers, texts, parameters, known operators and
/// functions, and that each parameter has an operand of a known type beside it. Notes the columns beside parameters.
fn expression(tokens: Tokens<'_, '_>, operands: &mut Vec<String>) -> Option<()> {
    let solid = tokens.solid();
    is_operand_behind(*solid.last()?).then_some(())?;
    for (at, piece) in solid.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| solid[at]);
        let after = solid.get(at + 1).copied();
        let follows_operand = before.is_some_and(is_operand_behind);
        match piece {
            Piece::Word(word) if after == Some(Piece::Other("(")) => {
                let known = UPDATE_FUNCTIONS.iter().chain(&["AND", "NOT"]);
                known.into_iter().any(|known| word.eq_ignore_ascii_case(known)).then_some(())?;
            }
            Piece::Word(word) if is_known_word(word) => {}
            Piece::Word(_) => (is_number(*piece) || plain_name(*piece).is_some()).then_some(())?,
            Piece::Quoted(text) if text.starts_with('`') => plain_name(*piece).map(|_| ())?,
            // Two texts next to each other are one text, and a word in front of one is its character set.
            Piece::Quoted(_) => (!follows_operand).then_some(())?,
            Piece::Parameter(_) => beside(&solid, at).then_some(())?,
            // No sign, which would belong to what follows.
            Piece::Other("-" | "+" | "*") => follows_operand.then_some(())?,
            // Between a table and its column; a number with a fraction is another type.
            Piece::Other(".") => {
                let name = |piece: Option<Piece<'_>>| piece.and_then(plain_name).is_some();
                (name(before) && after.and_then(plain_name).is_some()).then_some(())?;
            }
            Piece::Other("(" | ")" | "," | "=" | "<" | ">" | "!") => {}
            Piece::Space(_) | Piece::Semicolon | Piece::Other(_) => return None,
        }
    }
    if solid.iter().any(|piece| matches!(piece, Piece::Parameter(_))) {
        for (at, piece) in solid.iter().enumerate() {
            let function = solid.get(at + 1) == Some(&Piece::Other("("));
            let qualifier = solid.get(at + 1) == Some(&Piece::Other("."));
            if let (Some(name), false) = (plain_name(*piece), function || qualifier) {
                operands.push(name.to_owned());
            }
        }
    }
    Some(())
}

/// True when an operator and then a column or a whole number stand on one side of the parameter.
fn beside(solid: &[Piece<'_>], parameter: usize) -> bool {
    let typed = |piece: Option<&Piece<'_>>| {
        piece.is_some_and(|piece| is_number(*piece) || plain_name(*piece).is_some())
    };
    let operator = |piece: &Piece<'_>| matches!(piece, Piece::Other("-" | "+" | "*" | "=" | "<" | ">" | "!"));
    let left = solid[..parameter].iter().rev();
    let operators = left.clone().take_while(|piece| operator(piece)).count();
    if operators > 0 && typed(left.clone().nth(operators)) {
        return true;
    }
    let right = solid[parameter + 1..].iter();
    let operators = right.clone().take_while(|piece| operator(piece)).count();
    // Not the name of a function.
    operators > 0
        && typed(right.clone().nth(operators))
        && right.clone().nth(operators + 1) != Some(&Piece::Other("("))
}

/// True for what an operator can follow.
fn is_operand_behind(piece: Piece<'_>) -> bool {
    match piece {
        Piece::Other(symbol) => symbol == ")",
        Piece::Word(word) => !["AND", "NOT", "IS"].iter().any(|known| word.eq_ignore_ascii_case(known)),
        Piece::Quoted(_) | Piece::Parameter(_) => true,
        Piece::Space(_) | Piece::Semicolon => false,
    }
}

fn is_number(piece: Piece<'_>) -> bool {
    matches!(piece, Piece::Word(word) if word.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_known_word(word: &str) -> bool {
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn is_word(piece: Piece<'_>, wanted: &str) -> bool {
    matches!(piece, Piece::Word(word) if word.eq_ignore_ascii_case(wanted))
}

/// True when the column is named anywhere in the tokens.
fn names(tokens: Tokens<'_, '_>, column: &str) -> bool {
    tokens.stretch().iter().any(|piece| match piece {
        Piece::Word(word) => word.eq_ignore_ascii_case(column),
        Piece::Quoted(text) => text.trim_matches('`').eq_ignore_ascii_case(column),
        Piece::Space(_) | Piece::Parameter(_) | Piece::Semicolon | Piece::Other(_) => false,
    })
}

#[cfg(test)]
mod tests;
