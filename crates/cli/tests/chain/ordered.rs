//! Ordered mode: the events of an aggregate reach the broker one after the other, whoever is killed.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Child, Config, Copy, World, succeed, text};

const DEADLINE: Duration = Duration::from_mins(2);

fn ordered(world: &World) -> Config {
    world
        .config()
        .set("relay.mode", "\"ordered\"")
        .set("relay.partition_lease_seconds", "3")
        .set("relay.sweep_delay_seconds", "0")
        .set("destination.main.queue.0.bindings", r#"["nothing"]"#)
        .set("destination.main.queue.1.bindings", r#"["nothing"]"#)
}

/// The steps 1 to `steps` of each aggregate, all first steps before all second ones.
async fn insert_steps(world: &World, aggregates: u32, steps: u32) {
    world
        .run(&format!(
            "SET SESSION cte_max_recursion_depth = 1000000;
             INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, payload,
                                       status, available_at, created_at)
             WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < {aggregates} * {steps})
             SELECT CONCAT('e-', n % {aggregates} + 1, '-', n DIV {aggregates} + 1), 'order', n % {aggregates} + 1,
                    n DIV {aggregates} + 1, 'OrderChanged', JSON_OBJECT('step', n DIV {aggregates} + 1),
                    'NEW', NOW(6), NOW(6)
             FROM number ORDER BY n"
        ))
        .await;
}

/// Every copy is the next step of its aggregate, or one that came before.
fn assert_in_order(copies: &[Copy]) {
    let mut last: HashMap<&str, u32> = HashMap::new();
    for copy in copies {
        let (aggregate, step) = copy.event_id.rsplit_once('-').expect("ids end with the step");
        let step: u32 = step.parse().unwrap();
        let last = last.entry(aggregate).or_default();
        assert!(step <= *last + 1, "{} came after step {last} of its aggregate", copy.event_id);
        *last = step.max(*last);
    }
}

async fn all_sent(world: &World, rows: u32) {
    let sent = async || world.count("SENT").await == i64::from(rows);
    world.eventually(DEADLINE, "every row is SENT", sent).await;
}

async fn sent_beyond(world: &World, rows: i64) {
    let beyond = async || world.count("SENT").await > rows;
    world.eventually(DEADLINE, "more rows are SENT", beyond).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_owners_break_no_aggregates_order() {
    const AGGREGATES: u32 = 40;
    const STEPS: u32 = 50;
    let world = World::migrated().await;
    let config = world.prepare(ordered(&world));
    insert_steps(&world, AGGREGATES, STEPS).await;
    let mut relays = start(&config, 2);

    for killed in 1..=3_i64 {
        sent_beyond(&world, killed * 300).await;
        let mut victim = relays.remove(0);
        victim.kill();
        relays.push(Child::start("relay", &config, &[]));
    }

    all_sent(&world, AGGREGATES * STEPS).await;
    let copies = world.audit().await;
    assert_in_order(&copies);
    assert!(copies.len() >= (AGGREGATES * STEPS) as usize);
}

/// Two relays, then four, then one, under load.
#[tokio::test(flavor = "multi_thread")]
async fn relays_that_come_and_go_break_no_aggregates_order() {
    const AGGREGATES: u32 = 60;
    const STEPS: u32 = 50;
    let world = World::migrated().await;
    // Leases that no slow machine outlives: a lease that ends is as good as a kill.
    let unhurried = ordered(&world)
        .set("relay.lease_seconds", "60")
        .set("relay.publish_deadline_seconds", "40")
        .set("relay.margin_seconds", "5")
        .set("relay.drain_seconds", "50");
    let config = world.prepare(unhurried);
    insert_steps(&world, AGGREGATES, STEPS).await;

    let mut relays = start(&config, 2);
    sent_beyond(&world, 300).await;
    relays.extend(start(&config, 2));
    sent_beyond(&world, 900).await;
    for mut relay in relays.drain(1..) {
        relay.terminate();
        assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    }

    all_sent(&world, AGGREGATES * STEPS).await;
    let copies = world.audit().await;
    assert_in_order(&copies);
    assert_eq!(copies.len(), (AGGREGATES * STEPS) as usize, "nobody was killed, so nothing comes twice");
}

fn start(config: &Path, relays: usize) -> Vec<Child> {
    (0..relays).map(|_| Child::start("relay", config, &[])).collect()
}

/// L3: one poisoned event among a thousand healthy aggregates; hundreds of rows wait behind it at the front.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_event_holds_up_its_own_aggregate_until_it_is_discarded() {
    const HEALTHY: u32 = 1_000;
    const BEHIND: i64 = 600;
    let world = World::migrated().await;
    let config = world.prepare(ordered(&world).set("destination.main.message_bytes_max", "1000"));
    world
        .run(&format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             VALUES ('e-poison-1', 'poison', 'OrderChanged', JSON_OBJECT('note', REPEAT('x', 2000)), 'NEW', NOW(6), NOW(6));
             INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             WITH RECURSIVE number (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM number WHERE n <= {BEHIND})
             SELECT CONCAT('e-poison-', n), 'poison', 'OrderChanged', JSON_OBJECT('step', n), 'NEW', NOW(6), NOW(6)
             FROM number ORDER BY n"
        ))
        .await;
    insert_steps(&world, HEALTHY, 2).await;

    let _relay = Child::start("relay", &config, &[]);

    all_sent(&world, 2 * HEALTHY).await;
    assert_eq!((world.count("DEAD").await, world.count("NEW").await), (1, BEHIND));
    let status = succeed(&["status", "--json", "--config", text(&config)]);
    assert!(status.contains("poison"), "the status names the aggregate that is held up: {status}");
    succeed(&["dead", "discard", "outbox:e-poison-1", "--note", "test", "--config", text(&config)]);
    all_sent(&world, 2 * HEALTHY + u32::try_from(BEHIND).unwrap()).await;
    assert_in_order(&without_poison_head(world.audit().await));
}

