//! The config's exchanges and queues in the broker adapter's terms.

use consign_broker::rabbitmq::{Binding, Exchange, ExchangeKind, Overflow, Queue, QueueKind, Topology};

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
    declared.delivery_limit = queue.delivery_limit.and_then(|limit| i64::try_from(limit).ok());
    declared.max_length = queue.max_length;
    declared.overflow = queue.overflow.map(|overflow| match overflow {
        config::Overflow::DropHead => Overflow::DropHead,
        config::Overflow::RejectPublish => Overflow::RejectPublish,
        config::Overflow::RejectPublishDeadLetter => Overflow::RejectPublishDlx,
    });
    declared
}
