//! Retry policies of destinations and routes, and the address for wake-ups.

use std::path::PathBuf;

use consign::wakeup::Address;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::retry::{RetryPolicy, UnroutablePolicy};

use super::*;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

fn event(event_type: &str) -> Event {
    Event {
        id: EventId::stored("e"),
        aggregate: Aggregate::default(),
        event_type: event_type.into(),
        business_key: None,
        payload: None,
        headers: Vec::new(),
        destination: None,
        route_key: None,
        created_at_micros: None,
    }
}

#[test]
fn destinations_and_routes_override_single_keys_of_the_retry_policy() {
    let text = changed(
        "[[route]]\n",
        "[retry]\njitter = 0.5\ncap_seconds = 60\nmax_age_seconds = 7200\n\n\
         [destination.points.retry]\ncap_seconds = 120\nunroutable = \"dead\"\n\n\
         [[route]]\nevent_type = \"Slow*\"\ndestination = \"points\"\nretry = { attempts_max = 50, jitter = 0 }\n\n\
         [[route]]\n",
    );

    let config = read(&text).unwrap();

    let relay = config.relay.settings.retry;
    let expected =
        RetryPolicy { jitter: 0.5, cap: SECONDS(60), max_age: Some(SECONDS(7200)), ..RetryPolicy::default() };
    assert_eq!(relay, expected);
    let points = DestinationName::new("points");
    let destination = RetryPolicy { cap: SECONDS(120), unroutable: UnroutablePolicy::Dead, ..expected };
    assert_eq!(config.routes.retry(&event("OrderPaid"), &points), Some(&destination));
    let route = RetryPolicy { attempts_max: 50, jitter: 0.0, ..destination };
    assert_eq!(config.routes.retry(&event("SlowOrder"), &points), Some(&route));
}

#[test]
fn mistakes_in_any_retry_policy_name_its_key() {
    let text = changed(
        "[[route]]\n",
        "[destination.points.retry]\nbase_seconds = 400\njitter = 1.5\n\n\
         [[route]]\nevent_type = \"Slow\"\ndestination = \"points\"\nretry = { attempts_max = 0, unroutable = \"deed\" }\n\n\
         [[route]]\n",
    );

    let found = mistakes(&text);

    let expected = [
        "destination.points.retry.base_seconds: 400 is more than cap_seconds, which is 300: lower it",
        "destination.points.retry.jitter: 1.5 is out of range: use 0 to 1",
        "route[0].retry.attempts_max: 0 is out of range: use 1 to 1000000",
        "route[0].retry.unroutable: \"deed\" is not known: did you mean \"dead\"?",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.ends_with(expected), "{found} does not end with {expected}");
    }
    let low = mistakes(&format!("{LEAST}[retry]\nbase_seconds = 10\ncap_seconds = 5\n"));
    assert_eq!(low.len(), 1, "one mistake is one message: {low:?}");
}

#[test]
fn a_share_may_come_from_the_environment_as_text() {
    let halved = read_with(LEAST, &[("CONSIGN__RETRY__JITTER", "0.5")]).unwrap();
    let wrong = read_with(LEAST, &[("CONSIGN__RETRY__JITTER", "much")]).unwrap_err().to_string();

    assert!((halved.relay.settings.retry.jitter - 0.5).abs() < f64::EPSILON);
    assert!(wrong.contains("CONSIGN__RETRY__JITTER") && wrong.contains("a number from 0 to 1"), "{wrong}");
}

#[test]
fn the_horizon_counts_the_most_patient_policy() {
    let plain = read(WHOLE).unwrap().horizon.publishing;
    let by_route =
        changed("destination = \"points\"\n", "destination = \"points\"\nretry.attempts_max = 40\n");
    let by_destination =
        changed("[[route]]\n", "[destination.points.retry]\ncap_seconds = 600\n\n[[route]]\n");
    let hasty = changed("[[route]]\n", "[destination.points.retry]\nattempts_max = 1\n\n[[route]]\n");

    assert_eq!(plain, (SECONDS(300) + SECONDS(30)) * 20);
    assert_eq!(read(&by_route).unwrap().horizon.publishing, plain * 2);
    assert_eq!(read(&by_destination).unwrap().horizon.publishing, (SECONDS(600) + SECONDS(30)) * 20);
    assert_eq!(read(&hasty).unwrap().horizon.publishing, plain);
}

#[test]
fn wake_ups_come_from_this_machine_only() {
    for (text, address) in [
        ("unix:wakeup.sock", Address::Unix(PathBuf::from("/etc/consign/wakeup.sock"))),
        ("unix:/run/wakeup.sock", Address::Unix(PathBuf::from("/run/wakeup.sock"))),
        ("udp:127.0.0.1:7171", Address::Udp(([127, 0, 0, 1], 7171).into())),
    ] {
        let config = read(&format!("{LEAST}[relay]\nwakeup = \"{text}\"\n")).unwrap();
        assert_eq!(config.relay.wakeup, Some(address));
    }
    for (text, mistake) in [
        ("udp:0.0.0.0:7171", "0.0.0.0:7171 is not a loopback address: write udp:127.0.0.1:7171"),
        ("udp:10.1.2.3:7171", "10.1.2.3:7171 is not a loopback address: write udp:127.0.0.1:7171"),
        ("udp:127.0.0.1:0", "127.0.0.1:0 has no port"),
        ("udp:localhost:7171", "\"udp:localhost:7171\" is no address for wake-ups: write unix:/path.sock"),
        ("/run/wakeup.sock", "\"/run/wakeup.sock\" is no address for wake-ups: write unix:/path.sock"),
        ("unix:", "the path \"\" has 0 bytes"),
    ] {
        let found = mistakes(&format!("{LEAST}[relay]\nwakeup = \"{text}\"\n"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(&format!("consign.toml:4: relay.wakeup: {mistake}")), "{found:?}");
    }
    let long = mistakes(&format!("{LEAST}[relay]\nwakeup = \"unix:{}\"\n", "a".repeat(100)));
    assert!(long[0].contains("has 113 bytes: a socket's path has 1 to 107"), "{long:?}");
}
