//! Randomness of the operating system.

use consign_core::time::Draw;

/// Draws every token and every jitter from the operating system, at the moment it is needed: a copied virtual
/// machine or a forked process can never repeat a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDraw;

impl Draw for SystemDraw {
    fn bits(&mut self) -> [u8; 16] {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .expect("an operating system without randomness cannot lease anything safely");
        bits
    }
}
