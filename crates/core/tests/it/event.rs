//! Events: what every broker needs of one, and how ids and names are shown.

use consign_core::event::{Event, EventId, InvalidEvent, NewEvent};
use consign_core::finding::{Finding, Severity};
use consign_core::outcome::Doubt;
use consign_core::route::DestinationName;

use crate::harness::event;

#[test]
fn an_event_that_no_broker_could_carry_is_refused_with_its_field_and_length() {
    let fits = "x".repeat(255);
    let long = "x".repeat(256);
    let too_long = |field| Err(InvalidEvent::TooLong { field, bytes: 256 });
    let routed = |key: &str| Event { route_key: Some(key.into()), ..event("e", "OrderPaid", 0) };

    assert_eq!(event("e", "", 0).check(), Ok(()));
    assert_eq!(event(&fits, &fits, 0).check(), Ok(()));
    assert_eq!(routed(&fits).check(), Ok(()));
    assert_eq!(event("", "OrderPaid", 0).check(), Err(InvalidEvent::EmptyId));
    assert_eq!(event(&long, "OrderPaid", 0).check(), too_long("event_id"));
    assert_eq!(event("e", &long, 0).check(), too_long("event_type"));
    assert_eq!(routed(&long).check(), too_long("route_key"));
}

/// A short string of AMQP counts bytes.
#[test]
fn lengths_are_counted_in_bytes() {
    assert_eq!(
        EventId::new("é".repeat(128)).unwrap_err().to_string(),
        "event_id has 256 bytes: shorten it to at most 255"
    );
    assert_eq!(EventId::new("é".repeat(127)).unwrap().as_str(), "é".repeat(127));
}

#[test]
fn ids_and_names_are_shown_as_they_are_and_quoted_for_people_who_debug() {
    let (id, destination) = (EventId::stored("e 1"), DestinationName::new("shop"));

    assert_eq!((id.to_string(), format!("{id:?}")), ("e 1".into(), "EventId(\"e 1\")".into()));
    assert_eq!((destination.to_string(), format!("{destination:?}")), ("shop".into(), "\"shop\"".into()));
}

#[test]
fn a_new_event_keeps_the_id_that_was_chosen() {
    let event = NewEvent::new("OrderPaid", 42, "{}");

    assert_eq!((event.id.as_ref(), event.aggregate.id.as_deref()), (None, Some("42")));
    assert_eq!(
        event.clone().with_id(EventId::stored("e1")),
        NewEvent { id: Some(EventId::stored("e1")), ..event }
    );
}

#[test]
fn a_doubt_says_what_is_not_known() {
    let why = || "reset by peer".to_owned();
    for (doubt, text) in [
        (Doubt::ConfirmTimedOut, "no confirm before the publish deadline"),
        (Doubt::ConnectionLost(why()), "connection lost: reset by peer"),
        (Doubt::ChannelClosed(why()), "channel closed: reset by peer"),
        (Doubt::Inconclusive(why()), "the answer proves nothing: reset by peer"),
        (Doubt::Abandoned, "abandoned while waiting for the outcome"),
    ] {
        assert_eq!(doubt.to_string(), text);
    }
}

#[test]
fn only_what_is_not_fine_needs_a_fix() {
    let fine = Finding::fine("code", "table", "there");
    let warning = Finding::warning("code", "table", "slow", "add an index");
    let error = Finding::error("code", "table", "gone", "migrate");

    assert_eq!((fine.severity, fine.fix.as_str()), (Severity::Fine, ""));
    assert_eq!((warning.severity, warning.fix.as_str()), (Severity::Warning, "add an index"));
    assert_eq!((error.severity, error.fix.as_str()), (Severity::Error, "migrate"));
    assert!(fine.severity < warning.severity && warning.severity < error.severity);
}
