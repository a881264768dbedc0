//! Power over the servers, for one test at a time; they are up again afterwards, however the test ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::harness::{Broker, World};
use crate::inbox::REDIS;
use crate::{MYSQL, RABBITMQ};

/// One test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A world on servers that may be broken.
pub struct Scene {
    // Dropped in this order: the servers come back, the world is cleaned away on them, the next test has its turn.
    _servers: Servers,
    pub world: World,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// Waits for the turn and makes a fresh world.
    pub async fn set() -> Self {
        let turn = TURN.lock().await;
        let servers = Servers;
        // A run that was killed could not put its servers back.
        servers.restore();
        let world = World::migrated_on(Broker::RabbitMq4).await;
        Self { _servers: servers, world, _turn: turn }
    }

    /// Runs `cargo xtask services` with these arguments; it must succeed.
    #[expect(clippy::unused_self, reason = "only who has the turn may do this")]
    pub fn control(&self, arguments: &[&str]) {
        Servers::run(arguments).unwrap_or_else(|error| panic!("services {arguments:?}: {error}"));
    }

    /// The same, while other work of the test goes on.
    pub async fn control_aside(&self, arguments: &[&'static str]) {
        let words = arguments.to_vec();
        let run = tokio::task::spawn_blocking(move || Servers::run(&words));
        run.await.unwrap().unwrap_or_else(|error| panic!("services {arguments:?}: {error}"));
    }

    /// Ends the memory alarm.
    pub fn calm(&self) {
        self.control(&CALM);
    }

    /// Buys, whatever the database does: after an error it looks whether the purchase was committed all the same.
    pub async fn buy(&self, order: u32) {
        const PAUSE: Duration = Duration::from_millis(50);
        while self.world.purchase(order).await.is_err() {
            let bought = "SELECT COUNT(*) FROM purchase_order WHERE id = ?";
            let found: i64 = loop {
                match sqlx::query_scalar(bought).bind(order).fetch_one(&self.world.pool).await {
                    Ok(found) => break found,
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            };
            if found == 1 {
                return;
            }
        }
    }
}

const CALM: [&str; 5] = ["ctl", RABBITMQ, "set_vm_memory_high_watermark", "absolute", "1GiB"];

struct Servers;

impl Servers {
    /// `up` wakes a frozen server, starts a dead one and leaves a healthy one alone.
    #[expect(clippy::unused_self, reason = "only who has the turn may do this")]
    fn restore(&self) {
        for restore in [&["up", MYSQL, RABBITMQ, REDIS][..], &CALM] {
            if let Err(error) = Self::run(restore) {
                eprintln!("services {restore:?}: {error}");
            }
        }
    }

    fn run(arguments: &[&str]) -> Result<(), String> {
        let runner = std::env::var_os("CONSIGN_XTASK")
            .ok_or("CONSIGN_XTASK is not set: run these tests by `cargo xtask test`")?;
        let output = Command::new(runner)
            .arg("services")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.restore();
    }
}
