//! The measurement: producers on a schedule, a relay process, and a consumer that notes arrivals.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use consign::wakeup::{Address, Notifier};
use consign_broker::rabbitmq::{RabbitMqSource, SourceOptions};
use consign_core::event::NewEvent;
use consign_core::inbox::Failed;
use consign_core::outcome::Proof;
use consign_core::ports::Source;
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{Outbox, PayloadColumn, Schema};
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::bench::relay_process::{RelayProcess, Task};
use crate::command::bench::site::Site;
use crate::command::bench::spans::Spans;
use crate::config::Config;

use super::Arguments;
use super::timeline::Timeline;

/// The exchange, the queue and the outbox table.
const NAME: &str = "consign_bench_latency";
/// The business table.
const ORDERS: &str = "bench_purchase_order";
/// Seconds that are not counted.
const WARM_UP: u32 = 2;
/// What comes later than this does not come.
const QUIET: Duration = Duration::from_secs(15);
/// How long the relay may take to deliver its first event.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// What was measured.
#[derive(Debug)]
pub struct Figures {
    /// From COMMIT's return to the delivery.
    pub latency: Spans,
    /// From the begin of a transaction to COMMIT's return.
    pub commit: Spans,
    /// How late transactions were begun.
    pub late: Spans,
    /// Events that count.
    pub events: u32,
    /// Events that were never delivered, those of the warm-up included.
    pub lost: u64,
}

