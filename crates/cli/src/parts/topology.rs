//! The config's exchanges and queues in the broker adapter's terms.

use consign_broker::rabbitmq::{
    Binding, DeadLetterStrategy, Exchange, ExchangeKind, Overflow, Queue, QueueKind, Topology,
};

use crate::config::{self, RabbitMqConfig};

/// What a RabbitMQ destination must look like.
pub fn topology(config: &RabbitMqConfig) -> Topology {
    let exchange = config.exchange.as_ref().map(|exchange| Exchange {
        name: exchange.name.clone(),
        kind: match exchange.kind {
            config::ExchangeKind::Direct => ExchangeKind::Direct,
            config::ExchangeKind::Topic => ExchangeKind::Topic,
            config::ExchangeKind::Fanout => ExchangeKind::Fanout,
            config::ExchangeKind::Headers => ExchangeKind::Headers,
        },
        durable: exchange.durable,
    });
    let exchange_name = exchange.as_ref().map_or("", |exchange| exchange.name.as_str()).to_owned();
    let queues = config.queues.iter().map(|queue| queue_of(queue, &exchange_name)).collect();
    Topology { exchanges: exchange.into_iter().collect(), queues }
}

fn queue_of(queue: &config::QueueConfig, exchange: &str) -> Queue {
    let kind = match queue.kind {
        config::QueueKind::Classic => QueueKind::Classic,
        config::QueueKind::Quorum => QueueKind::Quorum,
        config::QueueKind::Stream => QueueKind::Stream,
    };
    let mut declared = Queue::durable(&queue.name, kind);
    declared.durable = queue.durable;
    declared.bindings =
        queue.bindings.iter().map(|key| Binding { exchange: exchange.into(), key: key.clone() }).collect();
    declared.dead_letter_exchange.clone_from(&queue.dead_letter_exchange);
    declared.dead_letter_key.clone_from(&queue.dead_letter_key);
    declared.dead_letter_strategy = queue.dead_letter_strategy.map(|strategy| match strategy {
        config::DeadLetterStrategy::AtMostOnce => DeadLetterStrategy::AtMostOnce,
        config::DeadLetterStrategy::AtLeastOnce => DeadLetterStrategy::AtLeastOnce,
    });
    declared.delivery_limit = queue.delivery_limit;
    declared.max_length = queue.max_length;
    declared.overflow = queue.overflow.map(|overflow| match overflow {
        config::Overflow::DropHead => Overflow::DropHead,
        config::Overflow::RejectPublish => Overflow::RejectPublish,
        config::Overflow::RejectPublishDeadLetter => Overflow::RejectPublishDlx,
    });
    declared
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, DestinationConfig, Environment};

    /// `B36`, `B37`: the config takes what the findings of a quorum queue advise.
    #[test]
    fn a_queue_without_a_limit_and_one_with_safe_dead_letters_can_be_declared() {
        const TEXT: &str = r#"
            store.url = "sqlite:points.db"
            [destination.points]
            type = "rabbitmq"
            url = "amqp://mq.example"
            queue = [
                { name = "unlimited", delivery_limit = -1 },
                { name = "safe", dead_letter_exchange = "dead", dead_letter_strategy = "at-least-once", overflow = "reject-publish" },
            ]
        "#;
        let config = Config::read("consign.toml", TEXT, Path::new(""), &Environment::default()).unwrap();
        let Some(DestinationConfig::RabbitMq(broker)) = config.destinations.values().next() else { panic!() };

        let topology = topology(broker);

        assert_eq!(topology.queues[0].delivery_limit, Some(-1));
        assert_eq!(topology.queues[1].dead_letter_strategy, Some(DeadLetterStrategy::AtLeastOnce));
        assert_eq!(topology.queues[1].overflow, Some(Overflow::RejectPublish));
    }
}
