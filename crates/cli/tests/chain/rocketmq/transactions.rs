//! Transaction messages on a real broker and a real database: whoever dies or is away, one truth is left.
//!
//! The broker of the test services asks five times within about five seconds and then gives a half message up.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use consign::shutdown::shutdown;
use consign::transaction::service::{ServiceSettings, TransactionService};
use consign::transaction::{
    MarkError, MarkerKeeping, MessageCopy, MySqlMarkers, Prepared, Spans, StoreName, TransactionKey,
    TransactionMessage, TransactionProducer,
};
use consign_broker::rocketmq::{RocketMqHalves, RocketMqLedger};
use consign_conformance::proxy::Cut;
use consign_rocketmq::admin::DISCARDED_TOPIC;
use consign_store::mysql::{Database, Options};
use sqlx::MySqlTransaction;
use toml::Value;

use super::DEADLINE;
use crate::harness::rocketmq::{Site, entry};
use crate::harness::{Child, World, environment, proxied};

/// How long local transactions may take for those who answer the broker.
const LONGEST: Duration = Duration::from_secs(1);
/// How long after its commit a message is first looked for. An index entry is written some moments after its message.
const FIRST_LOOK: Duration = Duration::from_secs(2);

type Producer = TransactionProducer<MySqlMarkers, RocketMqHalves>;

/// A config that answers for transactions, without a relay to begin with.
async fn answering() -> Site {
    let site = Site::changed(|table| {
        let transaction = entry(table, "transaction");
        for (key, span) in [("first_look_seconds", FIRST_LOOK), ("longest_local_seconds", LONGEST)] {
            transaction.insert(key.into(), Value::Integer(i64::try_from(span.as_secs()).unwrap()));
        }
        transaction.insert("repair_seconds".into(), 1.into());
    })
    .await;
    site.prepare();
    site
}

fn topic(world: &str) -> String {
    format!("{world}-points-transaction")
}

async fn markers(url: &str, copy: MessageCopy) -> MySqlMarkers {
    let database = Database::connect(&Options::new(url)).await.unwrap();
    MySqlMarkers::new(
        database,
        StoreName::new("points").unwrap(),
        MarkerKeeping { copy, first_look: FIRST_LOOK },
    )
}

/// A producer that is asked nothing, because it declares no topic. It gives local transactions a minute: more than those
/// who answer do.
async fn producer(url: &str, copy: MessageCopy) -> Producer {
    producer_at(&environment("CONSIGN_TEST_ROCKETMQ_URL"), url, copy).await
}

/// The same over this proxy and no other.
async fn producer_at(proxy: &str, url: &str, copy: MessageCopy) -> Producer {
    let mut connect: consign_broker::rocketmq::Options = proxy.parse().unwrap();
    connect.access_points_only = true;
    let halves = Arc::new(RocketMqHalves::start(&connect, [], None).await.unwrap());
    TransactionProducer::new(markers(url, copy).await, halves, Spans::default())
}

