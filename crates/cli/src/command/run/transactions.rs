//! Answering for transaction messages, for as long as relays run.

use std::sync::Arc;

use anyhow::Context;
use consign::shutdown::Shutdown;
use consign::transaction::service::{ServiceSettings, ServiceTotals, TransactionService};
use consign_broker::rocketmq::{RocketMqHalves, RocketMqLedger};
use consign_core::transaction::marker::MarkerStore;
use tokio::task::JoinHandle;

use crate::config::{Config, DestinationConfig, TransactionConfig};
use crate::parts::rocketmq;

/// A service at work.
pub struct Answering {
    running: JoinHandle<ServiceTotals>,
    halves: Arc<RocketMqHalves>,
}

/// Starts the service of `[transaction]`; `None` when the config has no such section.
///
/// # Errors
/// The config makes no client.
pub async fn start<M: MarkerStore + 'static>(
    config: &Config,
    markers: impl FnOnce(&TransactionConfig) -> M,
    shutdown: Shutdown,
) -> anyhow::Result<Option<Answering>> {
    let Some(transaction) = &config.transaction else { return Ok(None) };
    let name = &transaction.destination;
    let Some(DestinationConfig::RocketMq(cluster)) = config.destinations.get(name) else {
        anyhow::bail!("transaction.destination {name} is not of type rocketmq");
    };
    let halves = rocketmq::halves(cluster, transaction).await.context("transaction messages")?;
    let ledger = rocketmq::admin(cluster)?.map(RocketMqLedger::new);
    if ledger.is_none() {
        tracing::warn!(
            destination = %name,
            "without name_servers nobody looks for transaction messages that the broker gave up on"
        );
    }
    let halves = Arc::new(halves);
    let service = TransactionService {
        markers: markers(transaction),
        broker: Arc::clone(&halves),
        ledger,
        settings: ServiceSettings {
            spans: transaction.spans,
            repair_every: transaction.repair_every,
            ..ServiceSettings::default()
        },
    };
    tracing::info!(topics = ?transaction.topics, store = transaction.store.as_str(), "answering for transactions");
    Ok(Some(Answering { running: tokio::spawn(service.run(shutdown)), halves }))
}

/// Waits until the service has ended, after the shutdown that it was started with.
///
/// # Errors
/// The service broke an invariant.
pub async fn end(answering: Option<Answering>) -> anyhow::Result<()> {
    let Some(Answering { running, halves }) = answering else { return Ok(()) };
    let totals = running.await.context("answering for transactions broke an invariant")?;
    halves.close().await;
    tracing::info!(?totals, "no more answers for transactions");
    Ok(())
}
