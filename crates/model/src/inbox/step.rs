//! What can happen, and what it does.

use super::state::{Broken, Phase, Processed, State, Worker};
use super::{Guard, Inbox};

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A process gets a delivery.
    Take { process: usize, key: usize, content: usize },
    /// It reads the markers before any transaction, since a filter or its settings say so.
    Look { process: usize },
    /// A filter says that it has seen this (believed only by a mutation).
    Believe { process: usize },
    /// It begins a transaction.
    Begin { process: usize },
    /// It inserts the marker, or finds the key taken.
    Mark { process: usize },
    /// The handler makes the change.
    Change { process: usize },
    /// The handler refuses.
    Refuse { process: usize },
    /// The transaction is rolled back for the database's sake.
    RollBack { process: usize },
    /// It sends COMMIT.
    SendCommit { process: usize },
    /// COMMIT succeeds and is answered.
    Commit { process: usize },
    /// COMMIT has no answer.
    CommitUnanswered { process: usize, applied: bool },
    /// It reads the marker that took its key, and compares.
    Compare { process: usize },
    /// It commits the record of a conflict.
    RecordConflict { process: usize },
    /// It commits the record of a dead delivery.
    RecordDead { process: usize },
    /// The record is committed, and its COMMIT has no answer.
    RecordUnanswered { process: usize },
    /// It hands the delivery back.
    HandBack { process: usize },
    /// It acknowledges.
    Acknowledge { process: usize },
    /// Its channel is lost: the broker will deliver again.
    LoseChannel { process: usize },
    /// It dies.
    Crash { process: usize },
    /// It dies, and its COMMIT is applied all the same.
    CrashInCommit { process: usize },
    /// The relay publishes once more.
    Copy { key: usize, content: usize },
}

impl Inbox {
    pub(super) fn offer(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for key in 0..self.bounds.keys {
            for content in 0..2 {
                if state.left.copies > 0 {
                    actions.push(Action::Copy { key, content });
                }
                for process in 0..2 {
                    let idle = state.workers[process].phase == Phase::Idle;
                    if idle && state.queue[key][content] > 0 {
                        actions.push(Action::Take { process, key, content });
                    }
                }
            }
        }
        for process in 0..2 {
            self.offer_process(state, process, actions);
        }
    }

    fn offer_process(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let worker = &state.workers[process];
        if worker.phase == Phase::Idle {
            return;
        }
        if worker.connected && state.left.channels > 0 {
            actions.push(Action::LoseChannel { process });
        }
        if state.left.crashes > 0 {
            actions.push(Action::Crash { process });
        }
        let in_transaction = matches!(worker.phase, Phase::Begun) || worker.has_mark();
        if in_transaction {
            actions.push(Action::RollBack { process });
        }
        let unanswered = state.left.unanswered > 0;
        match worker.phase {
            Phase::Idle => {}
            Phase::Got => {
                actions.push(Action::Begin { process });
                actions.push(Action::Look { process });
                if self.lacks(Guard::FilterIsAHint) {
                    actions.push(Action::Believe { process });
                }
            }
            Phase::Begun => {
                let other = &state.workers[1 - process];
                let waits = other.has_mark() && other.key == worker.key;
                if !waits || self.lacks(Guard::UniqueKey) || self.lacks(Guard::MarkerInTransaction) {
                    actions.push(Action::Mark { process });
                }
            }
            Phase::Marked => {
                actions.push(Action::Change { process });
                if state.left.refusals > 0 {
                    actions.push(Action::Refuse { process });
                }
            }
            Phase::Changed => {
                actions.push(Action::SendCommit { process });
                if self.lacks(Guard::AckAfterCommit) {
                    actions.push(Action::Acknowledge { process });
                }
            }
            Phase::Committing => {
                actions.push(Action::Commit { process });
                if unanswered {
                    actions.push(Action::CommitUnanswered { process, applied: true });
                    actions.push(Action::CommitUnanswered { process, applied: false });
                }
                if state.left.crashes > 0 {
                    actions.push(Action::CrashInCommit { process });
                }
            }
            Phase::Taken => actions.push(Action::Compare { process }),
            Phase::Conflicting => {
                actions.push(Action::RecordConflict { process });
                if unanswered {
                    actions.push(Action::RecordUnanswered { process });
                }
            }
            Phase::Refused => {
                actions.push(Action::HandBack { process });
                actions.push(Action::RecordDead { process });
                if unanswered {
                    actions.push(Action::RecordUnanswered { process });
                }
            }
            Phase::Failed => actions.push(Action::HandBack { process }),
            Phase::Done(_) => actions.push(Action::Acknowledge { process }),
        }
    }

