//! Sweeps: rows whose lease has ended go back, whoever held them.

use crate::ports::StoreError;
use crate::safeguard::{Safeguard, stands};
use crate::settle::Swept;
use crate::time::{Draw, Monotonic};

use super::{Command, Phase, Relay, Report};

impl<D: Draw> Relay<D> {
    pub(super) fn sweep(&mut self, now: Monotonic) {
        if self.phase != Phase::Running || self.sweeping || now < self.sweep_due {
            return;
        }
        self.sweeping = true;
        self.commands.push_back(Command::Sweep {
            limit: self.settings.sweep_rows,
            delay: self.settings.sweep_delay,
            // A sweep knows no routes: no policy's rows are given up early.
            attempts_max: if stands(Safeguard::SweepCap) {
                self.routes.attempts_max(self.settings.retry.attempts_max)
            } else {
                1
            },
        });
    }

    pub(super) fn swept(&mut self, now: Monotonic, swept: Swept) {
        self.sweeping = false;
        self.sweep_backoff.succeeded();
        let rows = swept.returned + swept.dead;
        self.totals.swept += u64::from(rows);
        let full = rows >= self.settings.sweep_rows;
        self.sweep_due = if full { now } else { now.plus(self.settings.sweep_every) };
    }

    pub(super) fn sweep_failed(&mut self, now: Monotonic, error: StoreError) {
        self.sweeping = false;
        let pause = self.sweep_backoff.failed(&error, &mut self.draw);
        self.sweep_due = now.plus(pause.max(self.settings.sweep_every));
        self.report(Report::Store("sweep", error));
    }
}
