//! The producers: business rows, outbox rows and a ledger of what was committed, in one transaction each.
//!
//! Some transactions are rolled back: their events must never be seen. After an error nobody knows whether COMMIT was
//! applied, so the ledger is asked, as a producer with ids of its own would do.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use sqlx::mysql::{MySql, MySqlPool};
use sqlx::{QueryBuilder, query_scalar};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::random::Random;

const WRITERS: usize = 4;
/// Events of one transaction at most.
const EVENTS_MAX: u64 = 20;
/// One in so many transactions is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 40;
const PAUSE: Duration = Duration::from_millis(50);
/// A grant is spread over its time in so many parts.
const SLICES: u32 = 20;

/// The producers, which write as many events as they are granted.
pub struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    pool: MySqlPool,
    permits: Semaphore,
    next: AtomicU64,
    granted: AtomicU64,
    rolled_back: AtomicU64,
    unknown: AtomicU64,
    /// Numbers whose commit is certain.
    committed: Mutex<Vec<u64>>,
}

impl Load {
    pub fn start(pool: MySqlPool, random: &mut Random) -> Self {
        let shared = Arc::new(Shared {
            pool,
            permits: Semaphore::new(0),
            next: AtomicU64::new(1),
            granted: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            committed: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..WRITERS {
            tasks.spawn(Arc::clone(&shared).write(random.fork()));
        }
        Self { shared, tasks }
    }

    /// Lets the producers write `events` more, spread over `time`; returns at once.
    pub fn grant(&mut self, events: u64, time: Duration) {
        self.shared.granted.fetch_add(events, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let slices = u64::from(SLICES);
            for slice in 0..slices {
                let share = events * (slice + 1) / slices - events * slice / slices;
                shared.permits.add_permits(usize::try_from(share).expect("a share of one grant"));
                sleep(time / SLICES).await;
            }
        });
    }

    /// How many events were granted so far.
    pub fn granted(&self) -> u64 {
        self.shared.granted.load(Ordering::SeqCst)
    }

    /// Numbers below this one were given to transactions so far.
    pub fn next_number(&self) -> u64 {
        self.shared.next.load(Ordering::SeqCst)
    }

    /// How many events were committed so far.
    pub fn committed(&self) -> u64 {
        self.shared.committed().len() as u64
    }

    /// Events of transactions that were rolled back on purpose.
    pub fn rolled_back(&self) -> u64 {
        self.shared.rolled_back.load(Ordering::SeqCst)
    }

    /// Transactions whose end was unknown until the ledger told.
    pub fn unknown(&self) -> u64 {
        self.shared.unknown.load(Ordering::SeqCst)
    }

    /// Waits until everything granted is committed, and gives the numbers.
    pub async fn finish(&mut self, deadline: Duration) -> Result<Vec<u64>> {
        let end = Instant::now() + deadline;
        while self.committed() < self.granted() {
            anyhow::ensure!(
                Instant::now() < end,
                "the producers are not through after {deadline:?}: {} of {} events",
                self.committed(),
                self.granted()
            );
            sleep(PAUSE).await;
        }
        self.tasks.shutdown().await;
        Ok(std::mem::take(&mut *self.shared.committed()))
    }
}

impl Shared {
    fn committed(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(self: Arc<Self>, mut random: Random) {
        loop {
            let mut events = 0;
            let wanted = random.between(1, EVENTS_MAX);
            let Ok(permit) = self.permits.acquire().await else { return };
            permit.forget();
            events += 1;
            while events < wanted {
                let Ok(permit) = self.permits.try_acquire() else { break };
                permit.forget();
                events += 1;
            }
            if random.below(ROLLED_BACK_ONE_IN) == 0 {
                let numbers = self.numbers(events);
                // An error rolls back as well.
                if self.insert(numbers, false).await.is_ok() {
                    self.rolled_back.fetch_add(events, Ordering::SeqCst);
                }
            }
            let numbers = self.numbers(events);
            self.commit(numbers.clone()).await;
            self.committed().extend(numbers);
        }
    }

    fn numbers(&self, count: u64) -> Range<u64> {
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        first..first + count
    }

    /// Returns when the events are certainly committed.
    async fn commit(&self, numbers: Range<u64>) {
        while self.insert(numbers.clone(), true).await.is_err() {
            self.unknown.fetch_add(1, Ordering::SeqCst);
            sleep(PAUSE).await;
            let found: i64 = loop {
                let count = query_scalar("SELECT COUNT(*) FROM ledger WHERE number = ?");
                match count.bind(numbers.start).fetch_one(&self.pool).await {
                    Ok(found) => break found,
                    Err(_) => sleep(PAUSE).await,
                }
            };
            if found == 1 {
                return;
            }
        }
    }

    async fn insert(&self, numbers: Range<u64>, commit: bool) -> sqlx::Result<()> {
        let mut tx = self.pool.begin().await?;
        let mut orders = QueryBuilder::<MySql>::new("INSERT INTO purchase_order (number, user_id, amount) ");
        orders.push_values(numbers.clone(), |mut row, number| {
            row.push_bind(number).push_bind(user(number)).push_bind(amount(number));
        });
        orders.build().execute(&mut *tx).await?;
        let mut events = QueryBuilder::<MySql>::new(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) ",
        );
        events.push_values(numbers.clone(), |mut row, number| {
            let (user, amount) = (user(number), amount(number));
            let payload = format!(r#"{{"number": {number}, "userId": {user}, "amount": {amount}}}"#);
            row.push_bind(event_id(number)).push_bind(user).push_bind("OrderPaid").push_bind(payload);
            row.push("'NEW'").push("NOW(6)").push("NOW(6)");
        });
        events.build().execute(&mut *tx).await?;
        let mut ledger = QueryBuilder::<MySql>::new("INSERT INTO ledger (number, event_id) ");
        ledger.push_values(numbers, |mut row, number| {
            row.push_bind(number).push_bind(event_id(number));
        });
        ledger.build().execute(&mut *tx).await?;
        if commit { tx.commit().await } else { tx.rollback().await }
    }
}

/// The id of an event.
pub fn event_id(number: u64) -> String {
    format!("e-{number:09}")
}

fn user(number: u64) -> u64 {
    number % 97
}

fn amount(number: u64) -> u64 {
    1 + number % 1000
}
