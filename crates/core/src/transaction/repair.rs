//! Committed transactions whose message is not in its topic: found by their markers, and sent again.

use std::future::Future;

use crate::ports::StoreError;
use crate::transaction::half::{EndLost, HalfError, HalfMessage, HalfMessages};
use crate::transaction::marker::{Evidence, MarkerStore, Unconfirmed};
use crate::transaction::message::{TransactionKey, TransactionMessage};
use crate::transaction::{Commit, End};

/// The broker did not say what it holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker does not say what it holds: {0}")]
pub struct LedgerError(pub String);

/// What a broker holds, by message id.
pub trait Ledger: Send + Sync {
    /// Whether the topic holds a message with this id, which consumers get or got. `false` only when every broker that may
    /// hold it has answered.
    fn holds(
        &self,
        topic: &str,
        key: &TransactionKey,
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// The message with this id among those the broker gave up asking about.
    fn given_up(
        &self,
        key: &TransactionKey,
    ) -> impl Future<Output = Result<Option<TransactionMessage>, LedgerError>> + Send;
}

/// What became of an unconfirmed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// Its message was found in its topic.
    Confirmed,
    /// Its message was sent again under the same id, as committed. That proves nothing yet: it is looked for again.
    SentAgain,
    /// Its message is nowhere.
    Lost,
}

/// Why an unconfirmed transaction stays as it is, for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The broker did not say what it holds.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store did not take the evidence, or did not say the time.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The message was not taken.
    #[error(transparent)]
    Half(#[from] HalfError),
    /// The commit of the message was not sent. The broker asks.
    #[error(transparent)]
    End(#[from] EndLost),
}

/// Looks for the message of a committed transaction in its topic, and sends it again when it is not there: a topic of
/// transaction messages takes no others, so once more as a half message, and the commit after it. Whether that helped, the
/// next look tells.
///
/// # Errors
/// Something did not answer. Nothing is lost: the transaction stays unconfirmed.
pub async fn repair<S, L, H>(
    store: &S,
    ledger: &L,
    broker: &H,
    unconfirmed: Unconfirmed,
) -> Result<Repaired, RepairError>
where
    S: MarkerStore,
    L: Ledger,
    H: HalfMessages,
{
    let Unconfirmed { key, topic, message, digest, .. } = unconfirmed;
    if ledger.holds(&topic, &key).await? {
        store.confirm(&key, Evidence::Stored).await?;
        return Ok(Repaired::Confirmed);
    }
    let message = match message {
        Some(message) => Some(message),
        None => ledger.given_up(&key).await?,
    };
    let Some(message) = message.filter(|message| message.topic == topic && message.digest() == digest) else {
        return Ok(Repaired::Lost);
    };
    let begun_at_micros = store.now().await?;
    let half = HalfMessage { key, store: store.name().clone(), begun_at_micros, message };
    let sent = broker.send_half(&half).await?;
    // The marker of an unconfirmed transaction is COMMITTED.
    broker.end(sent, End::Commit(Commit(()))).await?;
    Ok(Repaired::SentAgain)
}
