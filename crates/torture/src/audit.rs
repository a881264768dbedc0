//! The final audit: what the tables and the audit queue say, never what a process says about itself.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use consign_amqp::{ConnectOptions, Connection, ConsumeOptions, Properties, Publication, Verdict};
use serde::Serialize;
use sqlx::mysql::{MySql, MySqlPool};
use sqlx::{AssertSqlSafe, QueryBuilder, query_scalar};
use tokio::time::{Instant, timeout};

const ANSWER: Duration = Duration::from_secs(20);
/// How long the whole audit queue may take.
const READING: Duration = Duration::from_mins(10);
const ROWS_PER_INSERT: usize = 500;

/// What a round came to. All but the first and the last three must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Events whose transaction committed.
    pub committed: u64,
    /// Commits that were acknowledged and are not in the database, and events without an effect.
    pub lost: u64,
    /// Events with more than one effect.
    pub doubled: u64,
    /// Copies beyond the first and beyond those that an attempt without a clear end, a sweep or a kill explains.
    pub unexplained_duplicates: u64,
    /// Rows that never became SENT.
    pub unfinished: u64,
    /// SENT rows of which the audit queue never saw a copy.
    pub sent_unseen: u64,
    /// Copies of events that were never committed.
    pub phantoms: u64,
    /// Copies that differ from their row.
    pub changed: u64,
    /// Markers without their effect.
    pub markers_alone: u64,
    /// Effects without their marker.
    pub effects_alone: u64,
    /// Deliveries that were put aside, and conflicts that were recorded.
    pub put_aside: u64,
    /// Copies that reached the audit queue.
    pub copies: u64,
    /// Copies beyond the first.
    pub duplicates: u64,
    /// Attempts that did not end with a confirm.
    pub unclear_attempts: u64,
}

impl Findings {
    /// Whether nothing was found that must not be.
    pub fn is_clean(&self) -> bool {
        let bad = [
            self.lost,
            self.doubled,
            self.unexplained_duplicates,
            self.unfinished,
            self.sent_unseen,
            self.phantoms,
            self.changed,
            self.markers_alone,
            self.effects_alone,
            self.put_aside,
        ];
        bad.iter().all(|&count| count == 0)
    }
}

const COMMITTED: &str = "SELECT COUNT(*) FROM ledger";
const LOST: &str = "
SELECT (SELECT COUNT(*) FROM acknowledged LEFT JOIN ledger USING (number) WHERE ledger.number IS NULL)
     + (SELECT COUNT(*) FROM ledger LEFT JOIN purchase_order USING (number) WHERE purchase_order.number IS NULL)
     + (SELECT COUNT(*) FROM ledger LEFT JOIN effect USING (number) WHERE effect.number IS NULL)";
const DOUBLED: &str =
    "SELECT COUNT(*) FROM (SELECT number FROM effect GROUP BY number HAVING COUNT(*) > 1) AS twice";
/// Each attempt that did not end with a confirm may have put a copy into the broker, and one attempt ended well.
const UNEXPLAINED: &str = "
SELECT COALESCE(SUM(GREATEST(seen.copies - 1 - COALESCE(unclear.attempts, 0), 0)), 0)
FROM (SELECT event_id, CAST(COUNT(*) AS SIGNED) AS copies FROM copy GROUP BY event_id) AS seen
LEFT JOIN (
    SELECT event_id, CAST(COUNT(*) AS SIGNED) AS attempts FROM consign_attempt
    WHERE outcome <> 'confirmed' GROUP BY event_id
) AS unclear USING (event_id)";
const UNFINISHED: &str = "
SELECT COUNT(*) FROM ledger LEFT JOIN outbox_event USING (event_id) WHERE status IS NULL OR status <> 'SENT'";
const SENT_UNSEEN: &str = "
SELECT COUNT(*) FROM outbox_event LEFT JOIN copy USING (event_id) WHERE status = 'SENT' AND copy.id IS NULL";
const PHANTOMS: &str =
    "SELECT COUNT(*) FROM copy LEFT JOIN ledger USING (event_id) WHERE ledger.number IS NULL";
const CHANGED: &str =
    "SELECT COUNT(*) FROM copy JOIN outbox_event USING (event_id) WHERE copy.body <> outbox_event.payload";
const MARKERS_ALONE: &str = "
SELECT COUNT(*) FROM consumed_operation
LEFT JOIN effect ON effect.number = CAST(SUBSTRING(business_key, 7) AS UNSIGNED) WHERE effect.id IS NULL";
const EFFECTS_ALONE: &str = "
SELECT COUNT(*) FROM effect LEFT JOIN consumed_operation
    ON consumer_name = 'effects' AND business_key = CONCAT('event:', number)
