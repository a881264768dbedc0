//! `consign status`: counts, as the databases have them at this moment.

use std::time::Duration;

use consign_store::order::OrderStatus;
use serde_json::{Value, json};

use crate::config::{Config, ConfigArguments, DestinationConfig};
use crate::exit::Exit;
use crate::output::{self, Table};
use crate::parts::{self, Store};

/// What `consign status` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign status --config consign.toml\n  consign status --json\n  consign status --watch"
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Print again every second until interrupted.
    #[arg(long)]
    watch: bool,
}

/// Prints the counts.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    const EVERY: Duration = Duration::from_secs(1);
    let config = arguments.config.load()?;
    let store = parts::open_store(&config).await?;
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let document = document(&config, &store).await?;
        if arguments.json {
            output::print_json(&document)?;
        } else {
            print(&document)?;
        }
        if !arguments.watch {
            return Ok(Exit::Fine);
        }
    }
}

async fn document(config: &Config, store: &Store) -> anyhow::Result<Value> {
    let mut outboxes = Vec::new();
    let mut orders = Vec::new();
    for outbox in &config.outboxes {
        let status = store.outbox_status(outbox).await?;
        outboxes.push(json!({
            "name": outbox.name, "new": status.new, "sending": status.sending, "sent": status.sent,
            "dead": status.dead, "discarded": status.discarded, "expired": status.expired,
            "oldest_pending_seconds": status.oldest_pending.map(|age| age.as_secs_f64()),
            "fenced": status.fenced,
        }));
        if let Some(order) = store.order_status(config, outbox).await? {
            orders.push(order_document(&outbox.name, &order));
        }
    }
    let inbox = store.inbox_status(config).await?;
    let mut queues = Vec::new();
    for (name, destination) in &config.destinations {
        if let DestinationConfig::Embedded(file) = destination {
            for counts in parts::open_file(file).await?.counts().await? {
                queues.push(json!({
                    "destination": name.as_str(), "queue": counts.queue, "ready": counts.ready,
                    "delayed": counts.delayed, "leased": counts.leased,
                }));
            }
        }
    }
    Ok(json!({
        "outbox": outboxes,
        "order": orders,
        "inbox": {
            "markers": inbox.markers, "conflicts": inbox.conflicts,
            "dead_deliveries": inbox.dead_deliveries, "parked_deliveries": inbox.parked,
        },
        "queues": queues,
    }))
}

/// Who shares an ordered outbox, and which aggregates wait for people.
fn order_document(outbox: &str, order: &OrderStatus) -> Value {
    let relays =
        order.relays.iter().map(|share| json!({ "relay": share.relay, "partitions": share.partitions }));
    let blocked = order.blocked.iter().map(|one| {
        json!({
            "aggregate_type": one.aggregate_type, "aggregate_id": one.aggregate_id, "dead": one.dead,
            "waiting": one.waiting,
        })
    });
    json!({
        "name": outbox, "relays": relays.collect::<Vec<_>>(), "free_partitions": order.free,
        "blocked": blocked.collect::<Vec<_>>(),
    })
}

fn print(document: &Value) -> anyhow::Result<()> {
    let outbox = [
        "name",
        "new",
        "sending",
        "sent",
        "dead",
        "discarded",
        "expired",
        "oldest_pending_seconds",
        "fenced",
    ];
    print_rows(&outbox, &document["outbox"])?;
    for order in document["order"].as_array().into_iter().flatten() {
        print_rows(&["relay", "partitions"], &order["relays"])?;
        print_rows(&["aggregate_type", "aggregate_id", "dead", "waiting"], &order["blocked"])?;
    }
    let inbox = ["markers", "conflicts", "dead_deliveries", "parked_deliveries"];
    print_rows(&inbox, &json!([document["inbox"]]))?;
    print_rows(&["destination", "queue", "ready", "delayed", "leased"], &document["queues"])
}

fn print_rows(columns: &[&str], rows: &Value) -> anyhow::Result<()> {
    let mut table = Table::new(columns);
    for row in rows.as_array().into_iter().flatten() {
        table.row(columns.iter().map(|column| match &row[*column] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
            other => other.to_string(),
        }));
    }
    if !table.is_empty() {
        output::print(&table)?;
        output::print("\n")?;
    }
    Ok(())
}
