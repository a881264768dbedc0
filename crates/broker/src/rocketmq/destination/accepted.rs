//! Answers that say "stored, not yet safe", and which of them are proof enough.

use consign_rocketmq::Code;

/// An answer that says that the broker has the message, though less safely than it is configured to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatus {
    /// The master did not flush to disk in time (`FLUSH_DISK_TIMEOUT` in older words).
    MasterPersistenceTimeout,
    /// A slave did not follow in time (`FLUSH_SLAVE_TIMEOUT`).
    SlavePersistenceTimeout,
    /// There was no slave to follow (`SLAVE_NOT_AVAILABLE`).
    HaNotAvailable,
}

impl StoredStatus {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::MasterPersistenceTimeout, Self::SlavePersistenceTimeout, Self::HaNotAvailable];

    /// The protocol's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MasterPersistenceTimeout => "MASTER_PERSISTENCE_TIMEOUT",
            Self::SlavePersistenceTimeout => "SLAVE_PERSISTENCE_TIMEOUT",
            Self::HaNotAvailable => "HA_NOT_AVAILABLE",
        }
    }

    pub(super) const fn code(self) -> Code {
        match self {
            Self::MasterPersistenceTimeout => Code::MASTER_PERSISTENCE_TIMEOUT,
            Self::SlavePersistenceTimeout => Code::SLAVE_PERSISTENCE_TIMEOUT,
            Self::HaNotAvailable => Code::HA_NOT_AVAILABLE,
        }
    }

    pub(super) fn of(code: Code) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}
