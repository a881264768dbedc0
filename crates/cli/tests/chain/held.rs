//! Another client holds rows of the outbox, and locks them in another order than the relay does.

use std::path::PathBuf;
use std::time::Duration;

use consign_conformance::proxy::{Direction, Flow, Proxy};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{MySqlTransaction, query};

use crate::harness::audit::repeats;
use crate::harness::{Child, World};

const DEADLINE: Duration = Duration::from_mins(1);
const ROWS: u32 = 60;
const DEADLOCK: u16 = 1213;

/// A relay whose confirms can be withheld, so that its rows stay SENDING until the test says otherwise.
struct Held {
    relay: Child,
    proxy: Proxy,
    world: World,
    rows: u32,
}

impl Held {
    async fn new() -> Self {
        let world = World::migrated().await;
        let (proxy, through) = world.proxy().await;
        // Leases that no slow machine outlives: a lease that ends would explain a second attempt.
        let config = world
            .config()
            .set("relay.lease_seconds", "90")
            .set("relay.publish_deadline_seconds", "60")
            .set("relay.margin_seconds", "5")
            .set("destination.main.queue.0.bindings", r#"["nothing"]"#)
            .set("destination.main.queue.1.bindings", r#"["nothing"]"#);
        world.prepare(config.clone());
        let proxied: PathBuf = config.broker(through).write("proxied.toml");
        world
            .run(
                "CREATE TABLE ballast (id INT PRIMARY KEY, touched INT NOT NULL) ENGINE = InnoDB;
                 INSERT INTO ballast WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 900)
                 SELECT n, 0 FROM number",
            )
            .await;
        let relay = Child::start("relay", &proxied, &[]);
        let connected = async || relay.log().contains("destination is available");
        world.eventually(DEADLINE, "the relay is connected", connected).await;
        Self { relay, proxy, world, rows: 0 }
    }

    /// More rows, all published and none settled; gives their ids, the highest first.
    async fn publish(&mut self) -> Vec<String> {
        self.proxy.set(Direction::ToClient, Flow::Hold);
        let first = self.rows + 1;
        self.rows += ROWS;
        let mut ids: Vec<String> = (first..=self.rows).map(id).collect();
        for order in first..=self.rows {
            self.world.purchase(order).await.unwrap();
        }
        let sending = async || self.world.count("SENDING").await == i64::from(ROWS);
        self.world.eventually(DEADLINE, "every new row is SENDING", sending).await;
        let published = async || self.world.audit().await.len() == self.rows as usize;
        self.world.eventually(DEADLINE, "every new row is published", published).await;
        ids.reverse();
        ids
    }

    /// Returns when the relay waits for a lock.
    async fn relay_waits(&self) {
        let waits = format!(
            "SELECT COUNT(*) FROM performance_schema.data_locks WHERE lock_status = 'WAITING' AND object_schema = '{}'",
            self.world.name
        );
        let waiting = async || self.world.number(&waits).await > 0;
        self.world.eventually(DEADLINE, "the relay waits for a lock", waiting).await;
    }

    /// Returns when the relay wrote of this error of the server so many times.
    async fn relay_met(&self, error: u16, times: usize) {
        let met = async || self.met(error) >= times;
        self.world.eventually(DEADLINE, &format!("the relay meets error {error}"), met).await;
    }

    fn met(&self, error: u16) -> usize {
        self.relay.log().matches(&format!("({error})")).count()
    }

    async fn all_sent(&self) {
        let sent = async || self.world.is_sent(self.rows).await;
        self.world.eventually(DEADLINE, "every row is SENT", sent).await;
    }

    /// Everything went out once, at the first attempt, and the relay lives.
    async fn assert_untroubled(&mut self) {
        self.all_sent().await;
        let copies = self.world.assert_sent(self.rows).await;
        assert_eq!(repeats(&copies), 0);
        let spent = "SELECT COUNT(*) FROM outbox_event WHERE attempts <> 1";
        assert_eq!(self.world.number(spent).await, 0, "rows that another attempt was charged to");
        let logged = "SELECT COUNT(*) FROM consign_attempt WHERE outcome = 'confirmed'";
        assert_eq!(self.world.number(logged).await, i64::from(self.rows), "attempts in the log");
        assert_eq!(self.world.number("SELECT COUNT(*) FROM consign_attempt").await, i64::from(self.rows));
        assert!(self.relay.is_running(), "{}", self.relay.log());
    }
}

fn id(order: u32) -> String {
    format!("e-{order:06}")
}

/// Changes one row as any application may.
async fn touch(client: &mut MySqlTransaction<'_>, id: &str) -> sqlx::Result<()> {
    let touch = "UPDATE outbox_event SET aggregate_type = 'touched' WHERE event_id = ?";
    query(touch).bind(id).execute(&mut **client).await.map(drop)
}

fn is_deadlock(error: &sqlx::Error) -> bool {
    let server = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    server.is_some_and(|server| server.number() == DEADLOCK)
}

/// B14 (TencentBlueKing/bk-ci and others): settles lock rows by their key upwards, the other client goes downwards. Some
/// rounds make the client the victim and some, with more to undo on its side, the relay; each rolled back, none lost.
#[tokio::test(flavor = "multi_thread")]
async fn deadlocks_with_a_client_that_locks_rows_the_other_way_cost_no_event_and_no_attempt() {
    const EACH: usize = 3;
    const ROUNDS_MAX: usize = 40;
    let mut held = Held::new().await;
    let mut lost_by_client = 0;

    let mut rounds = 0;
    while lost_by_client < EACH || held.met(DEADLOCK) < EACH {
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX, "{lost_by_client} deadlocks lost by the client: {}", held.relay.log());
        let ids = held.publish().await;
        let mut client = held.world.pool.begin().await.unwrap();
        if held.met(DEADLOCK) < EACH {
            query("UPDATE ballast SET touched = touched + 1").execute(&mut *client).await.unwrap();
        }
        touch(&mut client, &ids[0]).await.unwrap();
        held.proxy.heal();
        held.relay_waits().await;
        let mut outcome = Ok(());
        for id in &ids[1..] {
            outcome = touch(&mut client, id).await;
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Ok(()) => client.commit().await.unwrap(),
            Err(error) if is_deadlock(&error) => {
                lost_by_client += 1;
                client.rollback().await.unwrap();
            }
            Err(error) => panic!("the client met {error}"),
        }
        held.all_sent().await;
    }

