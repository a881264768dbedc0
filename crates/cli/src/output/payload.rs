//! Payloads for people and programs: text where it is text, hexadecimal digits where it is not, and never more than a
//! bounded part.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::printable;

/// Of a payload, at most this many bytes are shown.
const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// A payload to show.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    shown: Shown<'a>,
    bytes: u64,
    cut: bool,
}

#[derive(Clone, Copy, Debug)]
enum Shown<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// What is kept of a payload, and how long it really is.
    pub fn new(kept: &'a [u8], bytes: u64) -> Self {
        let part = &kept[..kept.len().min(SHOWN_BYTES_MAX)];
        let cut = u64::try_from(part.len()).unwrap_or(u64::MAX) < bytes;
        let shown = match std::str::from_utf8(part) {
            Ok(text) => Shown::Text(text),
            // A cut may have gone through the last character.
            Err(error) if cut && error.error_len().is_none() => {
                Shown::Text(std::str::from_utf8(&part[..error.valid_up_to()]).unwrap_or_default())
            }
            Err(_) => Shown::Binary(part),
        };
        Self { shown, bytes, cut }
    }

    /// As a JSON object: `encoding` is `utf-8` or `hex`, `bytes` is the real length.
    pub fn json(self) -> Value {
        let (encoding, content) = match self.shown {
            Shown::Text(text) => ("utf-8", text.to_owned()),
            Shown::Binary(bytes) => ("hex", hexadecimal(bytes)),
        };
        json!({ "encoding": encoding, "content": content, "bytes": self.bytes, "truncated": self.cut })
    }

    /// As indented lines, which stored data can neither forge nor leave.
    pub fn lines(self) -> String {
        let mut lines = String::new();
        let mut line = |text: &str| {
            let _ = writeln!(lines, "    {}", printable(text));
        };
        match self.shown {
            Shown::Text("") => line("(empty)"),
            Shown::Text(text) => text.lines().for_each(line),
            Shown::Binary(bytes) => bytes.chunks(32).for_each(|chunk| line(&hexadecimal(chunk))),
        }
        if self.cut {
            let _ = writeln!(lines, "    ... cut: the payload has {} bytes", self.bytes);
        }
        lines
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_anything_else_is_hexadecimal() {
        let text = Payload::new("{\"名\": 1}".as_bytes(), 10).json();
        let binary = Payload::new(&[0xff, 0x00, 0x1b], 3).json();

        assert_eq!(
            text,
            json!({ "encoding": "utf-8", "content": "{\"名\": 1}", "bytes": 10, "truncated": false })
        );
        assert_eq!(binary, json!({ "encoding": "hex", "content": "ff001b", "bytes": 3, "truncated": false }));
    }

    #[test]
    fn a_cut_through_a_character_leaves_the_characters_before_it() {
        let kept = "a订".as_bytes();

        let cut = Payload::new(&kept[..3], 4).json();
        let broken = Payload::new(&kept[..3], 3).json();

        assert_eq!(cut, json!({ "encoding": "utf-8", "content": "a", "bytes": 4, "truncated": true }));
        assert_eq!(broken["encoding"], "hex", "nothing was cut, so it is no text");
    }

    #[test]
    fn only_a_bounded_part_is_shown_with_the_real_length() {
        let long = vec![b'x'; SHOWN_BYTES_MAX + 1];

        let shown = Payload::new(&long, long.len() as u64);

        assert_eq!(shown.json()["content"].as_str().unwrap().len(), SHOWN_BYTES_MAX);
        assert_eq!(shown.json()["bytes"], SHOWN_BYTES_MAX + 1);
        assert!(shown.lines().ends_with("... cut: the payload has 65537 bytes\n"));
    }

    #[test]
    fn lines_stay_indented_and_drive_no_terminal() {
        let lines = Payload::new(b"{\r\nconflict 9: kept\n\x1b[2J}", 24).lines();

        assert!(lines.lines().all(|line| line.starts_with("    ")), "{lines}");
        assert!(!lines.contains('\u{1b}') && !lines.contains('\r'), "{lines}");
        assert_eq!(Payload::new(b"", 0).lines(), "    (empty)\n");
    }
}
