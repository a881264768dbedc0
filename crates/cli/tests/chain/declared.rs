//! What a declared consumer says beyond its key and its statements: a schema, times, earlier comparisons, a guard.

use std::path::{Path, PathBuf};

use crate::harness::{Broker, Child, World, url};
use crate::post::{Post, SOON, beginning, cell, must, store_url, write};

/// One consumer of one queue; `keys` stand in its table, `tables` behind its statement.
fn config(world: &World, keys: &str, tables: &str) -> String {
    let (name, broker) = (&world.name, url(Broker::RabbitMq));
    format!(
        "{}[destination.main]\ntype = \"rabbitmq\"\nurl = \"{broker}\"\nexchange = {{ name = \"{name}\" }}\n\n\
         [[destination.main.queue]]\nname = \"{name}-points\"\nbindings = [\"OrderPaid\"]\n\n\
         [[route]]\nevent_type = \"*\"\ndestination = \"main\"\n\n\
         [[consumer]]\nname = \"points-award\"\nsource = \"main\"\nqueue = \"{name}-points\"\n{keys}\n\
         bind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n\
         bind.user_id = {{ pointer = \"/userId\", type = \"integer\" }}\n\
         bind.amount = {{ pointer = \"/amount\", type = \"integer\" }}\n\n\
         [[consumer.statement]]\nsql = \"UPDATE points_account SET points = points + :amount WHERE user_id = :user_id\"\n\
         {tables}\n",
        beginning(&store_url(world))
    )
}

const KEY: &str = "key = \"order:{order_id}:paid\"";

struct Story {
    world: World,
    post: Post,
}

impl Story {
    async fn new() -> Self {
        Self { world: World::migrated().await, post: Post::open(Broker::RabbitMq).await }
    }

    fn prepare(&self, keys: &str, tables: &str) -> PathBuf {
        let config = write(&self.world, "declared.toml", &config(&self.world, keys, tables));
        must(&["migrate"], &config);
        must(&["topology", "apply"], &config);
        config
    }

    async fn send(&self, id: &str, body: &str) {
        self.post.send(&format!("{}-points", self.world.name), id, "OrderPaid", body).await;
    }

    /// Waits until the log holds `count` times what `word` says of a delivery.
    async fn said(&self, child: &Child, word: &str, count: usize) {
        let said = || child.log().lines().filter(|line| line.contains(word)).count();
        self.world.eventually(SOON, word, async || said() >= count).await;
        assert_eq!(said(), count, "{}", child.log());
    }

    async fn points(&self) -> i64 {
        self.world.number("SELECT points FROM points_account WHERE user_id = 7").await
    }
}

