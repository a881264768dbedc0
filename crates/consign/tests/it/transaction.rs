//! A whole local transaction in one call: what commits, what the caller learns, and what the broker is told.

use std::sync::{Arc, Mutex};

use consign::transaction::{
    BeginError, HalfError, HalfMessages, LocalMarkers, MarkError, MarkerKeeping, RunError, Spans,
    SqliteMarkers, StoreName, TransactionKey, TransactionMessage, TransactionProducer,
};
use consign_core::transaction::half::{EndLost, HalfMessage, Orphan, Question};
use consign_core::transaction::marker::{Fence, MarkerStore};
use consign_core::transaction::{End, Verdict};
use consign_store::mapping::Identifier;
use consign_store::sqlite::{Creation, Database, Schema};
use futures_util::FutureExt;
use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, Transaction};

/// What the broker heard, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Half(TransactionKey),
    Commit(TransactionKey),
    Rollback(TransactionKey),
}

#[derive(Default)]
struct Broker {
    heard: Mutex<Vec<Heard>>,
    refuses: bool,
    ends_get_lost: bool,
}

impl Broker {
    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

/// The broker asks nothing here.
struct NoOrphan;

impl Orphan for NoOrphan {
    fn question(&self) -> Question {
        unreachable!("there are none")
    }

    async fn answer(self, _: Verdict) -> Result<(), EndLost> {
        unreachable!("there are none")
    }
}

impl HalfMessages for Broker {
    type Half = TransactionKey;
    type Orphan = NoOrphan;

    async fn send_half(&self, half: &HalfMessage) -> Result<TransactionKey, HalfError> {
        if self.refuses {
            return Err(HalfError::Refused("no such topic".into()));
        }
        self.heard.lock().unwrap().push(Heard::Half(half.key.clone()));
        Ok(half.key.clone())
    }

    async fn end(&self, key: TransactionKey, end: End) -> Result<(), EndLost> {
        if self.ends_get_lost {
            return Err(EndLost("connection reset".into()));
        }
        self.heard.lock().unwrap().push(match end {
            End::Commit(_) => Heard::Commit(key),
            End::Rollback(_) => Heard::Rollback(key),
        });
        Ok(())
    }

    async fn next_orphan(&self) -> Option<NoOrphan> {
        None
    }
}

/// A database with a table of orders, and a producer.
struct Shop {
    _folder: tempfile::TempDir,
    pool: SqlitePool,
    markers: SqliteMarkers,
    broker: Arc<Broker>,
    producer: TransactionProducer<SqliteMarkers, Broker>,
}

impl Shop {
    async fn new(broker: Broker) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let database = Database::open(&path, Creation::IfMissing).await.unwrap();
        Schema::new(database.clone()).with_transactions().apply().await.unwrap();
        let pool = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        sqlx::query("CREATE TABLE purchase_order (id INTEGER PRIMARY KEY)").execute(&pool).await.unwrap();
        let name = StoreName::new("shop").unwrap();
        let markers = SqliteMarkers::new(database, name, MarkerKeeping::default());
        let broker = Arc::new(broker);
        let producer = TransactionProducer::new(markers.clone(), Arc::clone(&broker), Spans::default());
        Self { _folder: folder, pool, markers, broker, producer }
    }

    async fn count(&self, table: &str) -> i64 {
        let table = Identifier::table(table).unwrap();
        let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        sqlx::query_scalar(count).fetch_one(&self.pool).await.unwrap()
    }
}

fn message() -> TransactionMessage {
    TransactionMessage::new("orders", "OrderPaid", "{}")
}

async fn order(tx: &mut Transaction<'static, Sqlite>) -> Result<i64, sqlx::Error> {
    let inserted = sqlx::query("INSERT INTO purchase_order DEFAULT VALUES").execute(&mut **tx).await?;
    Ok(inserted.last_insert_rowid())
}

#[tokio::test]
async fn the_broker_is_told_to_commit_what_the_database_committed() {
    let shop = Shop::new(Broker::default()).await;

    let (id, sent) = shop.producer.run(message(), &shop.pool, |tx| order(tx).boxed()).await.unwrap();

    assert_eq!((id, sent.told), (1, Ok(())));
    assert_eq!(shop.broker.heard(), [Heard::Half(sent.key.clone()), Heard::Commit(sent.key)]);
    assert_eq!((shop.count("purchase_order").await, shop.count("consign_transaction").await), (1, 1));
}

