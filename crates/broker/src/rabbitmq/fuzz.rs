//! Events on their way to AMQP and back.

use bytes::Bytes;
use consign_core::event::{Aggregate, Event, EventId};
use seeded_fuzz::{Source, run};

use super::mapping::{Mapping, message};

fn event(source: &mut Source) -> Event {
    let text = |source: &mut Source| source.text(6, &["order", "42", "OrderPaid", ":"]);
    let maybe = |source: &mut Source| source.one_in(2).then(|| source.text(6, &["order", "42", ":"]));
    Event {
        id: EventId::stored(text(source)),
        aggregate: Aggregate {
            kind: maybe(source),
            id: maybe(source),
            version: source.one_in(2).then(|| source.number()),
        },
        event_type: text(source),
        business_key: maybe(source),
        payload: source.one_in(4).then(|| source.bytes(100).into()),
        headers: (0..source.below(4))
            .map(|_| {
                let name = source.text(4, &["traceparent", "CC", "consign-business-key", "cloudEvents:id"]);
                (name, text(source))
            })
            .collect(),
        destination: None,
        route_key: None,
        created_at_micros: source.one_in(2).then(|| source.number()),
    }
}

/// What a consumer reads is what the event said; what AMQP cannot say is refused before anything is sent.
#[test]
fn header_mapping() {
    run("header_mapping", |source| {
        let event = event(source);
        let mapping = Mapping {
            exchange: "orders".into(),
            content_type: "application/json".into(),
            source: "consign".into(),
        };
        let Ok(publication) = mapping.publication(&event, source.text(4, &["order", "."])) else { return };
        assert_eq!(
            publication.body,
            event.payload.clone().unwrap_or_default(),
            "the body is passed on unchanged"
        );

        let read = message(Ok(publication.properties), Bytes::clone(&publication.body), false, "queue");

        assert_eq!(read.id.as_deref(), Some(event.id.as_str()));
        assert_eq!(read.message_type, Some(event.event_type.clone()).filter(|kind| !kind.is_empty()));
        let header = |name: &str| {
            let mut found = read.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value);
            let first = found.next().cloned();
            assert_eq!(found.next(), None, "{name} comes once");
            first
        };
        // A producer's header of the same name cannot stand in for what consign says.
        assert_eq!(
            header("consign-business-key"),
            event.business_key.clone().or_else(|| last(&event, "consign-business-key"))
        );
        assert_eq!(
            header("consign-aggregate-version"),
            event.aggregate.version.map(|version| version.to_string())
        );
        for (name, _) in &event.headers {
            assert!(header(name).is_some(), "{name:?} is lost");
        }
    });
}

/// What a header holds when a producer wrote it more than once.
fn last(event: &Event, name: &str) -> Option<String> {
    event.headers.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}
