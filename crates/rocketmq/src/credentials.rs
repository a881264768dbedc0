//! Who calls, for clusters with access control.

use std::fmt;

/// An access key and its secret, for proxies, name servers and brokers alike. `Debug` never shows the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key, which is a user name under ACL 2.0.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({}:***)", self.access_key)
    }
}