/// Its log says what became of each delivery.
fn consume(config: &Path) -> Child {
    Child::start("consume", config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")])
}

async fn stop(mut child: Child) {
    child.terminate();
    assert!(child.wait(SOON).await.success(), "{}", child.log());
}

/// It would fail again however often it came, and would only hold up the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_does_not_fit_its_schema_is_put_aside_at_once_and_the_rest_flows() {
    let story = Story::new().await;
    let schema = r#"{"type":"object","properties":{"amount":{"type":"integer","maximum":1000}}}"#;
    write(&story.world, "paid.schema.json", schema);
    let keys = format!("{KEY}\ncompare = [\"user_id\", \"amount\"]\nschema = \"paid.schema.json\"");
    let config = story.prepare(&keys, "");
    let consumer = consume(&config);

    story.send("e-1", r#"{"orderId":1,"userId":7,"amount":1001}"#).await;
    story.send("e-2", r#"{"orderId":2,"userId":7,"amount":1000}"#).await;

    story.said(&consumer, "processed=Applied", 1).await;
    story.said(&consumer, "put aside as dead", 1).await;
    assert_eq!(
        cell(&story.world, "SELECT CONCAT_WS('|', message_id, reason) FROM consign_dead_delivery").await,
        "e-1|payload field /amount does not fit the schema: maximum failed, rule \"/properties/amount/maximum\""
    );
    assert_eq!(story.points().await, 1000);
    assert!(!consumer.log().contains("1001"), "{}", consumer.log());
    let file = write(&story.world, "message.json", r#"{"orderId":3,"userId":7,"amount":1001}"#);
    let look = crate::post::run(&["consume", "--dry-run", file.to_str().unwrap()], &config);
    assert!(look.code == 3 && look.stdout.contains("maximum failed"), "{}{}", look.stdout, look.stderr);
    stop(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_the_same_by_instant_and_one_that_the_column_would_round_is_put_aside() {
    let story = Story::new().await;
    let keys = format!(
        "{KEY}\ncompare = [\"paid_at\"]\nattempts_max = 1\nbind.paid_at = {{ pointer = \"/paidAt\", type = \"timestamp\" }}"
    );
    let config = story.prepare(&keys, "");
    let consumer = consume(&config);
    let paid =
        |order: u32, at: &str| format!(r#"{{"orderId":{order},"userId":7,"amount":10,"paidAt":"{at}"}}"#);

    story.send("e-1", &paid(1, "2026-02-01T08:59:59.5+09:00")).await;
    story.said(&consumer, "processed=Applied", 1).await;
    story.send("e-2", &paid(1, "2026-01-31T23:59:59.500000Z")).await;
    story.said(&consumer, "processed=Duplicate", 1).await;
    story.send("e-3", &paid(1, "2026-01-31T23:59:59.500001Z")).await;
    story.said(&consumer, "processed=Conflict", 1).await;
    assert_eq!(
        cell(&story.world, "SELECT CAST(paid_at AS CHAR) FROM consumed_operation").await,
        "2026-01-31 23:59:59.500000"
    );
    stop(consumer).await;

    story.world.run("ALTER TABLE consumed_operation MODIFY paid_at DATETIME(3) NULL").await;
    let consumer = consume(&config);
    story.send("e-4", &paid(1, "2026-01-31T23:59:59.5Z")).await;
    story.said(&consumer, "processed=Duplicate", 1).await;
    story.send("e-5", &paid(2, "2026-01-31T23:59:59.1234Z")).await;
    story.said(&consumer, "put aside as dead", 1).await;
    let reason = cell(&story.world, "SELECT reason FROM consign_dead_delivery").await;
    assert!(reason.contains("paid_at is datetime(3)") && reason.contains("DATETIME(6)"), "{reason}");
    assert_eq!(story.points().await, 10);
    stop(consumer).await;
}

/// A field that is added to the comparison later must not turn the repeats of older operations into conflicts.
#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_grew_judges_old_markers_as_they_were_written() {
    let story = Story::new().await;
    let config = story.prepare(&format!("{KEY}\ncompare = [\"user_id\"]"), "");
    let paid = |order: u32, user: u32, amount: u32| {
        format!(r#"{{"orderId":{order},"userId":{user},"amount":{amount}}}"#)
    };
    let consumer = consume(&config);
    story.send("e-1", &paid(1, 7, 10)).await;
    story.said(&consumer, "processed=Applied", 1).await;
    stop(consumer).await;

    let grown = "compare = [\"user_id\", \"amount\"]\ncompare_version = 2\n\
                 compare_history = [{ version = 1, compare = [\"user_id\"] }]";
    let config = story.prepare(&format!("{KEY}\n{grown}"), "");
    let consumer = consume(&config);
    story.send("e-2", &paid(1, 7, 99)).await;
    story.said(&consumer, "processed=Duplicate", 1).await;
    story.send("e-3", &paid(1, 8, 10)).await;
    story.said(&consumer, "processed=Conflict", 1).await;
    story.send("e-4", &paid(2, 7, 10)).await;
    story.said(&consumer, "processed=Applied", 1).await;
    story.send("e-5", &paid(2, 7, 99)).await;
    story.said(&consumer, "processed=Conflict", 2).await;
    assert_eq!(story.points().await, 20);
    let versions =
        "SELECT GROUP_CONCAT(IFNULL(comparison_version, 1) ORDER BY business_key) FROM consumed_operation";
    assert_eq!(cell(&story.world, versions).await, "1,2");
    stop(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_guard_skips_old_versions_and_refuses_forbidden_states() {
    let story = Story::new().await;
    let keys = "key = \"order:{order_id}:{state}\"\ncompare = []\nattempts_max = 1\n\
                bind.state = { pointer = \"/state\", type = \"string\" }";
    let guard = "[consumer.guard]\nrule = \"transition\"\naggregate = \"order:{order_id}\"\nstate = \"state\"\n\
                 allowed = [\"->NEW\", \"NEW->PAID\", \"NEW->CANCELLED\"]";
    let config = story.prepare(keys, guard);
    let consumer = consume(&config);
    let moved = |state: &str| format!(r#"{{"orderId":1,"userId":7,"amount":1,"state":"{state}"}}"#);

    story.send("e-1", &moved("NEW")).await;
    story.said(&consumer, "processed=Applied", 1).await;
    story.send("e-2", &moved("PAID")).await;
    story.said(&consumer, "processed=Applied", 2).await;
    story.send("e-3", &moved("CANCELLED")).await;
    story.said(&consumer, "put aside as dead", 1).await;

    assert_eq!(story.points().await, 2);
    assert_eq!(
        cell(&story.world, "SELECT CONCAT_WS('|', consumer_name, aggregate, state) FROM consign_progress")
            .await,
        "points-award|order:1|PAID"
    );
    let reason = cell(&story.world, "SELECT reason FROM consign_dead_delivery").await;
    assert!(reason.contains("order:1 cannot go from \"PAID\" to \"CANCELLED\""), "{reason}");
    stop(consumer).await;
}
