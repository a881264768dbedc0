//! What can happen, and what it does.

use super::state::{Answer, Broken, Half, Marker, Member, Producer, State};
use super::{CheckBack, Guard};

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The producer begins its local transaction.
    Begin,
    /// It inserts the marker, or finds it taken and rolls back.
    Mark,
    /// It makes the business change.
    Change,
    /// It sends COMMIT.
    SendCommit,
    /// COMMIT succeeds and is answered.
    Commit,
    /// COMMIT has no answer.
    CommitUnanswered { applied: bool },
    /// The transaction is rolled back.
    RollBack,
    /// The producer tells the broker how it ended.
    SendEnd,
    /// The broker hears it.
    End,
    /// The broker never hears it.
    LoseEnd,
    /// The producer dies.
    Crash,
    /// The producer dies, and its COMMIT is applied all the same.
    CrashInCommit,
    /// The transaction has had its time.
    Age,
    /// The broker asks a member.
    Ask { member: usize, home: bool },
    /// The member reads the marker.
    Read { member: usize },
    /// It inserts a rollback marker, or finds the key taken.
    Fence { member: usize },
    /// It inserts a rollback marker, and its COMMIT has no answer.
    FenceUnanswered { member: usize },
    /// Its answer arrives.
    Reply { member: usize },
    /// Its answer is lost.
    LoseReply { member: usize },
    /// The broker asks no more.
    GiveUp,
    /// A message is published, with a confirm, for a committed marker.
    Repair,
}

impl CheckBack {
    pub(super) fn offer(self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.offer_producer(state, actions);
        if !state.old {
            actions.push(Action::Age);
        }
        if state.end.is_some() {
            actions.push(Action::End);
            if state.left.losses > 0 {
                actions.push(Action::LoseEnd);
            }
        }
        for (member, standing) in state.members.iter().enumerate() {
            match standing {
                Member::Idle if state.half == Half::Undecided && state.left.asks > 0 => {
                    actions.push(Action::Ask { member, home: true });
                    actions.push(Action::Ask { member, home: false });
                }
                Member::Idle => {}
                Member::Asked { .. } => actions.push(Action::Read { member }),
                // The key waits for the transaction that holds it.
                Member::Fencing if state.producer.has_mark() && !self.lacks(Guard::OneKey) => {}
                Member::Fencing => {
                    actions.push(Action::Fence { member });
                    if state.left.unanswered > 0 {
                        actions.push(Action::FenceUnanswered { member });
                    }
                }
                Member::Replying(_) => {
                    actions.push(Action::Reply { member });
                    if state.left.losses > 0 {
                        actions.push(Action::LoseReply { member });
                    }
                }
            }
        }
        if state.half == Half::Undecided && state.left.asks == 0 {
            actions.push(Action::GiveUp);
        }
        if state.marker == Some(Marker::Committed) && state.old && !state.repaired {
            actions.push(Action::Repair);
        }
    }

    fn offer_producer(self, state: &State, actions: &mut Vec<Action>) {
        let crashes = state.left.crashes > 0;
        match state.producer {
            Producer::Ready => actions.push(Action::Begin),
            Producer::Open => actions.push(Action::Mark),
            Producer::Marked => actions.push(Action::Change),
            Producer::Changed => actions.push(Action::SendCommit),
            Producer::Committing => {
                actions.push(Action::Commit);
                if state.left.unanswered > 0 {
                    actions.push(Action::CommitUnanswered { applied: true });
                    actions.push(Action::CommitUnanswered { applied: false });
                }
                if crashes {
                    actions.push(Action::CrashInCommit);
                }
            }
            Producer::Committed | Producer::RolledBack => actions.push(Action::SendEnd),
            Producer::Unsure if self.lacks(Guard::UnsureSendsNothing) => actions.push(Action::SendEnd),
            Producer::Unsure | Producer::Over | Producer::Gone => return,
        }
        if state.producer.has_mark() || state.producer == Producer::Open {
            actions.push(Action::RollBack);
        }
        if crashes {
            actions.push(Action::Crash);
        }
    }

