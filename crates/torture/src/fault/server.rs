//! What is done to the servers.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row, query, raw_sql};
use tokio::time::sleep;

use crate::servers::{CLUSTER, MYSQL, RABBITMQ, Servers};
use crate::stage::Stage;

/// How long a server is frozen, refuses, or sounds its alarm.
const SPELL: Duration = Duration::from_secs(3);
/// How long a cluster goes on without one of its nodes.
const ELECTION: Duration = Duration::from_secs(8);
/// How long the disk stays full.
const FULL: Duration = Duration::from_secs(6);
/// How many rows somebody else locks.
const LOCKED_ROWS: &str = "SELECT event_id FROM outbox_event WHERE status = 'SENDING' LIMIT 200 FOR UPDATE";

/// Who has power over a server.
fn of<'a>(stage: &'a Stage, name: &str) -> &'a Servers {
    if name == MYSQL { &stage.scenery.store } else { &stage.scenery.broker }
}

pub async fn kill(stage: &mut Stage, name: &'static str) -> Result<()> {
    stage.declaration_is_durable().await;
    of(stage, name).run(&["kill", name]).await?;
    stage.server_kills += 1;
    of(stage, name).run(&["up", name]).await.map(drop)
}

pub async fn restart(stage: &mut Stage, name: &'static str) -> Result<()> {
    of(stage, name).run(&["down", name]).await?;
    of(stage, name).run(&["up", name]).await.map(drop)
}

pub async fn freeze(stage: &mut Stage, name: &'static str) -> Result<()> {
    of(stage, name).run(&["pause", name]).await?;
    sleep(SPELL).await;
    of(stage, name).run(&["resume", name]).await.map(drop)
}

pub async fn kill_connections(stage: &mut Stage) -> Result<()> {
    let others = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
        WHERE db = ? AND id <> CONNECTION_ID()";
    let mut connection = stage.pool.acquire().await?;
    for row in query(others).bind(&stage.name).fetch_all(&mut *connection).await? {
        let id: i64 = row.get(0);
        // It may have ended by itself meanwhile.
        let _ = raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut *connection).await;
    }
    Ok(())
}

pub async fn read_only(stage: &mut Stage) -> Result<()> {
    let mut connection = stage.pool.acquire().await?;
    raw_sql("SET GLOBAL super_read_only = ON").execute(&mut *connection).await?;
    sleep(SPELL).await;
    raw_sql("SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF").execute(&mut *connection).await?;
    Ok(())
}

pub async fn locked_rows(stage: &mut Stage) -> Result<()> {
    let mut tx = stage.pool.begin().await?;
    query(LOCKED_ROWS).fetch_all(&mut *tx).await?;
    sleep(SPELL).await;
    Ok(tx.rollback().await?)
}

async fn control(stage: &Stage, arguments: &[&str]) -> Result<()> {
    let words: Vec<&str> = ["ctl", RABBITMQ].into_iter().chain(arguments.iter().copied()).collect();
    stage.scenery.broker.run(&words).await.map(drop)
}

pub async fn memory_alarm(stage: &mut Stage) -> Result<()> {
    control(stage, &["set_vm_memory_high_watermark", "0.0000001"]).await?;
    sleep(SPELL).await;
    control(stage, &["set_vm_memory_high_watermark", "absolute", "1GiB"]).await
}

pub async fn disk_alarm(stage: &mut Stage) -> Result<()> {
    control(stage, &["set_disk_free_limit", "100000GB"]).await?;
    sleep(SPELL).await;
    control(stage, &["set_disk_free_limit", "50MB"]).await
}

pub async fn close_connections(stage: &mut Stage) -> Result<()> {
    control(stage, &["close_all_connections", "torture"]).await
}

/// The node that leads the queue of the effects.
async fn leader(stage: &Stage) -> Result<&'static str> {
    let queues =
        ["ctl", stage.scenery.nodes[0], "--silent", "list_queues", "name", "leader", "--formatter", "json"];
    let queues: Value = serde_json::from_str(&stage.scenery.broker.run(&queues).await?)?;
    let name = format!("{}-effects", stage.name);
    let queue = queues.as_array().into_iter().flatten().find(|queue| queue["name"] == name.as_str());
    let node = queue.and_then(|queue| queue["leader"].as_str()).context("the queue has no leader")?;
    let leader = CLUSTER.into_iter().find(|name| node.split('@').next() == Some(*name));
    leader.with_context(|| format!("{node} is no node of the cluster"))
}

/// Two of three nodes go on for a while.
pub async fn kill_leader(stage: &mut Stage) -> Result<()> {
    stage.declaration_is_durable().await;
    let leader = leader(stage).await?;
    stage.scenery.broker.run(&["kill", leader]).await?;
    stage.server_kills += 1;
    sleep(ELECTION).await;
    stage.scenery.broker.run(&["up", leader]).await.map(drop)
}

/// The leader is silent, and the others elect another one.
pub async fn freeze_leader(stage: &mut Stage) -> Result<()> {
    let leader = leader(stage).await?;
    stage.scenery.broker.run(&["pause", leader]).await?;
    sleep(ELECTION).await;
    stage.scenery.broker.run(&["resume", leader]).await.map(drop)
}

/// Fills the file system of the database to the last byte, for a while.
pub async fn fill_disk(stage: &mut Stage) -> Result<()> {
    let ballast = stage.scenery.disk.as_ref().context("the database has no small disk")?.join("ballast");
    let filling = ballast.clone();
    let filled = tokio::task::spawn_blocking(move || fill(&filling)).await?;
    sleep(FULL).await;
    std::fs::remove_file(ballast)?;
    let bytes = filled?;
    eprintln!("torture: {bytes} bytes filled the disk");
    // MySQL waits for room, or ends itself when it may not go on without its binary log.
    stage.scenery.store.run(&["up", MYSQL]).await.map(drop)
}

fn fill(file: &Path) -> Result<u64> {
    let mut file = std::fs::File::create(file)?;
    let mut written = 0;
    // Ever smaller pieces, until not a page fits.
    for size in [1 << 20, 1 << 12] {
        let piece = vec![0; size];
        loop {
            match file.write_all(&piece) {
                Ok(()) => written += size as u64,
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                Err(error) => bail!("the disk cannot be filled: {error}"),
            }
        }
    }
    Ok(written)
}
