//! What people look at and decide about.

use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::event::EventId;
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{
    DeadDelivery, InboxStore, InboxTransaction, Mark, ParkReason, Parking, StoreError,
};
use consign_core::value::Value;
use consign_store::mapping::OutboxMapping;
use consign_store::record::{Audit, ConflictFilter, DeadFilter, LIST_PAYLOAD_BYTES};
use consign_store::sqlite::Inbox;

use crate::sqlite::file::File;

const HOUR: Duration = Duration::from_hours(1);

fn paid(key: &str, event: &str, amount: i128) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        event_id: Some(EventId::new(event).unwrap()),
        comparison: Comparison::Columns(vec![Compared {
            column: "amount".into(),
            value: Value::Integer(amount),
        }]),
        ..Operation::default()
    }
}

fn message(id: &str, body: Vec<u8>) -> Message {
    Message {
        id: Some(id.into()),
        message_type: Some("OrderPaid".into()),
        headers: vec![("a".into(), "b".into())],
        body: body.into(),
        source: "points".into(),
        delivery_count: 4,
        ..Message::default()
    }
}

fn ada() -> Audit {
    Audit { actor: "ada".into(), detail: Some("ticket 7".into()) }
}

/// Applies one operation and records that another came under its key.
async fn conflict(inbox: &Inbox, body: Vec<u8>) {
    let (first, second) = (paid("order:1", "event-1", 100), paid("order:1", "event-2", 250));
    let mut tx = inbox.begin().await.unwrap();
    if tx.mark(&first).await.unwrap() == Mark::Inserted {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
    let existing = inbox.marker(&second).await.unwrap().unwrap();
    inbox.record_conflict(&second, &message("event-2", body), &existing).await.unwrap();
}

async fn dead(inbox: &Inbox, consumer: &str, id: &str, reason: &str) {
    let message = message(id, vec![9; 100_000]);
    let dead = DeadDelivery { consumer, business_key: Some("order:1"), message: &message, reason };
    inbox.record_dead(&dead).await.unwrap();
}

async fn audits(file: &File) -> Vec<(String, String, String, Option<String>)> {
    let select = "SELECT actor, action, subject, detail FROM consign_audit ORDER BY id";
    sqlx::query_as(select).fetch_all(&file.eye).await.unwrap()
}

#[tokio::test]
async fn a_conflict_is_shown_with_both_payloads() {
    let file = File::migrated().await;
    file.run("INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('event-1', 't', '{\"amount\":100}')")
        .await;
    let inbox = file.inbox().await.with_outbox(OutboxMapping::default());
    conflict(&inbox, vec![b'x'; 70_000]).await;

    let [listed] = &inbox.conflicts(&ConflictFilter::default()).await.unwrap()[..] else { panic!("one") };
    assert_eq!((listed.payload.len(), listed.payload_bytes), (LIST_PAYLOAD_BYTES, 70_000));
    let shown = inbox.conflict(listed.id).await.unwrap().unwrap();
    assert_eq!((shown.consumer.as_str(), shown.business_key.as_str()), ("points-award", "order:1"));
    assert_eq!((shown.comparison.as_str(), shown.existing.as_str()), ("amount=250", "amount=100"));
    assert_eq!(shown.event_id.as_deref(), Some("event-2"));
    assert_eq!(shown.existing_event_id.as_deref(), Some("event-1"));
    assert_eq!((shown.payload.len(), shown.count, &shown.resolved_at), (64 * 1024, 1, &None));
    assert_eq!(shown.existing_payload.as_deref(), Some(&b"{\"amount\":100}"[..]));
    assert_eq!(shown.existing_payload_bytes, Some(14));
    assert_eq!((shown.headers, shown.source.as_str()), (vec![("a".into(), "b".into())], "points"));
    assert_eq!(shown.first_seen_at.len(), "YYYY-MM-DD HH:MM:SS.ffffff".len());
    assert_eq!(inbox.conflict(99).await, Ok(None));

    let cut = inbox.reprocess_conflict(shown.id, &ada()).await.unwrap_err();
    assert!(matches!(&cut, StoreError::Data(text) if text.contains("70000")), "{cut}");
    assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation").await, 1, "the marker stays");
    assert!(audits(&file).await.is_empty());
}

#[tokio::test]
async fn an_outbox_elsewhere_costs_only_the_existing_payload() {
    let file = File::migrated().await;
    file.run("DROP TABLE outbox_event").await;
    let inbox = file.inbox().await.with_outbox(OutboxMapping::default());

    conflict(&inbox, vec![1]).await;

    assert_eq!(inbox.conflict(1).await.unwrap().unwrap().existing_payload, None);
}

#[tokio::test]
async fn conflicts_are_filtered() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    conflict(&inbox, vec![1]).await;
    for (filter, found) in [
        (ConflictFilter { consumer: Some("points-award".into()), ..Default::default() }, 1),
        (ConflictFilter { consumer: Some("sms".into()), ..Default::default() }, 0),
        (ConflictFilter { key: Some("order:1".into()), ..Default::default() }, 1),
        (ConflictFilter { key: Some("Order:1".into()), ..Default::default() }, 0),
        (ConflictFilter { unresolved_only: true, ..Default::default() }, 1),
        (ConflictFilter { limit: 0, ..Default::default() }, 0),
    ] {
        assert_eq!(inbox.conflicts(&filter).await.unwrap().len(), found, "{filter:?}");
    }
}

