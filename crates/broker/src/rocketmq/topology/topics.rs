//! Topics, compared.

use consign_core::finding::Finding;
use consign_rocketmq::TopicKind;
use consign_rocketmq::admin::{Admin, AdminError, TopicConfig};

use super::{Topic, Topology};

/// What a broker has under a topic's name, against what the topology says.
pub(super) fn compare(topic: &Topic, broker: &str, found: Option<&TopicConfig>) -> Vec<Finding> {
    let subject = format!("topic {:?} on broker {broker:?}", topic.name);
    let Some(found) = found else {
        return vec![Finding::error(
            "topic-missing",
            subject,
            "the broker does not have it",
            "run consign topology apply",
        )];
    };
    let mut findings = Vec::new();
    if found.kind() == TopicKind::Mixed && topic.kind == TopicKind::Transaction {
        findings.push(Finding::error(
            "topic-mixed",
            subject.as_str(),
            "message.type is MIXED: over the proxy, nobody is asked about half messages of such a topic",
            "send transaction messages to a topic of kind TRANSACTION",
        ));
    }
    for difference in topic.differences(found) {
        findings.push(Finding::error(
            "topic-differs",
            subject.as_str(),
            format!(
                "{} is {} on the broker and {} in the topology",
                difference.argument, difference.found, difference.wanted
            ),
            "change the topology, or the broker by hand (mqadmin updateTopic) once the topic is drained",
        ));
    }
    if !(found.readable() && found.writable()) {
        findings.push(Finding::error(
            "topic-closed",
            subject.as_str(),
            format!(
                "perm is {}: {}",
                found.permission,
                if found.readable() { "producers are refused" } else { "consumers get nothing" }
            ),
            "set perm=6 (mqadmin updateTopicPerm)",
        ));
    }
    if topic.kind == TopicKind::Fifo && !found.order {
        findings.push(Finding::warning(
            "topic-not-ordered",
            subject.as_str(),
            "order is false: while a broker is away, message groups move to other queues and may overtake themselves",
            "set order=true (mqadmin updateTopic -o true)",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("topic-as-configured", subject, "exists as configured"));
    }
    findings
}

/// Whether clients find the topics of the topology, and the ones that groups consume.
pub(super) async fn check_routes(
    topology: &Topology,
    admin: &Admin,
    findings: &mut Vec<Finding>,
) -> Result<(), AdminError> {
    let subscriptions = topology.groups.iter().flat_map(|group| &group.subscriptions);
    let consumed = subscriptions.map(|subscription| &subscription.topic);
    let mut names: Vec<&String> = topology.topics.iter().map(|topic| &topic.name).chain(consumed).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if admin.route(name).await?.is_none() {
            findings.push(Finding::error(
                "topic-not-routed",
                format!("topic {name:?}"),
                "the name server does not know it, so clients are told that it does not exist",
                "run consign topology apply; a topic that is new on a broker takes a moment to be known",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use consign_core::finding::Severity;

    use super::*;

    fn topic(kind: TopicKind) -> Topic {
        Topic { name: "points".to_owned(), kind, queues: 8 }
    }

    fn codes(topic: &Topic, found: Option<&TopicConfig>) -> Vec<(&'static str, Severity)> {
        compare(topic, "a", found).iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn what_apply_makes_is_as_configured() {
        for kind in [TopicKind::Normal, TopicKind::Fifo, TopicKind::Delay, TopicKind::Transaction] {
            let topic = topic(kind);
            assert_eq!(codes(&topic, Some(&topic.config())), [("topic-as-configured", Severity::Fine)]);
        }
        assert_eq!(codes(&topic(TopicKind::Fifo), None), [("topic-missing", Severity::Error)]);
    }

    #[test]
    fn another_kind_or_number_of_queues_is_an_error() {
        let normal = topic(TopicKind::Normal);
        let without_kind = TopicConfig { attributes: BTreeMap::default(), ..normal.config() };
        let fewer = TopicConfig { read_queues: 4, ..normal.config() };

        assert_eq!(codes(&normal, Some(&without_kind)), [("topic-as-configured", Severity::Fine)]);
        assert_eq!(codes(&normal, Some(&fewer)), [("topic-differs", Severity::Error)]);
        assert_eq!(
            codes(&topic(TopicKind::Transaction), Some(&normal.config())),
            [("topic-differs", Severity::Error)]
        );
    }

    /// `rocketmq.md` 1.4: in cluster mode the proxy does not register producers for checks of a MIXED topic.
    #[test]
    fn a_mixed_topic_is_refused_for_transactions() {
        let mixed = topic(TopicKind::Mixed).config();

        assert_eq!(
            codes(&topic(TopicKind::Transaction), Some(&mixed)),
            [("topic-mixed", Severity::Error), ("topic-differs", Severity::Error)]
        );
    }

    #[test]
    fn closed_topics_and_fifo_topics_without_order_are_reported() {
        let fifo = topic(TopicKind::Fifo);
        let unordered = TopicConfig { order: false, ..fifo.config() };
        let closed = TopicConfig { permission: 4, ..fifo.config() };

        assert_eq!(codes(&fifo, Some(&unordered)), [("topic-not-ordered", Severity::Warning)]);
        assert_eq!(codes(&fifo, Some(&closed)), [("topic-closed", Severity::Error)]);
    }
}
