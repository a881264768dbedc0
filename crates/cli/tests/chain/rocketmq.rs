//! The points story over RocketMQ, from its example: nothing is lost, and effects happen once, whoever is killed.
//!
//! The broker is found by `CONSIGN_TEST_ROCKETMQ_URL` and `CONSIGN_TEST_ROCKETMQ_NAMESRV`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use consign::transaction::{
    MarkerKeeping, MySqlMarkers, Prepared, Spans, StoreName, TransactionKey, TransactionMessage,
    TransactionProducer,
};
use consign_broker::rocketmq::RocketMqHalves;
use consign_rocketmq::admin::{Admin, AdminOptions};
use consign_store::mysql::{Database, Options};
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::harness::{Child, World, require_failpoints};
use crate::post::{must, run, store_url};

mod benches;

/// Long enough for deliveries of a killed consumer to come again, several times.
const DEADLINE: Duration = Duration::from_mins(3);
/// How long deliveries of a killed consumer stay hidden: the least that the config takes.
const INVISIBLE_SECONDS: i64 = 16;

/// The example's config with topics and groups of its own, on a world's database.
struct Site {
    world: World,
    config: PathBuf,
    admin: Admin,
}

impl Site {
    async fn new() -> Self {
        Self::changed(|_| {}).await
    }

    async fn changed(change: impl FnOnce(&mut Table)) -> Self {
        let world = World::unmigrated().await;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rocketmq");
        let text = std::fs::read_to_string(example.join("consign.toml")).unwrap();
        let mut value = Value::Table(text.parse().unwrap());
        rename(&mut value, &world.name);
        let mut table: Table = value.try_into().unwrap();
        entry(&mut table, "store").insert("url".into(), store_url(&world).into());
        let points = entry(entry(&mut table, "destination"), "points");
        points.insert("url".into(), environment("CONSIGN_TEST_ROCKETMQ_URL").into());
        points.insert("name_servers".into(), vec![environment("CONSIGN_TEST_ROCKETMQ_NAMESRV")].into());
        for group in points["group"].as_array_mut().unwrap() {
            group.as_table_mut().unwrap().insert("invisible_seconds".into(), INVISIBLE_SECONDS.into());
        }
        // The example's files stand beside it.
        entry(&mut table, "setup").insert("sql_file".into(), path_text(&example.join("schema.sql")).into());
        let schema = path_text(&example.join("order-paid.schema.json"));
        table["consumer"][0].as_table_mut().unwrap().insert("schema".into(), schema.into());
        change(&mut table);
        let config = world.folder.path().join("consign.toml");
        std::fs::write(&config, table.to_string()).unwrap();
        let options = AdminOptions::new(&environment("CONSIGN_TEST_ROCKETMQ_NAMESRV")).unwrap();
        Self { world, config, admin: Admin::new(options) }
    }

    async fn prepared() -> Self {
        let site = Self::new().await;
        site.prepare();
        site
    }

    fn prepare(&self) {
        must(&["migrate"], &self.config);
        must(&["topology", "apply"], &self.config);
    }

    fn topic(&self) -> String {
        format!("{}-points", self.world.name)
    }

    /// How many copies of an event the topic holds, by the message id that every copy carries.
    async fn copies(&self, event: &str) -> usize {
        self.copies_in(&self.topic(), event).await
    }

    async fn copies_in(&self, topic: &str, message: &str) -> usize {
        let mut copies = 0;
        for broker in self.admin.masters().await.unwrap() {
            copies += self.admin.copies(&broker.address, topic, message).await.unwrap().len();
        }
        copies
    }

    /// Every order from 1 to `orders` was sent under its event id and took effect once at each consumer.
    async fn assert_whole(&self, orders: u32) {
        assert_eq!(self.world.count("SENT").await, i64::from(orders), "rows SENT");
        self.world.assert_effects_once(orders).await;
        for order in 1..=orders {
            assert!(self.copies(&format!("e-{order:06}")).await > 0, "order {order} is not in the topic");
        }
    }

