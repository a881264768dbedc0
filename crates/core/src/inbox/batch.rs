//! Several operations in as few transactions as their content allows.
//!
//! ```text
//! distinct keys ─► unit ─► all applied
//!                    ├ a key is taken ─► one read of all markers ─► repeats and conflicts leave, the rest again
//!                    ├ this one failed ─► those before it, this one alone, those after it
//!                    └ some one failed ─► halves
//! ```
//!
//! The order of the operations is kept throughout, copies of one key excepted, which wait for the first of them: what
//! each comes to is what it would have come to in a transaction of its own, one after another.

use std::collections::{HashMap, VecDeque};

use crate::inbox::unit::{self, Halt, blame};
use crate::inbox::{Handler, ProcessError, Processed, Work};
use crate::ports::{InboxStore, StoreError};
use crate::safeguard::{Safeguard, stands};

/// How often a unit of work that lost a lock race is run again before its deliveries are handed back.
const CONTENDED_TRIES: u32 = 5;

type Outcome = Result<Processed, ProcessError>;

/// Operations with distinct keys, by their places in the whole list.
struct Group {
    members: Vec<usize>,
    /// Read the markers first.
    look: bool,
    /// How often it was run and came to nothing.
    tries: u32,
}

/// Processes every operation; the results are in order.
pub(super) async fn run<S, H>(store: &S, work: &[Work<'_, H>], look_first: bool) -> Vec<Outcome>
where
    S: InboxStore,
    H: Handler<S::Transaction>,
{
    let mut batch = Batch { store, work, results: vec![None; work.len()] };
    let mut queue = rounds(work, look_first);
    while let Some(group) = queue.pop_front() {
        if let Err(error) = batch.advance(group, &mut queue).await {
            // The store is away: what was not run yet would only wait for the same answer.
            batch.fail_the_rest(&error);
            break;
        }
    }
    batch.results.into_iter().map(|result| result.expect("every operation came to a result")).collect()
}

/// Copies of one key follow each other: the first decides, and the next find its marker.
fn rounds<H>(work: &[Work<'_, H>], look_first: bool) -> VecDeque<Group> {
    let mut rounds: VecDeque<Group> = VecDeque::new();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (index, work) in work.iter().enumerate() {
        let mut round = *seen.entry(work.operation.key.as_str()).and_modify(|round| *round += 1).or_insert(0);
        if !stands(Safeguard::CopiesInTurn) {
            round = 0;
        }
        if round == rounds.len() {
            rounds.push_back(Group { members: Vec::new(), look: look_first || round > 0, tries: 0 });
        }
        rounds[round].members.push(index);
    }
    rounds
}

/// Puts a group back in pieces that begin at the given places, in order.
fn split(mut group: Group, places: &[usize], queue: &mut VecDeque<Group>) {
    for &place in places.iter().rev() {
        let members = group.members.split_off(place);
        queue.push_front(Group { members, look: group.look, tries: 0 });
    }
    queue.push_front(Group { tries: 0, ..group });
}

struct Batch<'a, S, H> {
    store: &'a S,
    work: &'a [Work<'a, H>],
    results: Vec<Option<Outcome>>,
}

impl<S, H> Batch<'_, S, H>
where
    S: InboxStore,
    H: Handler<S::Transaction>,
{
    /// Takes a group one step further. An error concerns the store, and so every group that waits.
    async fn advance(&mut self, mut group: Group, queue: &mut VecDeque<Group>) -> Result<(), ProcessError> {
        if group.look {
            let halt = self.look(&mut group).await;
            if let Err(halt) = halt {
                return self.halted(halt, group, queue);
            }
        }
        if group.members.is_empty() {
            return Ok(());
        }
        let unit: Vec<Work<'_, H>> = group.members.iter().map(|&index| self.work[index]).collect();
        match unit::apply(self.store, &unit).await {
            Ok(()) => {
                for &index in &group.members {
                    self.results[index] = Some(Ok(Processed::Applied));
                }
                Ok(())
            }
            Err(halt) => self.halted(halt, group, queue),
        }
    }

    /// Reads the markers; operations that have one are finished.
    async fn look(&mut self, group: &mut Group) -> Result<(), Halt> {
        let operations: Vec<_> = group.members.iter().map(|&index| self.work[index].operation).collect();
        let markers = self.store.markers(&operations).await;
        let markers = markers.map_err(|error| unit::located(operations.len(), None, blame(error)))?;
        let mut rest = Vec::with_capacity(group.members.len());
        for (&index, marker) in group.members.iter().zip(markers) {
            let Some(marker) = marker else {
                rest.push(index);
                continue;
            };
            let Work { operation, message, .. } = self.work[index];
            let result = match operation.same_as(&marker) {
                Ok(true) => Ok(Processed::Duplicate),
                Ok(false) if !stands(Safeguard::ConflictIsRecorded) => Ok(Processed::Duplicate),
                Ok(false) => match self.store.record_conflict(operation, message, &marker).await {
                    Ok(()) => Ok(Processed::Conflict),
                    Err(_) if !stands(Safeguard::ConflictRecordCommitted) => Ok(Processed::Conflict),
                    Err(error) => Err(blame(error)),
                },
                // Nothing is wrong with the message: it waits until the config knows the version.
                Err(unknown) => Err(ProcessError::Store(StoreError::Schema(unknown.to_string()))),
            };
            self.results[index] = Some(result);
        }
        group.members = rest;
        Ok(())
    }

    fn halted(
        &mut self,
        halt: Halt,
        mut group: Group,
        queue: &mut VecDeque<Group>,
    ) -> Result<(), ProcessError> {
        group.tries += 1;
        match halt {
            Halt::Taken if group.tries < CONTENDED_TRIES => {
                group.look = true;
                queue.push_front(group);
            }
            // Whoever held the key rolled back each time in between.
            Halt::Taken => {
                let contended = StoreError::Contended("the marker vanished".into());
                self.fail(&group.members, &ProcessError::Store(contended));
            }
            Halt::At(at, result) if group.members.len() == 1 => {
                self.results[group.members[at]] = Some(result);
            }
            Halt::At(at, _) => split(group, &[at, at + 1], queue),
            Halt::Somewhere => {
                let middle = group.members.len() / 2;
                split(group, &[middle], queue);
            }
            Halt::Whole(ProcessError::Store(StoreError::Contended(_))) if group.tries < CONTENDED_TRIES => {
                queue.push_front(group);
            }
            Halt::Whole(error) => {
                self.fail(&group.members, &error);
                // The other groups were not part of that COMMIT.
                return Err(match error {
                    ProcessError::CommitUnknown(cause) => {
                        ProcessError::Store(StoreError::Unavailable(cause.to_string()))
                    }
                    other => other,
                });
            }
        }
        Ok(())
    }

    fn fail(&mut self, members: &[usize], error: &ProcessError) {
        for &index in members {
            self.results[index] = Some(Err(error.clone()));
        }
    }

    fn fail_the_rest(&mut self, error: &ProcessError) {
        for result in &mut self.results {
            result.get_or_insert_with(|| Err(error.clone()));
        }
    }
}
