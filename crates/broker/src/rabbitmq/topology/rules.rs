//! Rules over a topology that know the broker's version. Pure.

use consign_amqp::ServerInfo;
use consign_core::finding::Finding;

use super::{
    DeadLetterStrategy, Exchange, ExchangeKind, Overflow, Queue, QueueKind, Topology, delivery_limit,
};

/// What kind of broker answers.
#[derive(Clone, Debug)]
pub(super) struct Server {
    product: String,
    text: String,
    /// Major and minor version; the oldest when it cannot be read.
    version: (u32, u32),
}

impl Server {
    pub fn new(info: &ServerInfo) -> Self {
        let mut parts = info.version.split(['.', '-', '+']).map_while(|part| part.parse().ok());
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        Self { product: info.product.clone(), text: info.version.clone(), version }
    }

    /// Whether it is this version or a later one.
    pub fn from(&self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }

    fn finding(&self) -> Finding {
        let subject = format!("{} {}", self.product, self.text);
        if self.product != "RabbitMQ" {
            return Finding::warning(
                "broker-unknown",
                subject,
                "consign's rules are written for RabbitMQ; durability and confirms of this broker are not known to them",
                "check what a publisher confirm means on this broker",
            );
        }
        if !self.from(3, 10) {
            return Finding::warning(
                "broker-old",
                subject,
                "consign is tested from 3.10 on",
                "upgrade to a supported release",
            );
        }
        let mirrored = if self.from(4, 0) {
            "mirrored-queue policies no longer exist: only quorum queues and streams replicate"
        } else {
            "only quorum queues and streams are replicated safely; mirrored classic queues end with version 4"
        };
        Finding::fine("broker-version", subject, mirrored)
    }
}

/// Everything that can be said without asking the broker again.
pub(super) fn judge(topology: &Topology, server: &Server) -> Vec<Finding> {
    let mut findings = vec![server.finding()];
    for exchange in &topology.exchanges {
        judge_exchange(exchange, topology, &mut findings);
    }
    for queue in &topology.queues {
        judge_durability(queue, server, &mut findings);
        judge_replication(queue, server, &mut findings);
        delivery_limit::judge(queue, topology, server, &mut findings);
        judge_dead_letters(queue, topology, &mut findings);
        judge_overflow(queue, topology, &mut findings);
        judge_arguments(queue, server, &mut findings);
    }
    findings
}

pub(super) fn subject(queue: &Queue) -> String {
    format!("queue {:?}", queue.name)
}

/// Queues that are bound to an exchange.
pub(super) fn bound<'a>(topology: &'a Topology, exchange: &'a str) -> impl Iterator<Item = &'a Queue> {
    topology
        .queues
        .iter()
        .filter(move |queue| queue.bindings.iter().any(|binding| binding.exchange == exchange))
}

fn judge_exchange(exchange: &Exchange, topology: &Topology, findings: &mut Vec<Finding>) {
    let subject = format!("exchange {:?}", exchange.name);
    if exchange.name.is_empty() {
        findings.push(Finding::error(
            "exchange-unnamed",
            subject,
            "the default exchange exists always and cannot be declared",
            "remove it from the topology",
        ));
        return;
    }
    if !exchange.durable {
        findings.push(Finding::error(
            "exchange-not-durable",
            subject.clone(),
            "it is gone after a restart of the broker, and every publish to it closes the channel",
            "set durable = true",
        ));
    }
    if !bound(topology, &exchange.name).any(|queue| queue.durable) {
        findings.push(Finding::error(
            "exchange-without-durable-queue",
            subject,
            "no durable queue of the topology is bound to it: what is published there is unroutable, or lives in \
             queues that the topology does not know",
            "add a durable queue with a binding to it",
        ));
    }
}