/// Creates what is needed, measures, and removes it again.
pub async fn latency(config: &Config, arguments: &Arguments) -> anyhow::Result<Figures> {
    let site = Site::open(config, arguments.connections + 2, "bench latency").await?;
    remove(&site).await?;
    create(&site).await?;
    let figures = tokio::select! {
        figures = measure(config, &site, arguments) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    remove(&site).await?;
    figures
}

async fn create(site: &Site) -> anyhow::Result<()> {
    let schema = Schema::new(site.database().clone());
    schema.with_outbox(mapping()?, PayloadColumn::Json).apply().await?;
    site.sql(format!("CREATE TABLE {ORDERS} (id BIGINT PRIMARY KEY, status VARCHAR(16) NOT NULL)")).await?;
    site.create_queue(NAME).await
}

async fn remove(site: &Site) -> anyhow::Result<()> {
    site.sql(format!("DROP TABLE IF EXISTS {NAME}, {ORDERS}")).await?;
    site.delete_queue(NAME).await
}

fn mapping() -> anyhow::Result<OutboxMapping> {
    Ok(OutboxMapping::new(Identifier::table(NAME)?))
}

/// The producers' side.
struct Producers {
    site: Site,
    outbox: Outbox,
    notifier: Option<Notifier>,
}

async fn measure(config: &Config, site: &Site, arguments: &Arguments) -> anyhow::Result<Figures> {
    let folder = tempfile::tempdir()?;
    let address = Address::unix(folder.path().join("wakeup.sock"))?;
    let (line, notifier) = if arguments.no_wakeup {
        (String::new(), None)
    } else {
        let text = toml::Value::String(address.to_string());
        (format!("wakeup = {text}"), Some(Notifier::new(address)?))
    };
    let task = Task { table: NAME, name: NAME, key: "{event_type}", relay: &line };
    let mut relay = RelayProcess::start(config, site, task)?;
    let producers = Arc::new(Producers {
        site: Site::open(config, arguments.connections + 2, "bench latency").await?,
        outbox: Outbox::new(site.database().clone(), mapping()?, "bench"),
        notifier,
    });
    start_up(&mut relay, site, &producers).await?;
    let warm_up = arguments.rate * WARM_UP;
    let events = arguments.rate.checked_mul(arguments.seconds).context("too many events")?;
    let all = warm_up.checked_add(events).context("too many events")?;
    eprintln!("bench: {events} events, {} a second, after {WARM_UP} s of warming up", arguments.rate);
    let timeline = Arc::new(Timeline::start(all, arguments.rate));
    let consuming = tokio::spawn(consume(options(site), Arc::clone(&timeline)));
    produce(&producers, &timeline, arguments.connections, all).await?;
    await_deliveries(&mut relay, &timeline).await?;
    ensure!(!consuming.is_finished(), "the consumer ended by itself");
    consuming.abort();
    relay.stop().await?;
    Ok(Figures {
        latency: timeline.latencies(warm_up),
        commit: timeline.commits(warm_up),
        late: timeline.lateness(warm_up),
        events,
        lost: timeline.missing(),
    })
}

fn options(site: &Site) -> SourceOptions {
    let prefetch = NonZeroU16::new(2000).expect("not zero");
    SourceOptions { connect: site.connect.clone(), queue: NAME.into(), prefetch }
}

/// Waits until one event has gone the whole way.
async fn start_up(relay: &mut RelayProcess, site: &Site, producers: &Producers) -> anyhow::Result<()> {
    let timeline = Arc::new(Timeline::start(1, 1));
    let consuming = tokio::spawn(consume(options(site), Arc::clone(&timeline)));
    let mut connection = producers.site.pool().acquire().await?;
    producers.produce(&mut connection, &timeline, 0, u32::MAX).await?;
    drop(connection);
    let end = Instant::now() + START_DEADLINE;
    while timeline.missing() > 0 {
        relay.check()?;
        ensure!(Instant::now() < end, "no event was delivered within {START_DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    consuming.abort();
    Ok(())
}

/// Begins every event when it is due, whatever became of those before it, as far as there are connections.
async fn produce(
    producers: &Arc<Producers>,
    timeline: &Arc<Timeline>,
    connections: u32,
    events: u32,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU32::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        let (producers, timeline, next) = (Arc::clone(producers), Arc::clone(timeline), Arc::clone(&next));
        workers.spawn(async move {
            // A service's pool hands connections out as they are; the store's own sends a ROLLBACK after every use.
            let mut connection = producers.site.pool().acquire().await?;
            loop {
                let event = next.fetch_add(1, Ordering::SeqCst);
                if event >= events {
                    return anyhow::Ok(());
                }
                tokio::time::sleep_until(timeline.due(event)).await;
                producers.produce(&mut connection, &timeline, event, event).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.context("a producer broke an invariant")??;
    }
    Ok(())
}

impl Producers {
    /// One transaction as a service has it, and the wake-up behind it.
    async fn produce(
        &self,
        connection: &mut MySqlConnection,
        timeline: &Timeline,
        event: u32,
        order: u32,
    ) -> anyhow::Result<()> {
        timeline.begun(event);
        let mut tx = connection.begin().await?;
        let sql = "INSERT INTO bench_purchase_order (id, status) VALUES (?, 'PAID')";
        sqlx::query(sql).bind(order).execute(&mut *tx).await?;
        let payload = format!(r#"{{"event":{event},"orderId":{order},"userId":7,"amount":100}}"#);
        self.outbox.append(&mut tx, NewEvent::new("OrderPaid", order, payload)).await?;
        tx.commit().await?;
        timeline.committed(event);
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
        Ok(())
    }
}

async fn await_deliveries(relay: &mut RelayProcess, timeline: &Timeline) -> anyhow::Result<()> {
    let (mut missing, mut since) = (timeline.missing(), Instant::now());
    while missing > 0 && since.elapsed() < QUIET {
        relay.check()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = timeline.missing();
        if now != missing {
            (missing, since) = (now, Instant::now());
        }
    }
    Ok(())
}

#[derive(serde::Deserialize)]
struct Payload {
    event: u32,
}

async fn consume(options: SourceOptions, timeline: Arc<Timeline>) -> anyhow::Result<()> {
    let mut source = RabbitMqSource::new(options);
    while let Some(delivery) = source.next().await {
        let payload: Payload =
            serde_json::from_slice(&delivery.message.body).context("a message is not the bench's own")?;
        timeline.delivered(payload.event);
        // The bench has no inbox: what it saw is noted, and that is all its effect.
        let seen = Failed::refused(delivery, "seen");
        seen.dead_lettered(&Proof::Appended { partition: 0, offset: 0 }).await.ok();
    }
    Ok(())
}
