//! Relays side by side: no row twice, a frozen one is fenced, a drained one leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow};
use serde_json::Value;

use crate::harness::audit::{by_event, repeats};
use crate::harness::{Child, Config, World, succeed, text};

const DEADLINE: Duration = Duration::from_mins(1);

/// Leases that no slow machine outlives, and no consumer queues that nobody reads.
fn unhurried(world: &World) -> Config {
    world
        .config()
        .set("relay.lease_seconds", "60")
        .set("relay.publish_deadline_seconds", "40")
        .set("relay.margin_seconds", "5")
        .set("destination.main.queue.0.bindings", r#"["nothing"]"#)
        .set("destination.main.queue.1.bindings", r#"["nothing"]"#)
}

/// B03 (dotnetcore/CAP#1257): several relays that start together share the rows and send each one once.
#[tokio::test(flavor = "multi_thread")]
async fn three_relays_send_twenty_thousand_rows_once_each() {
    const ROWS: u32 = 20_000;
    let world = World::migrated().await;
    let config = world.prepare(unhurried(&world));
    world.insert_many(ROWS).await;

    let relays = [(); 3].map(|()| Child::start("relay", &config, &[]));

    let all_sent = async || world.is_sent(ROWS).await;
    world.eventually(2 * DEADLINE, "every row is SENT", all_sent).await;
    assert_eq!(world.number("SELECT COUNT(*) FROM outbox_event WHERE attempts = 1").await, i64::from(ROWS));
    let copies = world.assert_sent(ROWS).await;
    assert_eq!(repeats(&copies), 0);
    drop(relays);
}

/// How many settles came too late, as the status says.
fn fenced(config: &Path) -> i64 {
    let status = succeed(&["status", "--json", "--config", text(config)]);
    let status: Value = serde_json::from_str(&status).unwrap();
    status["outbox"][0]["fenced"].as_i64().unwrap()
}

/// Returns when the relay has its connection to the broker.
async fn connected(world: &World, relay: &Child) {
    let available = async || relay.log().contains("destination is available");
    world.eventually(DEADLINE, "the relay is connected", available).await;
}

/// B01 (xavierjohn/Trellis#644, aasmanj/altarwed#615): a relay that slept through its lease while its publish was
/// unconfirmed settles nothing afterwards; the row stays as its successor left it, and the status shows it.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_was_frozen_past_its_lease_is_fenced() {
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let times =
        |config: Config| config.set("relay.lease_seconds", "8").set("relay.publish_deadline_seconds", "6");
    let direct = world.prepare(times(world.config()));
    let proxied = times(world.config()).broker(through).write("proxied.toml");
    let mut first = Child::start("relay", &proxied, &[]);
    connected(&world, &first).await;

    proxy.set(Direction::ToClient, Flow::Swallow);
    world.insert_many(1).await;
    let published = async || world.audit().await.len() == 1;
    world.eventually(DEADLINE, "the broker has the message", published).await;
    first.stop();
    assert_eq!(world.count("SENDING").await, 1, "the confirm is withheld");
    let _second = Child::start("relay", &direct, &[]);
    let taken_over = async || world.count("SENT").await == 1;
    world.eventually(DEADLINE, "the second relay sends the row", taken_over).await;
    let row = "SELECT CONCAT(status, attempts, available_at, sent_at) FROM outbox_event";
    let left: String = sqlx::query_scalar(row).fetch_one(&world.pool).await.unwrap();
    proxy.heal();
    first.go_on();

    let fenced = async || fenced(&direct) == 1;
    world.eventually(DEADLINE, "the status counts the fenced settle", fenced).await;
    first.terminate();
    assert!(first.wait(DEADLINE).await.success());
    let found: String = sqlx::query_scalar(row).fetch_one(&world.pool).await.unwrap();
    assert_eq!(found, left, "the row stays as the second relay left it");
    let copies = world.assert_sent(1).await;
    assert_eq!(repeats(&copies), 1, "one copy of each relay, and none after the freeze");
}

/// B01, with the successor still waiting for its own confirm: the row is SENDING as the sleeper left it, and only the
/// token tells that it is another relay's now.
#[tokio::test(flavor = "multi_thread")]
async fn relay_that_was_frozen_leaves_its_successors_lease_alone() {
    let world = World::migrated().await;
    let (first_proxy, first_url) = world.proxy().await;
    let (second_proxy, second_url) = world.proxy().await;
    let times = |config: Config, lease: &str, deadline: &str| {
        config.set("relay.lease_seconds", lease).set("relay.publish_deadline_seconds", deadline)
    };
    let direct = world.prepare(world.config());
    let first_config = times(world.config(), "8", "6").broker(first_url).write("first.toml");
    let second_config = times(world.config(), "120", "100").broker(second_url).write("second.toml");
    let first = Child::start("relay", &first_config, &[]);
    let mut second = Child::start("relay", &second_config, &[]);
    connected(&world, &first).await;
    connected(&world, &second).await;
    second.stop();
    first_proxy.set(Direction::ToClient, Flow::Swallow);
    second_proxy.set(Direction::ToClient, Flow::Swallow);

    world.insert_many(1).await;
    let copies = async |wanted| world.audit().await.len() == wanted;
    world.eventually(DEADLINE, "the broker has the first relay's message", async || copies(1).await).await;
    first.stop();
    second.go_on();
    world.eventually(DEADLINE, "the broker has the second relay's message", async || copies(2).await).await;
    let lease = "SELECT CONCAT_WS(' ', status, attempts, lease_token, locked_until) FROM outbox_event";
    let held: String = sqlx::query_scalar(lease).fetch_one(&world.pool).await.unwrap();
    assert!(held.starts_with("SENDING 2 "), "the second relay holds the row: {held}");
    first.go_on();

    let fenced = async || fenced(&direct) == 1;
    world.eventually(DEADLINE, "the status counts the fenced settle", fenced).await;
    let found: String = sqlx::query_scalar(lease).fetch_one(&world.pool).await.unwrap();
    assert_eq!(found, held, "the lease is the second relay's");
    drop(first);
    second_proxy.heal();
    second_proxy.cut(Cut::Reset);
    let sent = async || world.is_sent(1).await;
    world.eventually(DEADLINE, "the second relay sends the row again, on a new connection", sent).await;
    second.terminate();
    assert!(second.wait(DEADLINE).await.success());
    world.assert_sent(1).await;
}

/// SIGTERM under load: what is in flight is settled, what is not is released, and the next relay goes on.
#[tokio::test(flavor = "multi_thread")]
async fn drained_relay_leaves_no_row_behind_and_repeats_none() {
    const ROWS: u32 = 5_000;
    let world = World::migrated().await;
    let config = world.prepare(unhurried(&world).set("relay.drain_seconds", "50"));
    world.insert_many(ROWS).await;
    let mut relay = Child::start("relay", &config, &[]);
    let busy = async || world.count("SENT").await > 300;
    world.eventually(DEADLINE, "the relay is busy", busy).await;

    relay.terminate();

    let status = relay.wait(DEADLINE).await;
    assert_eq!(status.code(), Some(0), "{}", relay.log());
    let (sent, left) = (world.count("SENT").await, world.count("NEW").await);
    assert!(left > 0, "the relay was stopped in the middle of its work");
    assert_eq!(sent + left, i64::from(ROWS), "every row is SENT or NEW");
    let published = by_event(world.audit().await).len();
    assert_eq!(i64::try_from(published).unwrap(), sent, "what was published was settled");
    let _next = Child::start("relay", &config, &[]);
    let all_sent = async || world.is_sent(ROWS).await;
    world.eventually(DEADLINE, "the next relay sends the rest", all_sent).await;
    let copies = world.assert_sent(ROWS).await;
    assert_eq!(repeats(&copies), 0);
}

/// A second signal does not wait for anything; the leases end and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_the_relay_at_once_and_loses_nothing() {
    const ROWS: u32 = 50;
    const AT_ONCE: Duration = Duration::from_secs(3);
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let patient =
        |config: Config| config.set("relay.lease_seconds", "12").set("relay.publish_deadline_seconds", "10");
    let direct = world.prepare(patient(world.config()));
    let proxied = patient(world.config()).broker(through).write("proxied.toml");
    let mut relay = Child::start("relay", &proxied, &[]);
    connected(&world, &relay).await;
    proxy.set(Direction::ToClient, Flow::Swallow);
    world.insert_many(ROWS).await;
    let published = async || !world.audit().await.is_empty();
    world.eventually(DEADLINE, "the broker has a message", published).await;

    relay.terminate();
    let draining = async || relay.log().contains("draining");
    world.eventually(AT_ONCE, "the relay drains", draining).await;
    relay.terminate();

    let status = relay.wait(AT_ONCE).await;
    assert_eq!(status.code(), Some(1), "{}", relay.log());
    assert!(world.count("SENDING").await > 0, "the relay did not wait for its confirms");
    let _next = Child::start("run", &direct, &[]);
    world.eventually_finished(DEADLINE, ROWS).await;
    world.assert_whole(ROWS).await;
}