#[tokio::test]
async fn a_kept_conflict_is_decided_once_until_it_comes_again() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    conflict(&inbox, vec![1]).await;

    assert_eq!(inbox.keep_conflict(2, &ada()).await, Ok(false), "there is none");
    assert_eq!(inbox.keep_conflict(1, &ada()).await, Ok(true));
    assert_eq!(inbox.keep_conflict(1, &ada()).await, Ok(false));
    assert_eq!(inbox.reprocess_conflict(1, &ada()).await, Ok(false));
    let kept = inbox.conflict(1).await.unwrap().unwrap();
    assert_eq!((kept.resolution.as_deref(), kept.resolved_at.is_some()), (Some("kept"), true));
    let unresolved = ConflictFilter { unresolved_only: true, ..Default::default() };
    assert!(inbox.conflicts(&unresolved).await.unwrap().is_empty());

    conflict(&inbox, vec![2]).await;
    let again = inbox.conflict(1).await.unwrap().unwrap();
    assert_eq!((again.resolution, again.count, &again.payload[..]), (None, 2, &[2_u8][..]));
    let [(actor, _, subject, detail)] = &audits(&file).await[..] else { panic!("one decision, one line") };
    assert_eq!((actor.as_str(), detail.as_deref()), ("ada", Some("ticket 7")));
    assert!(subject.contains("order:1"), "{subject}");
}

/// The other message wins: its marker makes room, and it waits for the consumer, due at once.
#[tokio::test]
async fn a_reprocessed_conflict_is_delivered_and_applied() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    conflict(&inbox, vec![1, 2]).await;

    assert_eq!(inbox.reprocess_conflict(1, &ada()).await, Ok(true));

    assert_eq!(inbox.marker(&paid("order:1", "event-2", 250)).await, Ok(None));
    let [due] = &inbox.due("points-award", 10, HOUR).await.unwrap()[..] else { panic!("it is due") };
    assert_eq!((due.reason, due.message.delivery_count), (ParkReason::Requeued, 1));
    assert_eq!((due.message.id.as_deref(), &due.message.body[..]), (Some("event-2"), &[1_u8, 2][..]));
    let resolved = inbox.conflict(1).await.unwrap().unwrap();
    assert_eq!(resolved.resolution.as_deref(), Some("reprocessed"));
    assert_eq!(audits(&file).await.len(), 1);
}

#[tokio::test]
async fn an_action_that_cannot_be_audited_does_nothing() {
    let file = File::migrated().await;
    file.run("DROP TABLE consign_audit; INSERT INTO outbox_event (event_id, event_type, status) VALUES ('e', 't', 'DEAD')")
        .await;
    let (inbox, outbox) = (file.inbox().await, file.outbox().await);
    conflict(&inbox, vec![1]).await;

    let refused = [
        inbox.reprocess_conflict(1, &ada()).await.unwrap_err(),
        outbox.requeue_dead(&[EventId::new("e").unwrap()], &ada()).await.unwrap_err(),
    ];

    for error in refused {
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("consign migrate")), "{error}");
    }
    assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    assert_eq!(file.number("SELECT COUNT(*) FROM consign_parked_delivery").await, 0);
    assert_eq!(file.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await, 1);
}

#[tokio::test]
async fn a_dead_delivery_is_kept_whole_and_requeued_once() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    dead(&inbox, "points-award", "event-1", "no such account").await;
    let [listed] = &inbox.dead_deliveries(&DeadFilter::default()).await.unwrap()[..] else { panic!("one") };
    assert_eq!((listed.payload.len(), listed.attempts), (LIST_PAYLOAD_BYTES, Some(4)));
    assert_eq!(inbox.dead_delivery(listed.id).await.unwrap().unwrap().payload.len(), 100_000);

    assert_eq!(inbox.requeue_dead_delivery(listed.id, &ada()).await, Ok(true));
    assert_eq!(inbox.requeue_dead_delivery(listed.id, &ada()).await, Ok(false));
    assert_eq!(inbox.discard_dead_delivery(listed.id, &ada()).await, Ok(false));
    assert_eq!(inbox.requeue_dead_delivery(77, &ada()).await, Ok(false));

    let [due] = &inbox.due("points-award", 10, HOUR).await.unwrap()[..] else { panic!("it is due") };
    assert_eq!(
        (due.reason, due.message.delivery_count, due.message.body.len()),
        (ParkReason::Requeued, 1, 100_000)
    );
    assert_eq!(audits(&file).await.len(), 1);
    dead(&inbox, "points-award", "event-1", "still no such account").await;
    let again = inbox.dead_delivery(listed.id).await.unwrap().unwrap();
    assert_eq!((again.count, again.resolution, again.reason.as_str()), (2, None, "still no such account"));
    assert_eq!(inbox.discard_dead_delivery(listed.id, &ada()).await, Ok(true));
    assert_eq!(inbox.status().await.unwrap().dead_deliveries, Some(0));
}

