//! JSON read for comparison: object keys sorted, no white space, numbers by exact value and never through a float.
//!
//! Payload bytes themselves are never rewritten; this form exists only to compare and to bind single fields.

use std::fmt::Write;

/// Nesting deeper than this is refused, so that hostile payloads cannot exhaust the stack.
const DEPTH_MAX: usize = 128;

/// A JSON value. Objects keep one entry per key, the last one written, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number, exact.
    Number(Number),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

/// An exact decimal number: `sign digits × 10^exponent` without leading or trailing zeros in `digits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// An array index as RFC 6901 writes it: digits without a sign and without leading zeros, so that a place has one name.
fn index(token: &str) -> Option<usize> {
    let written =
        token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    token.parse().ok().filter(|_| written)
}

/// Why text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not valid JSON at byte {at}: {problem}")]
pub struct InvalidJson {
    /// The byte offset.
    pub at: usize,
    /// What was found.
    pub problem: &'static str,
}

impl Json {
    /// Parses UTF-8 JSON text (RFC 8259).
    ///
    /// # Errors
    /// The text is not JSON, is nested deeper than 128, or a number's exponent is beyond 18 digits.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidJson> {
        let text = std::str::from_utf8(text)
            .map_err(|error| InvalidJson { at: error.valid_up_to(), problem: "not UTF-8" })?;
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.fail("text after the value"));
        }
        Ok(value)
    }

    /// The value a JSON pointer (RFC 6901) names, if there is one.
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        let mut value = self;
        for token in pointer.strip_prefix('/')?.split('/') {
            let token = token.replace("~1", "/").replace("~0", "~");
            value = match value {
                Self::Object(entries) => &entries.iter().find(|(key, _)| *key == token)?.1,
                Self::Array(items) => items.get(index(&token)?)?,
                Self::Null | Self::Boolean(_) | Self::Number(_) | Self::Text(_) => return None,
            };
        }
        Some(value)
    }

    /// The canonical text: equal for equal values whatever their spelling.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(number) if number.exponent < 0 => "a fractional number",
            Self::Number(_) => "a whole number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// The canonical text of a number; `None` for anything else.
    pub fn number_text(&self) -> Option<String> {
        match self {
            Self::Number(_) => Some(self.canonical()),
            Self::Null | Self::Boolean(_) | Self::Text(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Boolean(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Number(number) => number.write(out),
            Self::Text(text) => write_text(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl Number {
    fn read(token: &str) -> Option<Self> {
        let (negative, rest) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
        let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0').trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { negative: false, digits: "0".into(), exponent: 0 });
        }
        let trailing = all.len() - all.trim_end_matches('0').len();
        let shift = i64::try_from(trailing).ok()? - i64::try_from(fraction.len()).ok()?;
        Some(Self { negative, digits: digits.into(), exponent: exponent.checked_add(shift)? })
    }

    /// The number written out without an exponent; `None` when that would take more than 1,000 digits.
    pub fn plain(&self) -> Option<String> {
        const DIGITS_MAX: usize = 1000;
        let sign = if self.negative { "-" } else { "" };
        let shift = usize::try_from(self.exponent.unsigned_abs()).ok()?;
        if shift + self.digits.len() > DIGITS_MAX {
            return None;
        }
        if self.exponent >= 0 {
            return Some(format!("{sign}{}{}", self.digits, "0".repeat(shift)));
        }
        let padded = format!("{:0>width$}", self.digits, width = shift + 1);
        let (whole, fraction) = padded.split_at(padded.len() - shift);
        Some(format!("{sign}{whole}.{fraction}"))
    }

    fn write(&self, out: &mut String) {
        if let Some(text) = self.plain() {
            out.push_str(&text);
        } else {
            let sign = if self.negative { "-" } else { "" };
            let _ = write!(out, "{sign}{}e{}", self.digits, self.exponent);
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn fail(&self, problem: &'static str) -> InvalidJson {
        InvalidJson { at: self.at, problem }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, literal: &str, value: Json) -> Result<Json, InvalidJson> {
        if self.text[self.at..].starts_with(literal) {
            self.at += literal.len();
            Ok(value)
        } else {
            Err(self.fail("unknown literal"))
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, InvalidJson> {
        if depth > DEPTH_MAX {
            return Err(self.fail("nested deeper than 128"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b't') => self.expect("true", Json::Boolean(true)),
            Some(b'f') => self.expect("false", Json::Boolean(false)),
            Some(b'n') => self.expect("null", Json::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fail("unexpected character")),
            None => Err(self.fail("end of text")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, InvalidJson> {
        self.at += 1;
        let mut entries = std::collections::BTreeMap::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(Vec::new()));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fail("expected a key"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.fail("expected a colon"));
            }
            self.at += 1;
            entries.insert(key, self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Json::Object(entries.into_iter().collect()));
                }
                _ => return Err(self.fail("expected a comma or a closing brace")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, InvalidJson> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::Array(items));
                }
                _ => return Err(self.fail("expected a comma or a closing bracket")),
            }
        }
    }

    fn digits(&mut self) -> Result<(), InvalidJson> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.fail("expected a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Json, InvalidJson> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Number::read(&self.text[start..self.at])
            .map(Json::Number)
            .ok_or(InvalidJson { at: start, problem: "exponent out of range" })
    }

    fn string(&mut self) -> Result<String, InvalidJson> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(stop) = rest.find(|character| matches!(character, '"' | '\\' | '\0'..'\u{20}')) else {
                return Err(InvalidJson { at: self.text.len(), problem: "unclosed string" });
            };
            out.push_str(&rest[..stop]);
            self.at += stop;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.escape()?;
                    out.push(escaped);
                }
                _ => return Err(self.fail("control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, InvalidJson> {
        let character = self.peek().ok_or_else(|| self.fail("end of text"))?;
        self.at += 1;
        Ok(match character {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.fail("unknown escape")),
        })
    }

    fn unicode(&mut self) -> Result<char, InvalidJson> {
        let high = self.hex4()?;
        if !(0xD800..0xDC00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.fail("lone surrogate"));
        }
        if !self.text[self.at..].starts_with("\\u") {
            return Err(self.fail("lone surrogate"));
        }
        self.at += 2;
        let low = self.hex4()?;
        if !(0xDC00..0xE000).contains(&low) {
            return Err(self.fail("lone surrogate"));
        }
        char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            .ok_or_else(|| self.fail("lone surrogate"))
    }

    fn hex4(&mut self) -> Result<u32, InvalidJson> {
        let digits =
            self.text.get(self.at..self.at + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .ok_or_else(|| self.fail("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests;
