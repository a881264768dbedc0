//! The filter of repeats that a config names.

use consign_core::filter::{Hint, NoFilter, RepeatFilter};
use consign_core::operation::Operation;
use consign_filter::{FilterOptions, RedisFilter};

use crate::config::Config;

/// A filter of any kind.
pub enum AnyFilter {
    /// None is configured.
    None(NoFilter),
    /// On Redis.
    Redis(Box<RedisFilter>),
}

impl AnyFilter {
    /// The configured filter. It connects when it is first asked, and a filter that is away costs nothing but speed.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let Some(filter) = &config.filter else { return Ok(Self::None(NoFilter)) };
        let mut options = FilterOptions::new(filter.url.expose(), filter.ttl);
        options.prefix.clone_from(&filter.prefix);
        options.deadline = filter.timeout;
        options.ca_file.clone_from(&filter.tls_ca_file);
        Ok(Self::Redis(Box::new(RedisFilter::new(options)?)))
    }

    /// Says what it was good for.
    pub fn report(&self) {
        if let Self::Redis(filter) = self {
            let totals = filter.totals();
            tracing::info!(?totals, "filter of repeats");
        }
    }
}

impl RepeatFilter for AnyFilter {
    async fn hints(&self, operations: &[&Operation]) -> Vec<Hint> {
        match self {
            Self::None(filter) => filter.hints(operations).await,
            Self::Redis(filter) => filter.hints(operations).await,
        }
    }

    async fn remember(&self, operations: &[&Operation]) {
        match self {
            Self::None(filter) => filter.remember(operations).await,
            Self::Redis(filter) => filter.remember(operations).await,
        }
    }
}
