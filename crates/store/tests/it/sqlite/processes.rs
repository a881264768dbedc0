//! Several processes on one file, each of which may be killed at any moment.
//!
//! A worker is this very test binary, told by the environment to run [`worker`] alone.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use consign_conformance::store::request::settle;
use consign_conformance::store::settlement::sent;
use consign_conformance::waiting::eventually;
use consign_core::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use consign_core::event::NewEvent;
use consign_core::inbox::{Handler, HandlerError, Inbox as Process, Unit};
use consign_core::lease::ClaimRequest;
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{InboxTransaction, OutboxStore};
use consign_core::time::Monotonic;
use consign_core::value::Value;
use consign_store::mapping::{MarkerMapping, OutboxMapping};
use consign_store::sqlite::{Creation, Database, Inbox, Outbox};

use crate::sqlite::file::{File, PATIENCE};

const ROLE: &str = "CONSIGN_TEST_SQLITE_ROLE";
const PATH: &str = "CONSIGN_TEST_SQLITE_PATH";
/// Events, and operations.
const TOTAL: i64 = 240;
const WORKERS: usize = 3;
/// A key whose operation is refused.
const POISON: &str = "poison";

/// Does a role's work until it is killed; without a role there is nothing to do.
#[tokio::test]
async fn worker() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(PATH)) else { return };
    let database = Database::open(PathBuf::from(path), Creation::Never).await.expect("the file opens");
    match role.as_str() {
        "relay" => relay(Outbox::new(database, OutboxMapping::default(), "worker")).await,
        "consumer" => consume(Inbox::new(database, MarkerMapping::default())).await,
        "batches" => consume_batches(Inbox::new(database, MarkerMapping::default())).await,
        other => panic!("no such role: {other}"),
    }
}

async fn relay(outbox: Outbox) {
    loop {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("random bits");
        let request = ClaimRequest::new(5, 1 << 20, Duration::from_millis(300), bits, Monotonic::default());
        // Errors are what a busy file gives now and then; the next round asks again.
        if let Ok(claimed) = outbox.claim(request).await {
            settle(&outbox, claimed.claims.into_iter().map(sent).collect()).await;
        }
        let _ = outbox.sweep(50, Duration::ZERO, u32::MAX).await;
    }
}

struct NoReceipt;

impl Receipt for NoReceipt {
    async fn ack(self, _: AckPermit) -> Result<(), ReceiptLost> {
        Ok(())
    }

    async fn retry(self, _: Duration) -> Result<(), ReceiptLost> {
        Ok(())
    }
}

struct Award;

impl<Tx: InboxTransaction> Handler<Tx> for Award {
    async fn apply(&self, tx: &mut Tx, operation: &Operation, _: &Message) -> Result<(), HandlerError> {
        if operation.key == POISON {
            return Err(HandlerError::Refused("nobody can apply that".into()));
        }
        match tx.execute("UPDATE points_account SET points = points + 1 WHERE user_id = 7", &[]).await? {
            1 => Ok(()),
            rows => Err(HandlerError::Refused(format!("expected 1 row, changed {rows}"))),
        }
    }
}

fn award(key: String) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key,
        comparison: Comparison::Columns(vec![Compared { column: "amount".into(), value: Value::Integer(1) }]),
        ..Operation::default()
    }
}

/// Every worker processes every key over and over.
async fn consume(inbox: Inbox) {
    let process = Process::new(inbox);
    for key in (0..TOTAL).cycle() {
        let operation = award(format!("order:{key}:paid"));
        let delivery = Delivery { message: Message::default(), receipt: NoReceipt };
        if let Ok(committed) = process.process(delivery, &operation, &Award).await {
            let _ = committed.ack().await;
        }
    }
}

/// The same in batches that overlap, each with one operation that is refused every time.
async fn consume_batches(inbox: Inbox) {
    let process = Process::new(inbox);
    for first in (0..TOTAL).step_by(7).cycle() {
        let mut keys: Vec<_> = (first..first + 12).map(|key| format!("order:{}:paid", key % TOTAL)).collect();
        keys.insert(5, POISON.to_owned());
        let units = keys.into_iter().map(|key| Unit {
            delivery: Delivery { message: Message::default(), receipt: NoReceipt },
            operation: award(key),
            handler: Award,
        });
        for concluded in process.process_all(units.collect(), false).await {
            if let Ok(committed) = concluded.result {
                let _ = committed.ack().await;
            }
        }
    }
}

/// A worker process; killed when the test ends, however it ends.
struct Worker(Child);

impl Worker {
    fn spawn(role: &str, path: &Path) -> Self {
        let child = Command::new(std::env::current_exe().expect("the test binary"))
            .args(["sqlite::processes::worker", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(PATH, path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("a worker starts"))
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills workers one after the other, each time when the total came a step further.
async fn torture(file: &File, role: &str, progress: &str) {
    const STEP: i64 = 20;
    // Starting processes takes its time on a busy machine.
    const TORTURE_PATIENCE: Duration = Duration::from_mins(2);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::spawn(role, &file.path())).collect();
    for step in 1..=TOTAL / STEP {
        let reached = async || file.number(progress).await >= step * STEP;
        eventually(TORTURE_PATIENCE, reached).await;
        assert!(workers.iter_mut().all(Worker::lives), "a worker ended by itself");
        workers.remove(0);
        workers.push(Worker::spawn(role, &file.path()));
        let wrong = "SELECT COUNT(*) FROM pragma_quick_check WHERE quick_check <> 'ok'";
        assert_eq!(file.number(wrong).await, 0);
    }
}

/// No event is lost or stuck, whenever its relay was killed, while a producer goes on writing.
#[tokio::test(flavor = "multi_thread")]
async fn relays_that_are_killed_lose_no_event() {
    let file = File::migrated().await;
    let producer = Outbox::new(file.database_with(PATIENCE).await, OutboxMapping::default(), "producer");
    let producing = tokio::spawn(async move {
        for number in 0..TOTAL {
            let mut tx = producer.database().begin().await.expect("a transaction begins");
            producer.append(&mut tx, NewEvent::new("OrderPaid", number, "{}")).await.expect("the event fits");
            tx.commit().await.expect("the transaction commits");
        }
    });

    torture(&file, "relay", "SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'").await;
    producing.await.expect("the producer finishes");

    let whole =
        "SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT' AND lease_token IS NULL AND attempts >= 1";
    assert_eq!(file.number(whole).await, TOTAL);
    assert_eq!(
        file.number("SELECT COUNT(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'").await,
        1
    );
}

/// One effect per operation, whenever its consumers were killed.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_are_killed_double_no_effect() {
    kill_consumers("consumer").await;
}

/// The same for many operations in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn batches_that_are_killed_double_no_effect() {
    kill_consumers("batches").await;
}

async fn kill_consumers(role: &str) {
    let file = File::migrated().await;
    file.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    file.run("INSERT INTO points_account VALUES (7, 0)").await;

    torture(&file, role, "SELECT COUNT(*) FROM consumed_operation").await;

    assert_eq!(file.number("SELECT points FROM points_account").await, TOTAL);
    let poison = format!("SELECT COUNT(*) FROM consumed_operation WHERE business_key = '{POISON}'");
    assert_eq!(file.number(&poison).await, 0);
    assert_eq!(
        file.number("SELECT COUNT(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'").await,
        1
    );
}
