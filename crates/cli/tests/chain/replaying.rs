//! A replay that is killed in the middle, while a relay publishes what it replayed so far.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Child, World, succeed, text};

const DEADLINE: Duration = Duration::from_mins(1);
const CHOSEN: u32 = 400;
const OTHERS: u32 = 100;
const RATE: u32 = 80;
const CHOICE: [&str; 3] = ["replay", "--type", "OrderCreated"];

/// A running `consign replay`; killed when dropped.
struct Replay {
    process: std::process::Child,
    told: PathBuf,
}

impl Replay {
    fn start(world: &World, config: &Path, choice: [&str; 2], name: &str) -> Self {
        let told = world.folder.path().join(name);
        let process = Command::new(env!("CARGO_BIN_EXE_consign"))
            .args(CHOICE)
            .args(choice)
            .args(["--rate", &format!("{RATE}/s"), "--config", text(config)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&told).unwrap())
            .spawn()
            .unwrap();
        Self { process, told }
    }

    /// SIGKILL as soon as more events are replayed than those behind the key it told last; gives that key.
    async fn kill_behind_its_key(mut self, world: &World) -> String {
        let mut key = None;
        let mut lines = 0;
        let told = async || {
            let now = number_of_lines(world).await;
            if key.is_none() {
                let told = std::fs::read_to_string(&self.told).unwrap();
                key = told.lines().find_map(|line| Some(line.split_once("--after ")?.1.to_owned()));
                lines = now;
            }
            key.is_some() && now > lines
        };
        world.eventually(DEADLINE, "the replay tells a key and goes on", told).await;
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        key.expect("it was told")
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn number_of_lines(world: &World) -> i64 {
    world.number("SELECT COUNT(*) FROM consign_audit WHERE action = 'event_replay'").await
}

fn document(config: &Path, arguments: &[&str]) -> Value {
    let arguments = [&CHOICE, arguments, &["--json", "--config", text(config)]].concat();
    serde_json::from_str(&succeed(&arguments)).unwrap()
}

/// What a dry run says is left behind this place, and the estimate for it.
fn assert_plan(config: &Path, choice: [&str; 2], events: i64) {
    let rate = format!("{RATE}/s");
    let plan = document(config, &[&choice[..], &["--rate", &rate, "--dry-run"]].concat());
    assert_eq!(plan["events"], events, "{plan}");
    let seconds = f64::from(i32::try_from(events).unwrap()) / f64::from(RATE);
    assert!((plan["seconds"].as_f64().unwrap() - seconds).abs() < 0.01, "{plan}");
}

/// B80 (SELISEdigitalplatforms/blocks-utilities#287 and others): killed twice with SIGKILL, and gone on with each of the
/// two ways that the documents tell: exactly behind the last line of the audit, and behind the last key told.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_killed_goes_on_until_every_chosen_event_was_published_again_and_no_other() {
    let world = World::migrated().await;
    // Leases that no slow machine outlives: a missed confirm would explain another copy.
    let unhurried = world
        .config()
        .set("relay.lease_seconds", "60")
        .set("relay.publish_deadline_seconds", "40")
        .set("relay.margin_seconds", "5");
    let config = world.prepare(unhurried);
    world.insert_many(CHOSEN + OTHERS).await;
    // Every fifth event is of another type.
    world.run("UPDATE outbox_event SET event_type = 'OrderCreated' WHERE aggregate_id % 5 <> 0").await;
    let mut relay = Child::start("relay", &config, &[]);
    let all_sent = async || world.is_sent(CHOSEN + OTHERS).await;
    world.eventually(DEADLINE, "everything is sent the first time", all_sent).await;
    assert_plan(&config, ["--since", "1h"], i64::from(CHOSEN));

    let first = Replay::start(&world, &config, ["--since", "1h"], "first").kill_behind_its_key(&world).await;
    let done = number_of_lines(&world).await;
    assert!(done < i64::from(CHOSEN), "it was through before it was killed");
    world.eventually(DEADLINE, "what was replayed is sent", all_sent).await;
    let place = world
        .number(
            "SELECT sequence FROM outbox_event WHERE event_id =
                    (SELECT subject FROM consign_audit WHERE action = 'event_replay' ORDER BY id DESC LIMIT 1)",
        )
        .await;
    let window = first.rsplit_once('/').expect("a key is a window and a position").0;
    let exact = format!("{window}/{place}");
    assert_plan(&config, ["--after", &exact], i64::from(CHOSEN) - done);

    let second = Replay::start(&world, &config, ["--after", &exact], "second");
    let second = second.kill_behind_its_key(&world).await;
    let lines = number_of_lines(&world).await;
    assert!(done < lines && lines < i64::from(CHOSEN), "{lines} lines, of which {done} of the first run");
    assert_eq!(repeated_subjects(&world).await, 0, "it went on exactly where the first one had stopped");
    world.eventually(DEADLINE, "what was replayed is sent", all_sent).await;
    // What was replayed behind the key and sent again since is outside of the replay's window: it is not taken twice.
    let left = i64::from(CHOSEN) - lines;
    assert_plan(&config, ["--after", &second], left);
    let again = document(&config, &["--after", &second, "--rate", "100000"]);
    println!("{done} lines at the first kill, {lines} at the second: {again}");
    assert_eq!((&again["replayed"], &again["finished"]), (&left.into(), &true.into()), "{again}");
    assert_eq!(repeated_subjects(&world).await, 0, "nothing was replayed twice");
    world.eventually(DEADLINE, "the rest is sent", all_sent).await;

    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success(), "{}", relay.log());
    assert_published(&world).await;
}

/// Events with more than one line in the audit.
async fn repeated_subjects(world: &World) -> i64 {
    world
        .number(
            "SELECT COUNT(*) FROM (SELECT subject FROM consign_audit WHERE action = 'event_replay'
                                   GROUP BY subject HAVING COUNT(*) > 1) repeated",
        )
        .await
}

/// Every chosen event twice, every other one once.
async fn assert_published(world: &World) {
    let query = "SELECT event_id FROM outbox_event WHERE event_type = 'OrderCreated'";
    let chosen: Vec<String> = sqlx::query_scalar(query).fetch_all(&world.pool).await.unwrap();
    assert_eq!(chosen.len(), CHOSEN as usize);
    for (id, copies) in world.assert_sent(CHOSEN + OTHERS).await {
        let wanted = if chosen.contains(&id) { 2 } else { 1 };
        assert_eq!(copies.len(), wanted, "copies of {id}");
    }
}
