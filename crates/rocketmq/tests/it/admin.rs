//! Administration of a real cluster.

use std::time::{Duration, Instant};

use consign_rocketmq::TopicKind;
use consign_rocketmq::admin::{Admin, AdminError, AdminOptions, DISCARDED_TOPIC, GroupConfig, ServerVersion};

use crate::remoting::{send, send_expired_half};

/// How long a server may take for what it does by itself. The check rounds of the test cluster are a second apart.
const PATIENCE: Duration = Duration::from_mins(1);

const VARIABLE: &str = "CONSIGN_TEST_ROCKETMQ_NAMESRV";

fn admin() -> Admin {
    let name_server = std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: start the test services and export their addresses")
    });
    let options = AdminOptions::new(&name_server).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    Admin::new(AdminOptions { deadline: PATIENCE, ..options })
}

/// A name nobody else uses.
fn unique(what: &str) -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).unwrap();
    format!("consign-test-{what}-{:016x}", u64::from_le_bytes(bits))
}

/// The one master of the test cluster.
async fn master(admin: &Admin) -> String {
    let masters = admin.masters().await.unwrap();
    assert_eq!(masters.len(), 1, "{masters:?}");
    masters[0].address.clone()
}

/// Asks until there is an answer.
async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn topics_of_every_kind_are_made_found_routed_and_deleted() {
    let admin = admin();
    let broker = master(&admin).await;
    for kind in [TopicKind::Normal, TopicKind::Fifo, TopicKind::Delay, TopicKind::Transaction] {
        let name = unique("kind");
        assert_eq!(admin.topic(&broker, &name).await.unwrap(), None);
        assert_eq!(admin.route(&name).await.unwrap(), None);

        admin.create_topic(&name, kind.clone(), 3).await.unwrap();
        admin.create_topic(&name, kind.clone(), 3).await.unwrap();

        let topic = admin.topic(&broker, &name).await.unwrap().unwrap();
        assert_eq!((topic.name.as_str(), topic.kind()), (name.as_str(), kind.clone()));
        assert_eq!((topic.read_queues, topic.write_queues), (3, 3));
        assert!(topic.readable() && topic.writable());
        assert_eq!(topic.order, kind == TopicKind::Fifo);
        let route = eventually("the route", async || admin.route(&name).await.unwrap()).await;
        assert_eq!(route.queues.len(), 1);
        assert_eq!(route.queues[0].master.as_deref(), Some(broker.as_str()));
        assert_eq!(route.queues[0].write_queues, 3);

        admin.delete_topic(&name).await.unwrap();
        assert_eq!(admin.topic(&broker, &name).await.unwrap(), None);
    }
}

#[tokio::test]
async fn groups_keep_their_order_flag_retries_and_offsets() {
    let admin = admin();
    let broker = master(&admin).await;
    let (group, topic) = (unique("group"), unique("topic"));
    admin.create_topic(&topic, TopicKind::Fifo, 1).await.unwrap();
    assert_eq!(admin.group_offset(&broker, &group, &topic, 0).await.unwrap(), None);
    assert_eq!(admin.group(&broker, &group).await.unwrap(), None);
    assert_eq!(admin.group(&broker, &group).await.unwrap(), None, "asking made it");

    admin.create_group(&group, true, 3).await.unwrap();

    assert_eq!(admin.group(&broker, &group).await.unwrap(), Some(GroupConfig::new(group.as_str(), true, 3)));
    assert_eq!(admin.consumers(&broker, &group).await.unwrap(), None);
    assert_eq!(admin.group_offset(&broker, &group, &topic, 0).await.unwrap(), None);
    admin.put_group_offset(&broker, &group, &topic, 0, 5).await.unwrap();
    assert_eq!(admin.group_offset(&broker, &group, &topic, 0).await.unwrap(), Some(5));
    admin.delete_group(&group).await.unwrap();
    admin.delete_topic(&topic).await.unwrap();
}

