//! A session under arbitrary frames, writes, deadlines and requests: it never panics, tells every waiter
//! exactly once, writes nothing but whole messages, and never says more than the frames prove.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;

use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::command::Call;
use crate::frame::decode;
use crate::publisher::NotSent;
use crate::request::{FRAME_HEADER, bare_method, fixed_method, method_frame};
use crate::wire::{Reader, put_short};

#[derive(Clone, Debug)]
enum Step {
    Publish { patience: u64, size: usize },
    Write(usize),
    Wait(u64),
    Confirm { tag: u64, multiple: bool, positive: bool },
    Return(usize),
    Flow(bool),
    Block(bool),
    CloseChannel,
    ServerClosesChannel,
    Content(bool),
    ServerCloses,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..50_u64, 0..60_000_usize).prop_map(|(patience, size)| Step::Publish { patience, size }),
        12 => prop_oneof![1..500_usize, 1..100_000_usize].prop_map(Step::Write),
        4 => (0..10_u64).prop_map(Step::Wait),
        8 => (0..9_u64, any::<bool>(), any::<bool>())
            .prop_map(|(tag, multiple, positive)| Step::Confirm { tag, multiple, positive }),
        4 => (0..8_usize).prop_map(Step::Return),
        1 => any::<bool>().prop_map(Step::Flow),
        1 => any::<bool>().prop_map(Step::Block),
        1 => Just(Step::CloseChannel),
        1 => Just(Step::ServerClosesChannel),
        1 => any::<bool>().prop_map(Step::Content),
        1 => Just(Step::ServerCloses),
        1 => Just(Step::Close),
    ]
}

struct World {
    session: Session,
    /// Kept so that the session can make leases.
    _commands: mpsc::UnboundedSender<Command>,
    lease: ChannelLease,
    now: Instant,
    wire: BytesMut,
    waiting: Vec<oneshot::Receiver<Verdict>>,
    /// By number of the publish, as far as they came.
    verdicts: BTreeMap<usize, Verdict>,
    /// What the peer said that may settle a tag.
    confirmed: BTreeSet<u64>,
    /// Numbers of publishes that were returned before they were settled.
    returned: BTreeSet<usize>,
}

impl World {
    fn new() -> Self {
        let (commands, _) = mpsc::unbounded_channel();
        let now = Instant::now();
        let settings =
            Settings { incarnation: 1, frame_max: 4096, channel_max: 9, heartbeat: Duration::from_mins(1) };
        let (block, close) = (watch::channel(None).0, watch::channel(None).0);
        let mut session = Session::new(settings, commands.downgrade(), block, close, now);
        let (reply, mut opened) = oneshot::channel();
        session.command(Command::OpenChannel { reply }, now);
        let lease = opened.try_recv().unwrap().unwrap().lease;
        let (reply, _) = oneshot::channel();
        let frame = fixed_method(1, method::CONFIRM_SELECT, &[0]);
        let call = Call { key: lease.key, frame, expects: &[method::CONFIRM_SELECT_OK], sink: None, reply };
        session.command(Command::Call(call), now);
        let mut world = Self {
            session,
            _commands: commands,
            lease,
            now,
            wire: BytesMut::new(),
            waiting: Vec::new(),
            verdicts: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            returned: BTreeSet::new(),
        };
        world.frame(fixed_method(1, method::CHANNEL_OPEN_OK, &[0; 4]));
        world.frame(bare_method(1, method::CONFIRM_SELECT_OK));
        world.write(usize::MAX);
        world.wire.clear();
        world
    }

    fn frame(&mut self, bytes: Bytes) {
        let mut buffer = BytesMut::from(bytes);
        while self.session.is_reading() {
            let Some(frame) = decode(&mut buffer, 4096).unwrap() else { break };
            if let Err(fatal) = self.session.on_frame(&frame, self.now) {
                self.session.fail(fatal, self.now);
            }
        }
    }

