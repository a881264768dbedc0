//! Publishing: outcomes on the real broker.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consign_amqp::{ConnectOptions, FieldTable, FieldValue};
use consign_broker::rabbitmq::{DestinationOptions, RabbitMqDestination};
use consign_conformance::proxy::{Cut, Direction, Flow};
use consign_core::event::Event;
use consign_core::outcome::{Doubt, Outcome, Proof};
use consign_core::ports::{Destination, Lane, Readiness};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fixture::{Fixture, Server, accepting, unique};
use crate::events::{event, eventually, publish, within};

fn confirmed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Confirmed(Proof::PublisherConfirm { .. }))
}

/// Publishes all at once; the outcomes come in the order of the events.
async fn publish_all(
    fixture: &Fixture,
    destination: &Arc<RabbitMqDestination>,
    events: impl IntoIterator<Item = (Event, &'static str)>,
) -> Vec<(String, Outcome)> {
    let mut flights = JoinSet::new();
    for (event, key) in events {
        let destination = Arc::clone(destination);
        let id = event.id.as_str().to_owned();
        let publish = publish(event, key, fixture.origin, Duration::from_secs(20));
        flights.spawn(async move { (id, destination.publish(Lane::Window, publish).await) });
    }
    within("all outcomes", flights.join_all()).await
}

/// `B16` (amqp-rs/lapin#254, postwait/node-amqp#335): of a thousand in flight exactly the unbound ones are blamed.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_in_flight_exactly_every_seventh_is_unroutable() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "quorum").await;
        let destination = Arc::new(fixture.destination().await);
        let lost = |number: usize| number.is_multiple_of(7);
        let events = (0..1000)
            .map(|number| (event(number.to_string(), "{}"), if lost(number) { "unbound" } else { "bound" }));

        let outcomes = publish_all(&fixture, &destination, events).await;

        for (id, outcome) in &outcomes {
            let unroutable = matches!(outcome, Outcome::Unroutable { code: 312, .. });
            assert!(unroutable || confirmed(outcome), "{server:?} {id}: {outcome:?}");
            assert_eq!(unroutable, lost(id.parse().unwrap()), "{server:?} {id}");
        }
    }
}

