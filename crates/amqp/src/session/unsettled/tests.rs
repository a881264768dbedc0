//! Deliveries that are settled in any order, on channels that come and go: what the broker reads, with
//! `multiple` spelled out, is exactly what was asked for, and nothing is settled twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::Unsettled;
use crate::command::{Call, ChannelLease, Command, Sink};
use crate::error::CloseReason;
use crate::frame::{Frame, FrameKind, decode};
use crate::method::{self, Content, MethodId, Origin};
use crate::request::{self, FRAME_END, FRAME_HEADER, bare_method, method_frame};
use crate::session::{Session, Settings};
use crate::wire::{Reader, put_short};

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acked,
    Nacked { requeue: bool },
    Rejected { requeue: bool },
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(usize),
    /// One of the deliveries that are held; which are not picked stay held.
    Settle(usize, Fate),
    /// All but these first ones, one after another, as a batch does.
    AckAllBut(usize),
    GiveBackUpTo(usize),
    Flush,
    Write(usize),
    CloseChannel,
    ServerClosesChannel,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        6 => Just(Fate::Acked),
        2 => any::<bool>().prop_map(|requeue| Fate::Nacked { requeue }),
        1 => any::<bool>().prop_map(|requeue| Fate::Rejected { requeue }),
    ];
    prop_oneof![
        8 => (1..8_usize).prop_map(Step::Deliver),
        16 => (0..20_usize, fate).prop_map(|(pick, fate)| Step::Settle(pick, fate)),
        2 => (0..4_usize).prop_map(Step::AckAllBut),
        1 => (0..20_usize).prop_map(Step::GiveBackUpTo),
        6 => Just(Step::Flush),
        4 => (1..100_usize).prop_map(Step::Write),
        1 => Just(Step::CloseChannel),
        1 => Just(Step::ServerClosesChannel),
    ]
}

/// One channel as its broker sees it.
#[derive(Debug, Default)]
struct Peer {
    /// Deliveries it waits for.
    outstanding: BTreeSet<u64>,
    settled: BTreeMap<u64, Fate>,
    /// Whether it closed the channel: what still comes on it is not looked at.
    closed: bool,
}

impl Peer {
    /// Settles as RabbitMQ does: a tag it does not wait for is a PRECONDITION_FAILED, with `multiple`, too.
    fn settle(&mut self, tag: u64, multiple: bool, fate: Fate) {
        assert!(self.outstanding.contains(&tag), "unknown delivery tag {tag}");
        let first = if multiple { 0 } else { tag };
        for covered in self.outstanding.extract_if(first..=tag, |_| true) {
            self.settled.insert(covered, fate);
        }
    }

    fn read(&mut self, frame: &Frame) {
        let id = MethodId { class: number(&frame.payload[0..2]), method: number(&frame.payload[2..4]) };
        let mut arguments = Reader::new(&frame.payload[4..]);
        match id {
            method::BASIC_ACK => {
                let tag = arguments.u64().unwrap();
                let multiple = arguments.u8().unwrap() == 1;
                self.settle(tag, multiple, Fate::Acked);
            }
            method::BASIC_NACK => {
                let tag = arguments.u64().unwrap();
                let bits = arguments.u8().unwrap();
                self.settle(tag, bits & 1 == 1, Fate::Nacked { requeue: bits & 2 == 2 });
            }
            method::BASIC_REJECT => {
                let tag = arguments.u64().unwrap();
                let requeue = arguments.u8().unwrap() == 1;
                self.settle(tag, false, Fate::Rejected { requeue });
            }
            _ => {}
        }
    }
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().unwrap())
}

struct World {
    session: Session,
    /// Kept so that the session can make leases.
    _commands: mpsc::UnboundedSender<Command>,
    _closed: watch::Receiver<Option<CloseReason>>,
    now: Instant,
    wire: BytesMut,
    peer: Peer,
    lease: ChannelLease,
    deliveries: mpsc::UnboundedReceiver<(Origin, Content)>,
    last_tag: u64,
    held: Vec<u64>,
    asked: BTreeMap<u64, Fate>,
}

impl World {
    fn new() -> Self {
        let (commands, _) = mpsc::unbounded_channel();
        let now = Instant::now();
        // One channel number, so that every channel has the number of the one before.
        let settings =
            Settings { incarnation: 1, frame_max: 4096, channel_max: 1, heartbeat: Duration::ZERO };
        let (close, closed) = watch::channel(None);
        let mut session = Session::new(settings, commands.downgrade(), watch::channel(None).0, close, now);
        let (lease, deliveries) = consume(&mut session, now);
        Self {
            session,
            _commands: commands,
            _closed: closed,
            now,
            wire: BytesMut::new(),
            peer: Peer::default(),
            lease,
            deliveries,
            last_tag: 0,
            held: Vec::new(),
            asked: BTreeMap::new(),
        }
    }

    /// As the driver does when the socket may take something.
    fn flush(&mut self) {
        self.session.flush_acks();
        while !self.session.output().is_empty() {
            self.write(usize::MAX);
        }
    }