#[tokio::test]
async fn dead_deliveries_are_filtered() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    dead(&inbox, "points-award", "event-1", "no such account").await;
    dead(&inbox, "sms", "event-2", "timeout 100%").await;
    file.run("UPDATE consign_dead_delivery SET last_seen_at = '2026-01-01 00:00:00.000000' WHERE id = 2")
        .await;
    inbox.discard_dead_delivery(1, &ada()).await.unwrap();
    for (filter, ids) in [
        (DeadFilter::default(), &[1, 2][..]),
        (DeadFilter { consumer: Some("sms".into()), ..Default::default() }, &[2]),
        (DeadFilter { reason_contains: Some("such".into()), ..Default::default() }, &[1]),
        (DeadFilter { reason_contains: Some("0%".into()), ..Default::default() }, &[2]),
        (DeadFilter { older_than: Some(HOUR), ..Default::default() }, &[2]),
        (DeadFilter { event_type: Some("OrderPaid".into()), limit: 1, ..Default::default() }, &[1]),
        (DeadFilter { event_type: Some("Other".into()), ..Default::default() }, &[]),
        (DeadFilter { unresolved_only: true, ..Default::default() }, &[2]),
    ] {
        let found = inbox.dead_deliveries(&filter).await.unwrap();
        assert_eq!(found.iter().map(|dead| dead.id).collect::<Vec<_>>(), ids, "{filter:?}");
    }
}

#[tokio::test]
async fn dead_events_are_listed_requeued_and_discarded() {
    for file in [File::migrated().await, File::contract().await] {
        file.run(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_id, status, attempts, payload, available_at, created_at)
             VALUES ('e1', 'OrderPaid', '42', 'DEAD', 20, '{\"a\":1}', '2026-01-02 00:00:00', '2026-01-02 00:00:00'),
                    ('e2', 'OrderMade', '43', 'DEAD', 3, NULL, '2026-01-01 00:00:00', strftime('%Y-%m-%d %H:%M:%f000', 'now')),
                    ('e3', 'OrderPaid', '44', 'NEW', 0, '1', '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                    ('e4', 'OrderPaid', '45', 'SENDING', 1, '1', '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        )
        .await;
        let outbox = file.outbox().await;
        let id = |id: &str| EventId::new(id).unwrap();
        for (filter, ids) in [
            (DeadFilter::default(), &["e2", "e1"][..]),
            (DeadFilter { limit: 1, ..Default::default() }, &["e2"]),
            (DeadFilter { event_type: Some("OrderPaid".into()), ..Default::default() }, &["e1"]),
            (DeadFilter { older_than: Some(HOUR), ..Default::default() }, &["e1"]),
            (DeadFilter { destination: Some("rabbit".into()), ..Default::default() }, &[]),
            (DeadFilter { reason_contains: Some("x".into()), ..Default::default() }, &[]),
        ] {
            let found = outbox.dead(&filter).await.unwrap();
            assert_eq!(
                found.iter().map(|event| event.event_id.as_str()).collect::<Vec<_>>(),
                ids,
                "{filter:?}"
            );
        }
        let shown = outbox.dead_event(&id("e1")).await.unwrap().unwrap();
        assert_eq!((shown.status.as_str(), shown.attempts), ("DEAD", 20));
        assert_eq!((shown.aggregate_id.as_deref(), shown.payload_bytes), (Some("42"), Some(7)));
        assert_eq!(shown.payload.as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(outbox.dead_event(&id("none")).await, Ok(None));

        assert_eq!(outbox.requeue_dead(&[id("e1"), id("e3"), id("none")], &ada()).await, Ok(vec![id("e1")]));
        assert_eq!(outbox.requeue_dead(&[id("e1")], &ada()).await, Ok(vec![]), "it is new now");
        let discarded = outbox.discard(&[id("e4"), id("e3"), id("e2")], &ada()).await;
        assert_eq!(discarded, Ok(vec![id("e2"), id("e3")]), "e4 is on its way");

        let due = "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'e1' AND status = 'NEW' AND attempts = 0 \
                   AND available_at <= strftime('%Y-%m-%d %H:%M:%f000', 'now') AND available_at > '2026-01-02'";
        assert_eq!(file.number(due).await, 1);
        assert_eq!(outbox.status().await.unwrap().discarded, 2);
        let actions: Vec<_> = audits(&file).await.into_iter().map(|(.., subject, _)| subject).collect();
        assert_eq!(actions.len(), 3, "{actions:?}");
    }
}
