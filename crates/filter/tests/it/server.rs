//! Servers: the shared one, and private ones that may be broken.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

/// Reads a variable that `cargo xtask test` sets.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with cargo xtask test"))
}

/// The server that all tests share: nothing of it but keys under one's own prefix may be changed.
pub fn shared() -> String {
    variable("CONSIGN_TEST_REDIS_URL")
}

/// A connection beside the filter's.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Every key under a prefix.
pub async fn keys(connection: &mut MultiplexedConnection, prefix: &str) -> Vec<Vec<u8>> {
    redis::cmd("KEYS").arg(format!("{prefix}:*")).query_async(connection).await.unwrap()
}

/// A server of one test, with empty memory; it ends with the test.
pub struct PrivateServer {
    folder: TempDir,
    programs: PathBuf,
    ports: Ports,
}

impl PrivateServer {
    /// The offset of Redis in a set of servers, and that of its TLS listener.
    const OFFSETS: [u16; 2] = [79, 479];

    pub fn start() -> Self {
        // Where the server's account can reach it, and with the programs unpacked there.
        let services = PathBuf::from(variable("CONSIGN_SERVICES_DIR"));
        let folder = tempfile::Builder::new().prefix("redis-").tempdir_in(&services).unwrap();
        let server = Self { folder, programs: services.join("prog"), ports: Ports::take(&services) };
        server.control("up");
        server
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.base + Self::OFFSETS[0]).into()
    }

    /// Runs `cargo xtask services ACTION redis` on this server; it must succeed.
    pub fn control(&self, action: &str) {
        if let Err(error) = self.run(action) {
            panic!("services {action} redis: {error}");
        }
    }

    fn run(&self, action: &str) -> Result<(), String> {
        let output = Command::new(variable("CONSIGN_XTASK"))
            .args(["services", action, "redis"])
            .env("CONSIGN_SERVICES_DIR", self.folder.path() as &Path)
            .env("CONSIGN_SERVICES_PROGRAMS", &self.programs)
            .env("CONSIGN_SERVICES_PORT_BASE", self.ports.base.to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if let Err(error) = self.run("down") {
            eprintln!("services down redis: {error}");
        }
    }
}

/// Ports that nobody else has, as long as it lives.
struct Ports {
    base: u16,
    _lock: File,
}

impl Ports {
    /// Above the usual set's ports and below those of outgoing connections.
    const FIRST_BASE: u16 = 24_000;
    const STEP: u16 = 100;
    const PLACES: u16 = 80;

    /// Takes a base whose ports are free. Test programs that run at once tell each other by locks, since a port is free
    /// until the server is up.
    fn take(services: &Path) -> Self {
        let locks = services.join("lock");
        std::fs::create_dir_all(&locks).unwrap();
        for place in 0..Self::PLACES {
            let base = Self::FIRST_BASE + place * Self::STEP;
            let lock = File::create(locks.join(format!("ports-{base}"))).unwrap();
            let is_free = |offset: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, base + offset)).is_ok();
            if lock.try_lock().is_ok() && PrivateServer::OFFSETS.into_iter().all(is_free) {
                return Self { base, _lock: lock };
            }
        }
        panic!("no free ports for a private server");
    }
}
