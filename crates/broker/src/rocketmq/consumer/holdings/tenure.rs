//! How long one message is held, and when to ask for more.

use std::time::Duration;

use consign_core::time::Monotonic;

/// How often a message is extended at most, for twice the time before each: with five minutes at first, two and a half
/// hours in all. A consumer that takes longer gets the message again, and its marker makes that a repeat.
const EXTENSIONS_MAX: u32 = 4;
/// How often one extension is asked for: each try comes after half of what is left.
const TRIES: u32 = 2;
/// The longest invisible time a proxy grants by default.
const INVISIBLE_MAX: Duration = Duration::from_hours(12);

/// One message's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    /// Not before this moment did the broker's count begin.
    from: Monotonic,
    /// Not after this moment did it begin.
    answered: Monotonic,
    /// When the message came.
    received: Monotonic,
    span: Duration,
    extensions: u32,
    tries: u32,
    /// When to ask for more.
    renew: Option<Monotonic>,
}

impl Tenure {
    /// Held for `span`, by a call that was sent at `asked` and answered at `answered`.
    pub fn new(asked: Monotonic, answered: Monotonic, span: Duration) -> Self {
        let renew = Some(asked.plus(span / 4 * 3));
        Self { from: asked, answered, received: answered, span, extensions: 0, tries: 0, renew }
    }

    /// When the message came.
    pub fn received(&self) -> Monotonic {
        self.received
    }

    /// Until when nobody else has it.
    pub fn held_until(&self) -> Monotonic {
        self.from.plus(self.span)
    }

    pub fn surely_held(&self, now: Monotonic) -> bool {
        now < self.held_until()
    }

    pub fn surely_lapsed(&self, now: Monotonic) -> bool {
        now >= self.answered.plus(self.span)
    }

    pub fn wants_extension(&self, now: Monotonic) -> bool {
        self.renew.is_some_and(|renew| renew <= now) && self.surely_held(now)
    }

    /// For how long to extend.
    pub fn extension(&self) -> Duration {
        (self.span * 2).min(INVISIBLE_MAX)
    }

    /// The broker said OK to an extension.
    pub fn extend(&mut self, asked: Monotonic, answered: Monotonic, span: Duration) {
        let (extensions, received) = (self.extensions + 1, self.received);
        *self = Self { received, extensions, ..Self::new(asked, answered, span) };
        if extensions >= EXTENSIONS_MAX {
            self.renew = None;
        }
    }

    /// The broker did not say OK: the time before it still counts.
    pub fn not_extended(&mut self, now: Monotonic) {
        self.tries += 1;
        let left = self.held_until().since(now);
        self.renew = (self.tries < TRIES && !left.is_zero()).then(|| now.plus(left / 2));
    }

    /// The broker said that it is over.
    pub fn lapse(&mut self, now: Monotonic) {
        let span = Duration::ZERO;
        *self = Self { from: now, answered: now, span, renew: None, ..*self };
    }

    /// When something about it changes.
    pub fn moments(&self) -> impl Iterator<Item = Monotonic> + use<> {
        [Some(self.held_until()), self.renew].into_iter().flatten()
    }
}