/// The discarded step is missing, as it was decided.
fn without_poison_head(copies: Vec<Copy>) -> Vec<Copy> {
    let shift = |mut copy: Copy| {
        if let Some(step) = copy.event_id.strip_prefix("e-poison-") {
            copy.event_id = format!("e-poison-{}", step.parse::<u32>().unwrap() - 1);
        }
        copy
    };
    copies.into_iter().map(shift).collect()
}

/// Contract tables as people have them: no sequence, no index for the order.
#[tokio::test(flavor = "multi_thread")]
async fn the_unmigrated_table_is_ordered_by_creation() {
    let world = World::unmigrated().await;
    let config = world.prepare(ordered(&world));
    world
        .run(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < 599)
             SELECT CONCAT('e-', n % 20 + 1, '-', n DIV 20 + 1), n % 20 + 1, 'OrderChanged', JSON_OBJECT('step', n DIV 20 + 1),
                    'NEW', NOW(6), NOW(6) + INTERVAL n MICROSECOND
             FROM number ORDER BY n",
        )
        .await;

    let _relays = start(&config, 2);

    all_sent(&world, 600).await;
    assert_in_order(&world.audit().await);
}

/// A table that is altered under a running relay, with a column added and dropped and its index rebuilt, costs time, not
/// events.
#[tokio::test(flavor = "multi_thread")]
async fn an_alter_table_in_the_middle_loses_nothing() {
    const ROWS: u32 = 10_000;
    let world = World::migrated().await;
    let quiet = |config: Config| {
        config
            .set("destination.main.queue.0.bindings", r#"["nothing"]"#)
            .set("destination.main.queue.1.bindings", r#"["nothing"]"#)
    };
    let config = world.prepare(quiet(world.config()));
    world.insert_many(ROWS).await;
    let mut relay = Child::start("relay", &config, &[]);

    sent_beyond(&world, 500).await;
    world.run("ALTER TABLE outbox_event ADD COLUMN note VARCHAR(10) NULL, ALGORITHM = COPY").await;
    sent_beyond(&world, 2_000).await;
    world.run("ALTER TABLE outbox_event DROP COLUMN note, ALGORITHM = COPY").await;
    sent_beyond(&world, 4_000).await;
    let rebuild = "DROP KEY idx_pending, ADD KEY idx_pending (status, available_at, event_id)";
    assert!(world.count("SENT").await < i64::from(ROWS), "the relay is through before the index is rebuilt");
    world.run(&format!("ALTER TABLE outbox_event {rebuild}")).await;

    all_sent(&world, ROWS).await;
    assert!(relay.is_running());
    world.assert_sent(ROWS).await;
}
