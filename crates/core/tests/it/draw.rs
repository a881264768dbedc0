//! Seeded randomness for engines and schedules.

use consign_core::time::Draw;

/// A splitmix64 generator: small, seeded, and good enough to pick schedules.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Draw for Seeded {
    fn bits(&mut self) -> [u8; 16] {
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.next().to_le_bytes());
        bits[8..].copy_from_slice(&self.next().to_le_bytes());
        bits
    }
}
