//! The simulated store passes the suite that the real stores pass, so that it does not drift away from them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use consign_conformance::store::{NewRow, StoreCapabilities, StoreFixture, StoredRow};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::relay::RelaySettings;
use consign_core::settle::{SettleBatch, Settled, Swept};
use consign_core::time::Monotonic;
use consign_sim::book::Book;
use consign_sim::store::{Nature, Row, SimStore, Status};

consign_conformance::store_suite!(simulated_outbox, SimulatedOutbox);

/// A simulated table whose clock stands still, and the book that it writes in.
struct Table {
    store: SimStore,
    book: Book,
}

/// The table as relays share it.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Table>>);

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxStore for Shared {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let Table { store, book } = &mut *self.table();
        Ok(store.claim(book, &request))
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        let Table { store, book } = &mut *self.table();
        Ok(store.settle(book, batch))
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        let Table { store, book } = &mut *self.table();
        Ok(store.sweep(book, limit, delay, attempts_max))
    }
}

/// A fresh simulated table.
pub struct SimulatedOutbox(Shared);

impl SimulatedOutbox {
    /// Does something with the row of this id, and with what the table's clock shows.
    fn with_row<T>(&self, id: &str, act: impl FnOnce(&mut Row, Monotonic) -> T) -> Option<T> {
        let Table { store, book } = &mut *self.0.table();
        let number = store.find(&EventId::stored(id))?;
        let clock = store.clock(book.now);
        let row = store.row_mut(number);
        (row.status != Status::Purged).then(|| act(row, clock))
    }
}

fn status(word: &str) -> Status {
    let all = [Status::New, Status::Sending, Status::Sent, Status::Dead, Status::Discarded];
    all.into_iter().find(|status| status.word() == word).expect("the word is a status")
}

fn moment(clock: Monotonic, millis: i64) -> Monotonic {
    let span = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { clock.minus(span) } else { clock.plus(span) }
}

fn millis(clock: Monotonic, moment: Monotonic) -> i64 {
    let (ahead, behind) = (moment.since(clock), clock.since(moment));
    i64::try_from(ahead.as_millis()).unwrap() - i64::try_from(behind.as_millis()).unwrap()
}

impl StoreFixture for SimulatedOutbox {
    type Store = Shared;
    type Lock = String;

    async fn fresh() -> Self {
        let store = SimStore::new(&RelaySettings::default(), None);
        let book = Book::new(Monotonic::new(Duration::from_secs(1_000)), false);
        Self(Shared(Arc::new(Mutex::new(Table { store, book }))))
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            skip_locked: true,
            exact_payload: true,
            exact_json_text: true,
            keeps_sent: true,
            full_table: false,
        }
    }

    fn store(&self) -> Shared {
        self.0.clone()
    }

    async fn another_store(&self) -> Shared {
        self.0.clone()
    }

    async fn insert(&self, new: NewRow) -> Result<(), String> {
        let Table { store, book } = &mut *self.0.table();
        let clock = store.clock(book.now);
        let nature = if new.id.is_empty() { Nature::Malformed } else { Nature::Plain };
        let mut row = Row::new(store.rows().len(), nature, 0, 0);
        row.given = Some(Event {
            id: EventId::stored(new.id),
            aggregate: Aggregate { id: Some(new.aggregate_id.to_string()), ..Aggregate::default() },
            event_type: new.event_type,
            business_key: None,
            payload: new.payload.map(Bytes::from),
            headers: Vec::new(),
            destination: None,
            route_key: None,
            created_at_micros: Some(1),
        });
        row.status = status(new.status);
        row.attempts = new.attempts;
        row.created_at = clock;
        row.available_at = moment(clock, new.due_in_millis);
        store.insert(row);
        Ok(())
    }

    async fn row(&self, id: &str) -> Option<StoredRow> {
        self.with_row(id, |row, clock| StoredRow {
            status: row.status.word().into(),
            attempts: row.attempts,
            token: row.token.map(|token| format!("{token:032x}")),
            leased: row.token.is_some(),
            due_in_millis: millis(clock, row.available_at),
            last_error: None,
        })
    }

    async fn delete(&self, id: &str) {
        self.with_row(id, |row, _| row.status = Status::Purged);
    }

    async fn expire_lease(&self, id: &str) {
        self.with_row(id, |row, clock| row.locked_until = clock.minus(Duration::from_secs(1)));
    }

    async fn make_due(&self, id: &str) {
        self.with_row(id, |row, clock| row.available_at = clock.minus(Duration::from_secs(1)));
    }

    async fn lock(&self, id: &str) -> String {
        self.with_row(id, |row, _| row.locked = true);
        id.to_owned()
    }

    async fn unlock(&self, lock: String) {
        self.with_row(&lock, |row, _| row.locked = false);
    }

    async fn open_transactions(&self) -> u32 {
        // A unit of work is one step: none is ever half done.
        0
    }
}
