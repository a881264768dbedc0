//! Outages of RocketMQ: killed, restarted, frozen, closed to strangers, late with its disk. What the topic holds is read
//! from the broker, copy by copy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Table;

use crate::harness::config::TIMES;
use crate::harness::rocketmq::{Site, entry};
use crate::harness::{Child, consign, text};
use crate::servers::Scene;

pub const ROCKETMQ: &str = "rocketmq";
/// A broker takes half a minute to start on a busy machine; what its consumers had in hand comes again later still.
const DEADLINE: Duration = Duration::from_mins(3);

/// The times of the other outages.
fn hurry(config: &mut Table) {
    let times: Table = TIMES.parse().unwrap();
    config.extend(times);
}

/// A relay and consumers.
fn start(config: &Path) -> [Child; 2] {
    ["relay", "consume"].map(|command| Child::start(command, config, &[]))
}

/// The same in the middle of their work.
async fn busy(site: &Site, waiting: u32) -> [Child; 2] {
    site.world.insert_many(waiting).await;
    let children = start(&site.config);
    let busy = async || site.world.count("SENT").await > 100;
    site.world.eventually(DEADLINE, "the relay is busy", busy).await;
    children
}

/// Name server, broker and proxy die together with sends and acknowledgements under way. Later they end and start again as
/// they are asked to, under sources that have nothing to do (apache/rocketmq#9170). Nobody restarts relay or consumers.
#[tokio::test(flavor = "multi_thread")]
async fn rocketmq_that_is_killed_under_load_and_then_restarted_loses_nothing() {
    const WAITING: u32 = 3_000;
    const KILLED: u32 = WAITING + 50;
    const ORDERS: u32 = KILLED + 25;
    let scene = Scene::over_rocketmq(hurry).await;
    let (site, world) = (&scene.place, &scene.place.world);
    let [mut relay, mut consumers] = busy(site, WAITING).await;

    scene.control(&["kill", ROCKETMQ]);
    assert!(world.count("SENT").await < i64::from(WAITING), "it died in the middle of the work");
    let noticed = async || relay.log().contains("destination is unavailable");
    world.eventually(DEADLINE, "the relay notices", noticed).await;
    for order in WAITING + 1..=KILLED {
        world.purchase(order).await.unwrap();
    }
    scene.control_aside(&["up", ROCKETMQ]).await;
    world.eventually_finished(DEADLINE, KILLED).await;
    scene.control_aside(&["down", ROCKETMQ]).await;
    scene.control_aside(&["up", ROCKETMQ]).await;
    for order in KILLED + 1..=ORDERS {
        world.purchase(order).await.unwrap();
    }

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    site.assert_whole(ORDERS).await;
    site.clean().await;
}

/// Everything freezes with its sockets open, so that only deadlines tell: the sends in flight are unknown, and go out
/// again under the same event ids (apache/rocketmq#1921, #1864, #7295).
#[tokio::test(flavor = "multi_thread")]
async fn rocketmq_that_is_frozen_past_the_publish_deadline_loses_nothing() {
    const ORDERS: u32 = 2_000;
    let scene = Scene::over_rocketmq(hurry).await;
    let (site, world) = (&scene.place, &scene.place.world);
    let [mut relay, mut consumers] = busy(site, ORDERS).await;

    scene.control(&["pause", ROCKETMQ]);
    let doubted = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND last_error LIKE 'unknown%'";
    let unknown = async || world.number(doubted).await > 0 && world.count("SENDING").await == 0;
    world.eventually(DEADLINE, "the sends in flight end as unknown", unknown).await;
    scene.control(&["resume", ROCKETMQ]);

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    site.assert_whole(ORDERS).await;
    site.clean().await;
}

/// The site's config with another destination. Nothing is made at the start, which who may not sign in would fail at.
fn altered(site: &Site, file: &str, alter: impl FnOnce(&mut Table)) -> PathBuf {
    site.rewritten(file, |table| {
        entry(table, "setup").insert("on_start".into(), false.into());
        alter(entry(entry(table, "destination"), "points"));
    })
}

/// Who signs in with a wrong secret hears it everywhere and sends nothing. Who signs in rightly meets a broker that does not
/// wait for its disk: what it stores is sent again, until the config takes its word.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_turned_away_and_an_unflushed_message_is_no_proof_unless_it_is_accepted() {
    const ORDERS: u32 = 30;
    const SECRET: &str = "mistaken-secret";
    let scene = Scene::over_guest("rocketmqflush", hurry).await;
    let (site, world) = (&scene.place, &scene.place.world);
    let stranger = altered(site, "stranger.toml", |points| {
        let url = points["url"].as_str().unwrap();
        let (account, place) = url.split_once('@').unwrap();
        let (user, _) = account.rsplit_once(':').unwrap();
        points.insert("url".into(), format!("{user}:{SECRET}@{place}").into());
    });
    let trusting = altered(site, "trusting.toml", |points| {
        points.insert("accept_statuses".into(), vec!["MASTER_PERSISTENCE_TIMEOUT"].into());
    });
    world.insert_many(ORDERS).await;

    for (command, code) in [(&["topology", "check"][..], 3), (&["doctor"], 1)] {
        let output = consign(&[command, &["--config", text(&stranger)]].concat());
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
        assert!(said.contains("refused") && !said.contains(SECRET), "{command:?}: {said}");
    }
    let [mut relay, mut consumers] = start(&stranger);
    let unauthorized = |child: &Child| child.log().contains("UNAUTHORIZED");
    let turned_away = async || unauthorized(&relay) && unauthorized(&consumers);
    world.eventually(DEADLINE, "relay and consumers are turned away", turned_away).await;
    assert!(relay.is_running() && consumers.is_running());
    assert!(!relay.log().contains(SECRET) && !consumers.log().contains(SECRET));
    assert_eq!(
        (world.count("SENT").await, world.number("SELECT SUM(attempts) FROM outbox_event").await),
        (0, 0)
    );
    drop((relay, consumers));

    let [mut relay, _consumers] = start(&site.config);
    let doubted = "SELECT COUNT(*) FROM outbox_event WHERE last_error LIKE '%MASTER_PERSISTENCE_TIMEOUT%'";
    let doubt = async || world.number(doubted).await > 0;
    world.eventually(DEADLINE, "the broker does not wait for its disk", doubt).await;
    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    let _relay = Child::start("relay", &trusting, &[]);
    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(site.assert_whole(ORDERS).await > 0, "what was doubted had been stored, and was sent again");
    site.clean().await;
}
