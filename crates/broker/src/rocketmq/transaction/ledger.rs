//! What the brokers hold of a transaction.

use consign_core::transaction::message::{TransactionKey, TransactionMessage};
use consign_core::transaction::repair::{Ledger, LedgerError};
use consign_rocketmq::admin::{Admin, AdminError, DISCARDED_TOPIC, StoredMessage};

use super::mapping;

/// Looks on every master of the cluster, by the message id, which the brokers index. The index is written shortly after
/// a message, so that one which was just committed may not be found yet.
#[derive(Clone, Debug)]
pub struct RocketMqLedger {
    admin: Admin,
}

impl RocketMqLedger {
    /// A ledger of the cluster that `admin` administrates.
    pub const fn new(admin: Admin) -> Self {
        Self { admin }
    }

    async fn copies(&self, topic: &str, key: &TransactionKey) -> Result<Vec<StoredMessage>, LedgerError> {
        let mut copies = Vec::new();
        for broker in self.admin.masters().await.map_err(|error| silent(&error))? {
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