/// `B17` (amqp-node/amqplib#115): the ack that follows a return proves nothing.
#[tokio::test]
async fn an_exchange_without_a_queue_is_unroutable_in_both_lanes() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "classic").await;
        let destination = fixture.destination().await;

        for lane in [Lane::Window, Lane::Quarantine] {
            let outcome = fixture.publish(&destination, lane, event("e-1", "{}"), "unbound").await;

            assert!(
                matches!(&outcome, Outcome::Unroutable { code: 312, text } if text == "NO_ROUTE"),
                "{outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn classic_quorum_and_stream_queues_confirm() {
    for server in Server::BOTH {
        for kind in ["classic", "quorum", "stream"] {
            let fixture = Fixture::new(server, kind).await;
            let destination = fixture.destination().await;

            let outcome = fixture.publish(&destination, Lane::Window, event("e-1", "{}"), "bound").await;

            assert!(confirmed(&outcome), "{server:?} {kind}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn two_window_channels_confirm_under_their_own_numbers() {
    let fixture = Fixture::new(Server::V4, "classic").await;
    let options = DestinationOptions { channels: 2, ..fixture.destination_options() };
    let destination = fixture.destination_with(options).await;
    let mut numbers = HashSet::new();

    for id in ["a", "b"] {
        match fixture.publish(&destination, Lane::Window, event(id, "{}"), "bound").await {
            Outcome::Confirmed(Proof::PublisherConfirm { channel, .. }) => numbers.insert(channel.number),
            other => panic!("{other:?}"),
        };
    }

    assert_eq!(numbers.len(), 2);
}

/// `B23` (rabbitmq/rabbitmq-server#1812): one message over the broker's size limit takes its channel along. The
/// others are confirmed or suspects, and alone in quarantine every suspect but the culprit is confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_message_is_isolated_and_its_ninety_nine_neighbours_are_confirmed() {
    // Only version 4 has a default small enough to exceed in a test.
    let fixture = Fixture::new(Server::V4, "quorum").await;
    let options = DestinationOptions { body_bytes_max: Some(usize::MAX), ..fixture.destination_options() };
    let destination = Arc::new(fixture.destination_with(options).await);
    let payload = |number: usize| {
        if number == 50 { Bytes::from(vec![b'x'; 17 * 1024 * 1024]) } else { Bytes::from_static(b"{}") }
    };
    let events = (0..100).map(|number| (event(number.to_string(), payload(number)), "bound"));
    let sent = fixture.proxy.bytes(Direction::ToServer);
    let neighbours_too =
        || async { fixture.proxy.bytes(Direction::ToServer) > sent + 17 * 1024 * 1024 + 10_000 };

    // Without an answer before the culprit and a neighbour were sent, they are in flight together.
    fixture.proxy.set(Direction::ToClient, Flow::Hold);
    let (outcomes, ()) = tokio::join!(publish_all(&fixture, &destination, events), async {
        eventually("the large message and some of its neighbours are sent", neighbours_too).await;
        fixture.proxy.heal();
    });

    let mut taken = 0;
    let mut rejected = Vec::new();
    let mut suspects = 0;
    for (id, outcome) in outcomes {
        let number: usize = id.parse().unwrap();
        let outcome = match outcome {
            // Refused: the channel was gone before the message's turn came. The relay publishes both again.
            Outcome::Unknown(Doubt::ChannelClosed(_)) | Outcome::Refused { .. } => {
                suspects += 1;
                fixture.publish(&destination, Lane::Quarantine, event(id, payload(number)), "bound").await
            }
            other => other,
        };
        match outcome {
            Outcome::Confirmed(_) => taken += 1,
            Outcome::Rejected { reason } => rejected.push((number, reason)),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(suspects > 0, "the channel was not closed");
    assert_eq!(taken, 99);
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!(rejected[0].0, 50);
    assert!(rejected[0].1.contains("406"), "{}", rejected[0].1);
}

/// `B23`: with the limit known, nothing is sent at all.
#[tokio::test]
async fn a_message_over_the_brokers_default_size_is_rejected_unsent() {
    let fixture = Fixture::new(Server::V4, "classic").await;
    let destination = fixture.destination().await;
    let large = event("large", vec![b'x'; 16 * 1024 * 1024 + 1]);

    let outcome = fixture.publish(&destination, Lane::Window, large, "bound").await;

    let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("16777217 bytes") && reason.contains("16777216"), "{reason}");
    let next = fixture.publish(&destination, Lane::Window, event("next", "{}"), "bound").await;
    assert!(confirmed(&next), "the channel lives: {next:?}");
}

/// `B26` (Queue Length Limit page): a full queue answers with a nack, which is the destination's fault.
#[tokio::test]
async fn a_full_queue_refuses() {
    for server in Server::BOTH {
        let arguments = FieldTable::new()
            .with("x-queue-type", "classic")
            .with("x-max-length", 0)
            .with("x-overflow", "reject-publish");
        let fixture = Fixture::with(server, arguments).await;
        let destination = fixture.destination().await;

        let outcome = fixture.publish(&destination, Lane::Window, event("e-1", "{}"), "bound").await;

        assert!(
            matches!(&outcome, Outcome::Refused { reason, .. } if reason.contains("nack")),
            "{outcome:?}"
        );
    }
}

/// `B26` (rabbitmq/rabbitmq-server#8495): with fan-out one full queue is enough for a nack, although the other took
/// the message. A nack is Refused, so the row is published again under its id, and consumers tell by it.
#[tokio::test]
async fn a_nack_does_not_mean_that_no_queue_took_the_message() {
    for server in Server::BOTH {
        let full = FieldTable::new()
            .with("x-queue-type", "classic")
            .with("x-max-length", 0)
            .with("x-overflow", "reject-publish");
        let fixture = Fixture::with(server, full).await;
        let other = Fixture::new(server, "quorum").await;
        fixture.side.queue_bind(&other.queue, &fixture.exchange, "bound", &FieldTable::new()).await.unwrap();
        let destination = fixture.destination().await;

        let outcome = fixture.publish(&destination, Lane::Window, event("e-1", "{}"), "bound").await;

        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
        eventually("the copy in the other queue", || async { other.ready().await == 1 }).await;
    }
}

/// `B06` (MassTransit/MassTransit#6216): a missing exchange closes the channel for all in flight. Alone it is
/// Unroutable; a healthy destination beside it is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_is_told_in_quarantine_and_hurts_no_other_destination() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "classic").await;
        let healthy = fixture.destination().await;
        let options = DestinationOptions { exchange: unique("absent"), ..fixture.destination_options() };
        let absent = Arc::new(fixture.destination_with(options).await);

        let several = (0..20).map(|number| (event(number.to_string(), "{}"), "bound"));
        let outcomes = publish_all(&fixture, &absent, several).await;
        let alone = fixture.publish(&absent, Lane::Quarantine, event("alone", "{}"), "bound").await;
        let beside = fixture.publish(&healthy, Lane::Window, event("beside", "{}"), "bound").await;

        assert!(outcomes.iter().all(|(_, outcome)| !confirmed(outcome)));
        assert!(
            outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Unknown(Doubt::ChannelClosed(_)))),
            "{outcomes:?}"
        );
        assert!(matches!(alone, Outcome::Unroutable { code: 404, .. }), "{alone:?}");
        assert!(confirmed(&beside), "{beside:?}");
    }
}