fn judge_durability(queue: &Queue, server: &Server, findings: &mut Vec<Finding>) {
    if !queue.durable {
        let refused = if server.from(4, 3) { ", and RabbitMQ 4.3 refuses to declare it" } else { "" };
        findings.push(Finding::error(
            "queue-not-durable",
            subject(queue),
            format!("it is gone after a restart of the broker, persistent messages included{refused}"),
            "set durable = true; an existing queue must be deleted and declared again",
        ));
    }
    if queue.auto_delete {
        findings.push(Finding::error(
            "queue-auto-delete",
            subject(queue),
            "it goes with its last consumer, and with it every message that was confirmed and not consumed",
            "set auto_delete = false",
        ));
    }
}

fn judge_replication(queue: &Queue, server: &Server, findings: &mut Vec<Finding>) {
    findings.push(match queue.kind {
        QueueKind::Quorum => Finding::fine(
            "queue-replicated",
            subject(queue),
            "a confirm means that a majority of its members wrote the message to disk",
        ),
        QueueKind::Stream => Finding::fine(
            "queue-replicated",
            subject(queue),
            "a confirm means that a majority of its members have the message; an operating system crash on all of \
             them can still lose it, since streams do not flush each message",
        ),
        QueueKind::Classic => Finding::warning(
            "queue-not-replicated",
            subject(queue),
            if server.from(4, 0) {
                "it lives on one node: lost with its disk, unavailable with its node; mirroring no longer exists"
            } else {
                "it lives on one node unless a policy mirrors it, and mirroring ends with version 4"
            },
            "use a quorum queue where a lost message matters",
        ),
    });
}

fn judge_dead_letters(queue: &Queue, topology: &Topology, findings: &mut Vec<Finding>) {
    let Some(exchange) = &queue.dead_letter_exchange else {
        if queue.dead_letter_strategy.is_some() || queue.dead_letter_key.is_some() {
            findings.push(Finding::warning(
                "dead-letter-without-exchange",
                subject(queue),
                "dead_letter_key and dead_letter_strategy do nothing without dead_letter_exchange",
                "set dead_letter_exchange, or remove them",
            ));
        }
        return;
    };
    let listed = topology.exchanges.iter().any(|known| known.name == *exchange);
    if listed && bound(topology, exchange).next().is_none() {
        findings.push(Finding::error(
            "dead-letter-unrouted",
            subject(queue),
            format!("no queue of the topology is bound to its dead-letter exchange {exchange:?}: dead letters are dropped"),
            "bind a durable queue to it",
        ));
    }
    let at_least_once = queue.dead_letter_strategy == Some(DeadLetterStrategy::AtLeastOnce);
    let (text, fix) = match (queue.kind, at_least_once) {
        (QueueKind::Stream, _) => return,
        (QueueKind::Quorum, true) if queue.overflow == Some(Overflow::RejectPublish) => return,
        (QueueKind::Quorum, true) => (
            "at-least-once dead-lettering needs overflow reject-publish; without it the broker falls back to at-most-once",
            "set overflow = \"reject-publish\"",
        ),
        (QueueKind::Quorum, false) => (
            "dead letters are moved without confirms: one can vanish on its way",
            "set dead_letter_strategy = \"at-least-once\" and overflow = \"reject-publish\"",
        ),
        (QueueKind::Classic, _) => (
            "classic queues move dead letters without confirms: one can vanish on its way",
            "use a quorum queue, or let consign publish dead letters itself",
        ),
    };
    findings.push(Finding::warning("dead-letter-at-most-once", subject(queue), text, fix));
}

