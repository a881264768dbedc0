//! Routes: which destination an event goes to and under which route key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::event::Event;
use crate::retry::RetryPolicy;

/// The configured name of a destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationName(Arc<str>);

impl DestinationName {
    /// A destination's name as written in the config.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DestinationName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for DestinationName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", &self.0)
    }
}

/// Where one event goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub destination: DestinationName,
    /// The route key: a RabbitMQ routing key, a topic of the embedded queue.
    pub key: String,
}

/// One rule of the route table.
#[derive(Clone, Debug)]
pub struct Rule {
    /// An event type, or a prefix followed by `*`; `*` alone takes every type.
    pub event_type: String,
    /// The destination for it.
    pub destination: DestinationName,
    /// The template of the route key; see [`Template`].
    pub key: Template,
    /// How events that take this rule are retried; `None` leaves it to the destination's policy.
    pub retry: Option<RetryPolicy>,
}

impl Rule {
    fn takes(&self, event_type: &str) -> bool {
        self.event_type
            .strip_suffix('*')
            .map_or(self.event_type == event_type, |prefix| event_type.starts_with(prefix))
    }
}

/// The routes, first match wins.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    rules: Vec<Rule>,
    names: Vec<DestinationName>,
    retry: BTreeMap<DestinationName, RetryPolicy>,
}

/// Why an event has nowhere to go. The row waits and is loud about it; it never goes DEAD for a missing rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// No rule takes the type.
    #[error("no route takes event type {event_type:?}: add a [[route]] with a matching event_type")]
    NoRule {
        /// The event's type.
        event_type: String,
    },
    /// The row, or the rule that takes it, names a destination that is not configured.
    #[error("the event goes to destination {name:?}, which is not configured: add [destination.{name}]")]
    UnknownDestination {
        /// The destination's name.
        name: String,
    },
}

impl RouteTable {
    /// A table of `rules` over the configured destinations `names`.
    pub fn new(rules: Vec<Rule>, names: Vec<DestinationName>) -> Self {
        Self { rules, names, retry: BTreeMap::new() }
    }

    /// The same table with retry policies of its destinations' own.
    #[must_use]
    pub fn with_retry(mut self, retry: BTreeMap<DestinationName, RetryPolicy>) -> Self {
        self.retry = retry;
        self
    }

    /// Every configured destination.
    pub fn destinations(&self) -> &[DestinationName] {
        &self.names
    }

    /// True without any rule: nothing of an outbox has anywhere to go.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The policy for an event on its way to `destination`: its rule's own, else the destination's; `None` leaves it to
    /// the relay's.
    pub fn retry(&self, event: &Event, destination: &DestinationName) -> Option<&RetryPolicy> {
        // A row that names its destination did not take the rule's way.
        let rule = self.rules.iter().find(|rule| rule.takes(&event.event_type));
        let rule = rule.filter(|_| event.destination.is_none());
        rule.and_then(|rule| rule.retry.as_ref()).or_else(|| self.retry.get(destination))
    }

    /// The highest attempts cap of any policy, `relay` being the relay's own.
    pub(crate) fn attempts_max(&self, relay: u32) -> u32 {
        let rules = self.rules.iter().filter_map(|rule| rule.retry.as_ref());
        rules.chain(self.retry.values()).map(|policy| policy.attempts_max).fold(relay, u32::max)
    }

    /// Finds the event's route.
    ///
    /// # Errors
    /// Nothing takes the event, or it goes to a destination that is not configured.
    pub fn resolve(&self, event: &Event) -> Result<Route, NoRoute> {
        let rule = self.rules.iter().find(|rule| rule.takes(&event.event_type));
        let wanted = match (&event.destination, rule) {
            (Some(name), _) => name.as_str(),
            (None, Some(rule)) => rule.destination.as_str(),
            (None, None) => return Err(NoRoute::NoRule { event_type: event.event_type.clone() }),
        };
        let known = self.names.iter().find(|known| known.as_str() == wanted);
        let destination = known.ok_or_else(|| NoRoute::UnknownDestination { name: wanted.into() })?;
        let key = match (&event.route_key, rule) {
            (Some(key), _) => key.clone(),
            (None, Some(rule)) => rule.key.render(event),
            (None, None) => event.event_type.clone(),
        };
        Ok(Route { destination: destination.clone(), key })
    }
}

/// A route key with placeholders: `{event_type}`, `{aggregate_type}`, `{aggregate_id}`, `{business_key}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    EventType,
    AggregateType,
    AggregateId,
    BusinessKey,
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A `{` has no `}`.
    #[error("{template:?} has a {{ without }}: close the placeholder")]
    Unclosed {
        /// The whole template.
        template: String,
    },
    /// The placeholder is not one of the known ones.
    #[error(
        "{template:?} uses unknown placeholder {name:?}: use event_type, aggregate_type, aggregate_id or business_key"
    )]
    UnknownPlaceholder {
        /// The whole template.
        template: String,
        /// The placeholder's name.
        name: String,
    },
}

impl Template {
    /// Parses a template once, at start.
    ///
    /// # Errors
    /// The template has an unclosed or unknown placeholder.
    pub fn parse(template: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            let (literal, tail) = rest.split_at(open);
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            let close =
                tail.find('}').ok_or_else(|| InvalidTemplate::Unclosed { template: template.into() })?;
            parts.push(match &tail[1..close] {
                "event_type" => Part::EventType,
                "aggregate_type" => Part::AggregateType,
                "aggregate_id" => Part::AggregateId,
                "business_key" => Part::BusinessKey,
                name => {
                    return Err(InvalidTemplate::UnknownPlaceholder {
                        template: template.into(),
                        name: name.into(),
                    });
                }
            });
            rest = &tail[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.into()));
        }
        Ok(Self(parts))
    }

    fn render(&self, event: &Event) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        self.0
            .iter()
            .map(|part| match part {
                Part::Literal(literal) => literal.clone(),
                Part::EventType => event.event_type.clone(),
                Part::AggregateType => text(&event.aggregate.kind),
                Part::AggregateId => text(&event.aggregate.id),
                Part::BusinessKey => text(&event.business_key),
            })
            .collect()
    }
}