/// A half message, as soon as the proxy knows the new topic.
async fn begun(producer: &Producer, topic: &str) -> Prepared<MySqlMarkers, RocketMqHalves> {
    const TRY_EVERY: Duration = Duration::from_millis(100);
    let message = TransactionMessage::new(topic, "OrderPaid", r#"{"orderId":1}"#);
    let taken = async {
        loop {
            match producer.begin(message.clone()).await {
                Ok(prepared) => return prepared,
                Err(_) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, taken).await.expect("the broker takes a half message")
}

/// The business of a local transaction.
async fn pay(tx: &mut MySqlTransaction<'_>) {
    sqlx::query("INSERT INTO purchase_order (id, status) VALUES (1, 'PAID')")
        .execute(&mut **tx)
        .await
        .unwrap();
}

/// How many markers of this key fulfil a condition.
async fn marked(world: &World, key: &TransactionKey, condition: &str) -> i64 {
    let count = "SELECT COUNT(*) FROM consign_transaction WHERE transaction_key";
    world.number(&format!("{count} = '{key}' AND {condition}")).await
}

/// Its marker says that it committed, and its message was found in the topic.
async fn eventually_confirmed(site: &Site, key: &TransactionKey) {
    let confirmed =
        async || marked(&site.world, key, "state = 'COMMITTED' AND evidence = 'STORED'").await == 1;
    site.world.eventually(DEADLINE, "the message of a committed transaction is found", confirmed).await;
    assert!(site.copies_in(&topic(&site.world.name), key.as_str()).await > 0);
}

async fn end(site: Site, mut relay: Child) {
    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    assert!(relay.log().contains("no more answers for transactions"), "{}", relay.log());
    site.clean().await;
}

/// Where a producer is killed.
const WINDOWS: [&str; 2] =
    ["half message sent, local transaction open", "local transaction committed, broker not told"];

/// SIGKILL between the half message and the COMMIT, and between the COMMIT and the end of the half message. The process
/// that is killed is this test once more: the environment tells it which window to stand in.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_is_killed_in_either_window_leaves_one_truth() {
    if let Ok(window) = std::env::var("CONSIGN_TEST_WINDOW") {
        return stand_in(&window).await;
    }
    let site = answering().await;
    let relay = Child::start("relay", &site.config, &[]);
    // Any of them may be asked, and both about the same.
    let other = Child::start("relay", &site.config, &[]);

    let mut keys = Vec::new();
    for (number, window) in WINDOWS.into_iter().enumerate() {
        let file = site.world.folder.path().join(format!("key-{number}"));
        let mut doomed = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "rocketmq::transactions::a_producer_that_is_killed_in_either_window_leaves_one_truth",
            ])
            .env("CONSIGN_TEST_WINDOW", window)
            .env("CONSIGN_TEST_STORE", site.world.store_url())
            .env("CONSIGN_TEST_TOPIC", topic(&site.world.name))
            .env("CONSIGN_TEST_KEY_FILE", &file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let key = async || file.exists();
        site.world.eventually(DEADLINE, "the producer stands in its window", key).await;
        doomed.kill().unwrap();
        doomed.wait().unwrap();
        keys.push(TransactionKey::new(std::fs::read_to_string(&file).unwrap()).unwrap());
    }

    let [abandoned, committed] = keys.try_into().unwrap();
    eventually_confirmed(&site, &committed).await;
    let fenced = async || marked(&site.world, &abandoned, "state = 'ROLLED_BACK'").await == 1;
    site.world.eventually(DEADLINE, "the transaction that never committed is fenced", fenced).await;
    assert_eq!(site.copies_in(&topic(&site.world.name), abandoned.as_str()).await, 0);
    assert_eq!(site.world.number("SELECT COUNT(*) FROM purchase_order").await, 1, "one order was committed");
    drop(other);
    end(site, relay).await;
}

/// A producer that stops in a window for good, and says so by a file with its key.
async fn stand_in(window: &str) {
    let variable = |name: &str| std::env::var(name).unwrap();
    let url = variable("CONSIGN_TEST_STORE");
    let producer = producer(&url, MessageCopy::UntilConfirmed).await;
    let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
    let prepared = begun(&producer, &variable("CONSIGN_TEST_TOPIC")).await;
    let key = prepared.key().to_string();
    let mut tx = pool.begin().await.unwrap();
    pay(&mut tx).await;
    let marked = prepared.mark(&mut tx).await.unwrap();
    let _open = if window == WINDOWS[0] {
        Some(tx)
    } else {
        tx.commit().await.unwrap();
        None
    };
    let file = PathBuf::from(variable("CONSIGN_TEST_KEY_FILE"));
    write_whole(&file, &key);
    std::future::pending::<()>().await;
    drop(marked);
}

/// A file that is whole as soon as it is there.
fn write_whole(file: &Path, text: &str) {
    let draft = file.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, file).unwrap();
}

