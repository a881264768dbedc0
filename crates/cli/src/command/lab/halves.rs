//! Transaction messages of RocketMQ: as hand-written code uses them, and the shipped producer and service.

mod watched;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use consign::shutdown::shutdown;
use consign::transaction::service::{ServiceSettings, TransactionService};
use consign::transaction::{
    HalfMessages, MarkerKeeping, MySqlMarkers, Prepared, Spans, StoreName, TransactionMessage,
    TransactionProducer,
};
use consign_broker::rocketmq::{RocketMqHalves, RocketMqLedger};
use consign_rocketmq::admin::DISCARDED_TOPIC;
use consign_rocketmq::{Half, Message, Orphan, Producer, Resolution};
use tokio::sync::watch;
use tokio::time::Instant;

use super::database::{Database, Transaction};
use super::life::{Life, Paid, insert_order};
use super::record::{Actor, What};

use watched::WatchedHalves;

/// The longest local transaction: some of the few questions that a test broker asks come later.
const LONGEST: Duration = Duration::from_secs(3);
/// When a committed message is first looked for: after the broker has asked its five times. One that is sent again while the
/// broker still asks is there twice, under one id.
const FIRST_LOOK: Duration = Duration::from_secs(15);
/// When the broker asks about what came to its end, had it not heard of that.
const ASKED_LATE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(5);
/// A test broker asks every second, and a proxy tells it every two seconds who can be asked.
const ASKED_BY_THEN: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Hand-written code that sends half messages and answers for them.
pub struct ByHand {
    producer: Producer,
    topic: String,
}

impl ByHand {
    /// Connects.
    pub async fn open(life: &Life) -> anyhow::Result<Self> {
        let topic = life.place.name.clone();
        let producer = Producer::start(&life.place.cluster()?.options(), [topic.clone()]).await?;
        Ok(Self { producer, topic })
    }

    /// Sends the half message of an order.
    pub async fn half(&self, life: &Life, order: i64) -> anyhow::Result<Half> {
        let message = Message {
            topic: self.topic.clone(),
            message_id: message_id(life, order),
            body: Paid::order(order).body().into(),
            ..Message::default()
        };
        let half = self.producer.send_half(message, Instant::now() + ANSWER).await?;
        life.tell(Actor::Shop, What::HalfSent, order);
        Ok(half)
    }

    /// Says commit, and takes the OK for the end of it.
    pub async fn commit(&self, life: &Life, half: Half, order: i64) -> anyhow::Result<()> {
        self.producer.end(half, Resolution::Commit, Instant::now() + ANSWER).await?;
        life.tell(Actor::Shop, What::EndSent, order);
        Ok(())
    }

    /// Waits for a question about what the broker is done with: none comes.
    pub async fn no_question(&self, life: &Life, order: i64) -> anyhow::Result<()> {
        ensure!(self.question_soon(life).await?.is_none(), "the broker asked about what it was done with");
        life.tell(Actor::CheckBack, What::NoQuestion, order);
        Ok(())
    }

    /// The broker's next question, and the order it is about.
    pub async fn question(&self, life: &Life) -> anyhow::Result<(Orphan, i64)> {
        self.question_within(life, PATIENCE).await?.context("the broker does not ask")
    }

    /// The same, if the broker has one.
    pub async fn question_soon(&self, life: &Life) -> anyhow::Result<Option<(Orphan, i64)>> {
        self.question_within(life, ASKED_BY_THEN).await
    }

    async fn question_within(
        &self,
        life: &Life,
        patience: Duration,
    ) -> anyhow::Result<Option<(Orphan, i64)>> {
        let Ok(asked) = tokio::time::timeout(patience, self.producer.orphans().next()).await else {
            return Ok(None);
        };
        let orphan = asked.context("the producer is closed")?;
        let order = Paid::read(&orphan.body)?.order_id;
        life.tell(Actor::CheckBack, What::Asked, order);
        Ok(Some((orphan, order)))
    }

    /// Answers.
    pub async fn answer(&self, life: &Life, question: (Orphan, i64), end: Resolution) -> anyhow::Result<()> {
        let (orphan, order) = question;
        orphan.answer(end, Instant::now() + ANSWER).await?;
        let what = match end {
            Resolution::Commit => What::AnsweredCommit,
            Resolution::Rollback => What::AnsweredRollback,
        };
        life.tell(Actor::CheckBack, what, order);
        Ok(())
    }
}

/// The id of a hand-written message. What brokers give up lies in one topic for all, so it is nobody else's.
pub fn message_id(life: &Life, order: i64) -> String {
    format!("{}-{order}", life.place.name)
}

/// Commits an order whose half message is there.
pub async fn commit_order(life: &Life, order: i64) -> anyhow::Result<()> {
    let mut tx = life.database.begin().await?;
    insert_order(&mut tx, Paid::order(order)).await?;
    tx.commit().await?;
    life.tell(Actor::Shop, What::OrderCommitted, order);
    Ok(())
}