    fn write(&mut self, most: usize) {
        let mut slices = [IoSlice::new(&[]); 64];
        let filled = self.session.output().fill(&mut slices);
        let bytes = slices[..filled].iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat();
        let written = bytes.len().min(most);
        self.wire.extend_from_slice(&bytes[..written]);
        self.session.on_written(written, self.now);
        while let Some(frame) = decode(&mut self.wire, 4096).expect("the client writes sound frames") {
            if !self.peer.closed {
                self.peer.read(&frame);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Deliver(count) => {
                for _ in 0..count {
                    self.deliver();
                }
            }
            Step::Settle(pick, fate) => {
                if pick < self.held.len() {
                    let tag = self.held.swap_remove(pick);
                    self.settle(tag, fate);
                }
            }
            Step::AckAllBut(kept) => {
                let kept = kept.min(self.held.len());
                for tag in self.held.split_off(kept) {
                    self.settle(tag, Fate::Acked);
                }
            }
            Step::GiveBackUpTo(pick) => {
                if let Some(tag) = self.held.get(pick).copied() {
                    let covered = self.held.extract_if(.., |held| *held <= tag);
                    self.asked.extend(covered.map(|tag| (tag, Fate::Nacked { requeue: true })));
                    let frame = request::return_up_to(1, tag);
                    let command = Command::GiveBack { key: self.lease.key, tags: 0..=tag, frame };
                    self.session.command(command, self.now);
                }
            }
            Step::Flush => self.flush(),
            Step::Write(most) => self.write(most),
            Step::CloseChannel => {
                self.session.command(Command::CloseChannel { key: self.lease.key }, self.now);
                self.flush();
                assert_eq!(self.peer.settled, self.asked, "everything comes before the close");
                self.frame(bare_method(1, method::CHANNEL_CLOSE_OK));
                self.replace_channel();
            }
            Step::ServerClosesChannel => {
                self.peer.closed = true;
                self.frame(request::close(1, method::CHANNEL_CLOSE, 406, "timed out"));
                self.flush();
                for (tag, fate) in &self.peer.settled {
                    assert_eq!(self.asked.get(tag), Some(fate), "tag {tag}");
                }
                self.replace_channel();
            }
        }
    }

    fn deliver(&mut self) {
        self.last_tag += 1;
        self.peer.outstanding.insert(self.last_tag);
        self.frame(delivery(self.last_tag));
        let (origin, _) = self.deliveries.try_recv().expect("the delivery is taken");
        self.held.push(origin.tag.get());
    }

    fn settle(&mut self, tag: u64, fate: Fate) {
        self.asked.insert(tag, fate);
        let key = self.lease.key;
        let give_back = |id, requeue| {
            let frame = request::give_back(1, id, tag, requeue);
            Command::GiveBack { key, tags: tag..=tag, frame }
        };
        let command = match fate {
            Fate::Acked => Command::Ack { key, tag },
            Fate::Nacked { requeue } => give_back(method::BASIC_NACK, requeue),
            Fate::Rejected { requeue } => give_back(method::BASIC_REJECT, requeue),
        };
        self.session.command(command, self.now);
    }

    /// Another channel under the same number, on which tags start again; handles of the old one settle late.
    fn replace_channel(&mut self) {
        let (lease, deliveries) = consume(&mut self.session, self.now);
        self.peer = Peer::default();
        self.flush();
        self.deliveries = deliveries;
        self.last_tag = 0;
        self.asked.clear();
        let old = std::mem::replace(&mut self.lease, lease);
        let late = std::mem::take(&mut self.held);
        // The same tags are in use again.
        for _ in &late {
            self.deliver();
        }
        for tag in late {
            self.session.command(Command::Ack { key: old.key, tag }, self.now);
        }
    }

    fn frame(&mut self, bytes: Bytes) {
        let mut buffer = BytesMut::from(bytes);
        while let Some(frame) = decode(&mut buffer, 4096).unwrap() {
            self.session.on_frame(&frame, self.now).unwrap();
        }
    }
}

/// A channel with a consumer.
fn consume(
    session: &mut Session,
    now: Instant,
) -> (ChannelLease, mpsc::UnboundedReceiver<(Origin, Content)>) {
    let (reply, mut opened) = oneshot::channel();
    session.command(Command::OpenChannel { reply }, now);
    let lease = opened.try_recv().unwrap().unwrap().lease;
    assert_eq!(lease.key.number, 1);
    let (sender, deliveries) = mpsc::unbounded_channel();
    let sink = Sink { deliveries: sender, prefetch: u16::MAX, end: Arc::default() };
    let (reply, _) = oneshot::channel();
    let call = Call {
        key: lease.key,
        frame: bare_method(1, method::BASIC_CONSUME),
        expects: &[method::BASIC_CONSUME_OK],
        sink: Some(sink),
        reply,
    };
    session.command(Command::Call(call), now);
    let answers = [
        request::fixed_method(1, method::CHANNEL_OPEN_OK, &[0; 4]),
        method_frame(1, method::BASIC_CONSUME_OK, |buffer| put_short(buffer, "tag", "c")).unwrap(),
    ];
    for answer in answers {
        let frame = decode(&mut BytesMut::from(answer), 4096).unwrap().unwrap();
        session.on_frame(&frame, now).unwrap();
    }
    (lease, deliveries)
}

fn delivery(tag: u64) -> Bytes {
    let method = method_frame(1, method::BASIC_DELIVER, |buffer| {
        put_short(buffer, "tag", "c")?;
        buffer.put_u64(tag);
        buffer.put_u8(0);
        put_short(buffer, "exchange", "events")?;
        put_short(buffer, "key", "k")
    });
    let header = [&[FRAME_HEADER, 0, 1, 0, 0, 0, 14, 0, 60][..], &[0; 12], &[FRAME_END]].concat();
    [&method.unwrap()[..], &header].concat().into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_broker_reads_what_was_asked_for_and_nothing_twice(steps in vec(step(), 1..80)) {
        let mut world = World::new();
        world.flush();
        for step in &steps {
            world.step(step);
        }
        world.flush();

        prop_assert_eq!(&world.peer.settled, &world.asked);
        let held: BTreeSet<_> = world.held.iter().copied().collect();
        prop_assert_eq!(&world.peer.outstanding, &held, "what is held stays outstanding");
    }
}

fn acks(unsettled: &mut Unsettled) -> Vec<(u64, bool)> {
    let mut acks = Vec::new();
    unsettled.take_acks(|tag, multiple| acks.push((tag, multiple)));
    acks
}

fn give_back(unsettled: &mut Unsettled, tags: RangeInclusive<u64>) -> (Vec<(u64, bool)>, bool) {
    let mut acks = Vec::new();
    let open = unsettled.give_back(tags, |tag, multiple| acks.push((tag, multiple)));
    (acks, open)
}

fn delivered(tags: RangeInclusive<u64>) -> Unsettled {
    let mut unsettled = Unsettled::default();
    assert!(tags.into_iter().all(|tag| unsettled.deliver(tag)));
    unsettled
}

#[test]
fn acks_up_to_the_first_open_delivery_are_one() {
    let mut unsettled = delivered(1..=6);
    for tag in [5, 2, 6, 1, 3] {
        assert!(unsettled.ack(tag));
    }

    assert_eq!(acks(&mut unsettled), [(3, true), (5, false), (6, false)]);
    assert_eq!(acks(&mut unsettled), []);
    assert_eq!(unsettled.open(), 1);
}

#[test]
fn deliveries_that_went_back_do_not_stand_in_the_way_of_later_acks() {
    let mut unsettled = delivered(1..=4);
    assert!(unsettled.ack(1) && unsettled.ack(3));

    assert_eq!(give_back(&mut unsettled, 2..=2), (vec![(1, false), (3, false)], true));
    assert!(unsettled.ack(4));

    assert_eq!(acks(&mut unsettled), [(4, false)]);
}

#[test]
fn acks_behind_a_return_cover_it() {
    let mut unsettled = delivered(1..=4);

    assert_eq!(give_back(&mut unsettled, 2..=2), (vec![], true));
    assert!(unsettled.ack(1) && unsettled.ack(3));

    assert_eq!(acks(&mut unsettled), [(3, true)]);
}

#[test]
fn one_ack_alone_covers_nothing_else() {
    let mut unsettled = delivered(1..=2);
    assert!(unsettled.ack(1));

    assert_eq!(acks(&mut unsettled), [(1, false)]);
}

#[test]
fn what_is_not_open_is_not_settled_again() {
    let mut unsettled = delivered(1..=3);
    assert!(give_back(&mut unsettled, 0..=2).1);

    assert!(!unsettled.ack(1));
    assert!(!give_back(&mut unsettled, 2..=2).1);
    assert!(!unsettled.ack(4), "never delivered");

    assert_eq!(acks(&mut unsettled), []);
}

#[test]
fn tags_that_do_not_rise_are_refused() {
    let mut unsettled = delivered(2..=3);

    assert!(!unsettled.deliver(3));
    assert!(!unsettled.deliver(1));
    assert!(unsettled.deliver(7), "a gap is none of ours");
}

#[test]
fn a_gap_in_the_brokers_tags_is_no_hole() {
    let mut unsettled = Unsettled::default();
    assert!(unsettled.deliver(1) && unsettled.deliver(5));
    assert!(unsettled.ack(5) && unsettled.ack(1));

    assert_eq!(acks(&mut unsettled), [(5, true)]);
}

/// Frames are decoded in the property by the client's own reader; their bytes are looked at here.
#[test]
fn an_ack_with_multiple_sets_the_bit() {
    let mut frame = BytesMut::new();
    request::put_ack(&mut frame, 7, 258, true);

    assert_eq!(frame[..], *b"\x01\0\x07\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\x01\x02\x01\xce");
    let decoded = decode(&mut frame, 4096).unwrap().unwrap();
    assert_eq!((decoded.kind, decoded.channel), (FrameKind::Method, 7));
}
