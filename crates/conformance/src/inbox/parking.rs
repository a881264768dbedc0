//! Deliveries that wait in the database instead of in front of their queue.

use std::time::Duration;

use bytes::Bytes;
use consign_core::delivery::Message;
use consign_core::guard::{Guard, Step};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::{ParkDelivery, ParkReason, ParkedDelivery, Parking};

use super::InboxFixture;
use super::story::{Award, CONSUMER, Fate, Fates, USER, award, message, process, processed, with_account};

const LEASE: Duration = Duration::from_mins(1);
const LATER: Duration = Duration::from_hours(1);

fn parked(message: &Message) -> ParkDelivery<'_> {
    ParkDelivery {
        consumer: CONSUMER,
        business_key: Some("order:42:paid"),
        message,
        reason: ParkReason::Retry,
        detail: "not today",
        attempts: 2,
        step: None,
        delay: Duration::ZERO,
    }
}

async fn due<F: InboxFixture>(fixture: &F, consumer: &str) -> Vec<ParkedDelivery> {
    fixture.store().due(consumer, 10, LEASE).await.expect("due deliveries can be read")
}

async fn unpark<F: InboxFixture>(fixture: &F, delivery: &ParkedDelivery) -> bool {
    fixture.store().unpark(delivery.id, &delivery.lease_token).await.expect("it can be removed")
}

/// What comes back is the whole message, to one holder of a lease at a time; it is gone once that holder is done.
pub async fn a_parked_delivery_comes_back_whole_to_one_holder<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let message = Message {
        headers: vec![("h\u{e9}ader".into(), "\u{1f600}\r\n\"".into()), ("b".into(), String::new())],
        body: Bytes::from([0, 255, b'\n'].repeat(50_000)),
        redelivered: true,
        delivery_count: 7,
        ..message("")
    };
    fixture.store().park(&parked(&message)).await.expect("it can be parked");

    let first = due(&fixture, CONSUMER).await;
    let second = due(&fixture, CONSUMER).await;

    let [delivery] = &first[..] else { panic!("{first:?}") };
    assert!(second.is_empty(), "somebody else has it: {second:?}");
    let found = &delivery.message;
    assert_eq!((&found.id, &found.message_type), (&message.id, &message.message_type));
    assert_eq!((&found.body, &found.source), (&message.body, &message.source));
    assert_eq!(found.delivery_count, 3, "two attempts, and this one");
    assert_eq!(found.undecodable, None);
    let mut headers = found.headers.clone();
    headers.sort();
    assert_eq!(headers, [message.headers[1].clone(), message.headers[0].clone()]);
    assert_eq!(delivery.reason, ParkReason::Retry);
    assert_eq!(fixture.store().unpark(delivery.id, "another token").await, Ok(false));
    assert!(unpark(&fixture, delivery).await);
    assert!(!unpark(&fixture, delivery).await, "it is gone");
}

/// Each waits for its own time, and for its own consumer.
pub async fn a_parked_delivery_waits_for_its_time_and_its_consumer<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store();
    let (now, later) = (message("now"), message("later"));
    store.park(&parked(&now)).await.expect("it can be parked");
    store.park(&ParkDelivery { delay: LATER, ..parked(&later) }).await.expect("it can be parked");
    store.park(&ParkDelivery { consumer: "sms", ..parked(&later) }).await.expect("it can be parked");

    let bodies =
        |due: Vec<ParkedDelivery>| due.into_iter().map(|delivery| delivery.message.body).collect::<Vec<_>>();
    assert_eq!(bodies(due(&fixture, CONSUMER).await), ["now"]);
    assert_eq!(bodies(due(&fixture, "sms").await), ["later"]);
    assert_eq!(store.due(CONSUMER, 0, LEASE).await.expect("nothing is asked for").len(), 0);
}

/// The same message waits once, for its newest reason, and whoever had it no longer has.
pub async fn parking_again_replaces_and_ends_the_lease<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let (store, message) = (fixture.store(), message("again"));
    store.park(&parked(&message)).await.expect("it can be parked");
    let first = due(&fixture, CONSUMER).await.remove(0);

    let again = ParkDelivery { attempts: 5, reason: ParkReason::Requeued, ..parked(&message) };
    store.park(&again).await.expect("it can be parked again");

    assert!(!unpark(&fixture, &first).await, "the lease has ended");
    let found = due(&fixture, CONSUMER).await;
    let [delivery] = &found[..] else { panic!("{found:?}") };
    assert_eq!((delivery.reason, delivery.message.delivery_count), (ParkReason::Requeued, 6));
}

fn step(version: i64) -> Operation {
    let guard = Guard { aggregate: "order:42".into(), step: Step::Sequential { version, first: 1 } };
    Operation { guard: Some(guard), ..award(&format!("42/{version}"), version) }
}

/// A step that came early is acknowledged once it is parked, and comes out as soon as the step before it was applied.
pub async fn an_early_step_waits_for_the_step_before_it<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());
    let early = process(&store, &fates, &step(2), &Award(20)).await.expect_err("too early");
    assert!(matches!(early.error, ProcessError::Gap { expected: 1, .. }), "{:?}", early.error);
    let template = message("");
    let gap = ParkDelivery {
        reason: ParkReason::Gap,
        step: Some(("order:42", 2)),
        delay: LATER,
        ..parked(&template)
    };
    assert!(matches!(early.park(&store, gap).await, Ok(Ok(()))));
    assert_eq!(fates.all(), [Fate::Acknowledged]);
    assert_eq!(due(&fixture, CONSUMER).await.len(), 0, "the step before it is missing");

    assert_eq!(processed(&store, &step(1), &Award(1)).await, Processed::Applied);

    let found = due(&fixture, CONSUMER).await;
    let [delivery] = &found[..] else { panic!("{found:?}") };
    assert_eq!((delivery.reason, delivery.overdue), (ParkReason::Gap, false));
    assert_eq!(processed(&store, &step(2), &Award(20)).await, Processed::Applied);
    assert!(unpark(&fixture, delivery).await);
    assert_eq!(fixture.points(USER).await, 21);
}

/// The wait for a gap has an end, and whoever gets the delivery then can tell.
pub async fn a_step_that_waited_too_long_is_overdue<F: InboxFixture>() {
    let fixture = F::fresh().await;
    let message = message("");
    let gap = ParkDelivery { reason: ParkReason::Gap, step: Some(("order:42", 2)), ..parked(&message) };
    fixture.store().park(&gap).await.expect("it can be parked");

    let found = due(&fixture, CONSUMER).await;

    let [delivery] = &found[..] else { panic!("{found:?}") };
    assert!(delivery.overdue);
}