WHERE business_key IS NULL";
const PUT_ASIDE: &str =
    "SELECT (SELECT COUNT(*) FROM consign_dead_delivery) + (SELECT COUNT(*) FROM consign_conflict)";
const COPIES: &str = "SELECT COUNT(*) FROM copy";
const DUPLICATES: &str = "SELECT COUNT(*) - COUNT(DISTINCT event_id) FROM copy";
const UNCLEAR: &str = "SELECT COUNT(*) FROM consign_attempt WHERE outcome <> 'confirmed'";

/// Reads the audit queue into the database and asks the questions. Nothing runs any more.
pub async fn audit(
    pool: &MySqlPool,
    broker_url: &str,
    queue: &str,
    acknowledged: &[u64],
) -> Result<Findings> {
    timeout(READING, read_queue(pool, broker_url, queue))
        .await
        .context("the audit queue was not read in time")??;
    for numbers in acknowledged.chunks(ROWS_PER_INSERT) {
        let mut insert = QueryBuilder::<MySql>::new("INSERT INTO acknowledged (number) ");
        insert.push_values(numbers, |mut row, &number| {
            row.push_bind(number);
        });
        insert.build().execute(pool).await?;
    }
    ask(pool).await
}

/// The questions.
pub async fn ask(pool: &MySqlPool) -> Result<Findings> {
    let number = async |query: &'static str| {
        let query = format!("SELECT CAST(({query}) AS UNSIGNED)");
        query_scalar::<_, u64>(AssertSqlSafe(query)).fetch_one(pool).await
    };
    Ok(Findings {
        committed: number(COMMITTED).await?,
        lost: number(LOST).await?,
        doubled: number(DOUBLED).await?,
        unexplained_duplicates: number(UNEXPLAINED).await?,
        unfinished: number(UNFINISHED).await?,
        sent_unseen: number(SENT_UNSEEN).await?,
        phantoms: number(PHANTOMS).await?,
        changed: number(CHANGED).await?,
        markers_alone: number(MARKERS_ALONE).await?,
        effects_alone: number(EFFECTS_ALONE).await?,
        put_aside: number(PUT_ASIDE).await?,
        copies: number(COPIES).await?,
        duplicates: number(DUPLICATES).await?,
        unclear_attempts: number(UNCLEAR).await?,
    })
}

/// Writes every message of the queue to the table `copy`, up to an end mark published behind them.
async fn read_queue(pool: &MySqlPool, broker_url: &str, queue: &str) -> Result<()> {
    const PREFETCH: NonZeroU16 = NonZeroU16::new(2000).unwrap();
    const MARK: &str = "end-of-audit";
    let options: ConnectOptions = broker_url.parse()?;
    let connection = Connection::open(&options).await?;
    let publisher = connection.open_publisher().await?;
    let properties =
        Properties { message_id: Some(MARK.into()), delivery_mode: Some(2), ..Properties::default() };
    let mark = Publication {
        exchange: String::new(),
        routing_key: queue.into(),
        properties,
        body: String::new().into(),
    };
    let verdict = publisher.publish(mark, Instant::now() + ANSWER).await;
    ensure!(matches!(verdict, Verdict::Acked { .. }), "the end mark was not taken: {verdict:?}");
    let mut consumer = connection.open_consumer(queue, ConsumeOptions::new(PREFETCH)).await?;
    let mut copies = Vec::new();
    loop {
        let delivery = consumer.next().await.context("the audit queue delivers up to the end mark")?;
        let properties = delivery.properties?;
        let event_id = properties.message_id.context("a message has no id")?;
        delivery.handle.ack()?;
        let at_end = event_id == MARK;
        if !at_end {
            copies.push((event_id, String::from_utf8(delivery.body.to_vec())?));
        }
        if copies.len() >= ROWS_PER_INSERT || (at_end && !copies.is_empty()) {
            let mut insert = QueryBuilder::<MySql>::new("INSERT INTO copy (event_id, body) ");
            insert.push_values(copies.drain(..), |mut row, (event_id, body)| {
                row.push_bind(event_id).push_bind(body);
            });
            insert.build().execute(pool).await?;
        }
        if at_end {
            break;
        }
    }
    connection.close(ANSWER).await;
    Ok(())
}

/// Takes the exchange and the queues away.
pub async fn delete_topology(broker_url: &str, name: &str) -> Result<()> {
    let options: ConnectOptions = broker_url.parse()?;
    let connection = Connection::open(&options).await?;
    for queue in ["effects", "audit"] {
        connection.open_channel().await?.queue_delete(&format!("{name}-{queue}"), false, false).await?;
    }
    connection.open_channel().await?.exchange_delete(name, false).await?;
    connection.close(ANSWER).await;
    Ok(())
}

#[cfg(test)]
mod tests;
