//! Consumer groups, compared, and where they start.

use std::collections::BTreeSet;

use consign_core::finding::Finding;
use consign_rocketmq::admin::{Admin, AdminError, Broker, Consumers, GroupConfig, Subscribed};
use consign_rocketmq::{Filter, Subscription};

use super::Group;

/// What a broker has under a group's name, against what the topology says.
pub(super) fn compare(group: &Group, broker: &str, found: Option<&GroupConfig>) -> Vec<Finding> {
    let subject = format!("group {:?} on broker {broker:?}", group.name);
    let Some(found) = found else {
        let text = if group.ordered {
            "the broker does not have it; made by its first consumer, it would not be ordered"
        } else {
            "the broker does not have it"
        };
        return vec![Finding::error("group-missing", subject, text, "run consign topology apply")];
    };
    let mut findings = Vec::new();
    if !found.enabled {
        findings.push(Finding::error(
            "group-disabled",
            subject.as_str(),
            "consumeEnable is false: its consumers get nothing",
            "set consumeEnable=true (mqadmin updateSubGroup -s true)",
        ));
    }
    if group.ordered && !found.ordered {
        findings.push(Finding::error(
            "group-not-ordered",
            subject.as_str(),
            "consumeMessageOrderly is false: messages of one message group are delivered in parallel, although the \
             topic is FIFO",
            "stop its consumers and set consumeMessageOrderly=true (mqadmin updateSubGroup -o true)",
        ));
    }
    if !group.ordered && found.ordered {
        findings.push(Finding::warning(
            "group-ordered",
            subject.as_str(),
            "consumeMessageOrderly is true and the topology does not ask for order: a message in work holds back its \
             whole queue",
            "ask for order in the topology, or set consumeMessageOrderly=false (mqadmin updateSubGroup -o false)",
        ));
    }
    if found.retries != group.retries {
        findings.push(Finding::warning(
            "group-retries-differ",
            subject.as_str(),
            format!(
                "retryMaxTimes is {} on the broker and {} in the topology: after that the proxy moves a message to \
                 the group's dead-letter topic",
                found.retries, group.retries
            ),
            "change the topology, or the broker by hand (mqadmin updateSubGroup -r)",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("group-as-configured", subject, "exists as configured"));
    }
    findings
}

/// What the group's connected members are subscribed to, against what the topology says; `None` when it is the same, or
/// nobody is connected. A broker keeps one subscription per topic for the whole group, the one that was told last: which
/// member has which is not to be seen.
pub(super) async fn check_members(
    group: &Group,
    admin: &Admin,
    broker: &Broker,
) -> Result<Option<Finding>, AdminError> {
    let members = admin.consumers(&broker.address, &group.name).await?;
    Ok(members.and_then(|members| foreign(group, &broker.name, &members)))
}

fn foreign(group: &Group, broker: &str, members: &Consumers) -> Option<Finding> {
    // Clients of the older protocol subscribe to the group's own retry topic, too.
    let retry = format!("%RETRY%{}", group.name);
    let other =
        |found: &&Subscribed| found.topic != retry && !group.subscriptions.iter().any(|own| same(own, found));
    let others: Vec<String> = members
        .subscriptions
        .iter()
        .filter(other)
        .map(|found| format!("topic {:?} with {:?}", found.topic, found.expression))
        .collect();
    if others.is_empty() {
        return None;
    }
    Some(Finding::error(
        "group-subscription-differs",
        format!("group {:?} on broker {broker:?}", group.name),
        format!(
            "its members ({}) are subscribed to {}, which the config does not say: members with different subscriptions lose \
             each other's messages",
            members.clients.join(", "),
            others.join(" and ")
        ),
        "stop those members first, or give this consumer a group of its own",
    ))
}

/// Whether a broker's subscription is the own one. Tags are a set.
fn same(own: &Subscription, found: &Subscribed) -> bool {
    let tags =
        |text: &str| -> BTreeSet<String> { text.split("||").map(|tag| tag.trim().to_owned()).collect() };
    let language = found.language.as_deref().unwrap_or("TAG");
    own.topic == found.topic
        && match &own.filter {
            Filter::All => language == "TAG" && found.expression == "*",
            Filter::Tag(wanted) => language == "TAG" && tags(wanted) == tags(&found.expression),
            Filter::Sql(wanted) => language == "SQL92" && *wanted == found.expression,
        }
}

/// A queue that a group consumes and has no start in.
struct Unstarted<'a> {
    topic: &'a str,
    queue: u32,
    /// How many messages were ever stored in it.
    end: u64,
}

