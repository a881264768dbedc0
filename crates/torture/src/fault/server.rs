//! What is done to the servers.

use std::time::Duration;

use anyhow::Result;
use sqlx::{AssertSqlSafe, Row, query, raw_sql};
use tokio::time::sleep;

use crate::servers::RABBITMQ;
use crate::stage::Stage;

/// How long a server is frozen, refuses, or sounds its alarm.
const SPELL: Duration = Duration::from_secs(3);
/// How many rows somebody else locks.
const LOCKED_ROWS: &str = "SELECT event_id FROM outbox_event WHERE status = 'SENDING' LIMIT 200 FOR UPDATE";

pub async fn kill(stage: &mut Stage, name: &'static str) -> Result<()> {
    stage.servers.run(&["kill", name]).await?;
    stage.server_kills += 1;
    stage.servers.run(&["up", name]).await.map(drop)
}

pub async fn restart(stage: &mut Stage, name: &'static str) -> Result<()> {
    stage.servers.run(&["down", name]).await?;
    stage.servers.run(&["up", name]).await.map(drop)
}

pub async fn freeze(stage: &mut Stage, name: &'static str) -> Result<()> {
    stage.servers.run(&["pause", name]).await?;
    sleep(SPELL).await;
    stage.servers.run(&["resume", name]).await.map(drop)
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
    stage.servers.run(&words).await.map(drop)
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
