//! What a consumer reads: a queue, or a consumer group of RocketMQ.

use std::time::Duration;

use consign_core::route::DestinationName;

use super::Surroundings;
use crate::config::checker::Checker;
use crate::config::destination::{DestinationConfig, GroupConfig, QueueKind};
use crate::config::raw::RawConsumer;

/// How long a unit of work may take before the store ends it.
const UNIT_MAX: Duration = Duration::from_secs(15);

/// The destination that is read, and its queue or group.
pub fn source(
    checker: &mut Checker<'_>,
    key: &str,
    raw: &mut RawConsumer,
    around: &Surroundings<'_>,
) -> Option<(DestinationName, String)> {
    let (source_key, queue_key, group_key) =
        (format!("{key}.source"), format!("{key}.queue"), format!("{key}.group"));
    let source = checker.required(&source_key, raw.source.take(), "source = \"DESTINATION\"");
    let (queue, group) = (raw.queue.take(), raw.group.take());
    let named = |name: &str| around.destinations.get(&DestinationName::new(name));
    let of_group = match source.as_deref().and_then(named) {
        Some(DestinationConfig::RocketMq(_)) => true,
        Some(DestinationConfig::RabbitMq(_) | DestinationConfig::Embedded(_)) => false,
        None => group.is_some(),
    };
    let (name_key, name) = if of_group {
        if queue.is_some() {
            checker.refuse(&queue_key, "does not apply to a source of type rocketmq: write group = \"NAME\"");
        }
        let name = checker.required(&group_key, group, "group = \"NAME\"")?;
        (group_key, name)
    } else {
        if group.is_some() {
            checker.refuse(&group_key, "applies to a source of type rocketmq only: write queue = \"NAME\"");
        }
        let name = checker.required(&queue_key, queue, "queue = \"NAME\"")?;
        (queue_key, name)
    };
    let source = source?;
    if !checker.known(&source_key, &source, around.names, &format!("add [destination.{source}]")) {
        return None;
    }
    let source = DestinationName::new(source);
    let destination = around.destinations.get(&source)?;
    let what = if of_group { "groups" } else { "queues" };
    let fix = format!("add it to the {what} of [destination.{source}]");
    checker.known(&name_key, &name, &destination.queue_names(), &fix);
    if let DestinationConfig::RabbitMq(broker) = destination {
        let stream = broker.queues.iter().any(|known| known.name == name && known.kind == QueueKind::Stream);
        if stream {
            let text =
                format!("{name:?} is a stream, which forgets what was acknowledged: consume a quorum queue");
            checker.refuse(&name_key, text);
        }
    }
    Some((source, name))
}

/// Two consumers in one group would each get a part of the messages.
pub fn check_shared_groups(checker: &mut Checker<'_>, raw: &[RawConsumer]) {
    for (index, consumer) in raw.iter().enumerate() {
        let Some(group) = &consumer.group else { continue };
        let earlier =
            raw[..index].iter().find(|it| it.group.as_ref() == Some(group) && it.source == consumer.source);
        if let Some(earlier) = earlier {
            let name = earlier.name.as_deref().unwrap_or_default();
            let text = format!(
                "{group:?} is read by consumer {name:?} too, and a group delivers each message to one of its members: give \
                 every consumer a group of its own"
            );
            checker.refuse(&format!("consumer[{index}].group"), text);
        }
    }
}

/// What a consumer does with the deliveries in its hands.
pub struct Load {
    /// Unsettled deliveries at most.
    pub prefetch: u16,
    /// Units of work side by side.
    pub workers: usize,
    /// Deliveries in one unit at most.
    pub batch: usize,
    /// How long a delivery waits for company.
    pub linger: Duration,
    /// Tries before a delivery is put aside.
    pub attempts_max: u32,
}

/// Refuses a group whose deliveries come again, or are given up, while the consumer still has them.
pub fn check_group(checker: &mut Checker<'_>, key: &str, group: &GroupConfig, load: &Load) {
    let side_by_side = load.workers.saturating_mul(load.batch).max(1);
    let turns = usize::from(load.prefetch).div_ceil(side_by_side);
    let turns = u32::try_from(turns).unwrap_or(u32::MAX);
    let longest = UNIT_MAX.saturating_mul(turns).saturating_add(load.linger);
    if group.invisible <= longest {
        checker.refuse(
            &format!("{key}.group"),
            format!(
                "{:?} hides a delivery for {} s, and the last of {} deliveries may be at work for {} s: raise \
                 invisible_seconds of the group to {} or more, or lower prefetch",
                group.name,
                group.invisible.as_secs(),
                load.prefetch,
                longest.as_secs_f64(),
                longest.as_secs() + 1
            ),
        );
    }
    let deliveries = group.retries.saturating_add(1);
    if group.keeps_refused() && load.attempts_max > deliveries {
        checker.refuse(
            &format!("{key}.attempts_max"),
            format!(
                "{} tries are more than the {deliveries} deliveries of group {:?}, after which the broker moves a \
                 message to its dead-letter topic: lower it, or raise retries of the group",
                load.attempts_max, group.name
            ),
        );
    }
}
