//! The drain: no new claims, what is in flight is waited for until a deadline, the rest goes back.

use std::time::Duration;

use crate::lease::PublishId;
use crate::outcome::{Doubt, Outcome};
use crate::safeguard::{Safeguard, stands};
use crate::settle::Transition;
use crate::time::{Draw, Monotonic};

use super::{Phase, Relay};

impl<D: Draw> Relay<D> {
    pub(super) fn drain(&mut self, now: Monotonic) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Draining { until: now.plus(self.settings.drain) };
        if !stands(Safeguard::DrainReleases) {
            return;
        }
        let mut released = Vec::new();
        for outlet in self.outlets.values_mut() {
            while let Some((claim, _)) = outlet.dequeue() {
                released.push(claim.release(Duration::ZERO, ""));
            }
            let suspects = outlet.suspects.drain(..).map(|(pending, _)| {
                pending.settle(Transition::Release { delay: Duration::ZERO, why: String::new() })
            });
            released.extend(suspects);
        }
        released.extend(self.chains.release_followers());
        released.extend(self.alone.take().map(|(claim, _)| claim.release(Duration::ZERO, "")));
        for settlement in released {
            self.push_settlement(now, settlement);
        }
    }

    /// Past the drain's deadline nothing more is waited for: what is in flight is unknown and goes back.
    pub(super) fn give_up_drain(&mut self, now: Monotonic) {
        if !matches!(self.phase, Phase::Draining { until } if now >= until) {
            return;
        }
        self.phase = Phase::Abandoning;
        // One last try for what the store refused so far, without waiting for its turn.
        self.settle_due = self.settle_due.map(|_| now);
        let ids: Vec<PublishId> =
            self.outlets.values().flat_map(|outlet| outlet.flights.keys().copied()).collect();
        for id in ids {
            self.landed(now, id, Outcome::Unknown(Doubt::Abandoned));
        }
    }
}
