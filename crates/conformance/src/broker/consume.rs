//! Consuming.

use std::time::Duration;

use consign_core::ports::Source;

use super::BrokerFixture;
use super::traffic::{PATIENCE, accept, assert_confirmed, drain, event, next, publish, retry};
use crate::waiting::{drop_after, eventually, within};

async fn with_messages<F: BrokerFixture>(ids: &[&str]) -> F {
    let fixture = F::fresh().await;
    for id in ids {
        assert_confirmed(&publish(&fixture, event(*id, "{}")).await);
    }
    fixture
}

/// Acknowledged is gone, also for the next consumer.
pub async fn an_ack_removes_the_message<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["event"]).await;
    let mut source = fixture.source().await;

    let delivery = next(&mut source).await;
    accept(delivery).await.expect("the receipt is live");

    assert!(drain(source).await.is_empty());
    eventually(PATIENCE, || async { fixture.ready().await == 0 }).await;
    assert!(drain(fixture.source().await).await.is_empty());
}

/// Handed back, the message comes again, says so and keeps its content.
pub async fn a_retry_delivers_the_message_again<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["event"]).await;
    let mut source = fixture.source().await;
    let first = next(&mut source).await;
    assert!(!first.message.redelivered);
    let body = first.message.body.clone();

    retry(first, Duration::from_millis(10)).await.expect("the receipt is live");

    let second = next(&mut source).await;
    assert_eq!((second.message.id.as_deref(), &second.message.body), (Some("event"), &body));
    let counted = fixture.capabilities().delivery_count;
    assert!(second.message.redelivered || second.message.delivery_count > 1, "{:?}", second.message);
    assert_eq!(second.message.delivery_count, if counted { 2 } else { 1 });
    accept(second).await.expect("the receipt is live");
    assert!(drain(source).await.is_empty());
}

/// While one message waits for its next try, others are delivered.
/// Case B36 (`rabbitmq/rabbitmq-server#11937`): a poison message must not take its neighbours along.
pub async fn a_retried_message_does_not_hold_up_the_others<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["poison", "a", "b"]).await;
    let mut source = fixture.source().await;
    let mut accepted = Vec::new();

    while accepted.len() < 2 {
        let delivery = next(&mut source).await;
        if delivery.message.id.as_deref() == Some("poison") {
            retry(delivery, Duration::from_millis(50)).await.expect("the receipt is live");
        } else {
            accepted.push(delivery.message.id.clone().expect("published with an id"));
            accept(delivery).await.expect("the receipt is live");
        }
    }

    if !fixture.capabilities().keeps_order {
        accepted.sort();
    }
    assert_eq!(accepted, ["a", "b"]);
    let poison = next(&mut source).await;
    assert_eq!(poison.message.id.as_deref(), Some("poison"));
    accept(poison).await.expect("the receipt is live");
}

/// What a consumer had in hand when it went away comes to the next one.
pub async fn a_dropped_consumer_gives_its_messages_back<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["a", "b"]).await;
    let mut source = fixture.source().await;
    let held = next(&mut source).await;
    let id = held.message.id.clone();

    drop(held);
    drop(source);

    let mut source = fixture.source().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let delivery = next(&mut source).await;
        if delivery.message.id == id {
            let told = delivery.message.redelivered || delivery.message.delivery_count > 1;
            assert!(told, "it was delivered before: {:?}", delivery.message);
        }
        seen.push(delivery.message.id.clone());
        accept(delivery).await.expect("the receipt is live");
    }
    seen.sort();
    assert_eq!(seen, [Some("a".to_owned()), Some("b".to_owned())]);
}

