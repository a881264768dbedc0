//! Consuming from a real cluster: redelivery, order, dead letters, lost connections.

use std::num::NonZeroU16;
use std::time::Duration;

use consign_broker::rocketmq::{
    DestinationOptions, Filter, MessageType, RocketMqDestination, RocketMqSource, SourceOptions, TopicKind,
};
use consign_conformance::proxy::Cut;
use consign_core::delivery::{Message, Receipt};
use consign_core::event::{Aggregate, Event};
use consign_core::guard::Progress;
use consign_core::inbox::Failed;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::outcome::Outcome;
use consign_core::ports::{
    Advance, CommitError, DeadDelivery, InboxStore, InboxTransaction, Lane, Mark, Source, StoreError,
};
use consign_core::value::Value;

use super::fixture::{Fixture, QUEUES};
use super::unique;
use crate::events::{ack, event, eventually, next, retry, within};

/// Short, and some seconds longer than a poll: a message counts as held from the moment it was asked for.
const INVISIBLE: Duration = Duration::from_secs(8);

/// A topic and a group that begins at its start.
struct World {
    fixture: Fixture,
    destination: RocketMqDestination,
    group: String,
    ordered: bool,
}

impl World {
    async fn new(ordered: bool) -> Self {
        let kind = if ordered { TopicKind::Fifo } else { TopicKind::Normal };
        let fixture = Fixture::new(kind).await;
        let message_type = if ordered { MessageType::Fifo } else { MessageType::Normal };
        let options = DestinationOptions { message_type, ..fixture.options() };
        let destination = fixture.destination_with(options).await;
        let group = unique("group");
        fixture.admin.create_group(&group, ordered, 16).await.unwrap();
        let world = Self { fixture, destination, group, ordered };
        world.begin_at_the_start(&world.group, &world.fixture.topic, QUEUES).await;
        world
    }

    async fn begin_at_the_start(&self, group: &str, topic: &str, queues: u32) {
        let Fixture { admin, master, .. } = &self.fixture;
        for queue in 0..queues {
            admin.put_group_offset(master, group, topic, queue, 0).await.unwrap();
        }
    }

    fn options(&self) -> SourceOptions {
        SourceOptions {
            connect: self.fixture.connect(),
            group: self.group.clone(),
            topic: self.fixture.topic.clone(),
            filter: Filter::All,
            prefetch: NonZeroU16::new(16).unwrap(),
            invisible: INVISIBLE,
            ordered: self.ordered,
            broker_retries: true,
            dead_letter_topic: true,
        }
    }

    async fn source(&self) -> RocketMqSource {
        RocketMqSource::start(self.options()).await.unwrap()
    }

    async fn publish(&self, event: Event) {
        let outcome = self.fixture.publish(&self.destination, Lane::Window, event).await;
        assert!(matches!(outcome, Outcome::Confirmed(_)), "{outcome:?}");
    }
}

fn id(message: &Message) -> &str {
    message.id.as_deref().expect("every event has an id")
}

/// That nothing more comes within the time in which a redelivery would have come.
async fn assert_silent(source: &mut RocketMqSource) {
    let more = tokio::time::timeout(INVISIBLE * 3, source.next()).await;
    if let Ok(Some(delivery)) = more {
        panic!("{} came again: attempt {}", id(&delivery.message), delivery.message.delivery_count);
    }
}