/// A channel that the broker closed is opened again under another identity, and neighbours go through.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_channel_is_reopened_and_later_messages_go_through() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "quorum").await;
        let options = DestinationOptions { exchange: unique("late"), ..fixture.destination_options() };
        let late = options.exchange.clone();
        let destination = fixture.destination_with(options).await;
        let lost = fixture.publish(&destination, Lane::Window, event("early", "{}"), "bound").await;

        let declaration = consign_amqp::ExchangeDeclaration {
            auto_delete: true,
            ..consign_amqp::ExchangeDeclaration::durable("direct")
        };
        fixture.side.exchange_declare(&late, &declaration).await.unwrap();
        fixture.side.queue_bind(&fixture.queue, &late, "bound", &FieldTable::new()).await.unwrap();
        let taken = fixture.publish(&destination, Lane::Window, event("early", "{}"), "bound").await;

        assert!(matches!(lost, Outcome::Unroutable { code: 404, .. }), "alone on its channel: {lost:?}");
        assert!(confirmed(&taken), "{taken:?}");
    }
}

/// `B24` (mosquito/aio-pika#98): after a reconnect, tags count from one again under a new incarnation.
#[tokio::test]
async fn a_new_connection_confirms_under_a_new_incarnation() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "classic").await;
        let destination = fixture.destination().await;
        let first = fixture.publish(&destination, Lane::Window, event("a", "{}"), "bound").await;

        fixture.proxy.cut(Cut::Reset);
        within("the loss", destination.readiness_after(&Readiness::Accepting)).await;
        accepting(&destination).await;
        let second = fixture.publish(&destination, Lane::Window, event("b", "{}"), "bound").await;

        match (first, second) {
            (
                Outcome::Confirmed(Proof::PublisherConfirm { channel: before, tag: first }),
                Outcome::Confirmed(Proof::PublisherConfirm { channel: after, tag: second }),
            ) => {
                assert_ne!(before, after);
                assert_eq!(first, second, "tags start over");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_broker_stores_persistent_messages_with_every_property() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "classic").await;
        let destination = fixture.destination().await;
        assert!(confirmed(
            &fixture.publish(&destination, Lane::Window, event("e-1", "{\"a\":1}"), "bound").await
        ));

        let stored = fixture.side.get(&fixture.queue).await.unwrap().expect("the message is there");

        let properties = stored.properties.unwrap();
        assert_eq!(properties.delivery_mode, Some(2));
        assert_eq!(properties.message_id.as_deref(), Some("e-1"));
        assert_eq!(properties.kind.as_deref(), Some("OrderPaid"));
        assert_eq!(properties.timestamp, Some(1_709_210_096));
        assert_eq!(properties.app_id.as_deref(), Some("consign"));
        assert_eq!(properties.content_type.as_deref(), Some("application/json"));
        let header = |name: &str| properties.headers.get(name).and_then(FieldValue::as_text);
        assert_eq!(header("consign-aggregate-id"), Some("42"));
        assert_eq!(header("cloudEvents:specversion"), Some("1.0"));
        assert_eq!(&stored.body[..], b"{\"a\":1}");
    }
}

