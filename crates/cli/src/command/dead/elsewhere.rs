//! Dead letters that are in no table: consumers with a `dead_letter` publish them to a broker.

use consign_core::route::Route;

use crate::config::{Config, DestinationConfig, ExchangeKind, RabbitMqConfig, RocketMqConfig};

/// One note for each consumer whose dead letters are elsewhere; of one consumer when it is named.
pub fn notes(config: &Config, consumer: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    for declared in &config.consumers {
        let name = declared.consumer.name();
        let Some(route) =
            declared.dead_letter.as_ref().filter(|_| consumer.is_none_or(|wanted| wanted == name))
        else {
            continue;
        };
        notes.push(format!(
            "dead letters of consumer {name:?} are not in this list: they go to destination {:?} under the key {:?}, {}",
            route.destination.as_str(),
            route.key,
            place(config, route)
        ));
    }
    notes
}

/// The queues that a route leads to, as far as the config tells.
fn place(config: &Config, route: &Route) -> String {
    let queues = match config.destinations.get(&route.destination) {
        Some(DestinationConfig::RabbitMq(broker)) => rabbitmq_queues(broker, &route.key),
        Some(DestinationConfig::Embedded(file)) => {
            let bound = |topics: &[String]| topics.iter().any(|topic| is_prefix_match(topic, &route.key));
            file.queues
                .iter()
                .filter(|queue| bound(&queue.bindings))
                .map(|queue| queue.name.clone())
                .collect()
        }
        Some(DestinationConfig::RocketMq(cluster)) => return topic_place(cluster, &route.key),
        None => Vec::new(),
    };
    match queues.as_slice() {
        [] => "and no queue of the config is bound for it: ask the broker".into(),
        [queue] => format!("which is queue {queue:?}"),
        queues => format!(
            "which is queues {}",
            queues.iter().map(|queue| format!("{queue:?}")).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The topic that a route key is, and who reads it.
fn topic_place(cluster: &RocketMqConfig, topic: &str) -> String {
    let readers = cluster.groups.iter().filter(|group| group.topic == topic);
    let readers: Vec<String> = readers.map(|group| format!("{:?}", group.name)).collect();
    if readers.is_empty() {
        "which is a topic that no group of the config reads".into()
    } else {
        format!("which is a topic read by {}", readers.join(", "))
    }
}

fn rabbitmq_queues(broker: &RabbitMqConfig, key: &str) -> Vec<String> {
    let Some(exchange) = &broker.exchange else { return vec![key.into()] };
    let matches = |binding: &String| match exchange.kind {
        ExchangeKind::Direct => binding == key,
        ExchangeKind::Topic => {
            let (pattern, words): (Vec<&str>, Vec<&str>) =
                (binding.split('.').collect(), key.split('.').collect());
            is_topic_match(&pattern, &words)
        }
        ExchangeKind::Fanout => true,
        // It routes by what the config does not say.
        ExchangeKind::Headers => false,
    };
    let bound = broker.queues.iter().filter(|queue| queue.bindings.iter().any(matches));
    bound.map(|queue| queue.name.clone()).collect()
}

/// The topic exchange's rule: `*` is one word, `#` is any number of words.
fn is_topic_match(pattern: &[&str], words: &[&str]) -> bool {
    match (pattern.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => {
            is_topic_match(rest, words)
                || words.split_first().is_some_and(|(_, words)| is_topic_match(pattern, words))
        }
        (Some((&"*", rest)), Some((_, words))) => is_topic_match(rest, words),
        (Some((word, rest)), Some((first, words))) => word == first && is_topic_match(rest, words),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The embedded queue's rule: the topic itself, or its beginning before a `*`.
fn is_prefix_match(topic: &str, key: &str) -> bool {
    topic == key || topic.strip_suffix('*').is_some_and(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_matches_word_by_word() {
        let matches = |pattern: &str, key: &str| {
            is_topic_match(&pattern.split('.').collect::<Vec<_>>(), &key.split('.').collect::<Vec<_>>())
        };

        for (pattern, key) in
            [("a.b", "a.b"), ("#", "a.b"), ("a.#", "a"), ("*.b", "a.b"), ("#.b.#", "a.b.c"), ("a.*.#", "a.b")]
        {
            assert!(matches(pattern, key), "{pattern} {key}");
        }
        for (pattern, key) in [("a", "a.b"), ("*", "a.b"), ("a.*", "a"), ("A.b", "a.b"), ("#.c", "a.b")] {
            assert!(!matches(pattern, key), "{pattern} {key}");
        }
    }

    #[test]
    fn an_embedded_topic_is_exact_or_a_beginning() {
        assert!(
            is_prefix_match("dead", "dead")
                && is_prefix_match("dead.*", "dead.sms")
                && is_prefix_match("*", "x")
        );
        assert!(!is_prefix_match("dead", "dead.sms") && !is_prefix_match("dead.*", "dead"));
    }
}