    pub(super) fn act(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Take { process, key, content } => {
                next.queue[key][content] -= 1;
                next.workers[process] = Worker { phase: Phase::Got, key, content, connected: true };
            }
            Action::Look { process } => self.look(&mut next, process, Phase::Begun),
            Action::Believe { process } => {
                next.workers[process].phase = Phase::Done(Processed::Duplicate);
            }
            Action::Begin { process } => next.workers[process].phase = Phase::Begun,
            Action::Mark { process } => self.mark(&mut next, process),
            Action::Change { process } => {
                next.workers[process].phase = Phase::Changed;
                if self.lacks(Guard::ChangeInTransaction) {
                    apply_effect(&mut next, process);
                }
            }
            Action::Refuse { process } => {
                next.left.refusals -= 1;
                next.workers[process].phase = Phase::Refused;
            }
            Action::RollBack { process } => next.workers[process].phase = Phase::Got,
            Action::SendCommit { process } => next.workers[process].phase = Phase::Committing,
            Action::Commit { process } => {
                self.commit(&mut next, process);
                next.workers[process].phase = Phase::Done(Processed::Applied);
            }
            Action::CommitUnanswered { process, applied } => {
                next.left.unanswered -= 1;
                if applied {
                    self.commit(&mut next, process);
                }
                let acknowledges = self.lacks(Guard::UnansweredCommitIsNotAcked);
                next.workers[process].phase =
                    if acknowledges { Phase::Done(Processed::Applied) } else { Phase::Failed };
            }
            Action::Compare { process } => self.look(&mut next, process, Phase::Got),
            Action::RecordConflict { process } => self.record(&mut next, process, Processed::Conflict),
            Action::RecordDead { process } => self.record(&mut next, process, Processed::Dead),
            Action::RecordUnanswered { process } => {
                next.left.unanswered -= 1;
                let conflicting = next.workers[process].phase == Phase::Conflicting;
                let what = if conflicting { Processed::Conflict } else { Processed::Dead };
                self.record(&mut next, process, what);
                next.workers[process].phase = Phase::Failed;
            }
            Action::HandBack { process } => {
                give_back(&mut next, process);
                next.workers[process] = Worker::default();
            }
            Action::Acknowledge { process } => self.acknowledge(&mut next, process),
            Action::LoseChannel { process } => {
                next.left.channels -= 1;
                give_back(&mut next, process);
            }
            Action::Crash { process } => {
                next.left.crashes -= 1;
                give_back(&mut next, process);
                next.workers[process] = Worker::default();
            }
            Action::CrashInCommit { process } => {
                next.left.crashes -= 1;
                self.commit(&mut next, process);
                give_back(&mut next, process);
                next.workers[process] = Worker::default();
            }
            Action::Copy { key, content } => {
                next.left.copies -= 1;
                next.queue[key][content] += 1;
            }
        }
        if self.bounds.symmetry && self.removed.is_none() { next.representative() } else { next }
    }

    fn mark(&self, next: &mut State, process: usize) {
        let worker = &mut next.workers[process];
        let key = &mut next.keys[worker.key];
        if key.marker.is_some() && !self.lacks(Guard::TakenRollsBack) {
            worker.phase = Phase::Taken;
            return;
        }
        worker.phase = Phase::Marked;
        if self.lacks(Guard::MarkerInTransaction) {
            key.marker = Some(worker.content);
        }
    }

    /// Marker and change, as a whole.
    fn commit(&self, next: &mut State, process: usize) {
        let worker = next.workers[process];
        next.keys[worker.key].marker.get_or_insert(worker.content);
        if !self.lacks(Guard::ChangeInTransaction) {
            apply_effect(next, process);
        }
    }

    /// Reads the marker and compares; without one the delivery goes on.
    fn look(&self, next: &mut State, process: usize, without: Phase) {
        let other = next.workers[1 - process];
        let worker = &mut next.workers[process];
        let mut marker = next.keys[worker.key].marker;
        if self.lacks(Guard::LookReadsCommitted) && other.has_mark() && other.key == worker.key {
            marker.get_or_insert(other.content);
        }
        worker.phase = match marker {
            None => without,
            Some(content) if content == worker.content || self.lacks(Guard::SameKeyIsCompared) => {
                Phase::Done(Processed::Duplicate)
            }
            Some(_) => Phase::Conflicting,
        };
    }

    fn record(&self, next: &mut State, process: usize, what: Processed) {
        let worker = &mut next.workers[process];
        worker.phase = Phase::Done(what);
        let key = &mut next.keys[worker.key];
        if what == Processed::Conflict {
            key.conflicts[worker.content] |= !self.lacks(Guard::ConflictIsRecorded);
        } else {
            key.dead[worker.content] |= !self.lacks(Guard::DeadIsRecorded);
        }
    }

    fn acknowledge(&self, next: &mut State, process: usize) {
        let worker = next.workers[process];
        let key = &next.keys[worker.key];
        if !key.decided(worker.content) {
            let conflict = key.marker.is_some();
            next.broken = Some(if conflict { Broken::SilentConflict } else { Broken::EarlyAck });
        }
        if !worker.connected && self.lacks(Guard::ReceiptOfItsChannel) {
            // The number means another delivery on the new channel.
            next.workers[1 - process].connected = false;
        }
        next.workers[process] = Worker::default();
    }
}

fn apply_effect(next: &mut State, process: usize) {
    let worker = next.workers[process];
    next.keys[worker.key].effects[worker.content] += 1;
}

/// The broker has the delivery again, unless it had it back already.
fn give_back(next: &mut State, process: usize) {
    let worker = &mut next.workers[process];
    if worker.connected {
        worker.connected = false;
        next.queue[worker.key][worker.content] += 1;
    }
}
