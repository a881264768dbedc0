//! English.

use super::{Story, Words};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::Window;

pub const WORDS: Words = Words {
    code: "en",
    heading: "consign lab",
    introduction: "Every window between a commit, a message and an effect, opened on purpose: first the way it is often \
                   written, then with consign. Both sides run as processes that really die, and both are asked the same \
                   questions afterwards.",
    passed: "passed: every naive side shows its defect, no side with consign has one",
    failed: "failed: a naive side did not show its defect, or a side with consign has one",
    scenario: "scenario",
    window: "window",
    backend: "backend",
    naive: "naive",
    consign: "with consign",
    lost: "lost",
    doubled: "doubled",
    wrong: "wrong",
    order: "order",
    orders: "orders",
    left_out: "more steps",
    counted: "The figures are queries over the business tables and the queue of each side after its run. The pictures show \
              the steps of that very run.",
};

pub const fn actor(actor: Actor) -> &'static str {
    match actor {
        Actor::Shop => "shop",
        Actor::Relay => "relay",
        Actor::OtherRelay => "relay 2",
        Actor::Consumer => "consumer",
        Actor::OtherConsumer => "consumer 2",
        Actor::CheckBack => "check-back",
        Actor::Operator => "around it",
    }
}

pub const fn what(what: What) -> &'static str {
    match what {
        What::Started => "starts again",
        What::Died => "dies",
        What::OrderCommitted => "commits the order",
        What::EventCommitted => "commits order and event together",
        What::NotYetCommitted => "has not committed yet",
        What::SentBlindly => "hands the message over and waits for nothing",
        What::Confirmed => "message is in the queue, the broker said so",
        What::ConfirmedUnroutable => "broker confirms a message that no queue got",
        What::Unroutable => "message comes back: no queue for it",
        What::Unknown => "nobody knows whether the broker has it",
        What::Refused => "message was not taken",
        What::TimedOut => "no answer in time",
        What::Selected => "reads the rows to send",
        What::Claimed => "claims the row under a lease",
        What::MarkedSent => "row becomes SENT",
        What::MarkedNew => "row becomes NEW again",
        What::Fenced => "late settle is fenced: the lease has passed on",
        What::Paused => "is stopped for longer than its lease",
        What::Resumed => "goes on",
        What::Delivered => "gets the message",
        What::NoMarkerSeen => "looks, and finds it was not handled yet",
        What::MarkerStored => "stores the marker by itself",
        What::EffectCommitted => "commits the effect",
        What::EffectOpen => "has written marker and effect, not committed",
        What::TakenForRepeat => "takes it for a repeat",
        What::ConflictRecorded => "records a conflict: same key, other content",
        What::Stale => "old version, changes nothing",
        What::Acknowledged => "acknowledges",
        What::Requeued => "gives it back to the head of the queue",
        What::Failed => "effect fails",
        What::PutAside => "message is put aside with its reason",
        What::StillBlocked => "and so on: nothing behind it gets through",
        What::LineDead => "the line swallows what is sent",
        What::LineRestored => "the line is sound again",
        What::LineCut => "the connection is reset",
        What::QueueBound => "somebody binds the queue",
        What::MarkersPurged => "old markers are purged",
        What::PurgeRefused => "purging younger ones is refused",
        What::Replayed => "event is published again, same id",
        What::MemoryLost => "Redis forgets everything",
        What::HalfSent => "half message is with the broker",
        What::EndSent => "sends the final commit, the proxy says OK",
        What::Asked => "broker asks how it ended",
        What::AnsweredCommit => "answers: commit",
        What::AnsweredRollback => "answers: rollback",
        What::LeftOpen => "leaves it open: nobody knows yet",
        What::DatabaseAway => "the database does not answer",
        What::DatabaseBack => "the database is there again",
        What::StillAtWork => "is at work for longer than the message is invisible",
        What::KeyFenced => "rollback marker is committed: nobody can commit any more",
        What::LocalRolledBack => "marker refused, local transaction rolled back",
        What::GivenUp => "broker asked its maximum and gave the message up",
        What::NoQuestion => "nobody is asked any more",
        What::Found => "committed messages are found in the topic",
    }
}

