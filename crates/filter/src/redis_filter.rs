//! The filter itself: hints and memory, behind deadline and circuit.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use consign_core::filter::{Hint, RepeatFilter, digest};
use consign_core::operation::{Comparison, Operation};
use consign_core::time::Monotonic;
use redis::{FromRedisValue, Pipeline};

use crate::circuit::{Circuit, Pass};
use crate::key::key;
use crate::link::{Failure, Link};
use crate::options::{FilterError, FilterOptions};
use crate::totals::{FilterTotals, Tally};

/// A [`RepeatFilter`] on Redis. Copies share one connection, one circuit and one set of totals.
#[derive(Clone)]
pub struct RedisFilter {
    shared: Arc<SharedParts>,
}

struct SharedParts {
    options: FilterOptions,
    link: Link,
    circuit: Mutex<Circuit>,
    tally: Tally,
    origin: Instant,
}

impl RedisFilter {
    /// Checks the options. No connection is made before the first call, which must be inside a Tokio runtime.
    pub fn new(options: FilterOptions) -> Result<Self, FilterError> {
        let link = Link::new(options.client()?);
        let shared = SharedParts {
            options,
            link,
            circuit: Mutex::new(Circuit::new()),
            tally: Tally::default(),
            origin: Instant::now(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What has been counted so far.
    pub fn totals(&self) -> FilterTotals {
        self.shared.tally.totals()
    }
}

impl RepeatFilter for RedisFilter {
    async fn hints(&self, operations: &[&Operation]) -> Vec<Hint> {
        let shared = &*self.shared;
        let mut commands = Pipeline::with_capacity(1);
        let command = commands.cmd("MGET");
        for operation in operations {
            command.arg(key(&shared.options.prefix, operation));
        }
        let answer = shared.exchange::<(Vec<Option<Vec<u8>>>,)>(&commands, operations.len()).await;
        let stored = answer.map(|(values,)| values).filter(|values| values.len() == operations.len());
        let Some(stored) = stored else { return vec![Hint::Unknown; operations.len()] };
        let hint = |(operation, stored): (&&Operation, Option<Vec<u8>>)| {
            let hint = stored.map_or(Hint::Unknown, |stored| judge(operation, &stored));
            shared.tally.answered(hint);
            hint
        };
        operations.iter().zip(stored).map(hint).collect()
    }

    async fn remember(&self, operations: &[&Operation]) {
        let shared = &*self.shared;
        let seconds = shared.options.ttl_seconds();
        let mut commands = Pipeline::with_capacity(operations.len());
        for operation in operations {
            let command = commands.cmd("SET").arg(key(&shared.options.prefix, operation));
            command
                .arg(digest(operation.comparison_version, &operation.comparison))
                .arg("EX")
                .arg(seconds)
                .ignore();
        }
        shared.exchange::<()>(&commands, operations.len()).await;
    }
}

/// Compares what is stored with what is asked about, as each version of the comparison would have written it. What no
/// filter can have written says nothing.
fn judge(operation: &Operation, stored: &[u8]) -> Hint {
    const DIGITS: usize = 64;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if stored.len() != DIGITS || !stored.iter().all(is_digit) {
        return Hint::Unknown;
    }
    let current = (operation.comparison_version, &operation.comparison);
    let earlier = operation.earlier.iter().map(|earlier| (earlier.version, &earlier.comparison));
    let is_same =
        |(version, comparison): (u32, &Comparison)| digest(version, comparison).as_bytes() == stored;
    if std::iter::once(current).chain(earlier).any(is_same) { Hint::Repeat } else { Hint::Contradiction }
}

impl SharedParts {
    /// One round trip about so many operations; `None` when it failed or was not made at all.
    async fn exchange<T: FromRedisValue>(&self, commands: &Pipeline, operations: usize) -> Option<T> {
        if operations == 0 {
            return None;
        }
        let Some(pass) = self.circuit().admit(self.now()) else {
            self.tally.skipped(operations);
            return None;
        };
        let question = Question { shared: self, pass, ended: false };
        let deadline = tokio::time::Instant::now() + self.options.deadline;
        match self.link.exchange(commands, deadline).await {
            Ok(answer) => {
                question.answered();
                Some(answer)
            }
            Err(failure) => {
                question.failed(&failure);
                None
            }
        }
    }

    fn now(&self) -> Monotonic {
        Monotonic::new(self.origin.elapsed())
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass in use; when the caller is dropped in the middle, it goes back to the circuit.
struct Question<'a> {
    shared: &'a SharedParts,
    pass: Pass,
    ended: bool,
}

impl Question<'_> {
    fn answered(mut self) {
        self.ended = true;
        if self.shared.circuit().answered(self.pass) {
            tracing::info!("the filter of repeats answers again");
        }
    }

    fn failed(mut self, failure: &Failure) {
        self.ended = true;
        self.shared.tally.failed();
        let opened = self.shared.circuit().failed(self.shared.now(), self.pass);
        if let Some(pause) = opened {
            let seconds = pause.as_secs();
            tracing::warn!(
                "the filter of repeats does not answer: {failure}; it is left alone for {seconds} s, and the database \
                 decides alone"
            );
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.circuit().withdrawn(self.pass);
        }
    }
}

impl fmt::Debug for RedisFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisFilter")
            .field("options", &self.shared.options)
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}
