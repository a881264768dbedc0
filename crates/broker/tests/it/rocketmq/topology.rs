//! Applying and checking topologies.

use std::time::{Duration, Instant};

use consign_broker::rocketmq::{
    Admin, AdminOptions, Applied, Filter, Group, Subscription, Topic, TopicKind, Topology, TopologyError,
    Transactions,
};
use consign_core::finding::{Finding, Severity};

use super::{admin, unique};

fn topic(kind: TopicKind) -> Topic {
    Topic { name: unique("topic"), kind, queues: 2 }
}

/// A FIFO topic with its group, and a normal one.
fn topology() -> Topology {
    let (fifo, normal) = (topic(TopicKind::Fifo), topic(TopicKind::Normal));
    let subscriptions = vec![Subscription { topic: fifo.name.clone(), filter: Filter::All }];
    let group = Group { name: unique("group"), ordered: true, retries: 3, subscriptions };
    Topology { topics: vec![fifo, normal], groups: vec![group], transactions: None }
}

async fn delete(topology: &Topology, admin: &Admin) {
    for group in &topology.groups {
        admin.delete_group(&group.name).await.unwrap();
    }
    for topic in &topology.topics {
        admin.delete_topic(&topic.name).await.unwrap();
    }
}

/// Code and severity of what is said about names of the topology, without what the test cluster itself is warned of.
fn problems(topology: &Topology, findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    let names = topology
        .topics
        .iter()
        .map(|topic| &topic.name)
        .chain(topology.groups.iter().map(|group| &group.name));
    let names: Vec<&String> = names.collect();
    let ours = |finding: &&Finding| names.iter().any(|name| finding.subject.contains(name.as_str()));
    let mut problems: Vec<_> = findings
        .iter()
        .filter(ours)
        .filter(|finding| finding.severity > Severity::Fine)
        .map(|finding| (finding.code, finding.severity))
        .collect();
    problems.sort_unstable();
    problems
}

/// Checks until the name server has heard of the topics.
async fn check_routed(topology: &Topology, admin: &Admin) -> Vec<Finding> {
    let start = Instant::now();
    loop {
        let findings = topology.check(admin).await;
        if findings.iter().all(|finding| finding.code != "topic-not-routed") {
            return findings;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "{findings:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_missing_is_reported_made_once_and_then_as_configured() {
    let (admin, topology) = (admin(), topology());

    let before = topology.check(&admin).await;
    let first = topology.apply(&admin).await.unwrap();
    let second = topology.apply(&admin).await.unwrap();
    let after = check_routed(&topology, &admin).await;
    delete(&topology, &admin).await;

    assert_eq!(
        problems(&topology, &before),
        [
            ("group-missing", Severity::Error),
            ("topic-missing", Severity::Error),
            ("topic-missing", Severity::Error),
            ("topic-not-routed", Severity::Error),
            ("topic-not-routed", Severity::Error),
        ]
    );
    assert_eq!(first, Applied { topics: 2, groups: 1, starts: 2 });
    assert_eq!(second, Applied::default());
    assert_eq!(problems(&topology, &after), []);
    let codes: Vec<&str> = after.iter().map(|finding| finding.code).collect();
    for code in ["topic-as-configured", "group-as-configured", "broker-version"] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
}

#[tokio::test]
async fn a_group_without_a_start_is_reported_until_apply_records_it() {
    let (admin, topology) = (admin(), topology());
    let group = &topology.groups[0];
    topology.apply(&admin).await.unwrap();
    admin.delete_group(&group.name).await.unwrap();
    admin.create_group(&group.name, group.ordered, group.retries).await.unwrap();

    let unset = check_routed(&topology, &admin).await;
    let applied = topology.apply(&admin).await.unwrap();
    let set = check_routed(&topology, &admin).await;
    delete(&topology, &admin).await;

    assert_eq!(problems(&topology, &unset), [("group-start-unset", Severity::Warning)]);
    assert_eq!(applied, Applied { topics: 0, groups: 0, starts: 2 });
    assert_eq!(problems(&topology, &set), []);
}

#[tokio::test]
async fn a_topic_of_another_kind_is_left_alone_and_the_rest_is_made() {
    let admin = admin();
    let made = topology();
    made.apply(&admin).await.unwrap();
    let mut wanted = made.clone();
    wanted.topics[1].kind = TopicKind::Transaction;
    wanted.groups[0].ordered = false;
    wanted.topics.push(topic(TopicKind::Delay));

    let error = wanted.apply(&admin).await.unwrap_err();
    let findings = check_routed(&wanted, &admin).await;
    let after = made.apply(&admin).await;
    delete(&wanted, &admin).await;

    let TopologyError::Differs { subject, argument, wanted: as_wanted, found, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(subject, &format!("topic {:?}", wanted.topics[1].name));
    assert_eq!((*argument, as_wanted.as_str(), found.as_str()), ("message.type", "TRANSACTION", "NORMAL"));
    assert_eq!(
        problems(&wanted, &findings),
        [("group-ordered", Severity::Warning), ("topic-differs", Severity::Error)]
    );
    assert_eq!(after.unwrap(), Applied::default(), "what existed was not changed");
}

#[tokio::test]
async fn the_check_back_budget_is_read_from_the_broker() {
    let admin = admin();
    let transactions = |longest| Topology {
        transactions: Some(Transactions { longest, first_check_after: None }),
        ..Topology::default()
    };

    let short = transactions(Duration::from_nanos(1)).check(&admin).await;
    let long = transactions(Duration::from_hours(1_000_000)).check(&admin).await;

    let codes = |findings: &[Finding]| {
        let mut codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
        codes.retain(|code| code.starts_with("check-back") || *code == "half-messages-expire");
        codes
    };
    assert!(matches!(codes(&short)[..], ["check-back-budget" | "check-back-tight"]), "{short:?}");
    assert_eq!(codes(&long), ["check-back-too-short", "half-messages-expire"]);
}

#[tokio::test]
async fn a_cluster_that_cannot_be_asked_is_one_finding() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let nobody = Admin::new(AdminOptions::new(&address).unwrap());

    let findings = topology().check(&nobody).await;
    let error = topology().apply(&nobody).await.unwrap_err();

    let found: Vec<_> = findings.iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(found, [("broker-unreachable", Severity::Error)]);
    assert!(findings[0].text.contains(&address), "{findings:?}");
    assert!(matches!(error, TopologyError::Admin(_)), "{error}");
}