    fn write(&mut self, most: usize) {
        let mut slices = [IoSlice::new(&[]); 64];
        let filled = self.session.output().fill(&mut slices);
        let bytes = slices[..filled].iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat();
        let written = bytes.len().min(most);
        self.wire.extend_from_slice(&bytes[..written]);
        self.session.on_written(written, self.now);
        if most == usize::MAX && !self.session.output().is_empty() {
            self.write(most);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish { patience, size } => {
                let id = format!("m{}", self.waiting.len());
                let properties =
                    crate::Properties { message_id: Some(id.clone()), ..crate::Properties::default() };
                let body = vec![7; size].into();
                let frames = request::publish(1, 4096, "events", "key", &properties, &body).unwrap();
                let (reply, verdict) = oneshot::channel();
                let deadline = self.now + Duration::from_millis(patience);
                let publish = Publish { key: self.lease.key, frames, message_id: id, deadline, reply };
                self.session.command(Command::Publish(publish), self.now);
                self.waiting.push(verdict);
            }
            Step::Write(most) => self.write(most),
            Step::Wait(milliseconds) => {
                self.now += Duration::from_millis(milliseconds);
                self.session.on_time(self.now);
            }
            Step::Confirm { tag, multiple, positive } => {
                if multiple {
                    self.confirmed.extend(0..=if tag == 0 { 1000 } else { tag });
                } else {
                    self.confirmed.insert(tag);
                }
                let id = if positive { method::BASIC_ACK } else { method::BASIC_NACK };
                let mut arguments = BytesMut::new();
                arguments.put_u64(tag);
                arguments.put_u8(u8::from(multiple));
                self.frame(fixed_method(1, id, &arguments));
            }
            Step::Return(number) => {
                self.frame(returned(&format!("m{number}")));
                if !self.verdicts.contains_key(&number) {
                    self.returned.insert(number);
                }
            }
            Step::Flow(active) => self.frame(fixed_method(1, method::CHANNEL_FLOW, &[u8::from(active)])),
            Step::Block(true) => self.frame(fixed_method(0, method::CONNECTION_BLOCKED, b"\x03low")),
            Step::Block(false) => self.frame(bare_method(0, method::CONNECTION_UNBLOCKED)),
            Step::CloseChannel => {
                self.session.command(Command::CloseChannel { key: self.lease.key }, self.now);
            }
            Step::ServerClosesChannel => self.frame(request::close(1, method::CHANNEL_CLOSE, 404, "no")),
            Step::Content(header) => {
                let kind = if header { FRAME_HEADER } else { request::FRAME_BODY };
                let frame = [&[kind, 0, 1, 0, 0, 0, 14][..], &[0; 14], &[request::FRAME_END]].concat();
                self.frame(frame.into());
            }
            Step::ServerCloses => self.frame(request::close(0, method::CONNECTION_CLOSE, 320, "bye")),
            Step::Close => self.session.start_close(self.now + Duration::from_millis(5)),
        }
    }

    /// Takes the verdicts that have come; a second one for the same publish cannot be sent.
    fn take_verdicts(&mut self) {
        for (number, waiting) in self.waiting.iter_mut().enumerate() {
            if let Ok(verdict) = waiting.try_recv() {
                self.verdicts.insert(number, verdict);
            }
        }
    }

    /// The ids on the wire in order; the last message may be cut.
    fn wire_ids(&mut self) -> Vec<String> {
        let mut ids = Vec::new();
        let mut missing = 0;
        while let Some(frame) = decode(&mut self.wire, 4096).expect("the client writes sound frames") {
            match frame.kind {
                FrameKind::Header => {
                    missing = Reader::new(&frame.payload[4..]).u64().unwrap();
                    ids.push(crate::Properties::message_id_of(&frame.payload[12..]).unwrap().unwrap());
                }
                FrameKind::Body => missing -= frame.payload.len() as u64,
                FrameKind::Method | FrameKind::Heartbeat => {
                    assert_eq!(missing, 0, "a message is cut by {frame:?}");
                }
            }
        }
        ids
    }
}

fn returned(message_id: &str) -> Bytes {
    let method = method_frame(1, method::BASIC_RETURN, |buffer| {
        buffer.put_u16(312);
        put_short(buffer, "text", "NO_ROUTE")
    });
    let properties = [&0x0080_u16.to_be_bytes()[..], &[2], message_id.as_bytes()].concat();
    let length = u32::try_from(12 + properties.len()).unwrap().to_be_bytes();
    let header = [&[FRAME_HEADER, 0, 1][..], &length, &[0; 12], &properties, &[request::FRAME_END]].concat();
    [&method.unwrap()[..], &header].concat().into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn session_says_no_more_than_it_knows(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.take_verdicts();
        }
        world.write(usize::MAX);
        world.session.on_lost("the test is over".to_owned(), world.now);
        let ids = world.wire_ids();
        world.take_verdicts();
        prop_assert_eq!(world.verdicts.len(), world.waiting.len(), "every publish has its verdict");
        for (number, verdict) in &world.verdicts {
            let id = format!("m{number}");
            let position = ids.iter().position(|other| *other == id);
            match verdict {
                Verdict::Acked { tag } => {
                    prop_assert!(world.confirmed.contains(&tag.get()));
                    prop_assert!(!world.returned.contains(number), "{id} was returned");
                    let cut = position.is_none() && ids.len() as u64 + 1 == tag.get();
                    prop_assert!(cut || position == Some(usize::try_from(tag.get()).unwrap() - 1));
                }
                Verdict::Returned { code, .. } => {
                    prop_assert_eq!(*code, 312);
                    prop_assert!(world.returned.contains(number));
                }
                Verdict::NotSent { reason: NotSent::Unavailable(_) } => prop_assert_eq!(position, None),
                Verdict::NotSent { reason: NotSent::Invalid(text) } => prop_assert!(false, "{}", text),
                Verdict::ChannelClosed { in_flight, .. } | Verdict::ConnectionLost { in_flight, .. } => {
                    prop_assert!((1..=ids.len() + 1).contains(in_flight));
                }
                Verdict::Nacked | Verdict::TimedOut { .. } => {}
            }
        }
        prop_assert!(world.session.is_over(world.now));
        prop_assert_eq!(world.session.deadlines.first(), None);
    }
}