const EVERYWHERE: &str = "Any database and any broker: embedded, and MySQL with RabbitMQ or RocketMQ.";

#[expect(clippy::too_many_lines, reason = "a text for each scenario")]
pub const fn story(id: Window) -> Story {
    match id {
        Window::CommitThenSend => Story {
            title: "commit, then send: dies in between",
            window: "An order is committed, and the process dies before it sends the message. Nobody downstream ever hears of \
                     the order.",
            naive: "Commits the order, then publishes. It dies behind the commit of the third order.",
            consign: "Commits the order and its event in one transaction. Whoever runs the relay next publishes it.",
            backends: EVERYWHERE,
        },
        Window::SendThenCommit => Story {
            title: "send, then commit: dies in between",
            window: "The message is out, and the process dies before it commits the order. Others act on an order that does not \
                     exist.",
            naive: "Publishes inside the open transaction, so that nothing can be forgotten. It dies before the third commit.",
            consign: "The event is a row of the same transaction: when that is rolled back, so is the event.",
            backends: EVERYWHERE,
        },
        Window::ClaimWithoutLease => Story {
            title: "two relays read the same rows",
            window: "A second relay is started, for safety or by a deployment. Both read the rows that are NEW and publish them.",
            naive: "Two relays each SELECT what is NEW, publish it, and mark it SENT.",
            consign: "A claim locks rows with SKIP LOCKED (on SQLite: the write lock) and gives them to one relay under a lease.",
            backends: EVERYWHERE,
        },
        Window::DurableWithoutConfirms => Story {
            title: "durable queue, no confirms",
            window: "A durable queue keeps what it has. A connection that dies with messages in flight never brought them there.",
            naive: "Publishes persistent messages, waits for nothing, and marks the rows SENT. The line dies behind the second.",
            consign: "SENT needs the confirm of this very message. Without it the outcome is unknown, and the row is published \
                      again under the same event id.",
            backends: "RabbitMQ: the line swallows bytes and is cut. Embedded: the queue's file is locked by somebody else, and \
                       the process dies with inserts in flight.",
        },
        Window::SendStatusIgnored => Story {
            title: "the send status is not looked at",
            window: "RocketMQ answers every send with a status. A send whose answer nobody reads (one-way, or asynchronous with an \
                     empty callback) may never have got there.",
            naive: "Sends, reads no status, and marks the rows SENT. The line dies behind the second.",
            consign: "SENT needs SEND_OK for this very message. Any other status and no status are unknown, and the row is sent \
                      again under the same message id.",
            backends: "RocketMQ: the line to the proxy swallows bytes and is cut.",
        },
        Window::ConfirmWithoutMandatory => Story {
            title: "confirm without mandatory",
            window: "A binding was forgotten. The broker confirms a message that it has no queue for, since it has done all it \
                     could.",
            naive: "Waits for the confirm, and looks at nothing else.",
            consign: "Publishes as mandatory and pairs every return with its message: unroutable is not SENT. The rows wait until \
                      the queue is bound.",
            backends: "RabbitMQ confirms and returns. Embedded: an INSERT into the queues bound to a topic inserts no row, and \
                       nobody counts.",
        },
        Window::TimeoutMarkedSent => Story {
            title: "timeout taken for sent",
            window: "The broker's answer does not come in time. It usually took the message, so the row becomes SENT, and this time \
                     it had not.",
            naive: "Marks the row SENT after a timeout, too.",
            consign: "A timeout is Unknown, never SENT; the type that leads to SENT holds the proof.",
            backends: "RabbitMQ and RocketMQ: the line swallows the message. Embedded: the queue's file is locked by somebody else.",
        },
        Window::SettleWithoutToken => Story {
            title: "a stopped relay settles late",
            window: "A relay is stopped for longer than its lease: a long collection, a frozen machine. Another one takes over and \
                     finishes. Then the first goes on and writes what it still believes.",
            naive: "Settles by the row's id alone. Its NEW overwrites the other one's SENT, and the messages go out again.",
            consign: "Every claim has a new random token, and a settle names it. The late one changes no row and is counted as \
                      fenced.",
            backends: EVERYWHERE,
        },
        Window::HalfThenDied => Story {
            title: "half message, then death before the commit",
            window: "The half message is with the broker, and the producer dies before its local transaction commits. The broker \
                     asks somebody else.",
            naive: "Knows what failed from memory, and answers commit for everything else.",
            consign: "Looks for the marker. After the longest local transaction it inserts a rollback marker, and says rollback when \
                     that is committed.",
            backends: "RocketMQ: a topic of transaction messages.",
        },
        Window::DiedBeforeFinalCommit => Story {
            title: "committed, then death before the final commit",
            window: "The local transaction is committed, and the producer dies before it tells the broker. The broker asks.",
            naive: "Knows what committed from memory, and answers rollback for everything else; the memory is new.",
            consign: "The marker was committed with the order: whoever sees the database answers commit.",
            backends: "RocketMQ: a topic of transaction messages.",
        },
        Window::CheckBackWhileOpen => Story {
            title: "asked while the transaction is open",
            window: "The broker asks while the local transaction is at work. Whoever looks finds no order, and then it commits.",
            naive: "Reads the order's row: not found means rollback. Then the order commits, the producer dies before its final \
                    commit, and the broker asks no more.",
            consign: "Says nothing while the transaction may be open; then a rollback marker takes its key, so that it must fail to \
                      commit. The order is taken again.",
            backends: "RocketMQ: a topic of transaction messages.",
        },
        Window::CheckBackGivenUp => Story {
            title: "the broker stops asking",
            window: "Nobody answers for longer than the broker asks. It puts the half message aside, and asks no more.",
            naive: "Would answer rightly, from the orders table, but comes back too late.",
            consign: "Looks for the messages of committed markers in their topic, and sends again what is not there.",
            backends: "RocketMQ: a topic of transaction messages, and a broker that asks five times, every second.",
        },
        Window::CheckBackWithoutDatabase => Story {
            title: "asked while the database is away",
            window: "The local transaction is committed, its producer died, and the broker asks somebody who cannot reach the \
                     database.",
            naive: "Looks for the order, and an error means that there is none: rollback.",
            consign: "An error is no answer, and nothing is said: the broker asks again. The marker knows when the database is \
                      back.",
            backends: "RocketMQ: a topic of transaction messages. The database's address accepts connections and says nothing.",
        },
        Window::RetryWithNewId => Story {
            title: "a retry with a new message id",
            window: "The relay dies after the broker's confirm, before it is noted. The retry is right; a new message id for it is \
                     not, because consumers cannot know it for a copy.",
            naive: "Makes a message id for every publish, and the consumer remembers message ids.",
            consign: "All copies carry the event id, and the marker is kept by business key.",
            backends: EVERYWHERE,
        },
        Window::AckBeforeCommit => Story {
            title: "acknowledge before the commit",
            window: "The message is acknowledged, and the consumer dies before its effect is committed. The broker has forgotten it.",
            naive: "Acknowledges on receipt (auto-ack does the same), then works. It dies at the third message.",
            consign: "An acknowledgement needs a permit that only a commit gives; the message comes again.",
            backends: EVERYWHERE,
        },
        Window::LostAckWithoutMarker => Story {
            title: "the ack is lost, nothing remembers",
            window: "The effect is committed, and the consumer dies before it acknowledges. The message comes again, rightly.",
            naive: "Commits the effect, then acknowledges, and keeps no marker.",
            consign: "The marker is in the transaction of the effect: the second copy is a duplicate and is just acknowledged.",
            backends: EVERYWHERE,
        },
        Window::MarkerOutsideTransaction => Story {
            title: "the marker outside the transaction",
            window: "The marker is stored first, by itself, and the consumer dies before the effect. The message comes again and \
                     is taken for a repeat.",
            naive: "Inserts the message id under a primary key, then begins the transaction of the effect.",
            consign: "Marker and effect commit together or not at all.",
            backends: EVERYWHERE,
        },
        Window::RedisSetnxAlone => Story {
            title: "SETNX in Redis alone",
            window: "Redis and the database cannot commit together. Set before the effect, a crash loses it; forgotten later, a \
                     copy doubles it.",
            naive: "SET NX, then the effect. It dies in between at the third message; later Redis is flushed and the relay repeats \
                    the first.",
            consign: "Redis is a filter that is set after the commit and only hints. The marker in the database decides.",
            backends: "Needs Redis beside MySQL and RabbitMQ: without Redis there is nothing to show.",
        },
        Window::SelectThenInsert => Story {
            title: "look first, then write",
            window: "Two consumers get a copy of the same message at once. Both look, both find nothing, both act.",
            naive: "SELECT whether the order has an entry; if not, award the points.",
            consign: "Inserts the marker and lets the unique key decide; the second one waits, finds it taken, and compares.",
            backends: EVERYWHERE,
        },
        Window::IdOnlyDedup => Story {
            title: "same key, other content",
            window: "The same key comes again with another amount: a correction, a bug, two systems that share numbers. Taken for \
                     a repeat, it is gone, and nobody knows.",
            naive: "Remembers keys in the transaction of the effect, and compares nothing else.",
            consign: "Compares the content, too. Other content is a conflict, recorded before the message is acknowledged.",
            backends: EVERYWHERE,
        },
        Window::BatchAckOverUnfinished => Story {
            title: "one ack for a batch that is not finished",
            window: "Messages are handled side by side. The last is finished first, and everything up to it is acknowledged. The \
                     process dies with the others at work.",
            naive: "Acknowledges with multiple (or commits an offset) at the highest finished message.",
            consign: "Acknowledges only what a returned commit covers, one by one or as a finished prefix.",
            backends: EVERYWHERE,
        },
        Window::RedeliveryStorm => Story {
            title: "a storm of redeliveries",
            window: "A consumer acknowledges at the end of a batch and dies before it, again and again: every time the whole batch \
                     comes back.",
            naive: "Ten messages, acknowledged together; it dies three times before that. No marker.",
            consign: "The same deaths: the batch is committed once, and every further copy is a duplicate.",
            backends: EVERYWHERE,
        },
        Window::PoisonAtTheHead => Story {
            title: "poison at the head of the queue",
            window: "One message can never be handled. Given back, it is the first one again, and the others wait behind it for ever.",
            naive: "On an error it requeues the message.",
            consign: "Retries wait in the database, not in front of the queue; after the last one the message is put aside with its \
                      reason, and counts as recorded.",
            backends: EVERYWHERE,
        },
        Window::PoisonInAMessageGroup => Story {
            title: "poison in a message group",
            window: "An ordered group delivers a message group one after the other. One message of it can never be handled: it \
                     comes again and again, and those behind it never come.",
            naive: "On an error it makes the message visible again soon; the group's retries are as good as endless, as with the \
                    classic ordered listener.",
            consign: "After its last attempt the message is recorded with its reason and moved to the group's dead-letter topic; \
                      then its group goes on.",
            backends: "RocketMQ: a FIFO topic and a group with consumeMessageOrderly. Other topics do not hold anybody up.",
        },
        Window::HandleExpired => Story {
            title: "a handler slower than the invisible time",
            window: "A received message is invisible to others for a time. The handler takes longer, and another consumer gets it \
                     while the first one is still at work.",
            naive: "Both award the points. The late acknowledgement is ignored, without an error.",
            consign: "The invisible time is extended while the handler is at work; and whoever comes second finds the marker.",
            backends: "RocketMQ: an invisible time of 10 s.",
        },
        Window::StaleOverwrite => Story {
            title: "an old version overwrites a new one",
            window: "Two versions of an order arrive in the wrong order, as after a retry. Both are new messages; the later one \
                     holds the older state.",
            naive: "Remembers message ids rightly, and overwrites the copy with whatever comes.",
            consign: "A guard keeps each aggregate's version in the same transaction: the older one is stale and changes nothing.",
            backends: EVERYWHERE,
        },
        Window::PurgeBeforeHorizon => Story {
            title: "markers purged too early",
            window: "Markers are deleted to keep a table small. Then somebody replays last night's events, and nothing knows them.",
            naive: "A nightly job empties the marker table.",
            consign: "The purge knows the retry and replay horizon and refuses an age below it; the markers are still there.",
            backends: EVERYWHERE,
        },
    }
}