/// The backlog's payloads alone are more than the relay may have: what waits is a matter of the table, not of memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_larger_than_64_mebibytes_is_worked_on_with_less() {
    /// Rows of one INSERT: every number of five digits.
    const PART: u32 = 100_000;
    const ROWS: u32 = 2 * PART;
    const PAYLOAD_BYTES: u32 = 400;
    const SENT: i64 = 20_000;
    const LIMIT_KIB: u64 = 64 * 1024;
    assert!(u64::from(ROWS * PAYLOAD_BYTES) > LIMIT_KIB * 1024, "the backlog fits into the relay");
    let world = World::migrated().await;
    let config = world.prepare(unhurried(&world));
    for first in (0..ROWS).step_by(PART as usize) {
        world
            .run(&format!(
                "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
                 WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                 SELECT CONCAT('e-', LPAD(number, 7, '0')), number, 'OrderPaid',
                        JSON_OBJECT('note', REPEAT('x', {PAYLOAD_BYTES})), 'NEW', NOW(6), NOW(6)
                 FROM (SELECT {first} + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS number
                       FROM ten e, ten d, ten c, ten b, ten a) AS numbers"
            ))
            .await;
    }
    let mut relay = Child::start("relay", &config, &[]);

    let sent = "SELECT COUNT(*) FROM consign_attempt WHERE outcome = 'confirmed'";
    let busy = async || world.number(sent).await >= SENT;
    world.eventually(2 * DEADLINE, "the relay sent its part", busy).await;

    let peak = relay.peak_memory_kib();
    println!("{} of {ROWS} rows sent, {peak} KiB at most", world.number(sent).await);
    assert!(peak < LIMIT_KIB, "the relay had {peak} KiB");
    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    let (sent, left) = (world.count("SENT").await, world.count("NEW").await);
    assert_eq!(sent + left, i64::from(ROWS), "every row is SENT or NEW");
}
