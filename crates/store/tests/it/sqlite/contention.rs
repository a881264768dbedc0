//! Several writers on one file.

use std::sync::Arc;
use std::time::Duration;

use consign_conformance::store::request::{request, settle};
use consign_conformance::store::settlement::sent;
use consign_conformance::waiting::within;
use consign_core::event::NewEvent;
use consign_core::ports::{InboxStore, InboxTransaction, OutboxStore, StoreError};
use consign_store::mapping::OutboxMapping;
use consign_store::sqlite::Outbox;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::sqlite::file::{File, PATIENCE};

/// Case B75 (`Dictionarry-Hub/profilarr#519`, `vjt/grappa-irc#524`): eight relays claim and settle while a producer
/// writes; nobody is told that the database is locked.
#[tokio::test(flavor = "multi_thread")]
async fn relays_and_a_producer_never_meet_a_locked_database() {
    const RELAYS: usize = 8;
    const EVENTS: i64 = 160;
    let file = Arc::new(File::migrated().await);
    let barrier = Arc::new(Barrier::new(RELAYS + 1));
    let mut tasks = JoinSet::new();
    for _ in 0..RELAYS {
        let outbox = Outbox::new(file.database_with(PATIENCE).await, OutboxMapping::default(), "relay");
        let (file, barrier) = (Arc::clone(&file), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            while file.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'").await < EVENTS {
                let claimed = outbox.claim(request(5)).await.expect("a claim waits for its turn");
                settle(&outbox, claimed.claims.into_iter().map(sent).collect()).await;
            }
        });
    }
    let producer = Outbox::new(file.database_with(PATIENCE).await, OutboxMapping::default(), "producer");
    tasks.spawn(async move {
        barrier.wait().await;
        for _ in 0..EVENTS {
            let mut tx = producer.database().begin().await.expect("a producer waits for its turn");
            producer.append(&mut tx, NewEvent::new("OrderPaid", 1, "{}")).await.expect("the event fits");
            tx.commit().await.expect("the transaction commits");
        }
    });

    within(PATIENCE, tasks.join_all()).await;

    assert_eq!(file.number("SELECT COUNT(*) FROM outbox_event WHERE attempts = 1").await, EVENTS);
}

/// While a handler holds the file's lock, a claim says that it is contended; it neither hangs nor claims.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_beside_an_open_handler_is_contended_and_then_succeeds() {
    let file = File::migrated().await;
    let (outbox, inbox) = (file.outbox().await, file.inbox().await);
    file.run("INSERT INTO outbox_event (event_id, event_type) VALUES ('event', 'OrderPaid')").await;
    let tx = inbox.begin().await.unwrap();

    let refused = within(PATIENCE, outbox.claim(request(1))).await;

    assert!(matches!(refused, Err(StoreError::Contended(_))), "{refused:?}");
    tx.rollback().await.unwrap();
    assert_eq!(outbox.claim(request(1)).await.unwrap().claims.len(), 1);
}

/// Reads go on while somebody writes.
#[tokio::test(flavor = "multi_thread")]
async fn status_does_not_wait_for_a_writer() {
    let file = File::migrated().await;
    file.run("INSERT INTO outbox_event (event_id, event_type) VALUES ('event', 'OrderPaid')").await;
    let (outbox, inbox) = (file.outbox().await, file.inbox().await);
    let tx = inbox.begin().await.unwrap();

    let status = within(Duration::from_secs(5), outbox.status()).await.unwrap();

    assert_eq!((status.new, status.sent), (1, 0));
    tx.rollback().await.unwrap();
}

/// An idle relay asks without the lock, so that it shuts out nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_claim_and_an_idle_sweep_take_no_lock() {
    let file = File::migrated().await;
    let (outbox, inbox) = (file.outbox().await, file.inbox().await);
    let tx = inbox.begin().await.unwrap();

    assert!(outbox.claim(request(10)).await.unwrap().claims.is_empty());
    assert_eq!(outbox.sweep(10, Duration::ZERO, 20).await.unwrap().returned, 0);

    tx.rollback().await.unwrap();
}
