//! Settling: settlements wait a moment for company, go out one batch at a time, and are never forgotten.

use std::time::Duration;

use crate::ports::StoreError;
use crate::settle::{SettleBatch, Settled, Settlement, Transition};
use crate::time::{Draw, Monotonic};

use super::{Command, Phase, Relay, Report, STORE_PAUSE_MAX, STORE_PAUSE_MIN};

impl<D: Draw> Relay<D> {
    pub(super) fn push_settlement(&mut self, now: Monotonic, settlement: Settlement) {
        push(&mut self.settlements, &mut self.settle_due, now.plus(self.settings.settle_linger), settlement);
    }

    pub(super) fn settle(&mut self, now: Monotonic) {
        if self.settling > 0 {
            return;
        }
        let due = self.settle_due.is_none_or(|due| now >= due);
        if let Some(batch) = self.unsettled.take_if(|_| due) {
            self.settle_due = (!self.settlements.is_empty()).then_some(now);
            self.settling = batch.settlements.len();
            self.commands.push_back(Command::Settle(batch));
            return;
        }
        if self.unsettled.is_some() || self.settlements.is_empty() {
            return;
        }
        let full = self.settlements.len() >= self.settings.batch_rows as usize;
        let idle = self.publishing() == 0;
        if full || idle || due {
            let size = self.settlements.len().min(self.settings.batch_rows as usize);
            let settlements: Vec<Settlement> = self.settlements.drain(..size).collect();
            self.settle_due = (!self.settlements.is_empty()).then_some(now);
            self.settling = settlements.len();
            self.commands.push_back(Command::Settle(SettleBatch { settlements, repeat: false }));
        }
    }

    pub(super) fn settled(&mut self, batch: &SettleBatch, answers: &[Settled]) {
        assert_eq!(batch.settlements.len(), answers.len(), "a store answers every settlement");
        self.settling = 0;
        self.store_pause = STORE_PAUSE_MIN;
        for (settlement, answer) in batch.settlements.iter().zip(answers) {
            match answer {
                Settled::Applied | Settled::AlreadyApplied => match settlement.to() {
                    Transition::Sent(_) => self.totals.sent += 1,
                    Transition::Retry { .. } => self.totals.retried += 1,
                    Transition::Release { .. } => self.totals.released += 1,
                    Transition::Dead { reason } => {
                        self.totals.dead += 1;
                        self.report(Report::Dead(settlement.id().clone(), reason.clone()));
                    }
                },
                Settled::Fenced => {
                    self.totals.fenced += 1;
                    self.report(Report::Fenced(settlement.id().clone()));
                }
            }
        }
    }

    pub(super) fn settle_failed(&mut self, now: Monotonic, mut batch: SettleBatch, error: StoreError) {
        self.settling = 0;
        batch.repeat |= matches!(error, StoreError::CommitUnknown(_));
        let pause = self.store_failed("settle", error);
        if self.phase == Phase::Abandoning {
            // The leases end by themselves; any relay sweeps the rows.
            self.settlements.clear();
            self.settle_due = None;
            return;
        }
        self.settle_due = Some(now.plus(pause));
        self.unsettled = Some(batch);
    }

    pub(super) fn store_failed(&mut self, what: &'static str, error: StoreError) -> Duration {
        self.report(Report::Store(what, error));
        let pause = self.store_pause.mul_f64(0.5 + self.draw.fraction() / 2.0);
        self.store_pause = (self.store_pause * 2).min(STORE_PAUSE_MAX);
        pause
    }
}

pub(super) fn push(
    settlements: &mut Vec<Settlement>,
    due: &mut Option<Monotonic>,
    linger_ends: Monotonic,
    settlement: Settlement,
) {
    settlements.push(settlement);
    due.get_or_insert(linger_ends);
}
