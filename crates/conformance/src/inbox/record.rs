//! Records for people: conflicts and dead deliveries.

use bytes::Bytes;
use consign_core::delivery::Message;
use consign_core::inbox::{Failed, Processed};
use consign_core::ports::{DeadDelivery, InboxStore};

use super::InboxFixture;
use super::story::{Award, CONSUMER, Fate, Fates, USER, award, message, processed, with_account};

/// The same conflicting content again raises the record's count instead of filling the table.
pub async fn a_conflict_is_recorded_once_and_counted<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    processed(&store, &award("42", 100), &Award(100)).await;

    for _ in 0..3 {
        assert_eq!(processed(&store, &award("42", 999), &Award(999)).await, Processed::Conflict);
    }

    let conflicts = fixture.conflicts().await;
    assert_eq!(conflicts.iter().map(|record| record.count).collect::<Vec<_>>(), [3]);
    assert_eq!(fixture.points(USER).await, 100);
}

/// Other conflicting content under the same key, or another key, is a record of its own.
pub async fn conflicts_of_other_content_are_recorded_apart<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    processed(&store, &award("42", 100), &Award(100)).await;
    processed(&store, &award("43", 100), &Award(100)).await;

    for (order, amount) in [("42", 1), ("42", 2), ("43", 1), ("42", 1)] {
        assert_eq!(processed(&store, &award(order, amount), &Award(1)).await, Processed::Conflict);
    }

    let mut counts: Vec<(String, u64)> =
        fixture.conflicts().await.into_iter().map(|record| (record.business_key, record.count)).collect();
    counts.sort();
    let of = |order: &str| format!("order:{order}:paid");
    assert_eq!(counts, [(of("42"), 1), (of("42"), 2), (of("43"), 1)]);
}

/// A dead delivery is committed first and acknowledged then.
/// Case B37 (`rabbitmq/rabbitmq-server#3100`): a broker's own dead-lettering may lose the message on its way.
pub async fn a_dead_delivery_is_recorded_before_its_ack<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let (store, fates) = (fixture.store(), Fates::default());
    let failed = Failed::refused(fates.delivery(message("{")), "the body is not JSON");

    let receipt = failed.record_dead(&store, CONSUMER, Some("order:42:paid")).await;

    assert!(matches!(receipt, Ok(Ok(()))));
    assert_eq!(fates.all(), [Fate::Acknowledged]);
    assert_eq!(fixture.dead_deliveries(CONSUMER).await, 1);
    assert_eq!(fixture.markers(CONSUMER).await, 0);
}

/// Whatever a message looks like, it can be put aside: no id, no key, bytes that are no text, an endless reason.
pub async fn odd_messages_can_be_recorded<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let reason = "\u{1f6ab}".repeat(100_000);
    let odd = Message {
        id: Some("i".repeat(255)),
        message_type: Some("t".repeat(255)),
        headers: vec![("h\u{e9}ader".into(), "\u{1f600}\r\n".into())],
        body: Bytes::from_static(b"\0\xff\xfe"),
        source: "q".repeat(255),
        undecodable: Some("header 3 has an unknown type".into()),
        ..Message::default()
    };
    let long_key = "k".repeat(1_000);

    for (message, business_key) in [(&odd, Some(long_key.as_str())), (&Message::default(), None)] {
        let dead = DeadDelivery { consumer: CONSUMER, business_key, message, reason: &reason };
        store.record_dead(&dead).await.expect("every message can be put aside");
    }

    assert_eq!(fixture.dead_deliveries(CONSUMER).await, 2);
}
