//! Seeded randomness for engines and schedules.

use consign_core::time::Draw;

/// A splitmix64 generator: small, seeded, and good enough to pick schedules.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator that gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A small number below `bound`.
    pub fn below_u32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).expect("it is below a number of 32 bits")
    }

    /// An index into something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a length")
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// True in `percent` of a hundred draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

impl Draw for Seeded {
    fn bits(&mut self) -> [u8; 16] {
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.number().to_le_bytes());
        bits[8..].copy_from_slice(&self.number().to_le_bytes());
        bits
    }
}
