//! The service whose transactions are measured: it sells, and tells of it or not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use consign::shutdown::{ShutdownTrigger, shutdown};
use consign::transaction::service::{ServiceSettings, ServiceTotals, TransactionService};
use consign::transaction::{MarkerKeeping, MySqlMarkers, StoreName, TransactionMessage, TransactionProducer};
use consign_broker::rocketmq::{RocketMqHalves, RocketMqLedger};
use futures_util::FutureExt;
use sqlx::MySqlPool;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::parts;

use super::scratch::Scratch;

/// How long the broker may take for its first half message of a new topic.
const START_DEADLINE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longer than any bench: nobody looks for its messages, or forgets its markers, but the bench itself.
const NEVER: Duration = Duration::from_hours(24);

/// An order that nobody makes.
const PROBE: u32 = u32::MAX;

/// Whether a sale is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A local transaction.
    Local,
    /// The same with a transaction message.
    Producer,
}

/// A service, and what answers the broker's questions for it.
pub struct Shop {
    topic: String,
    pool: MySqlPool,
    producer: TransactionProducer<MySqlMarkers, RocketMqHalves>,
    halves: Arc<RocketMqHalves>,
    trigger: ShutdownTrigger,
    answering: JoinSet<ServiceTotals>,
}

impl Shop {
    /// Opens as soon as the broker takes half messages.
    pub async fn open(scratch: &Scratch, connections: u32) -> anyhow::Result<Self> {
        let configured = scratch.configured.as_ref();
        let first_check = configured.and_then(|transaction| transaction.first_check);
        let spans = configured.map(|transaction| transaction.spans).unwrap_or_default();
        let copy = configured.map(|transaction| transaction.copy).unwrap_or_default();
        let connect = parts::rocketmq::connect_options(&scratch.cluster)?;
        let halves = RocketMqHalves::start(&connect, [scratch.topic.clone()], first_check).await?;
        let halves = Arc::new(halves);
        let keeping = MarkerKeeping { copy, first_look: NEVER };
        let markers = MySqlMarkers::new(scratch.database.clone(), StoreName::new("consign-bench")?, keeping);
        let (trigger, asked) = shutdown();
        let service = TransactionService {
            markers: markers.clone(),
            broker: Arc::clone(&halves),
            ledger: None::<RocketMqLedger>,
            settings: ServiceSettings { spans, forget_every: NEVER, ..ServiceSettings::default() },
        };
        let mut answering = JoinSet::new();
        answering.spawn(service.run(asked));
        let producer = TransactionProducer::new(markers, Arc::clone(&halves), spans);
        let pool = scratch.service_pool(connections);
        let shop = Self { topic: scratch.topic.clone(), pool, producer, halves, trigger, answering };
        shop.await_broker().await?;
        Ok(shop)
    }

    async fn await_broker(&self) -> anyhow::Result<()> {
        let end = Instant::now() + START_DEADLINE;
        loop {
            match self.producer.begin(self.message(PROBE)).await {
                Ok(prepared) => {
                    prepared.rollback().await;
                    return Ok(());
                }
                Err(error) if Instant::now() >= end => {
                    bail!("no half message was taken within {START_DEADLINE:?}: {error}")
                }
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// One sale.
    pub async fn sell(&self, side: Side, order: u32) -> anyhow::Result<()> {
        let insert = sqlx::query(side.insert()).bind(order);
        match side {
            Side::Local => {
                let mut tx = self.pool.begin().await?;
                insert.execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Side::Producer => {
                // An end that did not leave is no loss: the broker asks.
                self.producer
                    .run(self.message(order), &self.pool, |tx| {
                        async move { insert.execute(&mut **tx).await.map(drop) }.boxed()
                    })
                    .await?;
            }
        }
        Ok(())
    }

    fn message(&self, order: u32) -> TransactionMessage {
        let payload = format!(r#"{{"orderId":{order},"userId":7,"amount":100}}"#);
        let message = TransactionMessage::new(self.topic.as_str(), "OrderPaid", payload);
        message.with_business_key(format!("order:{order}:paid"))
    }

    /// Ends what answers the broker.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.trigger.request();
        let ended = self.answering.join_next().await.context("the service was started")?;
        ended.context("answering for transactions broke an invariant")?;
        self.halves.close().await;
        self.pool.close().await;
        Ok(())
    }
}

impl Side {
    const fn insert(self) -> &'static str {
        match self {
            Self::Local => "INSERT INTO consign_bench_transaction_local (id, status) VALUES (?, 'PAID')",
            Self::Producer => {
                "INSERT INTO consign_bench_transaction_announced (id, status) VALUES (?, 'PAID')"
            }
        }
    }
}
