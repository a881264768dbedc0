//! The example over RocketMQ, with topics and groups of its own on a world's database.
//!
//! The broker is found by `CONSIGN_TEST_ROCKETMQ_URL` and `CONSIGN_TEST_ROCKETMQ_NAMESRV`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use consign_rocketmq::Options;
use consign_rocketmq::admin::{Admin, AdminOptions};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{World, environment, succeed, text};

/// How long deliveries of a killed consumer stay hidden: the least that the config takes.
const INVISIBLE_SECONDS: i64 = 16;

/// A RocketMQ under test.
pub struct Cluster {
    /// The proxy, with credentials where it wants some.
    pub url: String,
    /// Host and port.
    pub name_server: String,
}

impl Cluster {
    /// The one that all tests share.
    fn shared() -> Self {
        Self {
            url: environment("CONSIGN_TEST_ROCKETMQ_URL"),
            name_server: environment("CONSIGN_TEST_ROCKETMQ_NAMESRV"),
        }
    }

    fn admin(&self) -> Admin {
        let Options { credentials, .. } = self.url.parse().expect("the broker's url");
        let options = AdminOptions::new(&self.name_server).expect("the name server's address");
        Admin::new(AdminOptions { credentials, ..options })
    }
}

/// Where one test's points story happens.
pub struct Site {
    pub world: World,
    pub config: PathBuf,
    pub admin: Admin,
}

impl Site {
    /// The config alone: nothing is made yet.
    pub async fn new() -> Self {
        Self::changed(|_| {}).await
    }

    /// The same, with changes to the config.
    pub async fn changed(change: impl FnOnce(&mut Table)) -> Self {
        Self::on(&Cluster::shared(), change).await
    }

    /// The same on another cluster than the shared one.
    pub async fn on(cluster: &Cluster, change: impl FnOnce(&mut Table)) -> Self {
        let world = World::unmigrated().await;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rocketmq");
        let example_text = std::fs::read_to_string(example.join("consign.toml")).unwrap();
        let mut value = Value::Table(example_text.parse().unwrap());
        rename(&mut value, &world.name);
        let mut table: Table = value.try_into().unwrap();
        entry(&mut table, "store").insert("url".into(), world.store_url().into());
        let points = entry(entry(&mut table, "destination"), "points");
        points.insert("url".into(), cluster.url.as_str().into());
        points.insert("name_servers".into(), vec![cluster.name_server.as_str()].into());
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
        Self { world, config, admin: cluster.admin() }
    }

    /// With its tables, topics and groups.
    pub async fn prepared() -> Self {
        let site = Self::new().await;
        site.prepare();
        site
    }

    /// The same config with something else, beside it.
    pub fn rewritten(&self, name: &str, change: impl FnOnce(&mut Table)) -> PathBuf {
        let mut table: Table = std::fs::read_to_string(&self.config).unwrap().parse().unwrap();
        change(&mut table);
        let path = self.config.with_file_name(name);
        std::fs::write(&path, table.to_string()).unwrap();
        path
    }

    /// Makes tables, topics and groups.
    pub fn prepare(&self) {
        for command in [&["migrate"][..], &["topology", "apply"]] {
            succeed(&[command, &["--config", text(&self.config)]].concat());
        }
    }

    /// What the relay sends to.
    pub fn topic(&self) -> String {
        format!("{}-points", self.world.name)
    }

    /// How many copies of a message a topic holds, by the message id that every copy carries.
    pub async fn copies_in(&self, topic: &str, message: &str) -> usize {
        let mut copies = 0;
        for broker in self.admin.masters().await.unwrap() {
            copies += self.admin.copies(&broker.address, topic, message).await.unwrap().len();
        }
        copies
    }

    /// The bodies of all copies in the topic, by message id.
    async fn stored(&self) -> BTreeMap<String, Vec<Json>> {
        const AT_ONCE: u32 = 32;
        let (topic, group) = (self.topic(), format!("{}-points-award", self.world.name));
        let mut stored: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for broker in self.admin.masters().await.unwrap() {
            let queues = self.admin.topic(&broker.address, &topic).await.unwrap().unwrap().read_queues;
            for queue in 0..queues {
                let (mut offset, mut more) = (0, true);
                while more {
                    let pull = self.admin.pull(&broker.address, &group, &topic, queue, offset, AT_ONCE);
                    let pulled = pull.await.unwrap();
                    (offset, more) = (pulled.next_offset, pulled.more);
                    for message in pulled.messages {
                        let id = message.message_id().unwrap().to_owned();
                        stored.entry(id).or_default().push(serde_json::from_slice(&message.body).unwrap());
                    }
                }
            }
        }
        stored
    }

    /// Every order from 1 to `orders` is SENT, in the topic under its event id, and took effect once at each consumer;
    /// every repeat is a true copy. Gives how many copies are repeats.
    pub async fn assert_whole(&self, orders: u32) -> usize {
        assert_eq!(self.world.count("SENT").await, i64::from(orders), "rows SENT");
        self.world.assert_effects_once(orders).await;
        let rows = self.world.payloads().await;
        let stored = self.stored().await;
        let lost: Vec<&String> = rows.keys().filter(|id| !stored.contains_key(*id)).collect();
        let strange: Vec<&String> = stored.keys().filter(|id| !rows.contains_key(*id)).collect();
        assert!(lost.is_empty(), "{} events are not in the topic: {lost:?}", lost.len());
        assert!(strange.is_empty(), "{} messages belong to no event: {strange:?}", strange.len());
        for (id, copies) in &stored {
            let row: Json = serde_json::from_str(&rows[id]).unwrap();
            assert!(copies.iter().all(|copy| *copy == row), "{id} was repeated differently: {copies:?}");
        }
        stored.values().map(|copies| copies.len() - 1).sum()
    }

    /// Takes topics and groups away again.
    pub async fn clean(&self) {
        for topic in ["points", "points-dead", "points-transaction"] {
            self.admin.delete_topic(&format!("{}-{topic}", self.world.name)).await.unwrap();
        }
        for group in ["points-award", "points-sms"] {
            self.admin.delete_group(&format!("{}-{group}", self.world.name)).await.unwrap();
        }
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// A section of the config.
pub fn entry<'t>(table: &'t mut Table, key: &str) -> &'t mut Table {
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
