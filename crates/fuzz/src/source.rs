//! Where inputs come from.

/// Draws the parts of one input; the same seed draws the same.
#[derive(Clone, Debug)]
pub struct Source(u64);

/// Bytes that parsers treat specially, more often than chance would have them.
const SPECIAL: &[u8] = b"\0\x01\x7f\x80\xff\"'`\\/{}[]()<>:;,.-+=?&%#@!$~*|^_ \t\r\n0129aAzZeEtfn";
/// Characters beyond ASCII that have surprised somebody: wide, combining, invisible, right to left, not a letter.
const STRANGE: &[char] =
    &['é', 'ß', '中', '😀', '\u{301}', '\u{200b}', '\u{202e}', '\u{feff}', 'İ', '\u{10ffff}'];

impl Source {
    /// The source of one input.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring inputs.
        let mut source = Self(seed ^ 0x5DEE_CE66_D1CE_4E5B);
        source.bits();
        source
    }

    /// 64 random bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// A length or index below `end`, which is not 0.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    /// True once in so many draws.
    pub fn one_in(&mut self, draws: u64) -> bool {
        self.below(draws) == 0
    }

    /// A number of any size, small ones and the ends of the integer types more often than others.
    pub fn number(&mut self) -> i64 {
        const ENDS: [i64; 12] = [
            0,
            1,
            -1,
            i8::MAX as i64,
            i16::MIN as i64,
            i32::MAX as i64,
            i32::MIN as i64,
            u32::MAX as i64,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            1 << 53,
        ];
        match self.below(4) {
            0 => ENDS[self.index(ENDS.len())],
            1 => i64::try_from(self.below(200)).expect("a small number") - 100,
            _ => self.bits().cast_signed() >> self.below(64),
        }
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }

    /// At most `most` bytes, short ones more often than long ones.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.length(most);
        (0..length)
            .map(|_| if self.one_in(2) { *self.pick(SPECIAL) } else { self.bits().to_le_bytes()[0] })
            .collect()
    }

    /// Text of at most `most` pieces: `words`, and characters of every kind.
    pub fn text(&mut self, most: usize, words: &[&str]) -> String {
        let pieces = self.length(most);
        let mut text = String::new();
        for _ in 0..pieces {
            match self.below(8) {
                0..4 if !words.is_empty() => text.push_str(self.pick::<&str>(words)),
                4 => text.push(*self.pick(STRANGE)),
                5 => text.push(char::from(self.bits().to_le_bytes()[0])),
                _ => text.push(char::from(*self.pick(SPECIAL) & 0x7f)),
            }
        }
        text
    }

    /// `original` with a few small changes, or none.
    pub fn mutated(&mut self, original: &[u8]) -> Vec<u8> {
        let mut bytes = original.to_vec();
        for _ in 0..self.below(5) {
            let at = self.index(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.insert(at, *self.pick(SPECIAL)),
                1 => bytes.truncate(at),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 if at < bytes.len() => bytes[at] = *self.pick(SPECIAL),
                4 if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ => {
                    let from = self.index(bytes.len() + 1);
                    let to = (from + self.index(16)).min(bytes.len());
                    let piece = bytes[from..to].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }

    /// A length up to `most`.
    pub fn length(&mut self, most: usize) -> usize {
        let most = if self.one_in(2) { most.min(8) } else { most };
        self.index(most + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_draws_the_same_and_another_one_does_not() {
        let drawn = |seed| {
            let mut source = Source::new(seed);
            (source.bytes(100), source.text(100, &["word"]), source.number())
        };

        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn mutations_stay_close_to_the_original() {
        let original = vec![7; 100];
        let mut source = Source::new(3);

        let changed: Vec<_> = (0..1000).map(|_| source.mutated(&original)).collect();

        assert!(changed.contains(&original), "some are not changed at all");
        assert!(changed.iter().any(|bytes| bytes.len() < 100), "some are shorter");
        assert!(changed.iter().all(|bytes| bytes.len() < 200), "none is another thing altogether");
    }
}
