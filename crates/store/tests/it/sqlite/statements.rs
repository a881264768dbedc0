//! The SQL files: they run as they are on the contract's tables, and they use the indexes their headers name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Row};

use crate::sqlite::file::File;

fn folder(dialect: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(dialect).join("sql")
}

fn files(dialect: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder(dialect)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder("sqlite").join(name)).unwrap()
}

/// The text of one row's list, as a SQL client takes it.
fn plain(name: &str) -> String {
    read(name).lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

/// What only servers with row locks and other people's triggers have to ask.
const ONLY_MYSQL: [&str; 20] = [
    "claim_select_from.sql",
    "create_consign_partition.sql",
    "create_consign_relay.sql",
    "introspect_triggers.sql",
    "ordered_chains.sql",
    "ordered_defer_lock.sql",
    "ordered_lock.sql",
    "packet_limit.sql",
    "parked_lock.sql",
    "parked_look.sql",
    "partition_give.sql",
    "partition_held.sql",
    "partition_insert.sql",
    "partition_lock.sql",
    "partition_renew.sql",
    "partition_status.sql",
    "partition_take.sql",
    "relay_leave.sql",
    "relay_live.sql",
    "relay_seen.sql",
];

#[test]
fn the_dialects_have_the_same_files() {
    let mut mysql = files("mysql");
    for name in ONLY_MYSQL {
        assert!(mysql.remove(name), "{name} is gone: take it off the list");
    }
    assert_eq!(files("sqlite"), mysql);
}

#[tokio::test]
async fn every_file_can_be_explained_as_it_is() {
    let full = File::contract().await;
    let empty = File::empty().await;
    for name in files("sqlite") {
        let text = plain(&name);
        let creates = name.starts_with("create_");
        for statement in text.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            let file = if creates { &empty } else { &full };
            if creates {
                file.run(statement).await;
            } else {
                file.run(&format!("EXPLAIN {statement}")).await;
            }
        }
    }
}

async fn plan(file: &File, name: &str) -> String {
    let explain = format!("EXPLAIN QUERY PLAN {}", plain(name));
    let rows = sqlx::query(AssertSqlSafe(explain)).fetch_all(&file.eye).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn claims_and_sweeps_read_the_pending_index_in_order() {
    for file in [File::contract().await, File::migrated().await] {
        for name in ["claim_select.sql", "sweep_select.sql", "outbox_future.sql", "outbox_pending.sql"] {
            let plan = plan(&file, name).await;
            assert!(plan.contains("SEARCH") && plan.contains("idx_pending"), "{name}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{name}: {plan}");
        }
        assert!(plan(&file, "outbox_status.sql").await.contains("COVERING INDEX idx_pending"));
    }
}

#[tokio::test]
async fn rows_are_found_by_their_unique_key() {
    let names = [
        "claim_mark.sql",
        "claim_fetch.sql",
        "settle_sent.sql",
        "settle_retry.sql",
        "settle_release.sql",
        "settle_dead.sql",
        "settle_inspect.sql",
        "sweep_return.sql",
        "sweep_dead.sql",
        "marker_select.sql",
        "marker_delete.sql",
        "event_payload.sql",
        "dead_event_requeue.sql",
        "event_discard.sql",
    ];
    for file in [File::contract().await, File::migrated().await] {
        for name in names {
            let plan = plan(&file, name).await;
            assert!(plan.contains("SEARCH") && plan.contains("sqlite_autoindex"), "{name}: {plan}");
        }
    }
}

#[tokio::test]
async fn markers_are_purged_along_their_key() {
    let file = File::migrated().await;
    for name in ["marker_page.sql", "marker_purge.sql"] {
        let plan = plan(&file, name).await;
        assert!(plan.contains("sqlite_autoindex_consumed_operation_1"), "{name}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
}

#[tokio::test]
async fn parked_deliveries_are_found_by_their_time_or_their_step() {
    let plan = plan(&File::migrated().await, "parked_select.sql").await;

    for index in ["consign_parked_due", "consign_parked_step", "sqlite_autoindex_consign_progress_1"] {
        assert!(plan.contains(index), "{index}: {plan}");
    }
    assert!(!plan.contains("SCAN consign_parked_delivery"), "{plan}");
}