    pub(super) fn act(self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Begin => next.producer = Producer::Open,
            Action::Mark => {
                let taken = next.marker.is_some() && !self.lacks(Guard::OneKey);
                next.producer = if taken { Producer::RolledBack } else { Producer::Marked };
                if !taken && self.lacks(Guard::MarkerInTransaction) {
                    next.marker = Some(Marker::Committed);
                }
            }
            Action::Change => {
                next.producer = Producer::Changed;
                next.changed |= self.lacks(Guard::ChangeInTransaction);
            }
            Action::SendCommit => next.producer = Producer::Committing,
            Action::Commit => {
                commit(&mut next);
                next.producer = Producer::Committed;
            }
            Action::CommitUnanswered { applied } => {
                next.left.unanswered -= 1;
                if applied {
                    commit(&mut next);
                }
                next.producer = Producer::Unsure;
            }
            Action::RollBack => next.producer = Producer::RolledBack,
            Action::SendEnd => {
                let committed = next.producer == Producer::Committed;
                next.end = Some(if committed { Answer::Commit } else { Answer::Rollback });
                next.sent |= committed && self.lacks(Guard::EndIsNoProof);
                next.producer = Producer::Over;
            }
            Action::End => {
                let end = next.end.take();
                decide(&mut next, end);
            }
            Action::LoseEnd => {
                next.left.losses -= 1;
                next.end = None;
            }
            Action::Crash => {
                next.left.crashes -= 1;
                next.producer = Producer::Gone;
            }
            Action::CrashInCommit => {
                next.left.crashes -= 1;
                commit(&mut next);
                next.producer = Producer::Gone;
            }
            Action::Age => next.old = true,
            Action::Ask { member, home } => {
                next.left.asks -= 1;
                next.members[member] = Member::Asked { home };
            }
            Action::Read { member } => next.members[member] = self.read(&next, member),
            Action::Fence { member } => self.fence(&mut next, member),
            Action::FenceUnanswered { member } => {
                next.left.unanswered -= 1;
                self.fence(&mut next, member);
                next.members[member] = Member::Replying(Answer::Unknown);
            }
            Action::Reply { member } => {
                let reply = std::mem::replace(&mut next.members[member], Member::Idle);
                if let Member::Replying(answer) = reply {
                    decide(&mut next, Some(answer));
                }
            }
            Action::LoseReply { member } => {
                next.left.losses -= 1;
                next.members[member] = Member::Idle;
            }
            Action::GiveUp => next.half = Half::GivenUp,
            Action::Repair => {
                next.repaired = true;
                next.sent = true;
            }
        }
        next
    }

    fn read(self, state: &State, member: usize) -> Member {
        let home = state.members[member] == Member::Asked { home: true };
        if !home {
            let decides = self.lacks(Guard::ForeignIsUnknown) && state.old;
            return Member::Replying(if decides { Answer::Rollback } else { Answer::Unknown });
        }
        let uncommitted = state.producer.has_mark() && self.lacks(Guard::ReadsCommitted);
        match state.marker {
            Some(Marker::RolledBack) => Member::Replying(Answer::Rollback),
            Some(Marker::Committed) => Member::Replying(Answer::Commit),
            None if uncommitted || self.lacks(Guard::AnswersNeedMarkers) => Member::Replying(Answer::Commit),
            None if !state.old && !self.lacks(Guard::Patience) => Member::Replying(Answer::Unknown),
            None if self.lacks(Guard::RollbackIsFenced) => Member::Replying(Answer::Rollback),
            None => Member::Fencing,
        }
    }

    fn fence(self, next: &mut State, member: usize) {
        let answer = match next.marker {
            Some(Marker::Committed) if !self.lacks(Guard::TakenIsReadAgain) => Answer::Commit,
            Some(_) => Answer::Rollback,
            None => {
                next.marker = Some(Marker::RolledBack);
                if !next.old {
                    next.broken = Some(Broken::Impatient);
                }
                Answer::Rollback
            }
        };
        next.members[member] = Member::Replying(answer);
    }
}

/// Marker and change, as a whole.
fn commit(next: &mut State) {
    next.marker = Some(Marker::Committed);
    next.changed = true;
}

fn decide(next: &mut State, answer: Option<Answer>) {
    if next.half != Half::Undecided {
        return;
    }
    next.half = match answer {
        Some(Answer::Commit) => Half::Visible,
        Some(Answer::Rollback) => Half::RolledBack,
        Some(Answer::Unknown) | None => Half::Undecided,
    };
}