/// B26: what happens beyond a queue's length.
fn judge_overflow(queue: &Queue, topology: &Topology, findings: &mut Vec<Finding>) {
    let limited = queue.max_length.is_some() || queue.max_length_bytes.is_some();
    if !limited || queue.kind == QueueKind::Stream {
        return;
    }
    if matches!(queue.overflow, None | Some(Overflow::DropHead)) {
        findings.push(Finding::error(
            "overflow-drops-head",
            subject(queue),
            "beyond its length the oldest messages are dropped, although they were confirmed",
            "set overflow = \"reject-publish\"",
        ));
        return;
    }
    let shared = queue.bindings.iter().find(|binding| bound(topology, &binding.exchange).count() > 1);
    if let Some(binding) = shared {
        let kind = topology.exchanges.iter().find(|exchange| exchange.name == binding.exchange);
        let routes = match kind.map(|exchange| &exchange.kind) {
            Some(ExchangeKind::Fanout) => "every message",
            _ => "a message with a key of both",
        };
        findings.push(Finding::warning(
            "overflow-mixed",
            subject(queue),
            format!(
                "other queues are bound to exchange {:?} too: when this one is full, {routes} is nacked although the \
                 others took it, and comes to them again",
                binding.exchange
            ),
            "consumers must be idempotent, as consign's inbox is; or give the queue an exchange of its own",
        ));
    }
}

