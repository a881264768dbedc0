//! Operations to ask about, and filters to ask.

use std::time::Duration;

use consign_core::filter::{Hint, RepeatFilter};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::value::Value;
use consign_filter::{FilterOptions, RedisFilter};
use tokio::time::{Instant, sleep};

/// How long a condition may take to come true: longer than two pauses of the circuit.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Generous, so that a busy machine is not taken for a slow server.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// An operation of the consumer `points`.
pub fn points(key: &str, amount: &str) -> Operation {
    operation("points", key, amount)
}

pub fn operation(consumer: &str, key: &str, amount: &str) -> Operation {
    let amount = Compared { column: "amount".into(), value: Value::Decimal(amount.into()) };
    Operation {
        consumer: consumer.into(),
        key: key.into(),
        comparison: Comparison::Columns(vec![amount]),
        ..Operation::default()
    }
}

/// Options with a prefix nobody else uses.
pub fn options(url: &str) -> FilterOptions {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).unwrap();
    FilterOptions {
        prefix: format!("consign-test-{:016x}", u64::from_le_bytes(bits)),
        deadline: DEADLINE,
        ..FilterOptions::new(url, Duration::from_mins(10))
    }
}

/// The hint about one operation.
pub async fn hint(filter: &RedisFilter, operation: &Operation) -> Hint {
    let hints = filter.hints(&[operation]).await;
    assert_eq!(hints.len(), 1);
    hints[0]
}

pub async fn remember(filter: &RedisFilter, operations: &[Operation]) {
    filter.remember(&operations.iter().collect::<Vec<_>>()).await;
}

/// Asks until the condition holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    const PAUSE: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(PAUSE).await;
    }
}
