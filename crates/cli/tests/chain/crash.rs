//! The program dies, at named points and at random ones. Nothing is lost, repeats are true copies, effects happen once.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::audit::{by_event, repeats};
use crate::harness::{Child, World, require_failpoints};

const ORDERS: u32 = 30;
const DEADLINE: Duration = Duration::from_mins(1);
const SIGABRT: i32 = 6;

/// A world with orders waiting, and its config.
async fn world_with_orders() -> (World, PathBuf) {
    require_failpoints();
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    world.insert_many(ORDERS).await;
    (world, config)
}

/// Starts the program so that it dies at `point`, and returns when it did.
async fn crash(command: &'static str, config: &Path, point: &str) {
    let mut doomed = Child::start(command, config, &[("CONSIGN_FAILPOINTS", point)]);
    let status = doomed.wait(DEADLINE).await;
    assert_eq!(status.signal(), Some(SIGABRT), "{point} ends the process, its log:\n{}", doomed.log());
}

/// Lets healthy processes finish the work.
async fn recover(world: &World, config: &Path) {
    let _relay = Child::start("relay", config, &[]);
    let _consumers = Child::start("consume", config, &[]);
    world.eventually_finished(DEADLINE, ORDERS).await;
}

/// B86. Owned rows, and not one byte at the broker: the lease ends and each event goes out once.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_dies_after_its_claim_loses_nothing_and_repeats_nothing() {
    let (world, config) = world_with_orders().await;

    crash("relay", &config, "claim.after_commit=abort").await;

    assert_eq!(world.count("SENDING").await, i64::from(ORDERS));
    assert_eq!(world.audit().await, []);
    recover(&world, &config).await;
    let copies = world.assert_whole(ORDERS).await;
    assert_eq!(repeats(&copies), 0);
}

/// B86, as above, with the publishes already begun.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_dies_before_the_first_byte_loses_nothing_and_repeats_nothing() {
    let (world, config) = world_with_orders().await;

    crash("relay", &config, "publish.before_first_byte=abort").await;

    assert_eq!(world.count("SENDING").await, i64::from(ORDERS));
    assert_eq!(world.audit().await, []);
    recover(&world, &config).await;
    let copies = world.assert_whole(ORDERS).await;
    assert_eq!(repeats(&copies), 0);
}

/// B86 and B33 (rabbitmq/rabbitmq-server#1399): confirms that are outstanding when the process ends say nothing about
/// the rows; those stay SENDING and are published again under the same event ids.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_dies_after_a_confirm_repeats_the_same_events() {
    let (world, config) = world_with_orders().await;

    crash("relay", &config, "publish.after_outcome=abort").await;

    assert_eq!(world.count("SENT").await, 0);
    assert!(!world.audit().await.is_empty(), "a confirmed message is in its queues");
    recover(&world, &config).await;
    let copies = world.assert_whole(ORDERS).await;
    assert!(repeats(&copies) > 0, "what was confirmed but not settled is sent again");
}

/// B86, with the outcomes gathered and the UPDATE about to run.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_dies_before_its_settle_repeats_the_same_events() {
    let (world, config) = world_with_orders().await;

    crash("relay", &config, "settle.before_update=abort").await;

    assert_eq!(world.count("SENT").await, 0);
    let published: BTreeSet<String> = by_event(world.audit().await).into_keys().collect();
    assert!(!published.is_empty(), "a confirmed message is in its queues");
    recover(&world, &config).await;
    let copies = world.assert_whole(ORDERS).await;
    for id in published {
        assert!(copies[&id].len() > 1, "{id} was never settled and is sent again");
    }
}

/// B86. A settled row is finished, whatever the process heard about its commit.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_dies_after_its_settle_does_not_repeat_settled_events() {
    let (world, config) = world_with_orders().await;

    crash("relay", &config, "settle.after_commit=abort").await;

    let query = "SELECT event_id FROM outbox_event WHERE status = 'SENT'";
    let settled: Vec<String> = sqlx::query_scalar(query).fetch_all(&world.pool).await.unwrap();
    assert!(!settled.is_empty(), "the settle committed");
    recover(&world, &config).await;
    let copies = world.assert_whole(ORDERS).await;
    for id in settled {
        assert_eq!(copies[&id].len(), 1, "{id} was settled");
    }
}

/// B86. The effect is committed and the acknowledgement never sent: the delivery comes again and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn consumer_that_dies_between_commit_and_ack_applies_each_effect_once() {
    let (world, config) = world_with_orders().await;
    let _relay = Child::start("relay", &config, &[]);

    crash("consume", &config, "consume.after_commit=abort@5").await;

    let committed = world.number("SELECT COUNT(*) FROM consumed_operation").await;
    assert!(
        committed >= 5,
        "five operations were committed before the end, but there are {committed} markers"
    );
    let mut second = Child::start("consume", &config, &[]);
    world.eventually_finished(DEADLINE, ORDERS).await;
    second.terminate();
    assert!(second.wait(DEADLINE).await.success());
    assert!(total(&second.log(), "duplicates") > 0, "a committed delivery came again:\n{}", second.log());
    let copies = world.assert_whole(ORDERS).await;
    assert_eq!(repeats(&copies), 0);
}

/// The sum of one of the totals that drained consumers log.
fn total(log: &str, name: &str) -> u64 {
    let name = format!("{name}: ");
    let numbers = log.split(&name).skip(1).map(|rest| rest.split([',', ' ']).next().unwrap_or_default());
    numbers.map(|number| number.parse::<u64>().expect("a total is a number")).sum()
}

/// Numbers from a seed (splitmix64): the same seed, the same kills after the same purchases.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn seed() -> u64 {
    if let Ok(text) = std::env::var("CONSIGN_TEST_SEED") {
        return text.parse().expect("CONSIGN_TEST_SEED is a number");
    }
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// B86. SIGKILL for relays and consumers, again and again, while people buy.
#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_purchases_survive_relays_and_consumers_that_are_killed_at_random() {
    const PURCHASES: u32 = 500;
    const KILL_ONE_IN: u64 = 25;
    let seed = seed();
    println!("CONSIGN_TEST_SEED={seed}");
    let mut random = Random(seed);
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    let commands = ["relay", "relay", "consume", "consume"];
    let mut children = commands.map(|command| Child::start(command, &config, &[]));
    for child in &mut children {
        child.ready().await;
    }

    let mut kills = 0;
    for order in 1..=PURCHASES {
        world.purchase(order).await.unwrap();
        if random.below(KILL_ONE_IN) == 0 {
            let victim = usize::try_from(random.below(4)).unwrap();
            children[victim].kill();
            children[victim] = Child::start(commands[victim], &config, &[]);
            kills += 1;
        }
    }

    world.eventually_finished(DEADLINE, PURCHASES).await;
    let copies = world.assert_whole(PURCHASES).await;
    println!("{kills} kills, {} repeats", repeats(&copies));
    assert!(kills > 0, "seed {seed} kills nobody");
    assert_eq!(world.number("SELECT COUNT(*) FROM purchase_order").await, i64::from(PURCHASES));
}