/// Arguments that a queue type or version ignores or refuses.
fn judge_arguments(queue: &Queue, server: &Server, findings: &mut Vec<Finding>) {
    let mut refused = |text: String, fix: &str| {
        findings.push(Finding::error("queue-argument-unsupported", subject(queue), text, fix));
    };
    let kind = queue.kind.as_str();
    if queue.delivery_limit.is_some() && queue.kind != QueueKind::Quorum {
        refused(
            format!("delivery_limit is for quorum queues, and this is a {kind} queue"),
            "remove delivery_limit",
        );
    }
    if queue.delivery_limit.is_some_and(|limit| limit < 0) && !server.from(4, 0) {
        refused(
            "a negative delivery_limit is known from RabbitMQ 4.0 on; before, no limit is the default"
                .to_owned(),
            "remove delivery_limit",
        );
    }
    if queue.overflow == Some(Overflow::RejectPublishDlx) && queue.kind != QueueKind::Classic {
        refused(
            format!("overflow reject-publish-dlx is for classic queues, and this is a {kind} queue"),
            "use overflow = \"reject-publish\"",
        );
    }
    if queue.kind == QueueKind::Stream && (queue.dead_letter_exchange.is_some() || queue.overflow.is_some()) {
        refused(
            "streams have neither a dead-letter exchange nor an overflow: they drop the oldest segments by length or age".to_owned(),
            "remove dead_letter_exchange and overflow",
        );
    }
    match queue.classic_version {
        Some(_) if queue.kind != QueueKind::Classic => {
            refused(
                format!("classic_version is for classic queues, and this is a {kind} queue"),
                "remove it",
            );
        }
        Some(1) if server.from(4, 3) => {
            refused("RabbitMQ 4.3 refuses storage version 1".to_owned(), "remove classic_version");
        }
        Some(1) if server.from(4, 0) => findings.push(Finding::warning(
            "classic-version-ignored",
            subject(queue),
            "storage version 1 no longer exists from RabbitMQ 4.0 on: version 2 is used",
            "remove classic_version",
        )),
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use consign_core::finding::Severity;

    use super::*;

    fn server(version: &str) -> Server {
        Server::new(&ServerInfo {
            product: "RabbitMQ".into(),
            version: version.into(),
            ..ServerInfo::default()
        })
    }

    fn orders() -> Exchange {
        Exchange::durable("orders", ExchangeKind::Topic)
    }

    fn quorum() -> Queue {
        Queue::durable("points", QueueKind::Quorum).bound_to("orders", "order.*")
    }

    fn findings(queue: Queue, version: &str) -> Vec<Finding> {
        judge(&Topology { exchanges: vec![orders()], queues: vec![queue] }, &server(version))
    }

    fn severity(findings: &[Finding], code: &str) -> Option<Severity> {
        findings.iter().find(|finding| finding.code == code).map(|finding| finding.severity)
    }

    fn problems(findings: &[Finding]) -> Vec<&str> {
        findings
            .iter()
            .filter(|finding| finding.severity > Severity::Fine)
            .map(|finding| finding.code)
            .collect()
    }

    /// `B36` (rabbitmq/rabbitmq-server#11937): from 4.0 a quorum queue drops a message after 20 returns by default.
    #[test]
    fn a_quorum_queue_without_dead_letters_loses_messages_from_4_0_on() {
        assert_eq!(problems(&findings(quorum(), "3.13.7")), Vec::<&str>::new());
        assert_eq!(problems(&findings(quorum(), "4.0.5")), ["delivery-limit-loses"]);
        assert_eq!(problems(&findings(quorum(), "4.3.0-beta.1")), ["delivery-limit-loses"]);
        let unlimited = Queue { delivery_limit: Some(-1), ..quorum() };
        assert_eq!(problems(&findings(unlimited.clone(), "4.0.5")), Vec::<&str>::new());
        assert_eq!(problems(&findings(unlimited, "3.13.7")), ["queue-argument-unsupported"]);
        let limited = Queue { delivery_limit: Some(5), ..quorum() };
        assert_eq!(problems(&findings(limited, "3.13.7")), ["delivery-limit-loses"]);
    }

    /// `B37` (rabbitmq/rabbitmq-server#3100): dead-lettering is at-most-once unless two settings say otherwise.
    #[test]
    fn dead_lettering_without_confirms_is_a_warning() {
        let elsewhere = Queue { dead_letter_exchange: Some("dead".into()), ..quorum() };
        let half = Queue { dead_letter_strategy: Some(DeadLetterStrategy::AtLeastOnce), ..elsewhere.clone() };
        let safe = Queue { overflow: Some(Overflow::RejectPublish), ..half.clone() };
        let classic = Queue { kind: QueueKind::Classic, ..safe.clone() };

        assert_eq!(problems(&findings(elsewhere, "4.0.5")), ["dead-letter-at-most-once"]);
        assert_eq!(problems(&findings(half, "4.0.5")), ["dead-letter-at-most-once"]);
        assert_eq!(problems(&findings(safe, "4.0.5")), Vec::<&str>::new());
        assert_eq!(
            severity(&findings(classic, "4.0.5"), "dead-letter-at-most-once"),
            Some(Severity::Warning)
        );
    }

    #[test]
    fn a_dead_letter_exchange_without_a_queue_is_an_error() {
        let dead = Exchange::durable("dead", ExchangeKind::Fanout);
        let queue = Queue { dead_letter_exchange: Some("dead".into()), ..quorum() };
        let topology = Topology { exchanges: vec![orders(), dead], queues: vec![queue] };

        let findings = judge(&topology, &server("4.0.5"));

        assert_eq!(severity(&findings, "dead-letter-unrouted"), Some(Severity::Error));
    }

    /// `B26` (Queue Length Limit page of RabbitMQ's documentation): drop-head loses confirmed messages.
    #[test]
    fn a_length_limit_that_drops_the_head_is_an_error() {
        let by_default = Queue { max_length: Some(10), ..quorum() };
        let refusing = Queue { overflow: Some(Overflow::RejectPublish), ..by_default.clone() };

        assert_eq!(severity(&findings(by_default, "3.10.8"), "overflow-drops-head"), Some(Severity::Error));
        assert_eq!(problems(&findings(refusing, "3.10.8")), Vec::<&str>::new());
    }

    /// `B26` (rabbitmq/rabbitmq-server#8495): with fan-out a nack means that one of several queues refused.
    #[test]
    fn a_limited_queue_beside_others_on_one_exchange_is_a_warning() {
        let limited = Queue { max_length: Some(10), overflow: Some(Overflow::RejectPublish), ..quorum() };
        let other = Queue::durable("audit", QueueKind::Quorum).bound_to("orders", "#");
        let topology = Topology { exchanges: vec![orders()], queues: vec![limited, other] };

        let findings = judge(&topology, &server("3.10.8"));

        assert_eq!(severity(&findings, "overflow-mixed"), Some(Severity::Warning));
    }

    /// `B19` (rabbitmq/rabbitmq-server#1877) and `B98`: queues that go by themselves, and what 4.3 refuses.
    #[test]
    fn queues_that_do_not_outlive_restarts_or_consumers_are_errors() {
        let transient = Queue { durable: false, kind: QueueKind::Classic, ..quorum() };
        let fleeting = Queue { auto_delete: true, kind: QueueKind::Classic, ..quorum() };

        let old = findings(transient.clone(), "4.0.5");
        let new = findings(transient, "4.3.6");

        assert_eq!(severity(&old, "queue-not-durable"), Some(Severity::Error));
        assert_eq!(severity(&old, "exchange-without-durable-queue"), Some(Severity::Error));
        let text = |findings: &[Finding]| {
            findings.iter().find(|finding| finding.code == "queue-not-durable").unwrap().text.clone()
        };
        assert!(!text(&old).contains("4.3") && text(&new).contains("4.3"));
        assert_eq!(severity(&findings(fleeting, "4.0.5"), "queue-auto-delete"), Some(Severity::Error));
    }

    #[test]
    fn exchanges_that_lose_messages_are_errors() {
        let transient = Exchange { durable: false, ..orders() };
        let topology = Topology { exchanges: vec![transient], queues: vec![quorum()] };
        let unbound = Topology { exchanges: vec![orders()], queues: Vec::new() };

        assert_eq!(
            severity(&judge(&topology, &server("4.0.5")), "exchange-not-durable"),
            Some(Severity::Error)
        );
        assert_eq!(
            severity(&judge(&unbound, &server("4.0.5")), "exchange-without-durable-queue"),
            Some(Severity::Error)
        );
    }

    #[test]
    fn only_quorum_queues_and_streams_count_as_replicated() {
        let kind = |kind| findings(Queue { kind, ..quorum() }, "3.13.7");

        assert_eq!(severity(&kind(QueueKind::Quorum), "queue-replicated"), Some(Severity::Fine));
        assert_eq!(severity(&kind(QueueKind::Stream), "queue-replicated"), Some(Severity::Fine));
        assert_eq!(severity(&kind(QueueKind::Classic), "queue-not-replicated"), Some(Severity::Warning));
    }

    #[test]
    fn arguments_of_another_queue_type_or_version_are_reported() {
        let classic = Queue { kind: QueueKind::Classic, ..quorum() };
        let first = Queue { classic_version: Some(1), ..classic.clone() };
        let stream =
            Queue { kind: QueueKind::Stream, dead_letter_exchange: Some("orders".into()), ..quorum() };

        let limited = findings(Queue { delivery_limit: Some(3), ..classic }, "4.0.5");
        assert_eq!(severity(&limited, "queue-argument-unsupported"), Some(Severity::Error));
        assert_eq!(
            severity(&findings(first.clone(), "4.0.5"), "classic-version-ignored"),
            Some(Severity::Warning)
        );
        assert_eq!(severity(&findings(first, "4.3.6"), "queue-argument-unsupported"), Some(Severity::Error));
        assert_eq!(severity(&findings(stream, "4.0.5"), "queue-argument-unsupported"), Some(Severity::Error));
    }

    #[test]
    fn other_products_and_old_versions_are_warnings() {
        let other = Server::new(&ServerInfo {
            product: "LavinMQ".into(),
            version: "2.5.0".into(),
            ..ServerInfo::default()
        });
        let topology = Topology::default();

        assert_eq!(severity(&judge(&topology, &other), "broker-unknown"), Some(Severity::Warning));
        assert_eq!(severity(&judge(&topology, &server("3.8.9")), "broker-old"), Some(Severity::Warning));
        assert_eq!(severity(&judge(&topology, &server("4.1.0")), "broker-version"), Some(Severity::Fine));
    }
}