    println!("{rounds} rounds: the client lost {lost_by_client}, the relay {}", held.met(DEADLOCK));
    held.assert_untroubled().await;
}

/// A row held for longer than the relay's lock wait timeout, several times over.
#[tokio::test(flavor = "multi_thread")]
async fn settles_that_wait_too_long_for_a_held_row_are_made_again_until_it_is_free() {
    const LOCK_WAIT: u16 = 1205;
    const TIMES: usize = 3;
    let mut held = Held::new().await;
    let ids = held.publish().await;
    let mut client = held.world.pool.begin().await.unwrap();
    touch(&mut client, &ids[ids.len() / 2]).await.unwrap();

    held.proxy.heal();
    held.relay_met(LOCK_WAIT, TIMES).await;
    assert!(held.world.count("SENDING").await > 0, "the held row is not settled");
    client.commit().await.unwrap();

    held.assert_untroubled().await;
}

/// Claims pass by the rows that somebody holds, and come back for them.
#[tokio::test(flavor = "multi_thread")]
async fn new_rows_that_a_client_holds_hold_up_nothing_but_themselves() {
    const FREE: u32 = 2_000;
    let mut held = Held::new().await;
    let mut client = held.world.pool.begin().await.unwrap();
    // Ahead of every other row in the order of claims, and not committed until those are through.
    held.relay.stop();
    held.world.insert_many(FREE + ROWS).await;
    held.rows = FREE + ROWS;
    for order in (1..=ROWS).rev() {
        touch(&mut client, &id(order)).await.unwrap();
    }
    held.relay.go_on();

    let free_sent = async || held.world.count("SENT").await == i64::from(FREE);
    held.world.eventually(DEADLINE, "every free row is SENT", free_sent).await;
    assert_eq!(held.world.count("NEW").await, i64::from(ROWS), "the held rows wait");
    client.commit().await.unwrap();

    held.assert_untroubled().await;
}
