//! Relays on hosts whose clocks are wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use consign_conformance::proxy::{Direction, Flow};

use crate::harness::audit::repeats;
use crate::harness::{Child, Config, World, text};

const DEADLINE: Duration = Duration::from_mins(1);
const HOUR: i64 = 3_600;

/// Compiles the library that moves the clock of a process it is preloaded into. Whoever links Rust programs has `cc`.
fn shifted_clock(world: &World) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chain/shifted_clock.c");
    let library = world.folder.path().join("shifted_clock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", text(&library), source, "-ldl"]);
    let output = compiler.output().expect("cc can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// A relay and the clock that it sees.
struct Shifted {
    relay: Child,
    name: &'static str,
    shift: PathBuf,
    seconds: i64,
}

impl Shifted {
    fn start(world: &World, library: &Path, name: &'static str, config: Config) -> Self {
        let shift = world.folder.path().join(format!("{name}.shift"));
        std::fs::write(&shift, "0").unwrap();
        let config = config.set("relay.name", &format!("{name:?}")).write(&format!("{name}.toml"));
        let environment = [("LD_PRELOAD", text(library)), ("CLOCK_SHIFT_FILE", text(&shift))];
        Self { relay: Child::start("relay", &config, &environment), name, shift, seconds: 0 }
    }

    fn set(&mut self, seconds: i64) {
        self.seconds = seconds;
        std::fs::write(&self.shift, seconds.to_string()).unwrap();
    }

    /// How many attempts of this relay came to this end.
    async fn ended(&self, world: &World, outcome: &str) -> i64 {
        let query = "SELECT COUNT(*) FROM consign_attempt WHERE relay LIKE";
        world.number(&format!("{query} '{}%' AND outcome = '{outcome}'", self.name)).await
    }

    /// Stops it; what it wrote at last tells which clock it saw.
    async fn end(mut self, world: &World) {
        self.relay.terminate();
        assert!(self.relay.wait(DEADLINE).await.success(), "{}", self.relay.log());
        let log = self.relay.log();
        let last = log.lines().last().expect("the relay says that it drains");
        let moment = last.get(.."2026-01-31T23:59:59".len()).expect("a line begins with the time");
        let ahead = world.number(&format!("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), '{moment}')")).await;
        assert!(
            (ahead - self.seconds).abs() < HOUR / 4,
            "{ahead} s ahead instead of {}: {last}",
            self.seconds
        );
    }
}

/// Leases that no slow machine outlives, and a sweep each second.
fn unhurried(world: &World) -> Config {
    world
        .config()
        .set("relay.lease_seconds", "180")
        .set("relay.publish_deadline_seconds", "150")
        .set("relay.margin_seconds", "5")
        .set("destination.main.queue.0.bindings", r#"["nothing"]"#)
        .set("destination.main.queue.1.bindings", r#"["nothing"]"#)
}

/// Rows under a lease that ended a second ago, each for one sweep to find, until both relays swept one.
async fn sweep_by_both(world: &World, relays: [&Shifted; 2], first: u32) -> u32 {
    let mut next = first;
    let swept = async || {
        world
            .run(&format!(
                "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at,
                                           attempts, lease_token, locked_until)
                 VALUES ('e-{next:06}', {next}, 'OrderPaid', '{{}}', 'SENDING', NOW(6), NOW(6), 1, 'ended',
                         NOW(6) - INTERVAL 1 SECOND)"
            ))
            .await;
        next += 1;
        relays[0].ended(world, "swept").await > 0 && relays[1].ended(world, "swept").await > 0
    };
    world.eventually(DEADLINE, "both relays swept", swept).await;
    next
}

/// B74 (mlflow/mlflow#25199 and others): one relay's clock is set an hour ahead while it runs, and one's an hour back. Nobody takes over a
/// lease that runs, ended ones are taken over by both, nothing is sent before it is due, and nothing waits for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn relays_whose_clocks_are_an_hour_off_share_a_table_with_one_whose_clock_is_right() {
    const HELD: u32 = 20;
    const SHARE: i64 = 50;
    let world = World::migrated().await;
    let library = shifted_clock(&world);
    let (proxy, through) = world.proxy().await;
    world.prepare(unhurried(&world));

    // The first one holds leases and hears of no confirm.
    let right = Shifted::start(&world, &library, "right", unhurried(&world).broker(through));
    let connected = async || right.relay.log().contains("destination is available");
    world.eventually(DEADLINE, "the relay is connected", connected).await;
    proxy.set(Direction::ToClient, Flow::Hold);
    world.insert_many(HELD).await;
    let leased = async || world.count("SENDING").await == i64::from(HELD);
    world.eventually(DEADLINE, "the right relay has its leases", leased).await;
    let held = format!(
        "SELECT SUM(CRC32(CONCAT(event_id, lease_token, locked_until))) FROM outbox_event
         WHERE status = 'SENDING' AND event_id <= 'e-{HELD:06}'"
    );
    let before = world.number(&held).await;

    let mut ahead = Shifted::start(&world, &library, "ahead", unhurried(&world));
    let mut behind = Shifted::start(&world, &library, "behind", unhurried(&world));
    ahead.relay.ready().await;
    behind.relay.ready().await;
    ahead.set(HOUR);
    behind.set(-HOUR);
    let next = sweep_by_both(&world, [&ahead, &behind], HELD + 1).await;
    assert_eq!(world.number(&held).await, before, "the leases that run stay as they are");
    proxy.heal();

    // Now all three work, and some of the events are due only later.
    let mut orders = next - 1;
    let shared = async || {
        world
            .run(&format!(
                "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
                 VALUES ('e-{:06}', 1, 'OrderPaid', '{{}}', 'NEW', NOW(6) + INTERVAL 2 SECOND, NOW(6) + INTERVAL 2 SECOND)",
                orders + 1
            ))
            .await;
        orders += 1;
        for _ in 0..30 {
            orders += 1;
            world.purchase(orders).await.unwrap();
        }
        for relay in [&right, &ahead, &behind] {
            if relay.ended(&world, "confirmed").await < SHARE {
                return false;
            }
        }
        true
    };
    world.eventually(DEADLINE, "every relay sends its share", shared).await;
    let sent = async || world.is_sent(orders).await;
    world.eventually(DEADLINE, "every row is SENT", sent).await;

    let copies = world.assert_sent(orders).await;
    assert_eq!(repeats(&copies), 0, "nobody published what another one had");
    let swept = next - 1 - HELD;
    for (attempts, rows) in [(1, orders - swept), (2, swept)] {
        let query = format!("SELECT COUNT(*) FROM outbox_event WHERE attempts = {attempts}");
        assert_eq!(world.number(&query).await, i64::from(rows), "rows of {attempts} attempts");
    }
    let outside = "SELECT COUNT(*) FROM consign_attempt a JOIN outbox_event e USING (event_id)
                   WHERE a.outcome = 'confirmed'
                     AND (a.started_at < e.created_at OR a.started_at > a.recorded_at OR a.recorded_at > NOW(6))";
    assert_eq!(world.number(outside).await, 0, "attempts before their event was due, or in the future");
    for relay in [right, ahead, behind] {
        relay.end(&world).await;
    }
}