/// The end proves nothing when it arrives, and costs nothing when it does not: the broker asks, and the marker answers.
#[tokio::test]
async fn an_end_that_gets_lost_changes_nothing_about_the_commit() {
    let shop = Shop::new(Broker { ends_get_lost: true, ..Broker::default() }).await;

    let (_, sent) = shop.producer.run(message(), &shop.pool, |tx| order(tx).boxed()).await.unwrap();

    assert_eq!(sent.told, Err(EndLost("connection reset".into())));
    assert_eq!((shop.count("purchase_order").await, shop.count("consign_transaction").await), (1, 1));
}

#[tokio::test]
async fn work_that_fails_takes_its_marker_back_and_the_broker_is_told() {
    let shop = Shop::new(Broker::default()).await;

    let failed = shop
        .producer
        .run(message(), &shop.pool, |tx| {
            async move {
                order(tx).await.unwrap();
                Err::<(), _>("no stock")
            }
            .boxed()
        })
        .await;

    assert!(matches!(failed, Err(RunError::Local("no stock"))), "{failed:?}");
    let heard = shop.broker.heard();
    assert!(matches!(&heard[..], [Heard::Half(half), Heard::Rollback(back)] if half == back), "{heard:?}");
    assert_eq!((shop.count("purchase_order").await, shop.count("consign_transaction").await), (0, 0));
}

#[tokio::test]
async fn without_a_half_message_no_local_transaction_runs() {
    let shop = Shop::new(Broker { refuses: true, ..Broker::default() }).await;

    let refused = shop
        .producer
        .run(message(), &shop.pool, |_| {
            async { unreachable!("the broker refused") as Result<(), ()> }.boxed()
        })
        .await;

    assert!(matches!(refused, Err(RunError::Begin(BeginError::Half(HalfError::Refused(_))))), "{refused:?}");
    assert_eq!(shop.count("consign_transaction").await, 0);
}

#[tokio::test]
async fn without_a_connection_the_broker_is_told_that_nothing_happened() {
    let shop = Shop::new(Broker::default()).await;
    shop.pool.close().await;

    let failed = shop.producer.run(message(), &shop.pool, |tx| order(tx).boxed()).await;

    assert!(matches!(failed, Err(RunError::Connection(sqlx::Error::PoolClosed))), "{failed:?}");
    let heard = shop.broker.heard();
    assert!(matches!(&heard[..], [Heard::Half(half), Heard::Rollback(back)] if half == back), "{heard:?}");
}

/// Nothing is said to the broker while the local transaction is open; it asks, and finds the rollback marker.
#[tokio::test]
async fn a_transaction_that_was_fenced_gets_no_marker_and_the_broker_is_told_nothing() {
    let shop = Shop::new(Broker::default()).await;
    let prepared = shop.producer.begin(message()).await.unwrap();
    let key = prepared.key().clone();
    assert_eq!(shop.markers.fence(&key, "orders").await, Ok(Fence::Inserted));

    let mut tx = shop.pool.begin().await.unwrap();
    order(&mut tx).await.unwrap();
    let refused = prepared.mark(&mut tx).await.err();
    tx.rollback().await.unwrap();

    assert_eq!(refused, Some(MarkError::Fenced { key: key.clone() }));
    assert_eq!(shop.broker.heard(), [Heard::Half(key)]);
    assert_eq!(shop.count("purchase_order").await, 0);
}

/// The caller ends the transaction by other means and says so.
#[tokio::test]
async fn a_commit_of_the_callers_own_is_passed_on() {
    let shop = Shop::new(Broker::default()).await;
    let prepared = shop.producer.begin(message()).await.unwrap();
    let mut tx = shop.pool.begin().await.unwrap();
    let marked = prepared.mark(&mut tx).await.unwrap();
    shop.markers.commit(tx).await.unwrap();

    let sent = marked.committed().await;

    assert_eq!(shop.broker.heard(), [Heard::Half(sent.key.clone()), Heard::Commit(sent.key)]);
}