/// The question comes while the local transaction is open, and it has had its time: it cannot commit any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_local_transaction_that_a_check_back_has_fenced_cannot_commit() {
    let site = answering().await;
    let relay = Child::start("relay", &site.config, &[]);
    let producer = producer(&site.world.store_url(), MessageCopy::UntilConfirmed).await;

    let prepared = begun(&producer, &topic(&site.world.name)).await;
    let key = prepared.key().clone();
    let mut tx = site.world.pool.begin().await.unwrap();
    pay(&mut tx).await;
    let fenced = async || marked(&site.world, &key, "state = 'ROLLED_BACK'").await == 1;
    site.world.eventually(DEADLINE, "the check-back fences the transaction", fenced).await;
    let refused = prepared.mark(&mut tx).await.err();
    tx.rollback().await.unwrap();

    assert!(matches!(&refused, Some(MarkError::Fenced { key: fenced }) if *fenced == key), "{refused:?}");
    assert_eq!(site.world.number("SELECT COUNT(*) FROM purchase_order").await, 0);
    assert_eq!(site.copies_in(&topic(&site.world.name), key.as_str()).await, 0);
    end(site, relay).await;
}

/// The question comes while the local transaction is open and has its marker: the answer waits for its end, and is never
/// a guess.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_back_decides_nothing_while_an_open_transaction_holds_its_marker() {
    let site = answering().await;
    let relay = Child::start("relay", &site.config, &[]);
    let producer = producer(&site.world.store_url(), MessageCopy::UntilConfirmed).await;

    let prepared = begun(&producer, &topic(&site.world.name)).await;
    let mut tx = site.world.pool.begin().await.unwrap();
    pay(&mut tx).await;
    let marked = prepared.mark(&mut tx).await.unwrap();
    let waits = format!(
        "SELECT COUNT(*) FROM performance_schema.data_locks
         WHERE lock_status = 'WAITING' AND object_schema = '{}' AND object_name = 'consign_transaction'",
        site.world.name
    );
    let waiting = async || site.world.number(&waits).await > 0;
    site.world.eventually(DEADLINE, "a check-back waits for the marker", waiting).await;
    assert_eq!(site.copies_in(&topic(&site.world.name), marked.key().as_str()).await, 0);
    let sent = marked.commit(tx).await.unwrap();

    eventually_confirmed(&site, &sent.key).await;
    assert_eq!(site.world.number("SELECT COUNT(*) FROM purchase_order").await, 1);
    end(site, relay).await;
}

/// apache/rocketmq#9431: the proxy that took the half message is gone, and no other takes its end. The broker asks through
/// another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_proxy_is_gone_arrives_through_another() {
    let site = answering().await;
    let relay = Child::start("relay", &site.config, &[]);
    let (proxy, through) = proxied(&environment("CONSIGN_TEST_ROCKETMQ_URL")).await;
    let producer = producer_at(&through, &site.world.store_url(), MessageCopy::UntilConfirmed).await;

    let prepared = begun(&producer, &topic(&site.world.name)).await;
    proxy.refuse();
    proxy.cut(Cut::Reset);
    let mut tx = site.world.pool.begin().await.unwrap();
    pay(&mut tx).await;
    let marked = prepared.mark(&mut tx).await.unwrap();
    let sent = marked.commit(tx).await.unwrap();

    assert!(sent.told.is_err(), "the end had no way");
    assert!(proxy.connections() > 0, "the half message went through the proxy");
    eventually_confirmed(&site, &sent.key).await;
    assert_eq!(site.world.number("SELECT COUNT(*) FROM purchase_order").await, 1);
    end(site, relay).await;
}

