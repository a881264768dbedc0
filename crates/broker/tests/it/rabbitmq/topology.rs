//! Applying and checking topologies.

use consign_amqp::{Channel, FieldTable, QueueDeclaration};
use consign_broker::rabbitmq::{
    ConnectOptions, Exchange, ExchangeKind, Overflow, Queue, QueueKind, Topology, TopologyError,
};
use consign_core::finding::{Finding, Severity};

use super::fixture::{Server, unique};

/// A topology under names of its own; what it made is deleted by [`Names::delete`].
struct Names {
    exchange: String,
    dead: String,
    quorum: String,
    classic: String,
    stream: String,
}

impl Names {
    fn new() -> Self {
        let unique = |what| unique(&format!("topology-{what}"));
        Self {
            exchange: unique("exchange"),
            dead: unique("dead"),
            quorum: unique("quorum"),
            classic: unique("classic"),
            stream: unique("stream"),
        }
    }

    fn topology(&self) -> Topology {
        let dead_letters = |queue: Queue| Queue {
            dead_letter_exchange: Some(self.dead.clone()),
            overflow: Some(Overflow::RejectPublish),
            ..queue
        };
        Topology {
            exchanges: vec![
                Exchange::durable(self.exchange.clone(), ExchangeKind::Topic),
                Exchange::durable(self.dead.clone(), ExchangeKind::Fanout),
            ],
            queues: vec![
                Queue {
                    delivery_limit: Some(10),
                    ..dead_letters(Queue::durable(self.quorum.clone(), QueueKind::Quorum))
                }
                .bound_to(self.exchange.clone(), "order.*"),
                Queue {
                    max_length: Some(1000),
                    ..dead_letters(Queue::durable(self.classic.clone(), QueueKind::Classic))
                }
                .bound_to(self.dead.clone(), ""),
                Queue::durable(self.stream.clone(), QueueKind::Stream).bound_to(self.exchange.clone(), "#"),
            ],
        }
    }

    async fn delete(&self, side: &Channel) {
        for queue in [&self.quorum, &self.classic, &self.stream] {
            side.queue_delete(queue, false, false).await.unwrap();
        }
        for exchange in [&self.exchange, &self.dead] {
            side.exchange_delete(exchange, false).await.unwrap();
        }
    }
}

async fn side(server: Server) -> Channel {
    server.open().await.open_channel().await.unwrap()
}

fn errors(findings: &[Finding]) -> Vec<(&str, &str)> {
    findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| (finding.code, finding.subject.as_str()))
        .collect()
}

#[tokio::test]
async fn what_apply_made_is_found_as_configured_and_applying_again_changes_nothing() {
    for server in Server::BOTH {
        let (names, connect) = (Names::new(), server.connect());
        let topology = names.topology();

        topology.apply(&connect).await.unwrap();
        topology.apply(&connect).await.unwrap();
        let findings = topology.check(&connect).await;

        names.delete(&side(server).await).await;
        assert_eq!(errors(&findings), [], "{server:?}");
        let as_configured = |code: &str| findings.iter().filter(|finding| finding.code == code).count();
        assert_eq!(as_configured("queue-as-configured"), 3, "{findings:#?}");
        assert_eq!(as_configured("exchange-as-configured"), 2);
        assert_eq!(as_configured("broker-version"), 1);
        assert_eq!(as_configured("bindings-not-visible"), 1);
    }
}

#[tokio::test]
async fn apply_binds_so_that_messages_arrive() {
    for server in Server::BOTH {
        let names = Names::new();
        names.topology().apply(&server.connect()).await.unwrap();
        let publisher = server.open().await.open_publisher().await.unwrap();

        let publication = consign_amqp::Publication {
            exchange: names.exchange.clone(),
            routing_key: "order.paid".to_owned(),
            properties: consign_amqp::Properties { message_id: Some("e-1".into()), ..Default::default() },
            body: "{}".into(),
        };
        let verdict =
            publisher.publish(publication, tokio::time::Instant::now() + crate::events::PATIENCE).await;

        let side = side(server).await;
        let arrived = side.get(&names.quorum).await.unwrap();
        names.delete(&side).await;
        assert!(matches!(verdict, consign_amqp::Verdict::Acked { .. }), "{verdict:?}");
        assert!(arrived.is_some());
    }
}

#[tokio::test]
async fn checking_an_empty_broker_reports_everything_as_missing_and_makes_nothing() {
    for server in Server::BOTH {
        let (names, connect) = (Names::new(), server.connect());

        let first = names.topology().check(&connect).await;
        let second = names.topology().check(&connect).await;

        let missing = |findings: &[Finding]| {
            errors(findings).iter().filter(|(code, _)| code.ends_with("-missing")).count()
        };
        assert_eq!((missing(&first), missing(&second)), (5, 5), "{first:#?}");
    }
}