#[tokio::test]
async fn a_broker_tells_its_settings_its_release_and_how_full_its_disk_is() {
    let admin = admin();
    let broker = master(&admin).await;

    let settings = admin.settings(&broker).await.unwrap();
    let runtime = admin.runtime(&broker).await.unwrap();

    for name in ["flushDiskType", "brokerRole"] {
        assert!(settings.text(name).is_some(), "{name}");
    }
    for name in [
        "inSyncReplicas",
        "transactionTimeOut",
        "transactionCheckInterval",
        "transactionCheckMax",
        "fileReservedTime",
    ] {
        assert!(settings.number(name).is_some(), "{name}");
    }
    assert_eq!(settings.flag("autoCreateTopicEnable"), Some(false));
    let version = runtime.version.unwrap();
    assert!(version >= ServerVersion { major: 5, minor: 3, patch: 0 }, "{version}");
    assert!(runtime.disk_used.is_some_and(|used| used > 0.0), "{runtime:?}");
}

#[tokio::test]
async fn a_message_is_found_by_its_id_and_pulled_from_its_queue() {
    let admin = admin();
    let broker = master(&admin).await;
    let (group, topic, id) = (unique("group"), unique("topic"), unique("id"));
    admin.create_topic(&topic, TopicKind::Normal, 1).await.unwrap();
    admin.create_group(&group, false, 3).await.unwrap();
    let before = admin.pull(&broker, &group, &topic, 0, 0, 32).await.unwrap();
    assert_eq!((before.messages.len(), before.more), (0, false));
    assert_eq!(admin.copies(&broker, &topic, &id).await.unwrap(), []);

    send(&broker, &topic, &id, b"paid").await;
    send(&broker, &topic, &id, b"paid").await;

    let copies = eventually("the index", async || {
        Some(admin.copies(&broker, &topic, &id).await.unwrap()).filter(|copies| copies.len() == 2)
    })
    .await;
    assert_eq!(copies[0].message_id(), Some(id.as_str()));
    assert_eq!(copies[0].tag(), Some("paid"));
    assert_eq!(copies[0].keys().collect::<Vec<_>>(), [format!("{id}-key")]);
    assert_eq!(&copies[0].body[..], b"paid");
    assert_ne!(copies[0].copy_id(), copies[1].copy_id());
    assert_eq!(admin.end_offset(&broker, &topic, 0).await.unwrap(), 2);
    let second = admin.pull(&broker, &group, &topic, 0, 1, 32).await.unwrap();
    assert_eq!((second.messages.len(), second.next_offset), (1, 2));
    assert_eq!(second.messages[0].queue_offset, 1);
    assert!(!admin.pull(&broker, &group, &topic, 0, 2, 32).await.unwrap().more);
    admin.delete_group(&group).await.unwrap();
    admin.delete_topic(&topic).await.unwrap();
}

#[tokio::test]
async fn a_half_message_that_the_broker_gave_up_is_found_and_can_be_asked_about_again() {
    let admin = admin();
    let broker = master(&admin).await;
    let (topic, id) = (unique("half"), unique("id"));
    admin.create_topic(&topic, TopicKind::Transaction, 1).await.unwrap();

    send_expired_half(&broker, &topic, &id, b"order 1").await;

    let given_up = |wanted: usize| {
        let (admin, broker, id) = (&admin, &broker, &id);
        async move || {
            let copies = admin.copies(broker, DISCARDED_TOPIC, id).await.unwrap();
            Some(copies).filter(|copies| copies.len() == wanted)
        }
    };
    let copies = eventually("the discarded message", given_up(1)).await;
    assert_eq!(copies[0].topic, DISCARDED_TOPIC);
    assert_eq!(copies[0].real_topic(), Some(topic.as_str()));
    assert_eq!(copies[0].producer_group(), Some(topic.as_str()));
    assert_eq!(copies[0].property("colour"), Some("red"));
    assert_eq!(&copies[0].body[..], b"order 1");
    assert_eq!(admin.copies(&broker, &topic, &id).await.unwrap(), [], "a discarded message is not visible");

    // It is as old as before, so it is given up a second time: proof that it was a half message again.
    admin.resume_checks(&broker, &copies[0].copy_id()).await.unwrap();
    eventually("the discarded message again", given_up(2)).await;
    admin.delete_topic(&topic).await.unwrap();
}

#[tokio::test]
async fn a_closed_port_is_an_error_that_names_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);

    let error = Admin::new(AdminOptions::new(&address).unwrap()).masters().await.unwrap_err();

    assert!(matches!(error, AdminError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
}
