//! Diagnostic texts on their way into a column: whatever a broker said, storing it must never fail a settle.

use crate::introspection::{Column, Unit};

/// Longer diagnostics help nobody, whatever the column holds.
const CHARACTERS_MAX: u64 = 4096;

/// Put in place of what a column cannot hold.
const REPLACEMENT: char = '?';

/// `text` cut on a character boundary to what `column` holds, with characters its character set lacks replaced.
pub fn fitted(text: &str, column: &Column) -> String {
    let limit = column.length.unwrap_or(CHARACTERS_MAX).min(CHARACTERS_MAX);
    let narrow = |character: char| match column.character_set.as_deref() {
        None | Some("utf8mb4" | "binary" | "utf16" | "utf32") => true,
        Some("utf8mb3" | "utf8" | "ucs2") => character as u32 <= 0xFFFF,
        Some(_) => character.is_ascii(),
    };
    let printable = text
        .chars()
        .map(|character| if character != '\0' && narrow(character) { character } else { REPLACEMENT });
    let mut room = limit;
    printable
        .take_while(|character| {
            let size = match column.unit {
                Unit::Characters => 1,
                Unit::Bytes => character.len_utf8() as u64,
            };
            let fits = room >= size;
            room = if fits { room - size } else { 0 };
            fits
        })
        .collect()
}

/// `text` cut on a character boundary to at most `bytes_max` bytes.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::introspection::ColumnKind;

    fn column(length: u64, character_set: &str) -> Column {
        Column {
            name: "last_error".into(),
            kind: ColumnKind::Text,
            declared: "varchar".into(),
            length: Some(length),
            unit: Unit::Characters,
            character_set: Some(character_set.into()),
            collation: None,
            fraction: None,
            nullable: true,
        }
    }

    /// B51, `xibosignage/xibo#2702`: a diagnostic longer than its column must not fail the settle.
    #[test]
    fn a_mebibyte_of_error_text_is_cut_to_the_column() {
        assert_eq!(fitted(&"x".repeat(1 << 20), &column(255, "utf8mb4")).len(), 255);
    }

    /// B50, `Open-Web-Analytics/Open-Web-Analytics#1032`: characters the column's character set lacks.
    #[test]
    fn characters_a_column_cannot_hold_are_replaced() {
        assert_eq!(fitted("é😀", &column(255, "utf8mb4")), "é😀");
        assert_eq!(fitted("é😀", &column(255, "utf8mb3")), "é?");
        assert_eq!(fitted("é😀\0", &column(255, "latin1")), "???");
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let bytes = Column { unit: Unit::Bytes, ..column(2, "utf8mb4") };

        assert_eq!(fitted("aé", &bytes), "a");
        assert_eq!(fitted("aé", &column(2, "utf8mb4")), "aé");
        assert_eq!(cut("aé", 2), "a");
    }
}
