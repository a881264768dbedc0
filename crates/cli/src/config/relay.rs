//! `[relay]`: the relay engine's numbers.

use std::time::Duration;

use consign::wakeup::Address;
use consign_core::lease::PublishLimits;
use consign_core::relay::{DeadHead, Order, RelaySettings};
use consign_core::retry::RetryPolicy;

use super::checker::Checker;
use super::raw::RawRelay;

/// A day: no span of the relay may be longer.
const DAY: u64 = 86_400;
/// Rows that an ordered relay holds, unless the config says otherwise.
pub const ORDERED_HELD_ROWS: usize = 2000;
/// Half a minute: polling slower than this is a misunderstanding.
const POLL_MAX: u64 = 30_000;

/// The relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Its name in records, messages and metrics.
    pub name: String,
    /// The engine's settings, the retry policy included.
    pub settings: RelaySettings,
    /// How many partitions ordered relays share aggregates by.
    pub partitions: u16,
    /// How long a relay keeps its partitions without a word.
    pub partition_lease: Duration,
    /// Where producers say that they committed; none leaves everything to polling.
    pub wakeup: Option<Address>,
}

/// Whether the mode promises an order.
#[derive(Clone, Copy)]
enum Mode {
    Competing,
    Ordered,
}

/// Checks `[relay]`; `retry` is its policy.
pub fn relay(checker: &mut Checker<'_>, raw: RawRelay, retry: RetryPolicy) -> RelayConfig {
    checker.name("relay.name", &raw.name, 64);
    let order = order(checker, &raw);
    // Others of an ordered aggregate wait for a swept row; in competing mode it only waits for itself.
    let sweep_delay = raw.sweep_delay_seconds.unwrap_or(match order {
        Order::Competing => RelaySettings::default().sweep_delay.as_secs(),
        Order::PerAggregate { .. } => 0,
    });
    // Rows in chains wait for each other, so more of them are under way at once.
    let by_mode = match order {
        Order::Competing => RelaySettings::default().held_rows,
        Order::PerAggregate { .. } => ORDERED_HELD_ROWS,
    };
    let held_rows = raw.held_rows.unwrap_or(by_mode as u64);
    let settings = RelaySettings {
        batch_rows: checker.within("relay.batch_rows", raw.batch_rows, 1..=10_000),
        batch_bytes: checker.within("relay.batch_bytes", raw.batch_bytes, 1..=1 << 30),
        window: checker.within("relay.window", raw.window, 1..=100_000),
        window_bytes: checker.within("relay.window_bytes", raw.window_bytes, 1..=1 << 30),
        held_rows: checker.within("relay.held_rows", held_rows, 1..=1_000_000),
        held_bytes: checker.within("relay.held_bytes", raw.held_bytes, 1..=1 << 32),
        lease: checker.seconds("relay.lease_seconds", raw.lease_seconds, 1..=DAY),
        publish: PublishLimits {
            deadline: checker.seconds(
                "relay.publish_deadline_seconds",
                raw.publish_deadline_seconds,
                1..=DAY,
            ),
            margin: checker.seconds("relay.margin_seconds", raw.margin_seconds, 1..=DAY),
        },
        poll_min: checker.milliseconds(
            "relay.poll_min_milliseconds",
            raw.poll_min_milliseconds,
            1..=POLL_MAX,
        ),
        poll_max: checker.milliseconds(
            "relay.poll_max_milliseconds",
            raw.poll_max_milliseconds,
            1..=POLL_MAX,
        ),
        settle_linger: checker.milliseconds(
            "relay.settle_linger_milliseconds",
            raw.settle_linger_milliseconds,
            0..=1000,
        ),
        sweep_every: checker.seconds("relay.sweep_seconds", raw.sweep_seconds, 1..=DAY),
        sweep_rows: checker.within("relay.sweep_rows", raw.sweep_rows, 1..=10_000),
        sweep_delay: checker.seconds("relay.sweep_delay_seconds", sweep_delay, 0..=DAY),
        drain: checker.seconds("relay.drain_seconds", raw.drain_seconds, 1..=DAY),
        retry,
        order,
    };
    consistent(checker, &settings);
    let partitions = checker.within("relay.partitions", raw.partitions, 1..=1024);
    let partition_lease =
        checker.seconds("relay.partition_lease_seconds", raw.partition_lease_seconds, 3..=3600);
    let wakeup = wakeup(checker, raw.wakeup.as_deref());
    RelayConfig { name: raw.name, settings, partitions, partition_lease, wakeup }
}

fn wakeup(checker: &mut Checker<'_>, text: Option<&str>) -> Option<Address> {
    let address = match text?.parse() {
        Ok(Address::Unix(path)) => Address::unix(checker.path(&path.to_string_lossy())),
        other => other,
    };
    address.map_err(|problem| checker.refuse("relay.wakeup", problem)).ok()
}

fn order(checker: &mut Checker<'_>, raw: &RawRelay) -> Order {
    let modes = [("competing", Mode::Competing), ("ordered", Mode::Ordered)];
    let heads = [("block", DeadHead::Block), ("skip", DeadHead::Skip)];
    let dead = checker.choice("relay.on_dead", &raw.on_dead, &heads).unwrap_or_default();
    match checker.choice("relay.mode", &raw.mode, &modes) {
        Some(Mode::Ordered) => Order::PerAggregate { dead },
        Some(Mode::Competing) | None => Order::Competing,
    }
}

fn consistent(checker: &mut Checker<'_>, settings: &RelaySettings) {
    let PublishLimits { deadline, margin } = settings.publish;
    let (lease, needed) = (settings.lease.as_secs(), deadline.as_secs() + margin.as_secs());
    if needed > lease {
        checker.refuse(
            "relay.lease_seconds",
            format!(
                "a lease of {lease} s cannot hold a publish deadline of {} s and a margin of {} s: raise it to {needed} \
                 or more, or lower publish_deadline_seconds or margin_seconds",
                deadline.as_secs(),
                margin.as_secs()
            ),
        );
    }
    if settings.poll_min > settings.poll_max {
        let (low, high) = (settings.poll_min.as_millis(), settings.poll_max.as_millis());
        checker.refuse(
            "relay.poll_min_milliseconds",
            format!("{low} is more than poll_max_milliseconds, which is {high}: lower it"),
        );
    }
    for (key, bytes) in [("batch_bytes", settings.batch_bytes), ("window_bytes", settings.window_bytes)] {
        if bytes > settings.held_bytes {
            checker.refuse(
                &format!("relay.{key}"),
                format!(
                    "{bytes} is more than held_bytes, which is {}: lower it, or raise held_bytes",
                    settings.held_bytes
                ),
            );
        }
    }
}