/// Waits until the broker has given a half message up.
pub async fn given_up(life: &Life, message_id: &str, order: i64) -> anyhow::Result<()> {
    let admin = life.place.cluster()?.admin()?;
    let master = admin.masters().await?.remove(0).address;
    let deadline = Instant::now() + PATIENCE;
    while admin.copies(&master, DISCARDED_TOPIC, message_id).await?.is_empty() {
        ensure!(
            Instant::now() < deadline,
            "the broker still asks: set transactionCheckInterval and transactionCheckMax as cargo xtask services does"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
    life.tell(Actor::CheckBack, What::GivenUp, order);
    Ok(())
}

/// The shipped producer.
pub type Shipped = TransactionProducer<MySqlMarkers, RocketMqHalves>;

fn markers(database: &Database) -> anyhow::Result<MySqlMarkers> {
    let Database::MySql(store) = database else { bail!("transaction messages need MySQL here") };
    let keeping = MarkerKeeping { first_look: FIRST_LOOK, ..MarkerKeeping::default() };
    Ok(MySqlMarkers::new(store.clone(), StoreName::new("lab")?, keeping))
}

fn spans() -> anyhow::Result<Spans> {
    let usual = Spans::default();
    Ok(Spans::new(LONGEST, usual.horizon(), usual.keep(), usual.keep_unconfirmed())?)
}

/// A producer with the shipped library, which answers nothing by itself.
pub async fn shipped(life: &Life) -> anyhow::Result<Shipped> {
    producer(life, None).await
}

async fn producer(life: &Life, check_after: Option<Duration>) -> anyhow::Result<Shipped> {
    let halves = RocketMqHalves::start(&life.place.cluster()?.options(), [], check_after).await?;
    Ok(TransactionProducer::new(markers(&life.database)?, Arc::new(halves), spans()?))
}

/// The message of an order.
pub fn message(life: &Life, order: i64) -> TransactionMessage {
    let paid = Paid::order(order);
    TransactionMessage::new(life.place.name.as_str(), "OrderPaid", paid.body()).with_business_key(paid.key())
}

/// Begins an order: its half message.
pub async fn begin<H: HalfMessages + 'static>(
    life: &Life,
    producer: &TransactionProducer<MySqlMarkers, H>,
    order: i64,
) -> anyhow::Result<Prepared<MySqlMarkers, H>> {
    let prepared = producer.begin(message(life, order)).await?;
    life.tell(Actor::Shop, What::HalfSent, order);
    Ok(prepared)
}

/// Opens the local transaction of an order.
pub async fn open_order(life: &Life, order: i64) -> anyhow::Result<sqlx::Transaction<'static, sqlx::MySql>> {
    let mut tx = life.database.begin().await?;
    insert_order(&mut tx, Paid::order(order)).await?;
    let Transaction::MySql(tx) = tx else { bail!("transaction messages need MySQL here") };
    Ok(tx)
}

/// Takes orders with the shipped producer, each from its half message to its end. The broker asks about them later than about
/// others: one that is told to commit again, before it has noted the first time, has the message twice under one id.
pub async fn take_orders(life: &Life, orders: impl IntoIterator<Item = i64>) -> anyhow::Result<()> {
    let producer = producer(life, Some(ASKED_LATE)).await?;
    for order in orders {
        let prepared = begin(life, &producer, order).await?;
        let mut tx = open_order(life, order).await?;
        let marked = prepared.mark(&mut tx).await?;
        marked.commit(tx).await?;
        life.tell(Actor::Shop, What::EventCommitted, order);
    }
    Ok(())
}

/// Runs the shipped service beside something that must come to its end.
pub async fn answering(life: &Life, script: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    serving(life, &life.database, |_| script).await
}

/// Runs it over a database until it has said this to a question; `false` when the broker asks nobody any more.
pub async fn answering_until(life: &Life, database: &Database, said: What) -> anyhow::Result<bool> {
    serving(life, database, |mut answers| async move {
        let answered = answers.wait_for(|what| *what == Some(said));
        Ok(tokio::time::timeout(FIRST_LOOK, answered).await.is_ok_and(|answer| answer.is_ok()))
    })
    .await
}

/// Runs it once more when the broker has asked its last: one that is slow to note an answer asks again, and has the message
/// twice, under one id, if it is told again.
pub async fn looking_later(life: &Life) -> anyhow::Result<()> {
    life.until("SELECT COUNT(*) = 0 FROM consign_transaction WHERE due_at > UTC_TIMESTAMP(6)").await?;
    answering(life, all_found(life)).await
}

async fn serving<F, T>(
    life: &Life,
    database: &Database,
    script: impl FnOnce(watch::Receiver<Option<What>>) -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let cluster = life.place.cluster()?;
    let halves =
        RocketMqHalves::start(&cluster.options(), [life.place.name.clone()], Some(ASKED_LATE)).await?;
    let answers = Arc::new(watch::Sender::new(None));
    let watched = WatchedHalves { inner: halves.clone(), life: life.clone(), answers: Arc::clone(&answers) };
    let service = TransactionService {
        markers: markers(database)?,
        broker: Arc::new(watched),
        ledger: Some(RocketMqLedger::new(cluster.admin()?)),
        settings: ServiceSettings {
            spans: spans()?,
            repair_every: Duration::from_millis(500),
            repair_pause: Duration::from_secs(5),
            ..ServiceSettings::default()
        },
    };
    let (trigger, asked) = shutdown();
    let running = tokio::spawn(service.run(asked));
    let ended = script(answers.subscribe()).await;
    trigger.request();
    running.await?;
    halves.close().await;
    ended
}

/// Waits until the messages of all committed transactions were found in their topic.
pub async fn all_found(life: &Life) -> anyhow::Result<()> {
    life.until(
        "SELECT COUNT(*) > 0 AND COUNT(*) = COALESCE(SUM(evidence = 'STORED'), 0)
         FROM consign_transaction WHERE state = 'COMMITTED'",
    )
    .await?;
    life.tell(Actor::CheckBack, What::Found, None);
    Ok(())
}

/// Waits until a rollback marker is there.
pub async fn fenced(life: &Life, order: i64) -> anyhow::Result<()> {
    life.until("SELECT COUNT(*) FROM consign_transaction WHERE state = 'ROLLED_BACK'").await?;
    life.tell(Actor::CheckBack, What::KeyFenced, order);
    Ok(())
}
