//! What happened in a run, step by step: written by the processes of a side as it happens, dated by the process that
//! started them.

use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Actor {
    /// The service that takes orders.
    Shop,
    /// What carries events to the broker.
    Relay,
    /// A second one of its kind.
    OtherRelay,
    /// What awards points.
    Consumer,
    /// A second one of its kind.
    OtherConsumer,
    /// What answers the broker's questions about half messages, and the broker's own part in it.
    CheckBack,
    /// Somebody who looks after it all, and what happens around it.
    Operator,
}

impl Actor {
    /// All of them, from left to right in a picture.
    pub const ALL: [Self; 7] = [
        Self::Shop,
        Self::Relay,
        Self::OtherRelay,
        Self::Consumer,
        Self::OtherConsumer,
        Self::CheckBack,
        Self::Operator,
    ];
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A process begins its life.
    Started,
    /// A process dies without unwinding.
    Died,
    /// An order is committed.
    OrderCommitted,
    /// An order and its event are committed together.
    EventCommitted,
    /// The transaction is still open.
    NotYetCommitted,
    /// A message was handed over, and nobody waits for an answer.
    SentBlindly,
    /// The broker has answered that it took the message.
    Confirmed,
    /// The broker has confirmed a message that it gave to no queue.
    ConfirmedUnroutable,
    /// The message came back: there is no queue for it.
    Unroutable,
    /// Nobody knows whether the broker has the message.
    Unknown,
    /// The message was not taken.
    Refused,
    /// No answer came in time.
    TimedOut,
    /// Rows were read to be published, and nothing keeps others from them.
    Selected,
    /// Rows were claimed under a lease.
    Claimed,
    /// A row became SENT.
    MarkedSent,
    /// A row became NEW again.
    MarkedNew,
    /// A late settle found that its lease had passed to another relay.
    Fenced,
    /// A relay is stopped for longer than its lease.
    Paused,
    /// It goes on.
    Resumed,
    /// A message was delivered.
    Delivered,
    /// A look at the markers found none.
    NoMarkerSeen,
    /// The marker is stored by itself.
    MarkerStored,
    /// The effect and its marker, if there is one, are committed.
    EffectCommitted,
    /// The effect is written and not committed.
    EffectOpen,
    /// The delivery was taken for a repeat.
    TakenForRepeat,
    /// The same key came with other content, and that is recorded.
    ConflictRecorded,
    /// An old version changed nothing.
    Stale,
    /// The message is acknowledged.
    Acknowledged,
    /// The message goes back to the head of the queue.
    Requeued,
    /// The effect failed.
    Failed,
    /// The message is put aside, with the reason.
    PutAside,
    /// The consumer gave up looking for the others behind it.
    StillBlocked,
    /// The network loses what is sent from now on.
    LineDead,
    /// The network carries again.
    LineRestored,
    /// The connection is reset.
    LineCut,
    /// The queue is bound at last.
    QueueBound,
    /// Old markers are deleted.
    MarkersPurged,
    /// A purge that would delete markers too early is refused.
    PurgeRefused,
    /// Old events are published again.
    Replayed,
    /// Redis loses its memory.
    MemoryLost,
    /// The broker holds a half message.
    HalfSent,
    /// The final commit was sent.
    EndSent,
    /// The broker asks how a transaction ended.
    Asked,
    /// It is answered: commit.
    AnsweredCommit,
    /// It is answered: rollback.
    AnsweredRollback,
    /// Nothing is answered, as nobody knows.
    LeftOpen,
    /// The database does not answer.
    DatabaseAway,
    /// The database answers again.
    DatabaseBack,
    /// The handler takes longer than the message is invisible to others.
    StillAtWork,
    /// A rollback marker keeps a late transaction from committing.
    KeyFenced,
    /// The local transaction could not commit any more.
    LocalRolledBack,
    /// The broker asked too often and gave the half message up.
    GivenUp,
    /// Nobody is asked any more.
    NoQuestion,
    /// The committed messages were found in their topic.
    Found,
}

/// One step of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Who.
    pub actor: Actor,
    /// What.
    pub what: What,
    /// The order it is about.
    pub order: Option<i64>,
}

/// A step and when it was heard of, from the begin of its side.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub at: Duration,
    /// What.
    pub step: Step,
}

impl Step {
    /// Tells the process that started this one.
    ///
    /// # Panics
    /// That process is gone: there is nobody left to run for.
    pub fn tell(self) {
        self.write(&mut std::io::stdout().lock());
    }

    /// Tells it, and ends this process without unwinding before any other thread can tell another word.
    pub fn tell_last(self) -> ! {
        let mut out = std::io::stdout().lock();
        self.write(&mut out);
        std::process::abort()
    }

    fn write(self, out: &mut impl Write) {
        let line = serde_json::to_string(&self).expect("a step is plain data");
        writeln!(out, "{line}").and_then(|()| out.flush()).expect("the lab listens");
    }
}