/// Nobody answers until the broker gives the message up. The marker keeps only its digest, so the message comes back from
/// where the broker puts what it gave up.
#[tokio::test(flavor = "multi_thread")]
async fn a_committed_message_that_the_broker_gave_up_is_sent_again() {
    let site = answering().await;
    let producer = producer(&site.world.store_url(), MessageCopy::Digest).await;

    let prepared = begun(&producer, &topic(&site.world.name)).await;
    let key = prepared.key().clone();
    let mut tx = site.world.pool.begin().await.unwrap();
    let marked = prepared.mark(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    drop(marked);
    let given_up = async || site.copies_in(DISCARDED_TOPIC, key.as_str()).await > 0;
    site.world.eventually(DEADLINE, "the broker gives the message up", given_up).await;
    assert_eq!(site.copies_in(&topic(&site.world.name), key.as_str()).await, 0);

    let relay = Child::start("relay", &site.config, &[]);
    eventually_confirmed(&site, &key).await;
    assert!(relay.log().contains("committed message was missing and is sent again"), "{}", relay.log());
    end(site, relay).await;
}

/// The database is away for as long as the broker asks: nothing is answered, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_a_check_back_is_answered_with_nothing() {
    let site = answering().await;
    let topic = topic(&site.world.name);
    let url = site.world.store_url();
    let (proxy, through) = proxied(&url).await;
    let connect = environment("CONSIGN_TEST_ROCKETMQ_URL").parse().unwrap();
    let halves = Arc::new(RocketMqHalves::start(&connect, [topic.clone()], None).await.unwrap());
    let spans = Spans::default();
    let service = TransactionService {
        markers: markers(&through, MessageCopy::UntilConfirmed).await,
        broker: Arc::clone(&halves),
        ledger: Some(RocketMqLedger::new(site.admin.clone())),
        settings: ServiceSettings {
            spans: Spans::new(LONGEST, spans.horizon(), spans.keep(), spans.keep_unconfirmed()).unwrap(),
            repair_every: Duration::from_secs(1),
            ..ServiceSettings::default()
        },
    };
    let (trigger, asked) = shutdown();
    let running = tokio::spawn(service.run(asked));
    let producer = producer(&url, MessageCopy::UntilConfirmed).await;
    // The broker has found the service once it is asked about a transaction that nobody committed.
    let probe = begun(&producer, &topic).await;
    let probe_key = probe.key().clone();
    drop(probe);
    let asked = async || marked(&site.world, &probe_key, "state = 'ROLLED_BACK'").await == 1;
    site.world.eventually(DEADLINE, "the service is asked", asked).await;
    proxy.refuse();
    proxy.cut(Cut::Reset);

    let prepared = begun(&producer, &topic).await;
    let mut tx = site.world.pool.begin().await.unwrap();
    let committed = prepared.mark(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let abandoned = begun(&producer, &topic).await;
    let (committed_key, abandoned_key) = (committed.key().clone(), abandoned.key().clone());
    drop((committed, abandoned));
    for key in [&committed_key, &abandoned_key] {
        let given_up = async || site.copies_in(DISCARDED_TOPIC, key.as_str()).await > 0;
        site.world.eventually(DEADLINE, "the broker gives the message up", given_up).await;
        assert_eq!(site.copies_in(&topic, key.as_str()).await, 0);
    }
    assert!(proxy.refused() > 0, "the service asked the database");
    let rows = "SELECT COUNT(*) FROM consign_transaction";
    assert_eq!(site.world.number(rows).await, 2, "nothing else was fenced");

    proxy.heal();
    eventually_confirmed(&site, &committed_key).await;
    assert_eq!(site.copies_in(&topic, abandoned_key.as_str()).await, 0);
    trigger.request();
    let totals = running.await.unwrap();
    assert!(totals.unknowns >= 2, "{totals:?}");
    assert!(totals.sent_again >= 1, "{totals:?}");
    assert_eq!(totals.lost, 0, "{totals:?}");
    assert_eq!(marked(&site.world, &abandoned_key, "TRUE").await, 0, "nobody answered for it");
    halves.close().await;
    site.clean().await;
}
