//! A marker store and a broker in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use consign_core::ports::{Mark, StoreError};
use consign_core::transaction::half::{EndLost, HalfError, HalfMessage, HalfMessages, Orphan, Question};
use consign_core::transaction::marker::{
    Evidence, Fence, Forgotten, Look, Marker, MarkerStore, Standing, Unconfirmed,
};
use consign_core::transaction::message::{StoreName, TransactionKey, TransactionMessage};
use consign_core::transaction::repair::{Ledger, LedgerError};
use consign_core::transaction::{End, Spans, Verdict};

/// What the store does when it is called next.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It does not answer.
    Error(StoreError),
    /// Somebody else commits a marker first.
    Overtaken(Marker),
    /// The marker that took the key is rolled back before it can be read.
    Vanishes,
}

/// Committed markers by key. A call takes the next fault of its list.
pub struct Markers {
    pub name: StoreName,
    pub now_micros: i64,
    pub committed: Mutex<BTreeMap<TransactionKey, Marker>>,
    pub confirmed: Mutex<BTreeSet<TransactionKey>>,
    pub looks: Mutex<VecDeque<Option<StoreError>>>,
    pub fences: Mutex<VecDeque<Fault>>,
    pub fence_calls: Mutex<u32>,
}

impl Markers {
    pub fn new(name: &str) -> Self {
        Self {
            name: StoreName::new(name).expect("a name"),
            now_micros: 0,
            committed: Mutex::default(),
            confirmed: Mutex::default(),
            looks: Mutex::default(),
            fences: Mutex::default(),
            fence_calls: Mutex::default(),
        }
    }

    pub fn marker(&self, key: &TransactionKey) -> Option<Marker> {
        self.committed.lock().unwrap().get(key).copied()
    }

    pub fn put(&self, key: &TransactionKey, marker: Marker) {
        self.committed.lock().unwrap().insert(key.clone(), marker);
    }

    /// A local transaction inserts its marker and commits.
    pub fn mark(&self, key: &TransactionKey) -> Mark {
        let mut committed = self.committed.lock().unwrap();
        if committed.contains_key(key) {
            return Mark::Taken;
        }
        committed.insert(key.clone(), Marker::Committed);
        Mark::Inserted
    }
}

impl MarkerStore for Markers {
    fn name(&self) -> &StoreName {
        &self.name
    }

    async fn look(&self, key: &TransactionKey) -> Result<Look, StoreError> {
        if let Some(Some(error)) = self.looks.lock().unwrap().pop_front() {
            return Err(error);
        }
        Ok(Look { marker: self.marker(key), now_micros: self.now_micros })
    }

    async fn fence(&self, key: &TransactionKey, _: &str) -> Result<Fence, StoreError> {
        *self.fence_calls.lock().unwrap() += 1;
        match self.fences.lock().unwrap().pop_front() {
            Some(Fault::Error(error)) => return Err(error),
            Some(Fault::Overtaken(marker)) => self.put(key, marker),
            Some(Fault::Vanishes) => return Ok(Fence::Taken),
            None => {}
        }
        let mut committed = self.committed.lock().unwrap();
        if committed.contains_key(key) {
            return Ok(Fence::Taken);
        }
        committed.insert(key.clone(), Marker::RolledBack);
        Ok(Fence::Inserted)
    }

    async fn now(&self) -> Result<i64, StoreError> {
        Ok(self.now_micros)
    }

    async fn unconfirmed(
        &self,
        _: u32,
        _: Duration,
    ) -> Result<Vec<Result<Unconfirmed, StoreError>>, StoreError> {
        Ok(Vec::new())
    }

    async fn confirm(&self, key: &TransactionKey, _: Evidence) -> Result<bool, StoreError> {
        Ok(self.confirmed.lock().unwrap().insert(key.clone()))
    }

    async fn forget(&self, _: &Spans, _: u32) -> Result<Forgotten, StoreError> {
        Ok(Forgotten::default())
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        Ok(Standing::default())
    }
}

/// A broker: half messages, topics, and what it gave up on.
#[derive(Default)]
pub struct Broker {
    pub topics: Mutex<BTreeMap<TransactionKey, Vec<TransactionMessage>>>,
    pub given_up: Mutex<BTreeMap<TransactionKey, TransactionMessage>>,
    pub halves: Mutex<Vec<HalfMessage>>,
    pub silent: bool,
    pub ends_get_lost: bool,
}

/// Nobody asks here: the tests call `check` themselves.
pub struct NoOrphan;

impl Orphan for NoOrphan {
    fn question(&self) -> Question {
        unreachable!("there are none")
    }

    async fn answer(self, _: Verdict) -> Result<(), EndLost> {
        unreachable!("there are none")
    }
}

impl HalfMessages for Broker {
    type Half = HalfMessage;
    type Orphan = NoOrphan;

    async fn send_half(&self, half: &HalfMessage) -> Result<HalfMessage, HalfError> {
        if self.silent {
            return Err(HalfError::Unknown("no answer".into()));
        }
        self.halves.lock().unwrap().push(half.clone());
        Ok(half.clone())
    }

    async fn end(&self, half: HalfMessage, end: End) -> Result<(), EndLost> {
        match end {
            End::Commit(_) if !self.ends_get_lost => {
                let mut topics = self.topics.lock().unwrap();
                topics.entry(half.key).or_default().push(half.message);
            }
            End::Commit(_) | End::Rollback(_) => {}
        }
        Ok(())
    }

    async fn next_orphan(&self) -> Option<NoOrphan> {
        None
    }
}

impl Ledger for Broker {
    async fn holds(&self, topic: &str, key: &TransactionKey) -> Result<bool, LedgerError> {
        if self.silent {
            return Err(LedgerError("no answer".into()));
        }
        let topics = self.topics.lock().unwrap();
        Ok(topics.get(key).is_some_and(|copies| copies.iter().any(|copy| copy.topic == topic)))
    }

    async fn given_up(&self, key: &TransactionKey) -> Result<Option<TransactionMessage>, LedgerError> {
        Ok(self.given_up.lock().unwrap().get(key).cloned())
    }
}
