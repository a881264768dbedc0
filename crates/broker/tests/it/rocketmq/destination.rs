//! Sending to a real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consign_broker::rocketmq::{
    DestinationOptions, EmptyBody, MessageType, RocketMqDestination, StoredMessage, TopicKind,
};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::outcome::{Outcome, Proof};
use consign_core::ports::Lane;
use tokio::task::JoinSet;

use super::fixture::Fixture;
use super::unique;
use crate::events::event;

const LANES: [Lane; 2] = [Lane::Window, Lane::Quarantine];

fn is_confirmed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Confirmed(Proof::Stored { .. }))
}

/// Publishes all at once; gives the outcomes in the order of the events.
async fn publish_all(
    fixture: &Arc<Fixture>,
    destination: &Arc<RocketMqDestination>,
    events: Vec<Event>,
) -> Vec<Outcome> {
    let mut flights = JoinSet::new();
    for (number, event) in events.into_iter().enumerate() {
        let (fixture, destination) = (Arc::clone(fixture), Arc::clone(destination));
        flights.spawn(async move { (number, fixture.publish(&destination, Lane::Window, event).await) });
    }
    let mut outcomes = flights.join_all().await;
    outcomes.sort_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn ids(stored: &[StoredMessage]) -> Vec<&str> {
    stored.iter().map(|message| message.message_id().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_message_is_stored_under_the_events_id_with_its_keys_tag_and_properties() {
    let fixture = Fixture::new(TopicKind::Normal).await;
    let destination = fixture.destination().await;
    let id = "\u{4e2d}".repeat(85);
    let sent = Event {
        business_key: Some("order 42: bezahlt".into()),
        headers: vec![("note".into(), "\u{1f600} \"quoted\" \u{e9}".into())],
        ..event(id.clone(), r#"{"b":1, "a":1.10}"#)
    };

    for lane in LANES {
        let outcome = fixture.publish(&destination, lane, sent.clone()).await;
        let Outcome::Confirmed(Proof::Stored { endpoint, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(endpoint, fixture.proxy.address().to_string());
    }

    let stored = fixture.stored(2).await;
    assert_eq!(ids(&stored), [&id, &id], "every copy of an event has its id");
    for message in stored {
        assert_eq!(message.keys().collect::<Vec<_>>(), [id.as_str(), "order%2042:%20bezahlt"]);
        assert_eq!(message.tag(), Some("OrderPaid"));
        assert_eq!(&message.body[..], br#"{"b":1, "a":1.10}"#);
        let properties: BTreeMap<_, _> = message.user_properties().collect();
        assert_eq!(properties["note"], "\u{1f600} \"quoted\" \u{e9}");
        assert_eq!(properties["consign-business-key"], "order 42: bezahlt");
        assert_eq!(properties["CE_id"], id);
        assert_eq!(properties["CE_time"], "2024-02-29T12:34:56.789012Z");
    }
}

#[tokio::test]
async fn many_publishes_at_once_share_requests_and_each_is_stored_once() {
    let fixture = Arc::new(Fixture::new(TopicKind::Normal).await);
    let destination = Arc::new(fixture.destination().await);
    let events = (0..500).map(|number| event(format!("event-{number:03}"), "{}")).collect();

    let outcomes = publish_all(&fixture, &destination, events).await;

    assert!(outcomes.iter().all(is_confirmed), "{outcomes:?}");
    let stored = fixture.stored(500).await;
    assert_eq!(ids(&stored).into_iter().collect::<BTreeSet<_>>().len(), 500);
    let offsets: Vec<u64> = stored.iter().map(|message| message.queue_offset).collect();
    for outcome in &outcomes {
        let Outcome::Confirmed(Proof::Stored { offset, .. }) = outcome else { unreachable!() };
        assert!(offsets.contains(&u64::try_from(*offset).unwrap()), "offset {offset} is in no queue");
    }
}

/// apache/rocketmq#9595, #8546: a missing topic is no fault of the message, and of no other message at all.
#[tokio::test]
async fn a_missing_topic_is_unroutable_and_its_neighbours_are_confirmed() {
    let fixture = Arc::new(Fixture::new(TopicKind::Normal).await);
    let destination = Arc::new(fixture.destination().await);
    let missing = unique("missing");
    for lane in LANES {
        let (lost, kept) = tokio::join!(
            fixture.publish_to(&destination, lane, event("lost", "{}"), &missing),
            fixture.publish(&destination, lane, event("kept", "{}")),
        );

        let Outcome::Unroutable { code, text } = lost else { panic!("{lost:?}") };
        assert_eq!(code, 40402, "{text}");
        assert!(is_confirmed(&kept), "{kept:?}");
    }
    assert_eq!(ids(&fixture.stored(2).await), ["kept", "kept"]);
}

#[tokio::test]
async fn a_topic_of_another_type_rejects_each_message_by_its_name() {
    let fixture = Arc::new(Fixture::new(TopicKind::Fifo).await);
    let destination = Arc::new(fixture.destination().await);
    let events = (0..5).map(|number| event(format!("event-{number}"), "{}")).collect();

    let outcomes = publish_all(&fixture, &destination, events).await;

    for outcome in outcomes {
        let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
        assert!(
            reason.contains("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE") && reason.contains("FIFO"),
            "{reason}"
        );
    }
    fixture.stored(0).await;
}

/// apache/rocketmq#10924: a batch ignores the groups of its messages.
#[tokio::test]
async fn messages_of_one_aggregate_are_stored_in_their_order_in_one_queue() {
    const AGGREGATES: usize = 8;
    const STEPS: usize = 12;
    let fixture = Arc::new(Fixture::new(TopicKind::Fifo).await);
    let options = DestinationOptions { message_type: MessageType::Fifo, ..fixture.options() };
    let destination = Arc::new(fixture.destination_with(options).await);
    let mut flights = JoinSet::new();
    for aggregate in 0..AGGREGATES {
        let (fixture, destination) = (Arc::clone(&fixture), Arc::clone(&destination));
        // Some are too long for a message group.
        let name = format!("{aggregate}{}", "x".repeat(aggregate * 20));
        flights.spawn(async move {
            for step in 0..STEPS {
                let aggregate =
                    Aggregate { kind: Some("order".into()), id: Some(name.clone()), version: None };
                let sent = Event { aggregate, ..event(format!("{name}/{step:02}"), "{}") };
                let outcome = fixture.publish(&destination, Lane::Window, sent).await;
                assert!(is_confirmed(&outcome), "{outcome:?}");
            }
        });
    }
    flights.join_all().await;

    let stored = fixture.stored(AGGREGATES * STEPS).await;
    let mut seen: BTreeMap<&str, Vec<(u32, &str)>> = BTreeMap::new();
    for message in &stored {
        let (name, step) = message.message_id().unwrap().split_once('/').unwrap();
        seen.entry(name).or_default().push((message.queue_id, step));
    }
    assert_eq!(seen.len(), AGGREGATES);
    for (name, steps) in seen {
        assert!(
            steps.is_sorted_by(|(queue, step), (next, later)| queue == next && step < later),
            "{name}: {steps:?}"
        );
    }
}

/// What comes behind a message of its group waits for it, and does not overtake it when it fails.
#[tokio::test]
async fn a_group_behind_a_message_without_a_confirm_is_turned_back() {
    let fixture = Arc::new(Fixture::new(TopicKind::Fifo).await);
    let options = DestinationOptions {
        message_type: MessageType::Fifo,
        body_bytes_max: usize::MAX,
        ..fixture.options()
    };
    let destination = Arc::new(fixture.destination_with(options).await);
    // The proxy refuses the first for its body; both are of one aggregate.
    let too_large = event("first", vec![b'x'; 4 * 1024 * 1024 + 1]);

    let outcomes = publish_all(&fixture, &destination, vec![too_large, event("second", "{}")]).await;

    let order: Vec<&str> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Confirmed(_) => "confirmed",
            Outcome::Rejected { .. } => "rejected",
            Outcome::Refused { .. } => "refused",
            Outcome::Unroutable { .. } | Outcome::Unknown(_) => "open",
        })
        .collect();
    // Which of two that start at once is first is not said.
    assert!(order == ["rejected", "refused"] || order == ["rejected", "confirmed"], "{outcomes:?}");
    let later = fixture.publish(&destination, Lane::Window, event("third", "{}")).await;
    assert!(is_confirmed(&later), "the group goes on: {later:?}");
}

#[tokio::test]
async fn a_delayed_message_waits_in_the_broker_and_a_delay_beyond_its_limit_is_rejected() {
    let fixture = Fixture::new(TopicKind::Delay).await;
    let with = |message_type| DestinationOptions { message_type, ..fixture.options() };
    let past = fixture.destination_with(with(MessageType::Delay(Duration::from_mins(1)))).await;
    // The event is of 2024: this far ahead of it lies the far future.
    let far = MessageType::Delay(Duration::from_hours(20 * 365 * 24));
    let future = fixture.destination_with(with(far)).await;

    let at_once = fixture.publish(&past, Lane::Window, event("at once", "{}")).await;
    let never = fixture.publish(&future, Lane::Window, event("never", "{}")).await;

    assert!(is_confirmed(&at_once), "{at_once:?}");
    assert!(
        matches!(&never, Outcome::Rejected { reason } if reason.contains("ILLEGAL_DELIVERY_TIME")),
        "{never:?}"
    );
    assert_eq!(ids(&fixture.stored(1).await), ["at once"]);
}

/// The limits that are checked here are those of the server: what is allowed by them is taken.
#[tokio::test]
async fn the_largest_body_and_the_most_properties_are_taken() {
    let fixture = Fixture::new(TopicKind::Normal).await;
    let destination = fixture.destination().await;
    let body = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    let headers = |count: usize, bytes| (0..count).map(|at| (format!("h{at}"), "v".repeat(bytes))).collect();
    let computed = 11;
    let many = Event { headers: headers(128 - computed, 1), ..event("many", "{}") };
    let too_many = Event { headers: headers(129 - computed, 1), ..event("too many", "{}") };
    let long = Event { headers: headers(1, 15_900), ..event("long", "{}") };
    let too_long = Event { headers: headers(1, 16_385), ..event("too long", "{}") };

    for sent in [event("large", body.clone()), many, long] {
        let outcome = fixture.publish(&destination, Lane::Window, sent.clone()).await;
        assert!(is_confirmed(&outcome), "{}: {outcome:?}", sent.id);
    }
    let larger = event("too large", vec![b'x'; 4 * 1024 * 1024 + 1]);
    for sent in [larger, too_many, too_long] {
        let outcome = fixture.publish(&destination, Lane::Window, sent.clone()).await;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{}: {outcome:?}", sent.id);
    }
    let stored = fixture.stored(3).await;
    let large = stored.iter().find(|message| message.message_id() == Some("large")).unwrap();
    assert!(large.body == body, "the bytes are the same");
}

#[tokio::test]
async fn an_empty_payload_is_rejected_or_stored_as_a_byte_that_says_so() {
    let fixture = Fixture::new(TopicKind::Normal).await;
    let strict = fixture.destination().await;
    let placing = fixture
        .destination_with(DestinationOptions { empty_body: EmptyBody::Placeholder, ..fixture.options() })
        .await;

    let rejected = fixture.publish(&strict, Lane::Window, event("empty", "")).await;
    let placed = fixture.publish(&placing, Lane::Window, event("empty", "")).await;

    assert!(matches!(rejected, Outcome::Rejected { .. }), "{rejected:?}");
    assert!(is_confirmed(&placed), "{placed:?}");
    let stored = fixture.stored(1).await;
    assert_eq!((&stored[0].body[..], stored[0].property("consign-empty")), (&[0][..], Some("1")));
}

#[tokio::test]
async fn names_that_rocketmq_would_split_or_trim_stay_whole() {
    let fixture = Fixture::new(TopicKind::Normal).await;
    let destination = fixture.destination().await;
    let odd = Event { event_type: "Paid|Refunded".into(), ..event(" e 1 ", "{}") };

    let outcome = fixture.publish(&destination, Lane::Window, odd).await;

    assert!(is_confirmed(&outcome), "{outcome:?}");
    let stored = &fixture.stored(1).await[0];
    assert_eq!(stored.message_id(), Some(" e 1 "));
    assert_eq!(stored.keys().next(), Some("%20e%201%20"));
    assert_eq!((stored.tag(), stored.property("consign-event-type")), (None, Some("Paid|Refunded")));
    let blank = Event { id: EventId::stored("  "), ..event("x", "{}") };
    let outcome = fixture.publish(&destination, Lane::Window, blank).await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
}
