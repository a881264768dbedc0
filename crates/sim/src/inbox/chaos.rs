//! What goes wrong with consumer processes, their channels and their database.

use consign_core::time::Monotonic;

use crate::options::{Fault, Faults};
use crate::trace::Actor;

use super::Consumers;
use super::locks::{Asked, LockKey};
use super::shared::Alarm;
use super::situations::Met;
use super::tables::Broken;

impl Consumers {
    /// One fault, if it is among those of this seed, and the next one later.
    pub(super) fn chaos(&mut self) {
        let process = {
            let mut state = self.shared.state();
            if state.faults == Faults::NONE {
                return;
            }
            let delay = state.span(400);
            state.schedule(delay, Alarm::Chaos);
            let processes = state.processes.len();
            state.draw.index(processes)
        };
        let (kind, alive) = {
            let mut state = self.shared.state();
            (state.draw.below(8), state.processes[process].alive)
        };
        let mut state = self.shared.state();
        match kind {
            0 | 1 if alive && state.strikes(Fault::ConsumerCrashes, 100) => {
                drop(state);
                self.crash(process);
            }
            2 if alive && state.strikes(Fault::ConsumerDrains, 100) => {
                state.running = (process, 0);
                state.note("is told to stop", None, 0);
                state.stop(process);
            }
            3 if alive && state.strikes(Fault::ConsumerStalls, 100) => {
                let span = state.span(6_000);
                state.running = (process, 0);
                state.note("stands still", None, span.as_secs());
                state.book.met.meet_if(span > self.options.lease, Met::StalledBeyondLease);
                let until = state.book.now.plus(span);
                state.processes[process].stalled_until = until;
            }
            4 if alive && state.strikes(Fault::LostChannels, 100) => {
                state.running = (process, 0);
                state.note("loses its channel", None, 0);
                state.replace_channel(process);
            }
            5 if state.strikes(Fault::ReadOnlyInbox, 100) => {
                let span = state.span(2_000);
                state.book.note(Actor::Store, "is read-only", None, span.as_secs());
                state.read_only_until = state.book.now.plus(span);
            }
            6 if state.strikes(Fault::LostSessions, 100) => {
                let owner = (process, state.processes[process].incarnation);
                state.book.note(Actor::Store, "drops a consumer's connections", None, process as u64);
                for number in 0..state.tables.open.len() {
                    if state.tables.open[number].as_ref().is_some_and(|open| open.owner == owner) {
                        state.break_transaction(number, Broken::Connection);
                    }
                }
            }
            7 if state.strikes(Fault::ForeignLocks, 100) => {
                drop(state);
                self.lock_an_account();
            }
            _ => {}
        }
    }

    /// Another session locks an account and lets go of it later.
    fn lock_an_account(&mut self) {
        let mut state = self.shared.state();
        let nobody = (usize::MAX, 0);
        let number = state.tables.begin(nobody);
        if number >= state.serials.len() {
            state.serials.resize(number + 1, 0);
        }
        let user = 1 + i64::try_from(state.draw.below(3)).unwrap_or(0);
        let delay = state.span(4_000);
        if state.tables.locks.ask(number, &LockKey::Account(user)) == Asked::Granted {
            state.book.note(Actor::Operator, "locks an account", None, delay.as_secs());
        }
        let serial = state.serials[number];
        state.schedule(delay, Alarm::Notice { transaction: number, serial });
    }

    /// The faults stop. People fix what stands in the way for good: a consumer that stops at every conflict.
    pub fn heal(&mut self) {
        let mut state = self.shared.state();
        state.faults = Faults::NONE;
        state.read_only_until = Monotonic::default();
        let now = state.book.now;
        for process in &mut state.processes {
            process.stalled_until = process.stalled_until.min(now);
        }
        drop(state);
        if self.options.settings.on_conflict == consign_core::consumer::ConflictPolicy::Stop {
            self.options.settings.on_conflict = consign_core::consumer::ConflictPolicy::RecordAndAck;
            for process in 0..self.processes.len() {
                let mut state = self.shared.state();
                if state.processes[process].alive {
                    state.stop(process);
                }
            }
        }
    }
}
