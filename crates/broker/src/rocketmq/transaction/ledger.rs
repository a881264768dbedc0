//! What the brokers hold of a transaction.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use consign_core::transaction::message::{TransactionKey, TransactionMessage};
use consign_core::transaction::repair::{Ledger, LedgerError};
use consign_rocketmq::admin::{Admin, AdminError, DISCARDED_TOPIC, StoredMessage};

use super::mapping;

/// Looks on every master of the cluster, by the message id, which the brokers index. The index is written shortly after
/// a message, so that one which was just committed may not be found yet.
///
/// The name server forgets a broker that is away, and what only that one holds would look lost. So a broker that was
/// seen once must have a master at every later look, or nothing is said. One that was taken out of service for good
/// is forgotten with the process.
#[derive(Clone, Debug)]
pub struct RocketMqLedger {
    admin: Admin,
    seen: Arc<Mutex<BTreeSet<String>>>,
}

impl RocketMqLedger {
    /// A ledger of the cluster that `admin` administrates.
    pub fn new(admin: Admin) -> Self {
        Self { admin, seen: Arc::default() }
    }

    async fn copies(&self, topic: &str, key: &TransactionKey) -> Result<Vec<StoredMessage>, LedgerError> {
        let mut copies = Vec::new();
        let masters = self.admin.masters().await.map_err(|error| silent(&error))?;
        complete(&self.seen, masters.iter().map(|broker| broker.name.as_str()))?;
        for broker in masters {
            copies.extend(
                self.admin
                    .copies(&broker.address, topic, key.as_str())
                    .await
                    .map_err(|error| silent(&error))?,
            );
        }
        Ok(copies)
    }
}

/// Remembers brokers, and fails when one of those seen before is not among them.
fn complete<'a>(
    seen: &Mutex<BTreeSet<String>>,
    masters: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), LedgerError> {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(away) = seen.iter().find(|name| masters.clone().all(|master| master != name.as_str())) {
        return Err(LedgerError(format!(
            "broker {away} has no master now and may hold the message; start consign again if it is gone for good"
        )));
    }
    seen.extend(masters.map(ToOwned::to_owned));
    Ok(())
}

fn silent(error: &AdminError) -> LedgerError {
    LedgerError(error.to_string())
}

impl Ledger for RocketMqLedger {
    async fn holds(&self, topic: &str, key: &TransactionKey) -> Result<bool, LedgerError> {
        Ok(!self.copies(topic, key).await?.is_empty())
    }

    async fn given_up(&self, key: &TransactionKey) -> Result<Option<TransactionMessage>, LedgerError> {
        Ok(self.copies(DISCARDED_TOPIC, key).await?.iter().find_map(mapping::stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_away_makes_the_ledger_say_nothing() {
        let seen = Mutex::default();

        assert_eq!(complete(&seen, ["a", "b"].into_iter()), Ok(()));
        assert!(complete(&seen, ["a"].into_iter()).unwrap_err().0.contains("broker b has no master"));
        assert_eq!(complete(&seen, ["a", "b", "c"].into_iter()), Ok(()), "it came back, and another with it");
        assert!(complete(&seen, ["a", "b"].into_iter()).is_err());
    }
}
