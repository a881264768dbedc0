//! Power over the servers, for one test at a time; they are up again afterwards, however the test ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use toml::Table;

use crate::harness::rocketmq::{Cluster, Site};
use crate::harness::{Broker, World};
use crate::inbox::REDIS;
use crate::rocketmq::ROCKETMQ;
use crate::{MYSQL, RABBITMQ};

/// One test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A world, or what stands in one, on servers that may be broken.
pub struct Scene<Place = World> {
    // Dropped in this order: the servers come back, the world is cleaned away on them, the next test has its turn.
    _servers: Servers,
    pub place: Place,
    _turn: MutexGuard<'static, ()>,
}

impl Scene<Site> {
    /// Waits for the turn, and makes the example over RocketMQ with changes to its config.
    pub async fn over_rocketmq(change: impl FnOnce(&mut Table)) -> Self {
        let (servers, turn) = Servers::taken(&[MYSQL, ROCKETMQ]).await;
        Self::prepared(Site::changed(change).await, servers, turn)
    }

    /// The same over a RocketMQ that nobody else needs: it is started now, and ended with the scene.
    pub async fn over_guest(name: &'static str, change: impl FnOnce(&mut Table)) -> Self {
        let (servers, turn) = Servers::taken(&[MYSQL]).await;
        let servers = servers.with_guest(name);
        let urls = Servers::run(&["urls", name]).unwrap();
        let prefix = format!("CONSIGN_TEST_{}_", name.to_uppercase());
        let said = |what: &str| {
            let line = urls.lines().find_map(|line| line.strip_prefix(&format!("{prefix}{what}=")));
            line.unwrap_or_else(|| panic!("{what} of {name} is not in {urls}")).to_owned()
        };
        let cluster = Cluster { url: said("URL"), name_server: said("NAMESRV") };
        Self::prepared(Site::on(&cluster, change).await, servers, turn)
    }

    fn prepared(place: Site, servers: Servers, turn: MutexGuard<'static, ()>) -> Self {
        place.prepare();
        Self { _servers: servers, place, _turn: turn }
    }
}

impl Scene {
    /// Waits for the turn and makes a fresh world over RabbitMQ.
    pub async fn set() -> Self {
        let (servers, turn) = Servers::taken(&[MYSQL, RABBITMQ, REDIS]).await;
        let world = World::migrated_on(Broker::RabbitMq4).await;
        Self { _servers: servers, place: world, _turn: turn }
    }

    /// Ends the memory alarm.
    pub fn calm(&self) {
        self.control(&CALM);
    }

    /// Buys, whatever the database does: after an error it looks whether the purchase was committed all the same.
    pub async fn buy(&self, order: u32) {
        const PAUSE: Duration = Duration::from_millis(50);
        while self.place.purchase(order).await.is_err() {
            let bought = "SELECT COUNT(*) FROM purchase_order WHERE id = ?";
            let found: i64 = loop {
                match sqlx::query_scalar(bought).bind(order).fetch_one(&self.place.pool).await {
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

impl<Place> Scene<Place> {
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
}

const CALM: [&str; 5] = ["ctl", RABBITMQ, "set_vm_memory_high_watermark", "absolute", "1GiB"];

/// The servers that a test may break.
struct Servers {
    /// Up again afterwards.
    lasting: &'static [&'static str],
    /// Down again afterwards.
    guest: Option<&'static str>,
}

impl Servers {
    /// Waits for the turn, and has these servers up.
    async fn taken(lasting: &'static [&'static str]) -> (Self, MutexGuard<'static, ()>) {
        let turn = TURN.lock().await;
        let servers = Self { lasting, guest: None };
        // A run that was killed could not put its servers back.
        servers.restore();
        (servers, turn)
    }

    /// Starts a further one.
    fn with_guest(self, name: &'static str) -> Self {
        Self::run(&["up", name]).unwrap_or_else(|error| panic!("services up {name}: {error}"));
        Self { guest: Some(name), ..self }
    }

    /// `up` wakes a frozen server, starts a dead one and leaves a healthy one alone.
    fn restore(&self) {
        let up = [&["up"], self.lasting].concat();
        let calm = self.lasting.contains(&RABBITMQ).then_some(&CALM[..]);
        for restore in [Some(&up[..]), calm].into_iter().flatten() {
            Self::try_to(restore);
        }
    }

    fn try_to(arguments: &[&str]) {
        if let Err(error) = Self::run(arguments) {
            eprintln!("services {arguments:?}: {error}");
        }
    }

    /// Gives what it prints.
    fn run(arguments: &[&str]) -> Result<String, String> {
        let runner = std::env::var_os("CONSIGN_XTASK")
            .ok_or("CONSIGN_XTASK is not set: run these tests by `cargo xtask test`")?;
        let output = Command::new(runner)
            .arg("services")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.restore();
        if let Some(guest) = self.guest {
            Self::try_to(&["down", guest]);
        }
    }
}
