//! Measures how long hints and memory take, by size of the batch.
//!
//! `cargo run --release -p consign-filter --example round_trip -- redis://localhost/ 2000` (url, round trips per line).

use std::error::Error;
use std::time::{Duration, Instant};

use consign_core::filter::{Hint, RepeatFilter};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::value::Value;
use consign_filter::{FilterOptions, RedisFilter};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the first argument is a redis url")?;
    let rounds: usize = arguments.next().map_or(Ok(2_000), |text| text.parse())?;
    let filter = RedisFilter::new(FilterOptions {
        prefix: "consign-round-trip".into(),
        ..FilterOptions::new(url, Duration::from_mins(1))
    })?;

    for size in [1, 10, 100, 1_000] {
        let operations: Vec<Operation> = (0..size).map(operation).collect();
        let operations: Vec<&Operation> = operations.iter().collect();
        let rounds = rounds.min(200_000 / size);
        let (mut remembering, mut asking) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let begun = Instant::now();
            filter.remember(&operations).await;
            remembering.push(begun.elapsed());
            let begun = Instant::now();
            let hints = filter.hints(&operations).await;
            asking.push(begun.elapsed());
            if hints.iter().any(|hint| *hint != Hint::Repeat) {
                return Err(format!("an operation was forgotten: {:?}", filter.totals()).into());
            }
        }
        println!("{size:>5} operations: hints {}, remember {}", spread(asking), spread(remembering));
    }
    println!("{:?}", filter.totals());
    Ok(())
}

fn operation(order: usize) -> Operation {
    let compared = |column: &str, value| Compared { column: column.into(), value };
    let user = compared("user_id", Value::Text(format!("user-{order}")));
    let amount = compared("amount", Value::Decimal("10.50".into()));
    Operation {
        consumer: "points".into(),
        key: format!("order-{order}"),
        comparison: Comparison::Columns(vec![user, amount]),
        ..Operation::default()
    }
}

/// The median and the slowest of a hundred.
fn spread(mut spans: Vec<Duration>) -> String {
    spans.sort_unstable();
    format!("p50 {:?} p99 {:?}", spans[spans.len() / 2], spans[spans.len() * 99 / 100])
}
