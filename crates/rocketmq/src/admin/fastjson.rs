//! The JSON of RocketMQ's servers, which leaves numbers bare where they are names: `{"brokerAddrs":{0:"host:1"}}`.

use serde::de::DeserializeOwned;

/// Reads a body.
///
/// # Errors
/// What does not fit, in words.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    serde_json::from_str(&quoted(text)).map_err(|error| format!("the body is not the JSON expected: {error}"))
}

/// The same text with bare names in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    // Whether a name may follow: right behind `{`, or behind `,` within an object.
    let mut name_follows = false;
    let mut nested: Vec<char> = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '"' => string_length(rest),
            '0'..='9' | '-' if name_follows => bare_length(rest),
            _ => next.len_utf8(),
        };
        let (piece, after) = rest.split_at(taken);
        let bare_name = name_follows && next != '"' && (next.is_ascii_digit() || next == '-');
        match next {
            '{' | '[' => nested.push(next),
            '}' | ']' => drop(nested.pop()),
            _ => {}
        }
        name_follows = match next {
            '{' => true,
            ',' => nested.last() == Some(&'{'),
            _ => name_follows && next.is_whitespace(),
        };
        if bare_name {
            out.push('"');
            out.push_str(piece);
            out.push('"');
        } else {
            out.push_str(piece);
        }
        rest = after;
    }
    out
}

/// The length of the string that `text` begins with, quotes included; the whole text when it does not end.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the bare name that `text` begins with.
fn bare_length(text: &str) -> usize {
    text.find(|next: char| next == ':' || next.is_whitespace()).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_become_names_and_nothing_else_changes() {
        let cases = [
            (r#"{"a":{0:"h:1",1:"h:2"},"b":[1,2],"c":3}"#, r#"{"a":{"0":"h:1","1":"h:2"},"b":[1,2],"c":3}"#),
            (r#"{ 12 :{"x":-1}, -3:4}"#, r#"{ "12" :{"x":-1}, "-3":4}"#),
            (r#"{"{0:1,2:3}":"\"{0:"}"#, r#"{"{0:1,2:3}":"\"{0:"}"#),
            (r#"{"ä":[{1:2},3,{"k":[4,5]}],6:7}"#, r#"{"ä":[{"1":2},3,{"k":[4,5]}],"6":7}"#),
        ];
        for (given, wanted) in cases {
            assert_eq!(quoted(given), wanted);
        }
    }

    #[test]
    fn broken_texts_are_errors_and_no_panics() {
        for broken in ["", "{", "{0", "\"", "{\"a\\", "[{1:", "{-", "}]"] {
            assert!(parse::<serde_json::Value>(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(parse::<serde_json::Value>(b"\xff").is_err());
    }
}