/// `B54` (streadway/amqp#76): what does not fit into AMQP is rejected, and the channel stays open.
#[tokio::test]
async fn properties_beyond_one_frame_are_rejected_and_the_channel_lives() {
    let fixture = Fixture::new(Server::V4, "classic").await;
    let destination = fixture.destination().await;
    let heavy = Event { headers: vec![("note".into(), "x".repeat(200_000))], ..event("heavy", "{}") };

    let outcome = fixture.publish(&destination, Lane::Window, heavy, "bound").await;

    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    let next = fixture.publish(&destination, Lane::Window, event("next", "{}"), "bound").await;
    assert!(matches!(
        next,
        Outcome::Confirmed(Proof::PublisherConfirm { tag, .. }) if tag.0.get() == 1
    ));
}

/// Wrong credentials are the destination's fault: refused, said aloud, and no secret in the reason.
#[tokio::test]
async fn wrong_credentials_make_the_destination_unavailable() {
    let fixture = Fixture::new(Server::V4, "classic").await;
    let connect = ConnectOptions { password: "not-the-password".to_owned(), ..fixture.connect() };
    let options = DestinationOptions { connect, ..fixture.destination_options() };
    let destination = RabbitMqDestination::new(options, Instant::now());

    let known = Readiness::Unavailable("not connected yet".to_owned());
    let Readiness::Unavailable(reason) = within("the refusal", destination.readiness_after(&known)).await
    else {
        panic!("it accepts")
    };
    let outcome = fixture.publish(&destination, Lane::Quarantine, event("e-1", "{}"), "bound").await;

    assert!(reason.contains("authentication") && !reason.contains("not-the-password"), "{reason}");
    assert!(matches!(&outcome, Outcome::Refused { .. }), "{outcome:?}");
}

/// How many publishes a second go through the port: a window of 256 on a quorum queue. Prints; asserts only that
/// all are confirmed. Run with `--release -- --nocapture publish_rate`.
#[tokio::test(flavor = "multi_thread")]
async fn publish_rate_through_the_port_with_a_window_of_256() {
    const WINDOW: usize = 256;
    const MESSAGES: u32 = 20_000;
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "quorum").await;
        let options = DestinationOptions::new(server.connect(), fixture.exchange.clone());
        let destination = Arc::new(fixture.destination_with(options).await);
        let started = Instant::now();

        let mut flights: JoinSet<bool> = JoinSet::new();
        for number in 0..MESSAGES {
            if flights.len() >= WINDOW {
                assert!(flights.join_next().await.unwrap().unwrap());
            }
            let destination = Arc::clone(&destination);
            let publish = publish(
                event(number.to_string(), vec![b'x'; 256]),
                "bound",
                fixture.origin,
                Duration::from_secs(30),
            );
            flights.spawn(async move { confirmed(&destination.publish(Lane::Window, publish).await) });
        }
        while let Some(joined) = flights.join_next().await {
            assert!(joined.unwrap());
        }

        let rate = f64::from(MESSAGES) / started.elapsed().as_secs_f64();
        println!("{server:?}: {rate:.0} confirmed publishes a second");
        fixture.side.queue_delete(&fixture.queue, false, false).await.unwrap();
    }
}