/// Two sources of one queue never hold the same message at the same time.
pub async fn two_sources_share_one_queue<F: BrokerFixture>() {
    const MESSAGES: usize = 40;
    let ids: Vec<String> = (0..MESSAGES).map(|number| format!("event-{number:02}")).collect();
    let (mut one, mut two);
    let fixture = F::fresh().await;
    (one, two) = (fixture.source().await, fixture.source().await);
    for id in &ids {
        assert_confirmed(&publish(&fixture, event(id.as_str(), "{}")).await);
    }

    let mut seen = Vec::new();
    while seen.len() < MESSAGES {
        let id = within(PATIENCE, async {
            tokio::select! {
                delivery = one.next() => accept_some(delivery).await,
                delivery = two.next() => accept_some(delivery).await,
            }
        })
        .await;
        seen.push(id);
    }

    seen.sort();
    assert_eq!(seen, ids);
}

async fn accept_some<R: consign_core::delivery::Receipt>(
    delivery: Option<consign_core::delivery::Delivery<R>>,
) -> String {
    let delivery = delivery.expect("the source was not stopped");
    let id = delivery.message.id.clone().expect("published with an id");
    accept(delivery).await.expect("the receipt is live");
    id
}

/// After a stop nothing new comes, `next` ends, and receipts already handed out still settle.
pub async fn stop_ends_the_source_and_leaves_receipts_valid<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["held"]).await;
    let mut source = fixture.source().await;
    let held = next(&mut source).await;

    within(PATIENCE, source.stop()).await;
    assert!(within(PATIENCE, source.next()).await.is_none());
    assert_confirmed(&publish(&fixture, event("later", "{}")).await);
    assert!(within(PATIENCE, source.next()).await.is_none());

    accept(held).await.expect("the receipt outlives the stop");
    drop(source);
    eventually(PATIENCE, || async { fixture.ready().await == 1 }).await;
    let mut source = fixture.source().await;
    assert_eq!(next(&mut source).await.message.id.as_deref(), Some("later"));
}

/// Once closed, the source has settled what was settled and given back the rest.
/// Case B84 (`MassTransit/MassTransit#1478`).
pub async fn a_closed_source_leaves_behind_what_was_not_settled<F: BrokerFixture>() {
    let fixture = with_messages::<F>(&["a", "b", "c", "d"]).await;
    let mut source = fixture.source().await;
    let taken = [next(&mut source).await, next(&mut source).await];

    within(PATIENCE, source.stop()).await;
    for delivery in taken {
        accept(delivery).await.expect("the receipt outlives the stop");
    }
    within(PATIENCE, source.close()).await;

    eventually(PATIENCE, || async { fixture.ready().await == 2 }).await;
}

/// A source of an empty queue waits and delivers what comes.
pub async fn a_source_waits_for_messages_to_come<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let mut source = fixture.source().await;

    let (delivery, outcome) = tokio::join!(next(&mut source), publish(&fixture, event("event", "{}")));

    assert_confirmed(&outcome);
    assert_eq!(delivery.message.id.as_deref(), Some("event"));
    accept(delivery).await.expect("the receipt is live");
}

/// `next` may be dropped at any point, as in a `select!`, without losing a message.
/// Case B83 (`tokio-rs/tokio#5947`).
pub async fn a_dropped_next_loses_no_message<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let mut source = fixture.source().await;
    for polls in 0..6 {
        assert_confirmed(&publish(&fixture, event(format!("event-{polls}"), "{}")).await);
        drop_after_unless_delivered(polls, &mut source).await;
    }

    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.push(accept_some(Some(next(&mut source).await)).await);
        seen.sort();
        seen.dedup();
    }

    assert_eq!(seen, (0..6).map(|polls| format!("event-{polls}")).collect::<Vec<_>>());
}

/// Drops `next` after some polls; a delivery that came first is handed back.
async fn drop_after_unless_delivered<S: Source>(polls: usize, source: &mut S) {
    let mut came = None;
    drop_after(polls, async {
        came = source.next().await;
    })
    .await;
    if let Some(delivery) = came {
        retry(delivery, Duration::ZERO).await.expect("the receipt is live");
    }
}
