//! Opening files, and files that fail.

use consign_conformance::store::request::request;
use consign_conformance::waiting::within;
use consign_core::ports::{OutboxStore, StoreError};
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::sqlite::{Creation, Database, Outbox};
use tokio::task::JoinSet;

use crate::sqlite::file::{File, PATIENCE};

#[tokio::test]
async fn a_missing_file_is_unavailable_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");

    let error = Database::open(&path, Creation::Never).await.unwrap_err();

    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("missing.db")), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.db");
    std::fs::write(&path, "Dear reader, ".repeat(100)).unwrap();

    let error = Database::open(&path, Creation::Never).await.unwrap_err();

    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("not a database")), "{error}");
}

/// Processes that start together find the file new: one of them makes it a WAL file and the others wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_can_be_opened_by_many_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let path = directory.path().join("new.db");
        tasks.spawn(async move { Database::open(path, Creation::IfMissing).await.map(drop) });
    }

    let opened = within(PATIENCE, tasks.join_all()).await;

    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
}

#[tokio::test]
async fn an_outbox_without_its_table_says_how_to_make_it() {
    let file = File::empty().await;

    let error = file.outbox().await.claim(request(1)).await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("consign migrate")), "{error}");
}

/// The table is looked at again after it did not fit: `consign migrate` needs no restart of the relays.
#[tokio::test]
async fn a_table_made_later_is_found() {
    let file = File::empty().await;
    let outbox = file.outbox().await;
    assert!(outbox.claim(request(1)).await.is_err());

    file.schema().await.apply().await.unwrap();

    assert!(outbox.claim(request(1)).await.unwrap().claims.is_empty());
}

#[tokio::test]
async fn a_table_of_an_attached_database_is_refused() {
    let file = File::contract().await;
    let mapping = OutboxMapping::new(Identifier::table("shop.outbox_event").unwrap());

    let error = Outbox::new(file.database().await, mapping, "test").claim(request(1)).await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("attached")), "{error}");
}

#[tokio::test]
async fn an_id_column_that_would_turn_ids_into_numbers_is_refused() {
    let file = File::empty().await;
    file.run(&crate::sqlite::file::CONTRACT.replace("event_id VARCHAR(64) PRIMARY", "event_id UUID PRIMARY"))
        .await;

    let error = file.outbox().await.claim(request(1)).await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("text column")), "{error}");
}

/// Case B93 (`watt-mind/factory#1479`): what cannot be settled is left alone, and the rows behind it are claimed.
#[tokio::test]
async fn rows_whose_id_is_no_text_hinder_nobody() {
    let file = File::contract().await;
    file.run(
        "INSERT INTO outbox_event (event_id, event_type, status, available_at, created_at) VALUES
            (NULL, 't', 'NEW', '2020-01-01 00:00:00', '2020-01-01 00:00:00'),
            (x'ff00', 't', 'NEW', '2020-01-01 00:00:00', '2020-01-01 00:00:00'),
            (CAST(x'ff' AS TEXT), 't', 'NEW', '2020-01-01 00:00:00', '2020-01-01 00:00:00'),
            ('fine', 't', 'NEW', '2020-01-02 00:00:00', '2020-01-01 00:00:00')",
    )
    .await;

    let claimed = file.outbox().await.claim(request(10)).await.unwrap();

    let ids: Vec<_> = claimed.claims.iter().map(|claim| claim.event().id.as_str()).collect();
    assert_eq!(ids, ["fine"]);
    assert_eq!(claimed.claims[0].event().created_at_micros, Some(1_577_836_800_000_000));
}
