//! Deliveries that wait in the file.

use std::time::Duration;

use consign_conformance::waiting::eventually;
use consign_core::delivery::Message;
use consign_core::guard::Progress;
use consign_core::ports::{
    Advance, InboxStore, InboxTransaction, ParkDelivery, ParkReason, Parking, StoreError,
};

use crate::sqlite::file::{File, PATIENCE};

const LEASE: Duration = Duration::from_mins(1);
/// How many leases have ended.
const ENDED: &str = "SELECT COUNT(*) FROM consign_parked_delivery \
                     WHERE locked_until <= strftime('%Y-%m-%d %H:%M:%f000', 'now')";

fn message(id: &str) -> Message {
    Message {
        id: Some(id.into()),
        message_type: Some("OrderPaid".into()),
        headers: vec![("traceparent".into(), "00-ab".into()), ("é".into(), "\"".into())],
        body: vec![0, 255, 7].into(),
        source: "points".into(),
        ..Message::default()
    }
}

fn parked(message: &Message) -> ParkDelivery<'_> {
    ParkDelivery {
        consumer: "points-award",
        business_key: Some("order:1:paid"),
        message,
        reason: ParkReason::Retry,
        detail: "no such account",
        attempts: 3,
        step: None,
        delay: Duration::ZERO,
    }
}

#[tokio::test]
async fn a_parked_message_comes_back_whole_and_once() {
    let file = File::migrated().await;
    let (inbox, other) = (file.inbox().await, file.inbox().await);
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    assert!(inbox.due("sms", 10, LEASE).await.unwrap().is_empty(), "another consumer's");

    let [due] = &other.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };

    assert_eq!((due.reason, due.overdue), (ParkReason::Retry, true));
    let Message { id, message_type, headers, body, delivery_count, source, undecodable, .. } = &due.message;
    let mut wanted = message.headers.clone();
    wanted.sort();
    assert_eq!((id, message_type, headers), (&message.id, &message.message_type, &wanted));
    assert_eq!((body, source, undecodable), (&message.body, &message.source, &None));
    assert_eq!(*delivery_count, 4, "the attempts so far, and this one");
    assert!(inbox.due("points-award", 10, LEASE).await.unwrap().is_empty(), "leased");
    assert_eq!(inbox.unpark(due.id, "another").await, Ok(false));
    assert_eq!(inbox.unpark(due.id, &due.lease_token).await, Ok(true));
    assert_eq!(inbox.unpark(due.id, &due.lease_token).await, Ok(false));
    assert_eq!(inbox.status().await.unwrap().parked, Some(0));
}

#[tokio::test]
async fn parking_again_replaces_and_ends_the_lease() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    let [first] = &inbox.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };

    inbox.park(&ParkDelivery { attempts: 4, delay: LEASE, ..parked(&message) }).await.unwrap();
    assert_eq!(inbox.unpark(first.id, &first.lease_token).await, Ok(false));
    assert!(inbox.due("points-award", 10, LEASE).await.unwrap().is_empty(), "not due yet");

    inbox.park(&ParkDelivery { attempts: 5, ..parked(&message) }).await.unwrap();
    let [again] = &inbox.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };
    assert_eq!((again.id, again.message.delivery_count), (first.id, 6));
    assert_ne!(again.lease_token, first.lease_token);
    assert_eq!(file.number("SELECT COUNT(*) FROM consign_parked_delivery").await, 1);
}

#[tokio::test]
async fn a_lease_that_ended_lets_another_one_begin() {
    let file = File::migrated().await;
    let (inbox, other) = (file.inbox().await, file.inbox().await);
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    let [first] = &inbox.due("points-award", 10, Duration::from_millis(1)).await.unwrap()[..] else {
        panic!("it is due")
    };

    eventually(PATIENCE, || async { file.number(ENDED).await == 1 }).await;
    let second = other.due("points-award", 10, LEASE).await.unwrap();

    assert_eq!(inbox.unpark(first.id, &first.lease_token).await, Ok(false));
    assert_eq!(other.unpark(second[0].id, &second[0].lease_token).await, Ok(true));
}

#[tokio::test]
async fn the_oldest_come_first_and_only_so_many() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    for number in 0..5 {
        inbox.park(&parked(&message(&format!("event-{number}")))).await.unwrap();
    }
    file.run("UPDATE consign_parked_delivery SET due_at = '2026-01-0' || (6 - id)").await;

    let mut ids = Vec::new();
    while let due = inbox.due("points-award", 2, LEASE).await.unwrap()
        && !due.is_empty()
    {
        assert!(due.len() <= 2);
        ids.extend(due.into_iter().map(|due| due.message.id.unwrap()));
    }

    assert_eq!(ids, ["event-4", "event-3", "event-2", "event-1", "event-0"]);
}

/// A gap waits for the step before it, and at the latest for its own time.
#[tokio::test]
async fn a_gap_is_due_when_the_step_before_it_was_applied() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let advance = async |version, first| {
        let progress = Progress { version: Some(version), state: None };
        let mut tx = inbox.begin().await.unwrap();
        let advances = [Advance { aggregate: "order:1", progress, first }];
        tx.save_progress("points-award", &advances).await.unwrap();
        tx.commit().await.unwrap();
    };
    for version in [3, 4] {
        let message = message(&format!("event-{version}"));
        let gap = ParkDelivery {
            reason: ParkReason::Gap,
            step: Some(("order:1", version)),
            delay: LEASE,
            ..parked(&message)
        };
        inbox.park(&gap).await.unwrap();
    }
    let due = async || inbox.due("points-award", 10, LEASE).await.unwrap();
    assert!(due().await.is_empty());
    advance(1, true).await;
    assert!(due().await.is_empty(), "2 is still missing");

    advance(2, false).await;
    let [third] = &due().await[..] else { panic!("3 is next") };
    assert_eq!((third.message.id.as_deref(), third.overdue), (Some("event-3"), false));
    assert_eq!(third.reason, ParkReason::Gap);

    file.run("UPDATE consign_parked_delivery SET due_at = '2026-01-01'").await;
    let [fourth] = &due().await[..] else { panic!("its time is over") };
    assert_eq!((fourth.message.id.as_deref(), fourth.overdue), (Some("event-4"), true));
}

#[tokio::test]
async fn a_file_without_the_table_says_what_to_do() {
    let file = File::empty().await;
    let inbox = file.inbox().await;
    let message = message("event-1");

    for error in [
        inbox.park(&parked(&message)).await.unwrap_err(),
        inbox.due("points-award", 1, LEASE).await.unwrap_err(),
        inbox.unpark(1, "token").await.unwrap_err(),
    ] {
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("consign migrate")), "{error}");
    }
}

/// Somebody repaired the headers by hand, badly: the message is put aside, not processed without them.
#[tokio::test]
async fn headers_that_are_none_make_the_message_undecodable() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    inbox.park(&parked(&message("event-1"))).await.unwrap();
    file.run("UPDATE consign_parked_delivery SET headers = '[1'").await;

    let [due] = &inbox.due("points-award", 1, LEASE).await.unwrap()[..] else { panic!("it is due") };

    assert!(due.message.undecodable.as_ref().is_some_and(|why| why.starts_with("headers: ")));
}
