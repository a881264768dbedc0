//! Routes and the templates of route keys.

use consign_core::event::{Aggregate, Event};
use consign_core::route::{DestinationName, InvalidTemplate, NoRoute, RouteTable, Rule, Template};

use crate::harness::event;

fn rule(event_type: &str, destination: &str, key: &str) -> Rule {
    Rule {
        event_type: event_type.into(),
        destination: DestinationName::new(destination),
        key: Template::parse(key).unwrap(),
        retry: None,
    }
}

fn table(rules: Vec<Rule>) -> RouteTable {
    RouteTable::new(rules, vec![DestinationName::new("a"), DestinationName::new("b")])
}

/// The destination and the route key.
fn resolve(table: &RouteTable, event: &Event) -> Result<(String, String), NoRoute> {
    table.resolve(event).map(|route| (route.destination.to_string(), route.key))
}

/// True when the event goes to `destination` under `key`.
fn goes(table: &RouteTable, event: &Event, destination: &str, key: &str) -> bool {
    resolve(table, event) == Ok((destination.into(), key.into()))
}

#[test]
fn the_first_rule_that_takes_the_type_wins() {
    let table =
        table(vec![rule("OrderPaid", "a", "paid"), rule("Order*", "b", "order"), rule("*", "a", "rest")]);

    assert!(goes(&table, &event("e", "OrderPaid", 0), "a", "paid"));
    assert!(goes(&table, &event("e", "OrderCreated", 0), "b", "order"));
    assert!(goes(&table, &event("e", "UserBanned", 0), "a", "rest"));
    assert!(goes(&table, &event("e", "", 0), "a", "rest"));
}

#[test]
fn types_are_matched_exactly_as_written() {
    let table = table(vec![rule("OrderPaid", "a", "k"), rule("order*", "b", "k")]);

    for stranger in ["orderPaid ", "OrderPai", "OrderPaid2", "ORDERPAID"] {
        assert!(!goes(&table, &event("e", stranger, 0), "a", "k"), "{stranger:?}");
    }
}

#[test]
fn an_event_that_no_rule_takes_says_what_to_add() {
    let error = table(vec![]).resolve(&event("e", "OrderPaid", 0)).unwrap_err();

    assert_eq!(
        error.to_string(),
        "no route takes event type \"OrderPaid\": add a [[route]] with a matching event_type"
    );
}

#[test]
fn the_rows_own_destination_and_route_key_override_the_rules() {
    let table = table(vec![rule("*", "a", "by-rule")]);
    let mut event = event("e", "OrderPaid", 0);

    event.destination = Some("b".into());
    assert!(goes(&table, &event, "b", "by-rule"));

    event.route_key = Some("by-row".into());
    assert!(goes(&table, &event, "b", "by-row"));
}

/// An outbox whose events have nowhere to go is not worth a relay.
#[test]
fn a_table_is_empty_without_a_rule_whatever_its_destinations() {
    assert!(RouteTable::default().is_empty());
    assert!(table(vec![]).is_empty());
    assert!(!table(vec![rule("*", "a", "k")]).is_empty());
}

#[test]
fn a_row_that_names_its_destination_needs_no_rule() {
    let mut event = event("e", "OrderPaid", 0);
    event.destination = Some("b".into());

    assert!(goes(&table(vec![]), &event, "b", "OrderPaid"));
}

#[test]
fn a_destination_that_is_not_configured_is_no_route_whoever_names_it() {
    let expected = Err(NoRoute::UnknownDestination { name: "gone".into() });
    let by_rule = table(vec![rule("*", "gone", "k")]);
    assert_eq!(resolve(&by_rule, &event("e", "OrderPaid", 0)), expected);

    let mut by_row = event("e", "OrderPaid", 0);
    by_row.destination = Some("gone".into());
    assert_eq!(resolve(&table(vec![rule("*", "a", "k")]), &by_row), expected);
}

#[test]
fn a_template_fills_in_what_the_event_has() {
    let table = table(vec![rule("*", "a", "{aggregate_type}.{event_type}.{aggregate_id}.{business_key}!")]);
    let mut full = event("e", "OrderPaid", 0);
    full.aggregate = Aggregate { kind: Some("order".into()), id: Some("42".into()), version: None };
    full.business_key = Some("order:42:paid".into());

    assert!(goes(&table, &full, "a", "order.OrderPaid.42.order:42:paid!"));
    assert!(goes(&table, &event("e", "OrderPaid", 0), "a", ".OrderPaid..!"));
}

/// S3: what a row contains is never read as a template.
#[test]
fn placeholders_in_the_event_are_text() {
    let table = table(vec![rule("*", "a", "{event_type}")]);

    assert!(goes(&table, &event("e", "{business_key}", 0), "a", "{business_key}"));
}

#[test]
fn a_template_with_a_mistake_is_refused_when_it_is_read() {
    let unclosed = Template::parse("order.{event_type").unwrap_err();
    let unknown = Template::parse("order.{eventType}").unwrap_err();

    assert_eq!(unclosed, InvalidTemplate::Unclosed { template: "order.{event_type".into() });
    assert!(unknown.to_string().contains("unknown placeholder \"eventType\": use event_type"), "{unknown}");
    for odd in ["{}", "{", "{{event_type}}", "{ event_type }"] {
        assert!(Template::parse(odd).is_err(), "{odd:?} was accepted");
    }
}