#[tokio::test]
async fn a_message_arrives_as_the_event_it_was_and_once_acknowledged_never_again() {
    let world = World::new(false).await;
    world.publish(event("e-1", r#"{"amount": 5}"#)).await;
    let mut source = world.source().await;

    let delivery = next(&mut source).await;

    let message = &delivery.message;
    assert_eq!((id(message), message.message_type.as_deref()), ("e-1", Some("OrderPaid")));
    assert_eq!(&message.body[..], br#"{"amount": 5}"#);
    assert_eq!((message.redelivered, message.delivery_count), (false, 1));
    assert_eq!(message.source, world.fixture.topic);
    let header =
        |name: &str| message.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(header("consign-business-key"), Some("order:42:paid"));
    assert_eq!(header("consign-aggregate-id"), Some("42"));
    assert!(header("traceparent").is_some_and(|context| context.starts_with("00-0af7651916cd43dd")));
    ack(delivery).await.unwrap();
    assert_silent(&mut source).await;
    within("the close", source.close()).await;
}

/// apache/rocketmq-clients#951, apache/rocketmq#9583: a handler that takes longer than the invisible time keeps its
/// message by one extension, and the acknowledgement by the new handle counts.
#[tokio::test]
async fn a_slow_handler_keeps_its_message_beyond_the_invisible_time() {
    let world = World::new(false).await;
    world.publish(event("slow", "{}")).await;
    let mut source = world.source().await;
    let slow = next(&mut source).await;

    // Long enough for the first time and short enough for the extended one.
    let meanwhile = tokio::time::timeout(INVISIBLE * 2, source.next()).await;

    assert!(meanwhile.is_err(), "it came again while it was held");
    ack(slow).await.expect("the handle is the newest");
    assert_silent(&mut source).await;
}

/// apache/rocketmq#9170: what SDKs do not survive. Handles belong to messages, so that one taken before the connection
/// was lost settles after it.
#[tokio::test]
async fn a_source_lives_on_after_its_connections_are_lost_and_its_receipts_stay_good() {
    let world = World::new(false).await;
    let mut options = world.options();
    options.invisible = Duration::from_mins(1);
    let mut source = RocketMqSource::start(options).await.unwrap();
    world.publish(event("before", "{}")).await;
    let held = next(&mut source).await;

    world.fixture.proxy.cut(Cut::Reset);
    ack(held).await.expect("the handle is good");
    eventually("a publish that is confirmed", || async {
        let outcome = world.fixture.publish(&world.destination, Lane::Window, event("after", "{}")).await;
        matches!(outcome, Outcome::Confirmed(_))
    })
    .await;

    let after = next(&mut source).await;
    assert_eq!(id(&after.message), "after", "the acknowledged one does not come again");
    ack(after).await.unwrap();
    within("the close", source.close()).await;
}

/// The next message of a group waits for the one before it, also while that is refused again and again.
#[tokio::test]
async fn an_ordered_group_keeps_its_order_around_a_message_that_fails() {
    let world = World::new(true).await;
    let of = |aggregate: &str, step: u32| Event {
        aggregate: Aggregate { kind: Some("order".into()), id: Some(aggregate.into()), version: None },
        ..event(format!("{aggregate}{step}"), "{}")
    };
    for step in 1..=3 {
        world.publish(of("a", step)).await;
        world.publish(of("b", step)).await;
    }
    let mut source = world.source().await;
    let mut refused = 0;
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let delivery = next(&mut source).await;
        assert!(delivery.receipt.stays_with_broker());
        let name = id(&delivery.message).to_owned();
        if name == "a1" && refused < 3 {
            refused += 1;
            assert_eq!(delivery.message.delivery_count, refused);
            retry(delivery, Duration::from_millis(300)).await.unwrap();
            continue;
        }
        seen.push(name);
        ack(delivery).await.unwrap();
    }

    let of =
        |aggregate: &str| seen.iter().filter(|id| id.starts_with(aggregate)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (of("a"), of("b")),
        (vec!["a1".into(), "a2".into(), "a3".into()], vec!["b1".into(), "b2".into(), "b3".into()])
    );
    assert_silent(&mut source).await;
}

/// apache/rocketmq#8154: a group that is not ordered at the broker delivers side by side, whatever the topic is.
#[tokio::test]
async fn an_ordered_source_takes_nothing_from_a_group_that_the_broker_does_not_order() {
    let mut world = World::new(false).await;
    world.publish(event("e-1", "{}")).await;
    world.ordered = true;
    let mut source = world.source().await;

    let came = tokio::time::timeout(INVISIBLE, source.next()).await;

    assert!(came.is_err(), "it was delivered without an order");
}

/// Only what the filter says comes; its members must all say the same.
#[tokio::test]
async fn a_source_takes_the_tags_of_its_filter() {
    let world = World::new(false).await;
    for (id, kind) in [("paid", "OrderPaid"), ("created", "OrderCreated"), ("closed", "OrderClosed")] {
        world.publish(Event { event_type: kind.into(), ..event(id, "{}") }).await;
    }
    let mut options = world.options();
    options.filter = Filter::Tag("OrderPaid || OrderClosed".into());
    let mut source = RocketMqSource::start(options).await.unwrap();

    let mut seen = Vec::new();
    for _ in 0..2 {
        let delivery = next(&mut source).await;
        seen.push(id(&delivery.message).to_owned());
        ack(delivery).await.unwrap();
    }
    seen.sort();
    assert_eq!(seen, ["closed", "paid"]);
    assert_silent(&mut source).await;
}

/// I22: the record is committed, then the message is in the group's dead-letter topic, and never comes again.
#[tokio::test]
async fn a_message_that_is_given_up_is_recorded_and_moved_to_the_groups_dead_letter_topic() {
    let world = World::new(false).await;
    world.publish(event("poison", "not json")).await;
    let mut source = world.source().await;
    let failed = Failed::refused(next(&mut source).await, "not JSON");

    failed.record_dead(&Recording, "points-award", None).await.unwrap().unwrap();

    assert_silent(&mut source).await;
    let topic = format!("%DLQ%{}", world.group);
    let Fixture { admin, master, reader, .. } = &world.fixture;
    eventually("the dead letter", || async {
        let Ok(pulled) = admin.pull(master, reader, &topic, 0, 0, 32).await else { return false };
        let ids: Vec<_> =
            pulled.messages.iter().map(|message| message.message_id().map(str::to_owned)).collect();
        ids == [Some("poison".to_owned())]
    })
    .await;
}

/// A group's own limit: what was delivered that often goes to its dead-letter topic without this side's doing.
#[tokio::test]
async fn a_message_beyond_its_groups_attempts_goes_to_the_dead_letter_topic() {
    let world = World::new(false).await;
    let Fixture { admin, master, reader, .. } = &world.fixture;
    admin.create_group(&world.group, false, 1).await.unwrap();
    world.publish(event("stubborn", "{}")).await;
    let mut source = world.source().await;
    for attempt in 1..=2 {
        let delivery = next(&mut source).await;
        assert_eq!(delivery.message.delivery_count, attempt);
        retry(delivery, Duration::from_millis(10)).await.unwrap();
    }

    assert_silent(&mut source).await;
    let topic = format!("%DLQ%{}", world.group);
    eventually("the dead letter", || async {
        let pulled = admin.pull(master, reader, &topic, 0, 0, 32).await;
        pulled.is_ok_and(|pulled| pulled.messages.len() == 1)
    })
    .await;
}

/// A store whose only use is that its dead records are committed.
#[derive(Clone, Copy, Debug)]
struct Recording;

impl InboxTransaction for Recording {
    async fn mark(&mut self, _: &Operation) -> Result<Mark, StoreError> {
        Ok(Mark::Inserted)
    }

    async fn lock_progress(&mut self, _: &str, _: &[&str]) -> Result<Vec<Option<Progress>>, StoreError> {
        Ok(Vec::new())
    }

    async fn save_progress(&mut self, _: &str, _: &[Advance<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn execute(&mut self, _: &str, _: &[Value]) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn commit(self) -> Result<(), CommitError> {
        Ok(())
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl InboxStore for Recording {
    type Transaction = Self;

    async fn begin(&self) -> Result<Self, StoreError> {
        Ok(*self)
    }

    async fn marker(&self, _: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        Ok(None)
    }

    async fn record_conflict(&self, _: &Operation, _: &Message, _: &StoredMarker) -> Result<(), StoreError> {
        Ok(())
    }

    async fn record_dead(&self, _: &DeadDelivery<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