#[tokio::test]
async fn a_queue_that_differs_is_named_with_the_argument_and_both_values() {
    for server in Server::BOTH {
        let (name, connect, side) = (unique("differs"), server.connect(), side(server).await);
        let existing = QueueDeclaration::durable(
            FieldTable::new().with("x-queue-type", "classic").with("x-max-length", 5),
        );
        side.queue_declare(&name, &existing).await.unwrap();
        let topology = |queue| Topology { exchanges: Vec::new(), queues: vec![queue] };
        let longer =
            topology(Queue { max_length: Some(6), ..Queue::durable(name.clone(), QueueKind::Classic) });
        let quorum =
            topology(Queue { max_length: Some(5), ..Queue::durable(name.clone(), QueueKind::Quorum) });

        let length = longer.apply(&connect).await.unwrap_err();
        let kind = quorum.apply(&connect).await.unwrap_err();
        let checked = quorum.check(&connect).await;

        side.queue_delete(&name, false, false).await.unwrap();
        let TopologyError::Differs { subject, argument, wanted, found } = &length else {
            panic!("{length:?}")
        };
        assert!(subject.contains(&name), "{length}");
        assert_eq!((argument.as_str(), wanted.as_str(), found.as_str()), ("x-max-length", "6", "5"));
        let TopologyError::Differs { argument, wanted, found, .. } = &kind else { panic!("{kind:?}") };
        assert_eq!(
            (argument.as_str(), wanted.as_str(), found.as_str()),
            ("x-queue-type", "quorum", "classic")
        );
        let finding = checked.iter().find(|finding| finding.code == "queue-differs").expect("it differs");
        assert!(finding.subject.contains(&name) && finding.text.contains("x-queue-type"), "{finding:?}");
    }
}

/// `B36`: what a quorum queue does with a message that comes back again and again, and whether consign is earlier.
#[tokio::test]
async fn the_delivery_limit_that_holds_is_reported_with_what_it_means_for_consumers() {
    for server in Server::BOTH {
        let (name, connect) = (unique("limit"), server.connect());
        let queue = Queue::durable(name.clone(), QueueKind::Quorum);
        let topology = Topology { exchanges: Vec::new(), queues: vec![queue] };
        topology.apply(&connect).await.unwrap();
        let consumed = topology.consumed("of-another-topology", 100).consumed(&name, 20).consumed(&name, 5);

        let findings = consumed.check(&connect).await;

        side(server).await.queue_delete(&name, false, false).await.unwrap();
        let told = |code: &str| findings.iter().any(|finding| finding.code == code);
        let codes = ["delivery-limit", "delivery-limit-loses", "attempts-reach-delivery-limit"];
        let expected = match server {
            Server::V3 => [true, false, false],
            Server::V4 => [false, true, true],
        };
        assert_eq!(codes.map(told), expected, "{server:?}: {findings:#?}");
        assert!(told("queue-as-configured"), "attempts are no argument of the queue");
    }
}

/// Queues declared by other programs often carry no explicit type.
#[tokio::test]
async fn a_classic_queue_that_was_declared_without_a_type_is_as_configured() {
    for server in Server::BOTH {
        let (name, connect, side) = (unique("untyped"), server.connect(), side(server).await);
        side.queue_declare(&name, &QueueDeclaration::durable(FieldTable::new())).await.unwrap();
        let topology = Topology {
            exchanges: Vec::new(),
            queues: vec![Queue::durable(name.clone(), QueueKind::Classic)],
        };

        let applied = topology.apply(&connect).await;
        let findings = topology.check(&connect).await;

        side.queue_delete(&name, false, false).await.unwrap();
        assert_eq!(applied, Ok(()), "{server:?}");
        assert!(findings.iter().any(|finding| finding.code == "queue-as-configured"), "{findings:#?}");
    }
}

#[tokio::test]
async fn an_exchange_of_another_type_differs() {
    for server in Server::BOTH {
        let (name, connect, side) = (unique("kind"), server.connect(), side(server).await);
        let exchange =
            |kind| Topology { exchanges: vec![Exchange::durable(name.clone(), kind)], queues: Vec::new() };
        exchange(ExchangeKind::Direct).apply(&connect).await.unwrap();

        let error = exchange(ExchangeKind::Topic).apply(&connect).await.unwrap_err();

        side.exchange_delete(&name, false).await.unwrap();
        let TopologyError::Differs { argument, wanted, found, .. } = &error else { panic!("{error:?}") };
        assert_eq!((argument.as_str(), wanted.as_str(), found.as_str()), ("type", "topic", "direct"));
    }
}

#[tokio::test]
async fn a_dead_letter_exchange_that_does_not_exist_is_an_error() {
    let (name, connect) = (unique("dead-end"), Server::V4.connect());
    let queue = Queue {
        dead_letter_exchange: Some(unique("absent")),
        ..Queue::durable(name.clone(), QueueKind::Quorum)
    };

    let findings = Topology { exchanges: Vec::new(), queues: vec![queue] }.check(&connect).await;

    assert!(errors(&findings).iter().any(|(code, _)| *code == "exchange-missing"), "{findings:#?}");
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_a_finding_without_the_password() {
    let connect = ConnectOptions { password: "s3cret".to_owned(), ..Server::V4.connect() };

    let findings = Topology::default().check(&connect).await;

    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].code, findings[0].severity), ("broker-unreachable", Severity::Error));
    assert!(!format!("{findings:?}").contains("s3cret"));
}
