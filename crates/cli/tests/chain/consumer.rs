//! What a declared consumer makes of its deliveries: applied once, duplicate, conflict, or put aside with a reason.

use std::path::PathBuf;

use sqlx::mysql::MySqlPool;

use crate::harness::{Broker, Child, World, url};
use crate::post::{Post, SOON, beginning, cell, must, store_url, write};

const DEAD_LETTER: &str = "dead_letter = { destination = \"main\", key = \"dead\" }\n";

/// The points story: consumers `points-award` and `sms`, each with a queue, and a queue for dead letters.
fn story_config(world: &World, store: &str, comparison: &str, dead_letter: &str) -> String {
    let name = &world.name;
    let broker = url(Broker::RabbitMq);
    let queue = |queue: &str, binding: &str| {
        format!(
            "[[destination.main.queue]]\nname = \"{name}-{queue}\"\ntype = \"quorum\"\ndead_letter_exchange = \"{name}\"\ndead_letter_key = \"dead\"\nbindings = [\"{binding}\"]\n\n"
        )
    };
    let consumer = |consumer: &str, queue: &str, key: &str, comparison: &str, sql: &str| {
        format!(
            "[[consumer]]\nname = \"{consumer}\"\nsource = \"main\"\nqueue = \"{name}-{queue}\"\nprefetch = 10\nkey = \"{key}\"\n\
             {comparison}\nattempts_max = 3\n{dead_letter}\
             bind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n\
             bind.user_id = {{ pointer = \"/userId\", type = \"integer\" }}\n\
             bind.amount = {{ pointer = \"/amount\", type = \"integer\" }}\n\
             [[consumer.statement]]\nsql = \"{sql}\"\n\n"
        )
    };
    let award = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id";
    let message =
        "INSERT INTO sms_message (order_id, user_id, event_type) VALUES (:order_id, :user_id, :event_type)";
    [
        beginning(store),
        format!("[destination.main]\ntype = \"rabbitmq\"\nurl = \"{broker}\"\nexchange = {{ name = \"{name}\" }}\n\n"),
        queue("points", "OrderPaid"),
        queue("sms", "OrderPaid"),
        queue("dead", "dead"),
        "[[route]]\nevent_type = \"*\"\ndestination = \"main\"\n\n".into(),
        consumer("points-award", "points", "order:{order_id}:paid", comparison, award),
        consumer("sms", "sms", "order:{order_id}:{event_type}", "compare = [\"user_id\"]", message),
    ]
    .concat()
}

/// A world with the story's tables, queues and accounts, and what looks into its queues.
struct Story {
    world: World,
    config: PathBuf,
    post: Post,
}

impl Story {
    async fn new(comparison: &str, dead_letter: &str) -> Self {
        let world = World::unmigrated().await;
        let config =
            write(&world, "story.toml", &story_config(&world, &store_url(&world), comparison, dead_letter));
        world.run("REPLACE INTO points_account (user_id, points) VALUES (7, 0), (9007199254740992, 0), (9007199254740993, 0)").await;
        must(&["migrate"], &config);
        must(&["topology", "apply"], &config);
        Self { world, config, post: Post::open(Broker::RabbitMq).await }
    }

