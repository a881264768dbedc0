//! One transaction: markers, guards, changes, commit. It is applied as a whole or rolled back as a whole.

use std::collections::BTreeMap;

use crate::guard::{Progress, Verdict};
use crate::inbox::{EachFailed, Handler, HandlerError, ProcessError, Processed, Work};
use crate::ports::{Advance, CommitError, InboxStore, InboxTransaction, Mark, StoreError};
use crate::safeguard::{Safeguard, stands};

/// Why a unit was rolled back.
#[derive(Debug)]
pub(super) enum Halt {
    /// Some key is taken.
    Taken,
    /// This operation alone is not applied; what it came to holds only when the unit was this operation's own.
    At(usize, Result<Processed, ProcessError>),
    /// One of the operations is at fault, and nobody knows which.
    Somewhere,
    /// It concerns the store, not an operation.
    Whole(ProcessError),
}

/// Applies every operation in one transaction, or none.
pub(super) async fn apply<S, H>(store: &S, work: &[Work<'_, H>]) -> Result<(), Halt>
where
    S: InboxStore,
    H: Handler<S::Transaction>,
{
    let mut tx = begin(store).await?;
    if let Err(halt) = take_keys(&mut tx, work).await {
        return Err(roll_back(tx, halt).await);
    }
    if !stands(Safeguard::MarkerInTransaction) {
        let _ = tx.commit().await;
        tx = begin(store).await?;
    }
    if let Err(halt) = changes(&mut tx, work).await {
        return Err(roll_back(tx, halt).await);
    }
    match tx.commit().await {
        Ok(()) => Ok(()),
        Err(CommitError::RolledBack(_)) if !stands(Safeguard::RollbackIsNotCommitted) => Ok(()),
        Err(CommitError::Unknown(_)) if !stands(Safeguard::UnknownIsNotCommitted) => Ok(()),
        Err(CommitError::RolledBack(error)) => Err(located(work.len(), None, blame(error))),
        Err(CommitError::Unknown(error)) => Err(Halt::Whole(ProcessError::CommitUnknown(error))),
    }
}

async fn begin<S: InboxStore>(store: &S) -> Result<S::Transaction, Halt> {
    store.begin().await.map_err(|error| Halt::Whole(ProcessError::Store(error)))
}

async fn take_keys<Tx: InboxTransaction, H>(tx: &mut Tx, work: &[Work<'_, H>]) -> Result<(), Halt> {
    match mark(tx, work).await {
        Ok(Mark::Inserted) => Ok(()),
        Ok(Mark::Taken) => Err(Halt::Taken),
        Err(error) => Err(located(work.len(), None, blame(error))),
    }
}

async fn changes<Tx: InboxTransaction, H: Handler<Tx>>(
    tx: &mut Tx,
    work: &[Work<'_, H>],
) -> Result<(), Halt> {
    let advances = judge(tx, work).await?;
    H::apply_each(tx, work).await.map_err(|EachFailed { at, error }| {
        let error = match error {
            HandlerError::Refused(reason) => ProcessError::Handler(reason),
            HandlerError::Store(error) => blame(error),
        };
        located(work.len(), at, error)
    })?;
    save(tx, work, &advances).await
}

/// Takes the keys in their order as bytes, the same in every process: two of them cannot wait for each other.
async fn mark<Tx: InboxTransaction, H>(tx: &mut Tx, work: &[Work<'_, H>]) -> Result<Mark, StoreError> {
    if let [only] = work {
        return tx.mark(only.operation).await;
    }
    let mut operations: Vec<_> = work.iter().map(|work| work.operation).collect();
    operations.sort_by(|left, right| left.key.as_bytes().cmp(right.key.as_bytes()));
    tx.mark_all(&operations).await
}

/// What the guards let through, by aggregate: where it stands after the unit, and whether that is its first step.
type Advances<'a> = BTreeMap<&'a str, (Progress, bool)>;

/// Asks every guard, in the order of the operations, each seeing the steps before it.
async fn judge<'a, Tx: InboxTransaction, H>(tx: &mut Tx, work: &[Work<'a, H>]) -> Result<Advances<'a>, Halt> {
    let guards = work.iter().filter_map(|work| work.operation.guard.as_ref());
    let mut stored: BTreeMap<&str, Option<Progress>> =
        guards.map(|guard| (guard.aggregate.as_str(), None)).collect();
    let mut advances = Advances::new();
    let Some(first) = work.first().filter(|_| !stored.is_empty()) else { return Ok(advances) };
    let aggregates: Vec<&str> = stored.keys().copied().collect();
    let locked = tx.lock_progress(&first.operation.consumer, &aggregates).await;
    let locked = locked.map_err(|error| located(work.len(), None, blame(error)))?;
    for (progress, found) in stored.values_mut().zip(locked) {
        *progress = found;
    }
    for (at, work) in work.iter().enumerate() {
        let Some(guard) = &work.operation.guard else { continue };
        let aggregate = guard.aggregate.as_str();
        let found = stored.get(aggregate).and_then(Option::as_ref);
        let standing = advances.get(aggregate).map(|(progress, _)| progress).or(found);
        let result = match guard.judge(standing) {
            Verdict::Apply(progress) => {
                advances.insert(aggregate, (progress, found.is_none()));
                continue;
            }
            Verdict::Stale => Ok(Processed::Stale),
            Verdict::Gap { expected, version } => {
                Err(ProcessError::Gap { aggregate: aggregate.to_owned(), expected, version })
            }
            Verdict::Forbidden { from, to } => Err(ProcessError::Handler(format!(
                "{aggregate} cannot go from {} to {to:?}",
                from.map_or_else(|| "nothing".to_owned(), |from| format!("{from:?}"))
            ))),
        };
        return Err(Halt::At(at, result));
    }
    Ok(advances)
}

async fn save<Tx: InboxTransaction, H>(
    tx: &mut Tx,
    work: &[Work<'_, H>],
    advances: &Advances<'_>,
) -> Result<(), Halt> {
    let Some(first) = work.first().filter(|_| !advances.is_empty() && stands(Safeguard::ProgressIsSaved))
    else {
        return Ok(());
    };
    let rows: Vec<Advance<'_>> = advances
        .iter()
        .map(|(aggregate, (progress, first))| Advance {
            aggregate,
            progress: progress.clone(),
            first: *first,
        })
        .collect();
    let saved = tx.save_progress(&first.operation.consumer, &rows).await;
    saved.map_err(|error| located(work.len(), None, blame(error)))
}

/// Whom an error concerns: an operation, when it is at fault; all of them, when the store is.
pub(super) fn located(operations: usize, at: Option<usize>, error: ProcessError) -> Halt {
    let concerns_all = match &error {
        ProcessError::Store(StoreError::Mismatch(_)) => operations == 1,
        ProcessError::Store(_) | ProcessError::CommitUnknown(_) => true,
        ProcessError::Handler(_) | ProcessError::Gap { .. } => false,
    };
    match at {
        _ if concerns_all => Halt::Whole(error),
        Some(at) => Halt::At(at, Err(error)),
        None if operations == 1 => Halt::At(0, Err(error)),
        None => Halt::Somewhere,
    }
}

/// A value that the database refuses, such as a key too long for its column, is the message's fault as a refusal is:
/// it would be refused however often the delivery came again.
pub(super) fn blame(error: StoreError) -> ProcessError {
    match error {
        StoreError::Data(reason) => ProcessError::Handler(reason),
        StoreError::Unavailable(_)
        | StoreError::Contended(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Schema(_)
        | StoreError::Mismatch(_) => ProcessError::Store(error),
    }
}

async fn roll_back<Tx: InboxTransaction>(tx: Tx, halt: Halt) -> Halt {
    let guard =
        if matches!(halt, Halt::Taken) { Safeguard::TakenRollsBack } else { Safeguard::RefusalRollsBack };
    if !stands(guard) {
        let _ = tx.commit().await;
        return halt;
    }
    let Err(rollback) = tx.rollback().await else { return halt };
    match halt {
        // What was found holds whatever becomes of the connection; a failed rollback only costs that.
        Halt::At(..) => halt,
        Halt::Taken | Halt::Somewhere | Halt::Whole(_) => Halt::Whole(ProcessError::Store(rollback)),
    }
}
