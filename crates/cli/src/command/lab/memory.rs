//! Redis as hand-written code uses it.

use std::time::Duration;

use anyhow::Context;
use redis::aio::MultiplexedConnection;

use super::place::Address;

/// Keys of one side.
pub struct Memory {
    connection: MultiplexedConnection,
    prefix: String,
}

impl Memory {
    /// Connects.
    pub async fn open(address: &Address, prefix: &str) -> anyhow::Result<Self> {
        const ANSWER: Duration = Duration::from_secs(5);
        // The error of a malformed url could quote it.
        let client =
            redis::Client::open(address.url.as_str()).ok().context("the Redis url cannot be used")?;
        let connecting = client.get_multiplexed_async_connection();
        let connection = tokio::time::timeout(ANSWER, connecting).await.context("no answer within 5 s")??;
        Ok(Self { connection, prefix: prefix.into() })
    }

    /// `SET key 1 NX EX 3600`: true for whoever comes first.
    pub async fn set_if_absent(&mut self, key: &str) -> anyhow::Result<bool> {
        let mut command = redis::cmd("SET");
        command.arg(format!("{}:{key}", self.prefix)).arg("1").arg("NX").arg("EX").arg(3600);
        let answer: Option<String> = command.query_async(&mut self.connection).await?;
        Ok(answer.is_some())
    }

    /// Forgets every key of this side, as a flush, a failover or an eviction does.
    pub async fn forget(&mut self) -> anyhow::Result<()> {
        let mut search = redis::cmd("KEYS");
        search.arg(format!("{}:*", self.prefix));
        let keys: Vec<Vec<u8>> = search.query_async(&mut self.connection).await?;
        for key in keys {
            redis::cmd("DEL").arg(key).query_async::<()>(&mut self.connection).await?;
        }
        Ok(())
    }
}