    /// Its log says what became of each delivery.
    fn consume(&self) -> Child {
        Child::start("consume", &self.config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")])
    }

    fn queue(&self, queue: &str) -> String {
        format!("{}-{queue}", self.world.name)
    }

    async fn send(&self, id: &str, body: &str) {
        self.post.send(&self.queue("points"), id, "OrderPaid", body).await;
    }

    async fn points(&self, user: i64) -> i64 {
        self.world.number(&format!("SELECT points FROM points_account WHERE user_id = {user}")).await
    }

    /// Waits until the log holds `count` times what `word` says of a delivery.
    async fn said(&self, child: &Child, word: &str, count: usize) {
        let what = format!("{count} deliveries are {word}");
        let said = || mentions(&child.log(), word);
        self.world.eventually(SOON, &what, async || said() >= count).await;
        assert_eq!(said(), count, "{}", child.log());
    }

    /// Drains the consumers and shows that every delivery of the queue was acknowledged.
    async fn end(self, mut consumers: Vec<Child>) {
        for consumer in &mut consumers {
            consumer.terminate();
            assert!(consumer.wait(SOON).await.success(), "{}", consumer.log());
        }
        drop(consumers);
        assert_eq!(self.post.ready(&self.queue("points")).await, 0, "a delivery was not acknowledged");
    }
}

fn mentions(log: &str, word: &str) -> usize {
    log.lines().filter(|line| line.contains(word)).count()
}

fn paid(order: u64, user: u64, amount: u64) -> String {
    format!("{{\"orderId\": {order}, \"userId\": {user}, \"amount\": {amount}}}")
}

const COLUMNS: &str = "compare = [\"user_id\", \"amount\"]";

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_with_another_amount_is_one_recorded_conflict_whose_count_grows() {
    let story = Story::new(COLUMNS, "").await;
    let consumer = story.consume();
    story.send("e-1", &paid(1, 7, 100)).await;
    story.said(&consumer, "processed=Applied", 1).await;

    story.send("e-2", &paid(1, 7, 999)).await;
    story.said(&consumer, "processed=Conflict", 1).await;
    story.send("e-3", &paid(1, 7, 999)).await;
    story.said(&consumer, "processed=Conflict", 2).await;
    story.send("e-4", &paid(1, 7, 5)).await;
    story.said(&consumer, "processed=Conflict", 3).await;
    // The first content is still the one that counts.
    story.send("e-5", &paid(1, 7, 100)).await;
    story.said(&consumer, "processed=Duplicate", 1).await;

    let rows = "SELECT GROUP_CONCAT(CONCAT_WS('|', consumer_name, business_key, existing, comparison, existing_event_id, event_id, \
                count) ORDER BY comparison SEPARATOR '\\n') FROM consign_conflict";
    let rows = cell(&story.world, rows).await;
    let key = "points-award|order:1:paid|user_id=7, amount=100";
    assert_eq!(rows, format!("{key}|user_id=7, amount=5|e-1|e-4|1\n{key}|user_id=7, amount=999|e-1|e-3|2"));
    assert_eq!(story.points(7).await, 100);
    assert_eq!(story.world.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    assert!(consumer.log().contains("conflict recorded"), "a conflict is loud");
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_fact_in_a_new_envelope_or_another_spelling_is_a_duplicate() {
    let story = Story::new(COLUMNS, "").await;
    let consumer = story.consume();
    story.send("e-1", &paid(1, 7, 100)).await;
    story.said(&consumer, "processed=Applied", 1).await;

    let spellings = [
        paid(1, 7, 100),
        "{\"amount\":100,\"userId\":7,\"orderId\":1}".into(),
        "{ \"orderId\" : 1.0, \"userId\" : 7.00, \"amount\" : 1e2 }\n".into(),
        "{\"orderId\": 1, \"userId\": 7, \"amount\": 100, \"note\": \"sent again\"}".into(),
    ];
    for (copy, body) in spellings.iter().enumerate() {
        story.send(&format!("copy-{copy}"), body).await;
    }
    story.said(&consumer, "processed=Duplicate", spellings.len()).await;

    assert_eq!(story.points(7).await, 100);
    assert_eq!(story.world.number("SELECT COUNT(*) FROM consign_conflict").await, 0);
    assert_eq!(cell(&story.world, "SELECT event_id FROM consumed_operation").await, "e-1");
    story.end(vec![consumer]).await;
}

/// Both ids are the same number to anything that reads JSON into a double.
#[tokio::test(flavor = "multi_thread")]
async fn ids_above_two_to_the_53_that_differ_by_one_are_a_conflict() {
    let story = Story::new(COLUMNS, "").await;
    let consumer = story.consume();
    story.send("e-1", &paid(1, 9_007_199_254_740_993, 100)).await;
    story.said(&consumer, "processed=Applied", 1).await;

    story.send("e-2", &paid(1, 9_007_199_254_740_992, 100)).await;
    story.said(&consumer, "processed=Conflict", 1).await;
    // As keys they are two orders.
    story.send("e-3", &paid(9_007_199_254_740_992, 7, 1)).await;
    story.send("e-4", &paid(9_007_199_254_740_993, 7, 1)).await;
    story.said(&consumer, "processed=Applied", 3).await;

    assert_eq!(story.points(9_007_199_254_740_993).await, 100);
    assert_eq!(story.points(9_007_199_254_740_992).await, 0);
    assert_eq!(story.points(7).await, 2);
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consumer_processes_make_one_effect_of_many_copies() {
    const ORDERS: usize = 40;
    const COPIES: usize = 5;
    let story = Story::new(COLUMNS, "").await;
    // Both are on the queue before the first copy comes.
    let consumers = [story.consume(), story.consume()];
    for consumer in &consumers {
        story
            .world
            .eventually(SOON, "the consumer is on", async || mentions(&consumer.log(), "consuming") >= 2)
            .await;
    }
    for order in 0..ORDERS {
        for copy in 0..COPIES {
            story.send(&format!("e-{order}-{copy}"), &paid(order as u64, 7, 3)).await;
        }
    }
    let processed =
        |word: &str| consumers.iter().map(|consumer| mentions(&consumer.log(), word)).sum::<usize>();
    story
        .world
        .eventually(SOON, "every copy was processed", async || processed("processed=") >= ORDERS * COPIES)
        .await;

    assert_eq!(processed("processed=Applied"), ORDERS);
    assert_eq!(processed("processed=Duplicate"), ORDERS * (COPIES - 1));
    for consumer in &consumers {
        assert!(mentions(&consumer.log(), "processed=") > 0, "one process did all the work: nothing raced");
    }
    assert_eq!(story.points(7).await, i64::try_from(ORDERS).unwrap() * 3);
    assert_eq!(story.world.number("SELECT COUNT(*) FROM consumed_operation").await, 40);
    story.end(consumers.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_changes_no_row_is_rolled_back_tried_again_and_put_aside() {
    let story = Story::new(COLUMNS, "").await;
    let consumer = story.consume();

    story.send("e-1", &paid(1, 77, 100)).await;
    story.send("e-2", &paid(2, 7, 100)).await;

    story.said(&consumer, "processed=Applied", 1).await;
    story
        .world
        .eventually(SOON, "the delivery is put aside", async || {
            story.world.number("SELECT COUNT(*) FROM consign_dead_delivery").await == 1
        })
        .await;
    assert_eq!(
        mentions(&consumer.log(), "it will be tried again"),
        2,
        "three tries in all: {}",
        consumer.log()
    );
    let row = cell(&story.world, "SELECT CONCAT_WS('|', consumer_name, business_key, message_id, message_type, count, source, reason) FROM consign_dead_delivery").await;
    assert!(
        row.starts_with(&format!("points-award|order:1:paid|e-1|OrderPaid|1|{}|", story.queue("points"))),
        "{row}"
    );
    assert!(row.contains('0') && row.contains("row"), "the reason names the count: {row}");
    assert_eq!(
        cell(&story.world, "SELECT CAST(payload AS CHAR) FROM consign_dead_delivery").await,
        paid(1, 77, 100)
    );
    assert_eq!(
        cell(&story.world, "SELECT GROUP_CONCAT(business_key) FROM consumed_operation").await,
        "order:2:paid"
    );

    // Once the account exists, the same message can be sent again and is applied.
    story.world.run("INSERT INTO points_account (user_id, points) VALUES (77, 0)").await;
    story.send("e-1", &paid(1, 77, 100)).await;
    story.said(&consumer, "processed=Applied", 2).await;
    assert_eq!(story.points(77).await, 100);
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_go_to_their_queue_with_reason_and_consumer_and_the_rest_flows() {
    let story = Story::new(COLUMNS, DEAD_LETTER).await;
    let consumer = story.consume();

    let spoiled = [
        ("broken", "{\"orderId\": 1,"),
        ("empty", ""),
        ("latin", "\u{fffd}"),
        ("text", "\"OrderPaid\""),
        ("keyless", "{\"userId\": 7, \"amount\": 1}"),
        ("wordy", "{\"orderId\": \"1\", \"userId\": 7, \"amount\": 1}"),
        ("half", "{\"orderId\": 1, \"userId\": 7, \"amount\": 1.5}"),
        ("poor", "{\"orderId\": 4, \"userId\": 404, \"amount\": 1}"),
    ];
    for (id, body) in spoiled {
        story.send(id, body).await;
    }
    story.send("good", &paid(5, 7, 100)).await;
    story.said(&consumer, "processed=Applied", 1).await;
    story.said(&consumer, "put aside as dead", spoiled.len()).await;

    let dead = story.post.take_all(&story.queue("dead")).await;
    assert_eq!(dead.len(), spoiled.len());
    for (id, body) in spoiled {
        let letter = dead.iter().find(|letter| letter.id == id).unwrap_or_else(|| panic!("{id} is missing"));
        assert_eq!(&letter.body[..], body.as_bytes(), "{id}");
        assert_eq!(letter.kind.as_deref(), Some("OrderPaid"), "{id}");
        assert_eq!(letter.header("consign-dead-consumer"), Some("points-award"), "{id}");
        assert_eq!(letter.header("consign-dead-source"), Some(story.queue("points").as_str()), "{id}");
        let reason = letter.header("consign-dead-reason").unwrap();
        let wanted = match id {
            "broken" | "empty" | "latin" => "JSON",
            "keyless" | "wordy" => "order_id",
            "half" | "text" => "amount",
            _ => "row",
        };
        assert!(reason.contains(wanted), "{id}: {reason}");
    }
    assert_eq!(story.points(7).await, 100);
    assert_eq!(story.world.number("SELECT COUNT(*) FROM consign_dead_delivery").await, 0);
    assert_eq!(story.world.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_are_no_json_are_recorded_in_the_table_when_no_queue_takes_them() {
    let story = Story::new(COLUMNS, "").await;
    let consumer = story.consume();
    story.send("broken", "{\"orderId\": 1,").await;
    story.send("empty", "").await;
    story.send("good", &paid(5, 7, 100)).await;

    story.said(&consumer, "processed=Applied", 1).await;
    story.said(&consumer, "put aside as dead", 2).await;

    let rows = "SELECT GROUP_CONCAT(CONCAT_WS('|', message_id, payload_bytes, IFNULL(business_key, '-')) ORDER BY message_id) FROM consign_dead_delivery";
    assert_eq!(cell(&story.world, rows).await, "broken|14|-,empty|0|-");
    let reasons = cell(&story.world, "SELECT GROUP_CONCAT(reason) FROM consign_dead_delivery").await;
    assert_eq!(reasons.matches("JSON").count(), 2, "{reasons}");
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_tells_another_content_from_another_spelling() {
    let story = Story::new("fingerprint = [\"user_id\", \"amount\"]", "").await;
    let consumer = story.consume();
    story.send("e-1", &paid(1, 7, 100)).await;
    story.said(&consumer, "processed=Applied", 1).await;

    story.send("e-2", "{\"amount\":1.00e2,  \"userId\":7.0,\"orderId\":1}").await;
    story.said(&consumer, "processed=Duplicate", 1).await;
    story.send("e-3", &paid(1, 7, 101)).await;
    story.said(&consumer, "processed=Conflict", 1).await;
    story.send("e-4", &paid(1, 9_007_199_254_740_993, 100)).await;
    story.said(&consumer, "processed=Conflict", 2).await;

    assert_eq!(story.points(7).await, 100);
    let marker = cell(
        &story.world,
        "SELECT CONCAT_WS('|', event_id, LENGTH(fingerprint), user_id) FROM consumed_operation",
    )
    .await;
    assert_eq!(marker, "e-1|64", "the columns of other consumers stay NULL");
    assert_eq!(
        story.world.number("SELECT COUNT(*) FROM consign_conflict WHERE existing LIKE 'fingerprint=%'").await,
        2
    );
    story.end(vec![consumer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_consumer_has_its_own_markers_and_its_own_fate() {
    let story = Story::new(COLUMNS, "").await;
    let world = &story.world;
    let everything = Child::start("run", &story.config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")]);
    // Order 1: fine for both. Order 2: no account, so no points, and the message all the same. Order 1 again with
    // another amount: a conflict for one, a duplicate for the other.
    world.insert("e-1", "OrderPaid", &paid(1, 7, 100)).await;
    story.said(&everything, "processed=Applied", 2).await;
    world.insert("e-2", "OrderPaid", &paid(2, 77, 100)).await;
    world.insert("e-3", "OrderPaid", &paid(1, 7, 5)).await;
    story.said(&everything, "processed=Applied", 3).await;
    story.said(&everything, "processed=Conflict", 1).await;
    story.said(&everything, "processed=Duplicate", 1).await;
    story.said(&everything, "put aside as dead", 1).await;

    assert_eq!(world.count("SENT").await, 3);
    assert_eq!(story.points(7).await, 100);
    let messages = cell(world, "SELECT GROUP_CONCAT(CONCAT_WS('|', order_id, user_id, event_type) ORDER BY order_id) FROM sms_message").await;
    assert_eq!(messages, "1|7|OrderPaid,2|77|OrderPaid");
    let markers = cell(
        world,
        "SELECT GROUP_CONCAT(CONCAT_WS('|', consumer_name, business_key) ORDER BY 1) FROM consumed_operation",
    )
    .await;
    let mut markers: Vec<&str> = markers.split(',').collect();
    markers.sort_unstable();
    assert_eq!(markers, ["points-award|order:1:paid", "sms|order:1:OrderPaid", "sms|order:2:OrderPaid"]);
    assert_eq!(cell(world, "SELECT GROUP_CONCAT(consumer_name) FROM consign_conflict").await, "points-award");
    assert_eq!(
        cell(world, "SELECT GROUP_CONCAT(consumer_name) FROM consign_dead_delivery").await,
        "points-award"
    );
    story.end(vec![everything]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_story_runs_on_mariadb() {
    let base = std::env::var("CONSIGN_TEST_MARIADB_URL")
        .expect("CONSIGN_TEST_MARIADB_URL is set by cargo xtask test");
    let (server, _) = base.rsplit_once('/').unwrap();
    // The world lends its name, its folder and its queues; the tables are MariaDB's.
    let world = World::unmigrated().await;
    let store = format!("{}/{}", server.replacen("mysql://", "mariadb://", 1), world.name);
    let administrator = MySqlPool::connect(&base).await.unwrap();
    let on_mariadb =
        async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&administrator).await.unwrap();
    on_mariadb(format!(
        "CREATE DATABASE {0}; CREATE TABLE {0}.points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL); \
         CREATE TABLE {0}.sms_message (order_id BIGINT NOT NULL, user_id BIGINT NOT NULL, event_type VARCHAR(64) NOT NULL); \
         INSERT INTO {0}.points_account VALUES (7, 0)",
        world.name
    ))
    .await;
    let config = write(&world, "mariadb.toml", &story_config(&world, &store, COLUMNS, ""));
    must(&["migrate"], &config);
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);
    must(&["doctor"], &config);

    let mut everything = Child::start("run", &config, &[]);
    for (id, order, amount) in [("a", 1, 100), ("A", 2, 100), ("b", 1, 100), ("c", 1, 999)] {
        on_mariadb(format!(
            "INSERT INTO {}.outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) \
             VALUES ('{id}', {order}, 'OrderPaid', '{}', 'NEW', NOW(6), NOW(6))",
            world.name,
            paid(order, 7, amount)
        ))
        .await;
        let count = async |sql: &str| -> i64 {
            let sql = sql.replace("FROM ", &format!("FROM {}.", world.name));
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&administrator).await.unwrap()
        };
        // One after the other, so that the first amount is the one that counts.
        world
            .eventually(SOON, "the row is SENT", async || {
                count("SELECT COUNT(*) FROM outbox_event WHERE status <> 'SENT'").await == 0
            })
            .await;
        if id == "a" {
            world
                .eventually(SOON, "it is applied", async || {
                    count("SELECT COUNT(*) FROM consumed_operation").await == 2
                })
                .await;
        }
        if id == "c" {
            world
                .eventually(SOON, "the conflict is recorded", async || {
                    count("SELECT COUNT(*) FROM consign_conflict").await == 1
                })
                .await;
            world
                .eventually(SOON, "both orders are paid", async || {
                    count("SELECT points FROM points_account").await == 200
                })
                .await;
            world
                .eventually(SOON, "both messages are written", async || {
                    count("SELECT COUNT(*) FROM sms_message").await == 2
                })
                .await;
        }
    }
    everything.terminate();
    assert!(everything.wait(SOON).await.success(), "{}", everything.log());
    drop(everything);
    on_mariadb(format!("DROP DATABASE {}", world.name)).await;
    administrator.close().await;
}