    async fn clean(self) {
        for topic in ["points", "points-dead", "points-transaction"] {
            self.admin.delete_topic(&format!("{}-{topic}", self.world.name)).await.unwrap();
        }
        for group in ["points-award", "points-sms"] {
            self.admin.delete_group(&format!("{}-{group}", self.world.name)).await.unwrap();
        }
    }
}

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up` and export their urls")
    })
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn entry<'t>(table: &'t mut Table, key: &str) -> &'t mut Table {
    table[key].as_table_mut().unwrap()
}

/// Puts the world's name before those of topics and groups, wherever they stand.
fn rename(value: &mut Value, name: &str) {
    const NAMES: [&str; 5] = ["points", "points-dead", "points-transaction", "points-award", "points-sms"];
    const KEYS: [&str; 4] = ["topic", "group", "key", "topics"];
    let own = |value: &mut Value| {
        if let Value::String(text) = value
            && NAMES.contains(&text.as_str())
        {
            *text = format!("{name}-{text}");
        }
    };
    let Value::Table(table) = value else { return };
    for (key, value) in table.iter_mut() {
        match value {
            Value::Array(items) if matches!(key.as_str(), "topic" | "group") => {
                for item in items {
                    own(&mut item["name"]);
                    rename(item, name);
                }
            }
            Value::Array(items) if KEYS.contains(&key.as_str()) => items.iter_mut().for_each(own),
            Value::Array(items) => items.iter_mut().for_each(|item| rename(item, name)),
            Value::Table(_) => rename(value, name),
            other if KEYS.contains(&key.as_str()) => own(other),
            _ => {}
        }
    }
}

/// Starts the program so that it dies at `point`, and returns when it did.
async fn crash(command: &'static str, site: &Site, point: &str) {
    const SIGABRT: i32 = 6;
    let mut doomed = Child::start(command, &site.config, &[("CONSIGN_FAILPOINTS", point)]);
    let status = doomed.wait(DEADLINE).await;
    assert_eq!(status.signal(), Some(SIGABRT), "{point} ends the process, its log:\n{}", doomed.log());
}

/// B86 over RocketMQ: SIGKILL for relays and consumers, again and again, while people buy.
#[tokio::test(flavor = "multi_thread")]
async fn purchases_over_rocketmq_survive_relays_and_consumers_that_are_killed() {
    const PURCHASES: u32 = 200;
    const KILL_EVERY: u32 = 20;
    let site = Site::prepared().await;
    let commands = ["relay", "consume", "relay", "consume"];
    let mut children = commands.map(|command| Child::start(command, &site.config, &[]));
    for child in &mut children {
        child.ready().await;
    }

    for order in 1..=PURCHASES {
        site.world.purchase(order).await.unwrap();
        if order % KILL_EVERY == 0 {
            let victim = (order / KILL_EVERY) as usize % commands.len();
            children[victim].kill();
            children[victim] = Child::start(commands[victim], &site.config, &[]);
        }
    }

    site.world.eventually_finished(DEADLINE, PURCHASES).await;
    site.assert_whole(PURCHASES).await;
    for child in &mut children {
        child.terminate();
        assert!(child.wait(DEADLINE).await.success(), "{}", child.log());
    }
    site.clean().await;
}

/// B86: what the broker confirmed and nobody settled is sent again, under the same message id.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_after_a_confirm_repeats_the_same_message_ids() {
    const ORDERS: u32 = 30;
    require_failpoints();
    let site = Site::prepared().await;
    site.world.insert_many(ORDERS).await;

    crash("relay", &site, "publish.after_outcome=abort").await;

    assert_eq!(site.world.count("SENT").await, 0);
    let _relay = Child::start("relay", &site.config, &[]);
    let _consumers = Child::start("consume", &site.config, &[]);
    site.world.eventually_finished(DEADLINE, ORDERS).await;
    site.assert_whole(ORDERS).await;
    let mut copies = 0;
    for order in 1..=ORDERS {
        copies += site.copies(&format!("e-{order:06}")).await;
    }
    assert!(copies > ORDERS as usize, "a confirmed message is sent again, there are {copies} copies");
    site.clean().await;
}

/// B86: the effect is committed and the acknowledgement never sent. The message comes again and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_dies_between_commit_and_ack_applies_each_effect_once() {
    const ORDERS: u32 = 30;
    require_failpoints();
    let site = Site::prepared().await;
    let _relay = Child::start("relay", &site.config, &[]);
    site.world.insert_many(ORDERS).await;

    crash("consume", &site, "consume.after_commit=abort@5").await;

    let committed = site.world.number("SELECT COUNT(*) FROM consumed_operation").await;
    assert!(committed >= 5, "five operations were committed before the end, not {committed}");
    let _second = Child::start("consume", &site.config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")]);
    site.world.eventually_finished(DEADLINE, ORDERS).await;
    site.assert_whole(ORDERS).await;
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topology_is_checked_made_and_found_as_configured() {
    let site = Site::new().await;

    let before = run(&["topology", "check", "--json"], &site.config);
    let first = run(&["topology", "apply"], &site.config);
    let second = run(&["topology", "apply"], &site.config);
    let after = run(&["topology", "check", "--json"], &site.config);

    let codes = |text: &str| -> Vec<String> {
        let document: Json = serde_json::from_str(text).unwrap();
        let findings = document["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    };
    let (found, made) = (codes(&before.stdout), codes(&after.stdout));
    assert_eq!(before.code, 3, "{}", before.stdout);
    assert_eq!(found.iter().filter(|code| *code == "topic-missing").count(), 3, "{found:?}");
    assert_eq!(found.iter().filter(|code| *code == "group-missing").count(), 2, "{found:?}");
    assert_eq!((first.code, second.code), (0, 0), "{} {}", first.stderr, second.stderr);
    assert!(
        first.stderr.contains("3 topics and 2 groups are as configured, 3 and 2 of them new"),
        "{}",
        first.stderr
    );
    assert!(second.stderr.contains("0 and 0 of them new"), "{}", second.stderr);
    assert!(!made.iter().any(|code| code.ends_with("-missing")), "{made:?}");
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_name_server_says_what_cannot_be_seen() {
    let site = Site::changed(|table| {
        entry(entry(table, "destination"), "points").remove("name_servers");
    })
    .await;

    let check = run(&["topology", "check"], &site.config);
    let apply = run(&["topology", "apply"], &site.config);

    assert_eq!(check.code, 0, "{}", check.stdout);
    assert!(check.stdout.contains("no name server is configured"), "{}", check.stdout);
    assert_eq!(apply.code, 1);
    assert!(apply.stderr.contains("destination points has no name_servers: add them"), "{}", apply.stderr);
}

/// Producers that die after their half message: one with its local transaction committed, one without.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_answers_for_the_transactions_of_producers_that_died() {
    let site = Site::changed(|table| {
        let transaction = entry(table, "transaction");
        transaction.insert("first_look_seconds".into(), 1.into());
        transaction.insert("repair_seconds".into(), 1.into());
    })
    .await;
    site.prepare();
    let mut relay = Child::start("relay", &site.config, &[]);
    relay.ready().await;
    let topic = format!("{}-points-transaction", site.world.name);
    let database = Database::connect(&Options::new(store_url(&site.world))).await.unwrap();
    let name = StoreName::new("points").unwrap();
    let keeping = MarkerKeeping { first_look: Duration::from_secs(1), ..MarkerKeeping::default() };
    let markers = MySqlMarkers::new(database, name, keeping);
    let connect = environment("CONSIGN_TEST_ROCKETMQ_URL").parse().unwrap();
    // Without topics of its own it is asked nothing.
    let halves = Arc::new(RocketMqHalves::start(&connect, [], None).await.unwrap());
    let producer = TransactionProducer::new(markers, halves, Spans::default());
    let message = || TransactionMessage::new(topic.as_str(), "OrderPaid", r#"{"orderId":1}"#);

    let committed = begun(&site, &producer, message()).await;
    let committed_key = committed.key().clone();
    let mut tx = site.world.pool.begin().await.unwrap();
    let marked = committed.mark(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let abandoned = begun(&site, &producer, message()).await;
    let abandoned_key = abandoned.key().clone();
    drop((marked, abandoned, producer));

    let state = |key: &TransactionKey| {
        format!("SELECT COUNT(*) FROM consign_transaction WHERE transaction_key = '{key}' AND ")
    };
    let confirmed = format!("{} state = 'COMMITTED' AND evidence = 'STORED'", state(&committed_key));
    let fenced = format!("{} state = 'ROLLED_BACK'", state(&abandoned_key));
    site.world
        .eventually(DEADLINE, "one is found in its topic and one is fenced", async || {
            site.world.number(&confirmed).await == 1 && site.world.number(&fenced).await == 1
        })
        .await;
    assert_eq!(site.copies_in(&topic, abandoned_key.as_str()).await, 0);
    assert!(site.copies_in(&topic, committed_key.as_str()).await > 0);
    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    assert!(relay.log().contains("no more answers for transactions"), "{}", relay.log());
    site.clean().await;
}

type Producer = TransactionProducer<MySqlMarkers, RocketMqHalves>;

/// A half message, as soon as the proxy knows the new topic.
async fn begun(
    site: &Site,
    producer: &Producer,
    message: TransactionMessage,
) -> Prepared<MySqlMarkers, RocketMqHalves> {
    let mut prepared = None;
    site.world
        .eventually(DEADLINE, "the broker takes a half message", async || {
            prepared = producer.begin(message.clone()).await.ok();
            prepared.is_some()
        })
        .await;
    prepared.unwrap()
}
