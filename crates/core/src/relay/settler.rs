//! Settling: settlements wait a moment for company, go out one batch at a time, and are never forgotten.

use crate::ports::StoreError;
use crate::safeguard::{Safeguard, stands};
use crate::settle::{SettleBatch, Settled, Settlement, Transition};
use crate::time::{Draw, Monotonic};

use super::{Command, Phase, Relay, Report};

impl<D: Draw> Relay<D> {
    pub(super) fn push_settlement(&mut self, now: Monotonic, settlement: Settlement) {
        let behind = self.chains.ending(&settlement);
        self.settlements.push(settlement);
        self.settlements.extend(behind);
        self.settle_due.get_or_insert(now.plus(self.settings.settle_linger));
    }

    pub(super) fn settle(&mut self, now: Monotonic) {
        if self.settling > 0 && stands(Safeguard::OneSettle) {
            return;
        }
        let due = self.settle_due.is_some_and(|due| now >= due);
        let batch = if self.unsettled.is_empty() {
            self.fresh_batch(due)
        } else if due {
            self.unsettled.pop_front()
        } else {
            None
        };
        let Some(batch) = batch else { return };
        self.settling = batch.settlements.len();
        self.settle_due = self.something_to_settle().then_some(now);
        self.commands.push_back(Command::Settle(batch));
    }

    fn fresh_batch(&mut self, due: bool) -> Option<SettleBatch> {
        let full = self.settlements.len() >= self.settings.batch_rows as usize;
        // Followers in chains wait for a settle, not the other way round.
        let idle = self.publishing() == self.chains.rows();
        if self.settlements.is_empty() || !(full || idle || due) {
            return None;
        }
        let size = self.settlements.len().min(self.settings.batch_rows as usize);
        let settlements = self.settlements.drain(..size).collect();
        Some(SettleBatch { settlements, repeat: false })
    }

    fn something_to_settle(&self) -> bool {
        !self.settlements.is_empty() || !self.unsettled.is_empty()
    }

    pub(super) fn settled(&mut self, now: Monotonic, batch: &SettleBatch, answers: &[Settled]) {
        assert_eq!(batch.settlements.len(), answers.len(), "a store answers every settlement");
        self.settling = 0;
        self.settle_backoff.succeeded();
        for (settlement, answer) in batch.settlements.iter().zip(answers) {
            match answer {
                Settled::Applied | Settled::AlreadyApplied => match settlement.to() {
                    Transition::Sent(_) => {
                        self.totals.sent += 1;
                        self.follow(now, settlement);
                    }
                    Transition::Retry { .. } => self.totals.retried += 1,
                    Transition::Release { .. } => self.totals.released += 1,
                    Transition::Dead { reason } => {
                        self.totals.dead += 1;
                        self.report(Report::Dead(settlement.id().clone(), reason.clone()));
                        self.follow(now, settlement);
                    }
                },
                Settled::Fenced => {
                    self.totals.fenced += 1;
                    self.report(Report::Fenced(settlement.id().clone()));
                    if stands(Safeguard::ChainStopsAtLoss) {
                        self.cut_chain(now, settlement);
                    } else {
                        self.follow(now, settlement);
                    }
                }
            }
            if !stands(Safeguard::ChainGoesBack) {
                self.follow(now, settlement);
            }
        }
    }

    pub(super) fn settle_failed(&mut self, now: Monotonic, mut batch: SettleBatch, error: StoreError) {
        self.settling = 0;
        batch.repeat |= matches!(error, StoreError::CommitUnknown(_)) && stands(Safeguard::RepeatIsKnown);
        let mut next_try = now.plus(self.settle_backoff.failed(&error, &mut self.draw));
        if self.phase == Phase::Abandoning {
            // The leases end by themselves; any relay sweeps the rows.
            self.settlements.clear();
            self.unsettled.clear();
            self.chains.clear();
        } else if matches!(error, StoreError::Data(_) | StoreError::Mismatch(_)) {
            if self.narrow(now, batch) {
                next_try = now;
            }
        } else if stands(Safeguard::SettleAgain) {
            self.unsettled.push_front(batch);
        }
        self.settle_due = self.something_to_settle().then_some(next_try);
        self.report(Report::Store("settle", error));
    }

    /// The store works but refuses a row of the batch, and the others must not wait for it: each half is tried by
    /// itself, at last the row alone without its reason. A row that is refused even so is left to the next sweep.
    fn narrow(&mut self, now: Monotonic, batch: SettleBatch) -> bool {
        let SettleBatch { mut settlements, repeat } = batch;
        let back = settlements.split_off(settlements.len().div_ceil(2));
        if back.is_empty()
            && let Some(mut alone) = settlements.pop()
        {
            if alone.forget_reason() {
                settlements.push(alone);
            } else {
                self.cut_chain(now, &alone);
            }
        }
        let narrowed = !settlements.is_empty();
        for settlements in [back, settlements] {
            if !settlements.is_empty() {
                self.unsettled.push_front(SettleBatch { settlements, repeat });
            }
        }
        narrowed
    }
}
