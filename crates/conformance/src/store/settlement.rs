//! Settlements as the relay engine makes them: there is no other way to SENT.

use std::time::Duration;

use consign_core::lease::{Claim, PublishLimits};
use consign_core::outcome::{ChannelId, DeliveryTag, Outcome, Proof};
use consign_core::ports::{Claimed, Lane, Readiness};
use consign_core::relay::{Command, Input, Relay, RelaySettings};
use consign_core::retry::RetryPolicy;
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::settle::Settlement;
use consign_core::time::{Draw, Monotonic};

/// The part of a retry delay that no policy takes away.
const RETRY_FLOOR: Duration = Duration::from_millis(100);

/// Draws the longest jitter always, so that a delay is known beforehand.
struct Longest;

impl Draw for Longest {
    fn bits(&mut self) -> [u8; 16] {
        [0; 16]
    }

    fn fraction(&mut self) -> f64 {
        1.0
    }
}

/// The broker confirmed the claim's message.
pub fn sent(claim: Claim) -> Settlement {
    let tag = DeliveryTag(std::num::NonZeroU64::MIN);
    let channel = ChannelId { incarnation: 1, number: 1 };
    let proof = Proof::PublisherConfirm { channel, tag };
    settled(claim, Outcome::Confirmed(proof), RetryPolicy::default()).0
}

/// The message was unroutable and is tried again after `delay`.
pub fn retry(claim: Claim, delay: Duration) -> Settlement {
    let jitter = delay.saturating_sub(RETRY_FLOOR);
    let policy = RetryPolicy { base: jitter, cap: jitter, ..RetryPolicy::default() };
    settled(claim, Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }, policy).0
}

/// True when the relay publishes the claim alone, as it does with a suspect.
pub fn is_suspected(claim: Claim) -> bool {
    let refused = Outcome::Refused { reason: "the suite looks on".into(), retry_after: None };
    settled(claim, refused, RetryPolicy::default()).1 == Lane::Quarantine
}

fn settled(claim: Claim, outcome: Outcome, retry: RetryPolicy) -> (Settlement, Lane) {
    let now = Monotonic::default();
    let name = DestinationName::new("suite");
    let key = Template::parse("suite").expect("a template without placeholders");
    let rule = Rule { event_type: "*".into(), destination: name.clone(), key, retry: None };
    let routes = RouteTable::new(vec![rule], vec![name.clone()]);
    // However short the lease, the engine must publish: the suite's broker answers at once.
    let publish = PublishLimits { deadline: Duration::from_millis(1), margin: Duration::ZERO };
    let settings = RelaySettings { retry, publish, ..RelaySettings::default() };
    let mut relay = Relay::new(settings, routes, Longest, now);
    relay.handle(now, Input::Readiness(name, Readiness::Accepting));
    relay.handle(now, Input::Claimed(Claimed { claims: vec![claim], ..Claimed::default() }));
    let (mut outcome, mut flown) = (Some(outcome), None);
    while let Some(command) = relay.next_command() {
        match command {
            Command::Publish(id, lane, _) => {
                flown = Some(lane);
                let outcome = outcome.take().expect("one claim is published once");
                relay.handle(now, Input::Outcome(id, outcome));
            }
            Command::Settle(mut batch) => {
                let settlement = batch.settlements.pop().expect("a batch is never empty");
                return (settlement, flown.expect("a publish comes before its settle"));
            }
            Command::Claim(_) | Command::Sweep { .. } | Command::Report(_) | Command::Stopped => {}
        }
    }
    panic!("the relay engine made no settlement")
}
