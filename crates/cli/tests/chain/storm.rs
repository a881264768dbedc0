//! Consumers killed at random while repeats, contradictions and poison come in between.
//!
//! The audit is a query: every account has exactly the points of its orders, every order one marker, every
//! contradiction one record, and every poisonous delivery a place among the dead.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::{Broker, Child, World, url};
use crate::post::{Post, beginning, must, store_url, write};

/// Long enough for a loaded machine; conditions end the wait as soon as they hold.
const DEADLINE: Duration = Duration::from_mins(5);
const CONSUMERS: usize = 4;
const ACCOUNTS: u64 = 500;
const AMOUNT: u64 = 5;

/// A sequence of numbers that is the same in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What is sent, and what must come of it.
#[derive(Default)]
struct Traffic {
    messages: Vec<(String, String)>,
    /// Points by account.
    points: BTreeMap<u64, u64>,
    orders: u64,
    conflicts: u64,
    poison: u64,
}

impl Traffic {
    /// Three in ten repeat an order of a while ago, one in a hundred contradicts one of long ago, and one in a hundred
    /// is poison: it names an account that does not exist, or cannot be read.
    fn new(deliveries: u64) -> Self {
        let mut traffic = Self::default();
        let mut sequence = Sequence(42);
        for number in 0..deliveries {
            let known = traffic.orders;
            let body = match sequence.below(100) {
                0..30 if known > 0 => {
                    let back = sequence.below(known.min(2000));
                    order(known - 1 - back, AMOUNT)
                }
                // Far behind what consumers hold at once, so that the order itself certainly came before.
                30 if known > deliveries / 4 => {
                    traffic.conflicts += 1;
                    order(traffic.conflicts, AMOUNT + 1)
                }
                31 if number % 2 == 0 => {
                    traffic.poison += 1;
                    format!(
                        r#"{{"orderId":{},"userId":999999999,"amount":{AMOUNT}}}"#,
                        1_000_000_000 + number
                    )
                }
                31 => {
                    traffic.poison += 1;
                    format!("this is no JSON: {number}")
                }
                _ => {
                    traffic.orders += 1;
                    *traffic.points.entry(account(known)).or_default() += AMOUNT;
                    order(known, AMOUNT)
                }
            };
            traffic.messages.push((format!("storm-{number}"), body));
        }
        traffic
    }
}

const fn account(order: u64) -> u64 {
    100 + order.wrapping_mul(2_654_435_761) % ACCOUNTS
}

fn order(order: u64, amount: u64) -> String {
    format!(r#"{{"orderId":{order},"userId":{},"amount":{amount}}}"#, account(order))
}

fn config(world: &World, extra: &str) -> String {
    let name = &world.name;
    let broker = url(Broker::RabbitMq);
    [
        beginning(&store_url(world)),
        format!(
            r#"
{extra}
[destination.main]
type = "rabbitmq"
url = "{broker}"
exchange = {{ name = "{name}" }}

[[destination.main.queue]]
name = "{name}-points"
type = "quorum"
bindings = ["OrderPaid"]
dead_letter_exchange = "{name}"
dead_letter_key = "dead"

[[destination.main.queue]]
name = "{name}-dead"
type = "quorum"
bindings = ["dead"]

[[consumer]]
name = "points-award"
source = "main"
queue = "{name}-points"
key = "order:{{order_id}}:paid"
compare = ["user_id", "amount"]
attempts_max = 2
retry_delay_seconds = 0
bind.order_id = {{ pointer = "/orderId", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}
bind.amount = {{ pointer = "/amount", type = "integer" }}

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id"
expect_rows = 1
"#
        ),
    ]
    .concat()
}

/// How many deliveries; the environment may ask for more.
fn deliveries() -> u64 {
    std::env::var("CONSIGN_TEST_DELIVERIES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

async fn open_accounts(world: &World) {
    let accounts: Vec<String> = (100..100 + ACCOUNTS).map(|user| format!("({user}, 0)")).collect();
    world.run(&format!("INSERT INTO points_account (user_id, points) VALUES {}", accounts.join(", "))).await;
}

async fn assert_exact(world: &World, traffic: &Traffic) {
    let rows: Vec<(u64, i64)> =
        sqlx::query_as("SELECT CAST(user_id AS UNSIGNED), points FROM points_account WHERE user_id >= 100")
            .fetch_all(&world.pool)
            .await
            .unwrap();
    let wrong: Vec<_> = rows
        .iter()
        .map(|(user, points)| (*user, *points, traffic.points.get(user).copied().unwrap_or_default()))
        .filter(|(_, found, expected)| u64::try_from(*found).ok() != Some(*expected))
        .collect();
    assert!(wrong.is_empty(), "{} accounts have other points than their orders: {wrong:?}", wrong.len());
    for (what, query, expected) in [
        ("markers", "SELECT COUNT(*) FROM consumed_operation", traffic.orders),
        ("conflicts", "SELECT COUNT(*) FROM consign_conflict", traffic.conflicts),
        ("dead deliveries", "SELECT COUNT(*) FROM consign_dead_delivery", traffic.poison),
        ("parked deliveries", "SELECT COUNT(*) FROM consign_parked_delivery", 0),
    ] {
        assert_eq!(world.number(query).await, i64::try_from(expected).unwrap(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_killed_at_random_lose_and_double_nothing_of_a_hundred_thousand_deliveries() {
    let world = World::migrated().await;
    let config = write(&world, "storm.toml", &config(&world, ""));
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);
    open_accounts(&world).await;
    let traffic = Traffic::new(deliveries());
    let queue = format!("{}-points", world.name);
    let post = Post::open(Broker::RabbitMq).await;
    let quiet = [("CONSIGN_LOG", "off")];
    let mut consumers: Vec<Child> =
        (0..CONSUMERS).map(|_| Child::start("consume", &config, &quiet)).collect();

    let (mut kills, mut sequence) = (0_u32, Sequence(7));
    let sending = post.send_all(&queue, "OrderPaid", traffic.messages.iter().cloned());
    let storm = async {
        let mut seen = 0;
        world
            .eventually(DEADLINE, "everything is processed in spite of the kills", async || {
                let markers = world.number("SELECT COUNT(*) FROM consumed_operation").await;
                // A kill after every few thousand effects: the pace of the machine decides, not a clock.
                if markers >= seen + 4000 {
                    seen = markers;
                    let victim = usize::try_from(sequence.below(CONSUMERS as u64)).unwrap();
                    consumers[victim].kill();
                    consumers[victim] = Child::start("consume", &config, &quiet);
                    kills += 1;
                }
                markers >= i64::try_from(traffic.orders).unwrap()
                    && world.number("SELECT COUNT(*) FROM consign_dead_delivery").await
                        >= i64::try_from(traffic.poison).unwrap()
                    && world.number("SELECT COUNT(*) FROM consign_conflict").await
                        >= i64::try_from(traffic.conflicts).unwrap()
                    // A consumer killed between the record of a dead delivery and its removal leaves it parked until its
                    // lease ends.
                    && world.number("SELECT COUNT(*) FROM consign_parked_delivery").await == 0
                    && post.ready(&queue).await == 0
            })
            .await;
    };
    tokio::join!(sending, storm);
    for consumer in &mut consumers {
        consumer.terminate();
        assert!(consumer.wait(DEADLINE).await.success());
    }

    assert!(kills >= 3, "only {kills} consumers were killed: send more deliveries");
    assert_eq!(post.ready(&queue).await, 0, "a delivery was not acknowledged");
    assert_exact(&world, &traffic).await;
}