/// Where a group would start behind messages. The broker decides at the group's first receive: it begins with the
/// last stored message, or with the first one while that is still in memory.
pub(super) async fn check_starts(
    group: &Group,
    admin: &Admin,
    broker: &Broker,
) -> Result<Vec<Finding>, AdminError> {
    let mut findings = Vec::new();
    for Subscription { topic, .. } in &group.subscriptions {
        let unstarted = unstarted(group, topic, admin, broker).await?;
        if unstarted.is_empty() {
            continue;
        }
        let messages: u64 = unstarted.iter().map(|queue| queue.end).sum();
        findings.push(Finding::warning(
            "group-start-unset",
            format!("group {:?} in topic {topic:?} on broker {:?}", group.name, broker.name),
            format!(
                "it has no start in {} queues, which {messages} messages were sent to: what is sent before its first \
                 receive may never be delivered to it",
                unstarted.len()
            ),
            "run consign topology apply before anything is sent: it records the present end as the start",
        ));
    }
    Ok(findings)
}

/// Records the present end of every queue without a start as the start; tells how many there were.
pub(super) async fn record_starts(
    group: &Group,
    admin: &Admin,
    broker: &Broker,
) -> Result<usize, AdminError> {
    let mut recorded = 0;
    for Subscription { topic, .. } in &group.subscriptions {
        for Unstarted { topic, queue, end } in unstarted(group, topic, admin, broker).await? {
            admin.put_group_offset(&broker.address, &group.name, topic, queue, end).await?;
            recorded += 1;
        }
    }
    Ok(recorded)
}

async fn unstarted<'a>(
    group: &Group,
    topic: &'a str,
    admin: &Admin,
    broker: &Broker,
) -> Result<Vec<Unstarted<'a>>, AdminError> {
    let queues = admin.topic(&broker.address, topic).await?.map_or(0, |found| found.read_queues);
    let mut unstarted = Vec::new();
    for queue in 0..queues {
        if admin.group_offset(&broker.address, &group.name, topic, queue).await?.is_none() {
            let end = admin.end_offset(&broker.address, topic, queue).await?;
            unstarted.push(Unstarted { topic, queue, end });
        }
    }
    Ok(unstarted)
}

#[cfg(test)]
mod tests {
    use consign_core::finding::Severity;

    use super::*;

    fn group(ordered: bool) -> Group {
        Group { name: "points".to_owned(), ordered, retries: 3, subscriptions: Vec::new() }
    }

    /// apache/rocketmq: a proxy acknowledges, for the whole group, what a member's own filter does not match.
    #[test]
    fn members_with_another_subscription_are_an_error_and_the_order_of_tags_is_none() {
        let own = Subscription { topic: "paid".to_owned(), filter: Filter::Tag("a || b".to_owned()) };
        let group = Group { subscriptions: vec![own], ..group(false) };
        let found = |topic: &str, language: Option<&str>, expression: &str| {
            let language = language.map(ToOwned::to_owned);
            let subscribed =
                Subscribed { topic: topic.to_owned(), language, expression: expression.to_owned() };
            let members = Consumers { clients: vec!["c-1".to_owned()], subscriptions: vec![subscribed] };
            foreign(&group, "a", &members).map(|finding| (finding.code, finding.severity))
        };

        assert_eq!(found("paid", Some("TAG"), "b||a"), None);
        assert_eq!(found("paid", None, "a || b"), None);
        assert_eq!(found("%RETRY%points", Some("TAG"), "*"), None);
        let differs = Some(("group-subscription-differs", Severity::Error));
        assert_eq!(found("paid", Some("TAG"), "a"), differs);
        assert_eq!(found("paid", Some("TAG"), "*"), differs);
        assert_eq!(found("paid", Some("SQL92"), "a || b"), differs);
        assert_eq!(found("created", Some("TAG"), "a || b"), differs);
    }

    fn codes(group: &Group, found: Option<&GroupConfig>) -> Vec<(&'static str, Severity)> {
        compare(group, "a", found).iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn what_apply_makes_is_as_configured() {
        for ordered in [false, true] {
            let group = group(ordered);
            assert_eq!(codes(&group, Some(&group.config())), [("group-as-configured", Severity::Fine)]);
            assert_eq!(codes(&group, None), [("group-missing", Severity::Error)]);
        }
    }

    /// apache/rocketmq#8154, #7999: a FIFO topic consumed by a group that was made without the order flag.
    #[test]
    fn a_group_without_order_is_an_error_where_order_is_asked_for() {
        assert_eq!(
            codes(&group(true), Some(&group(false).config())),
            [("group-not-ordered", Severity::Error)]
        );
        assert_eq!(codes(&group(false), Some(&group(true).config())), [("group-ordered", Severity::Warning)]);
    }

    #[test]
    fn disabled_groups_and_other_retries_are_reported() {
        let disabled = GroupConfig { enabled: false, retries: 16, ..group(true).config() };

        assert_eq!(
            codes(&group(true), Some(&disabled)),
            [("group-disabled", Severity::Error), ("group-retries-differ", Severity::Warning)]
        );
    }
}
