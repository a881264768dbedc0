//! What can be run: the services, their ports and URLs, and the packages they come from.

use anyhow::{Result, bail};

/// A server that the tests can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Mysql,
    Mariadb,
    Postgres,
    /// Redis, with a TLS listener; without persistence, as it is used as a cache.
    Redis,
    Nats,
    /// RabbitMQ 3.10, of the oldest supported line.
    Rabbitmq,
    /// RabbitMQ 4.0, with a TLS listener.
    Rabbitmq4,
    /// A second node that joins `rabbitmq4`.
    Rabbitmq4b,
    /// RabbitMQ 4.3.
    Rabbitmq43,
    /// The first node of a RabbitMQ cluster of three.
    Rabbitmqc1,
    /// Its second node.
    Rabbitmqc2,
    /// Its third node.
    Rabbitmqc3,
    /// RocketMQ 5: name server, broker and proxy, with the flush and replication a broker has by default.
    Rocketmq,
    /// The same, but it asks for a replica that is not there: every send is stored and answered with a doubt.
    Rocketmqsync,
    /// The same, but who calls must sign in, and it waits for the disk and gives up at once.
    Rocketmqflush,
}

/// Stands for the three nodes of a cluster.
pub const CLUSTER_NAME: &str = "rabbitmq-cluster";

/// User and secret of the one account, where a RocketMQ wants its callers to sign in.
pub const ROCKETMQ_ACCOUNT: (&str, &str) = ("consign", "secret-of-the-tests");

/// What is brought into one folder together.
#[derive(Debug)]
pub struct Package {
    /// Name of the folder.
    pub name: &'static str,
    pub origin: Origin,
}

/// Where a package comes from.
#[derive(Debug)]
pub enum Origin {
    Debian(Debian),
    Maven(Maven),
}

/// Java artifacts of one project and version, with all they need at run time.
#[derive(Debug)]
pub struct Maven {
    pub group: &'static str,
    pub artifacts: &'static [&'static str],
    pub version: &'static str,
}

/// Packages of the Debian archive.
#[derive(Debug)]
pub struct Debian {
    /// Suite they come from.
    pub suite: &'static str,
    /// Packages asked for; the first one's version stands for the whole.
    pub wanted: &'static [&'static str],
    /// The version and digest to insist on while the suite has it.
    pub pin: Option<Pin>,
}

/// An exact package file.
#[derive(Debug)]
pub struct Pin {
    pub version: &'static str,
    pub architecture: &'static str,
    pub sha256: &'static str,
}

const fn unpinned(name: &'static str, suite: &'static str, wanted: &'static [&'static str]) -> Package {
    Package { name, origin: Origin::Debian(Debian { suite, wanted, pin: None }) }
}

static MYSQL: Package = Package {
    name: "mysql",
    origin: Origin::Debian(Debian {
        suite: "sid",
        wanted: &["mysql-server-core"],
        // MySQL is in no stable suite, and the index of sid may be a frozen copy whose freshness apt can no longer
        // check. The pin makes up for that.
        pin: Some(Pin {
            version: "9.7.4-2",
            architecture: "amd64",
            sha256: "628d2d7d2dc827507bcae80677a9950766b002bec2c658cb96343d9f324f8660",
        }),
    }),
};
// mariadb-install-db needs my_print_defaults, which is in the client package.
static MARIADB: Package = unpinned("mariadb", "bookworm", &["mariadb-server-core", "mariadb-client-core"]);
static POSTGRES: Package = unpinned("postgres", "bookworm", &["postgresql-15"]);
static REDIS: Package = unpinned("redis", "bookworm", &["redis-server", "redis-tools"]);
static NATS: Package = unpinned("nats", "bookworm", &["nats-server"]);
static RABBITMQ: Package = unpinned("rabbitmq", "bookworm", &["rabbitmq-server"]);
static RABBITMQ4: Package = unpinned("rabbitmq4", "trixie", &["rabbitmq-server"]);
static RABBITMQ43: Package = unpinned("rabbitmq43", "sid", &["rabbitmq-server"]);
static ROCKETMQ: Package = Package {
    name: "rocketmq",
    // The newest version of which all three are published; the proxy brings the broker.
    origin: Origin::Maven(Maven {
        group: "org.apache.rocketmq",
        artifacts: &["rocketmq-proxy", "rocketmq-namesrv"],
        version: "5.5.0",
    }),
};
/// Rewrites loader and library paths in unpacked programs.
pub static PATCHELF: Package = unpinned("patchelf", "bookworm", &["patchelf"]);
/// Makes the certificates, where the host has no openssl command.
pub static OPENSSL: Package = unpinned("openssl", "bookworm", &["openssl"]);

/// Ports of a RocketMQ beside the one of its proxy.
#[derive(Clone, Copy, Debug)]
pub struct RocketmqPorts {
    pub name_server: u16,
    pub proxy_remoting: u16,
    /// The broker's own choice: two below its port.
    pub broker_fast: u16,
    pub broker: u16,
    /// The broker's own choice: one above its port.
    pub broker_replication: u16,
}

impl RocketmqPorts {
    pub fn all(self) -> [u16; 5] {
        [self.name_server, self.proxy_remoting, self.broker_fast, self.broker, self.broker_replication]
    }
}

impl Service {
    pub const ALL: [Self; 15] = [
        Self::Mysql,
        Self::Mariadb,
        Self::Postgres,
        Self::Redis,
        Self::Nats,
        Self::Rabbitmq,
        Self::Rabbitmq4,
        Self::Rabbitmq4b,
        Self::Rabbitmq43,
        Self::Rabbitmqc1,
        Self::Rabbitmqc2,
        Self::Rabbitmqc3,
        Self::Rocketmq,
        Self::Rocketmqsync,
        Self::Rocketmqflush,
    ];

    /// What the name `rabbitmq-cluster` stands for.
    pub const CLUSTER: [Self; 3] = [Self::Rabbitmqc1, Self::Rabbitmqc2, Self::Rabbitmqc3];

    /// What `up` and `fetch` mean when no name is given.
    pub const USUAL: [Self; 4] = [Self::Mysql, Self::Mariadb, Self::Rabbitmq, Self::Rabbitmq4];

    pub fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|service| service.name() == name);
        let Some(service) = found else {
            let known: Vec<_> = Self::ALL.iter().map(|service| service.name()).collect();
            bail!("unknown service `{name}`; known are: {} {CLUSTER_NAME}", known.join(" "));
        };
        Ok(service)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Rabbitmq => "rabbitmq",
            Self::Rabbitmq4 => "rabbitmq4",
            Self::Rabbitmq4b => "rabbitmq4b",
            Self::Rabbitmq43 => "rabbitmq43",
            Self::Rabbitmqc1 => "rabbitmqc1",
            Self::Rabbitmqc2 => "rabbitmqc2",
            Self::Rabbitmqc3 => "rabbitmqc3",
            Self::Rocketmq => "rocketmq",
            Self::Rocketmqsync => "rocketmqsync",
            Self::Rocketmqflush => "rocketmqflush",
        }
    }

    pub fn package(self) -> &'static Package {
        match self {
            Self::Mysql => &MYSQL,
            Self::Mariadb => &MARIADB,
            Self::Postgres => &POSTGRES,
            Self::Redis => &REDIS,
            Self::Nats => &NATS,
            Self::Rabbitmq => &RABBITMQ,
            Self::Rabbitmq4 | Self::Rabbitmq4b | Self::Rabbitmqc1 | Self::Rabbitmqc2 | Self::Rabbitmqc3 => {
                &RABBITMQ4
            }
            Self::Rabbitmq43 => &RABBITMQ43,
            Self::Rocketmq | Self::Rocketmqsync | Self::Rocketmqflush => &ROCKETMQ,
        }
    }

    pub fn is_rabbitmq(self) -> bool {
        self.epmd_port(0).is_some()
    }

    pub fn is_rocketmq(self) -> bool {
        matches!(self, Self::Rocketmq | Self::Rocketmqsync | Self::Rocketmqflush)
    }

    /// The node whose cluster this one becomes a member of.
    pub fn joins(self) -> Option<Self> {
        match self {
            Self::Rabbitmq4b => Some(Self::Rabbitmq4),
            Self::Rabbitmqc2 | Self::Rabbitmqc3 => Some(Self::Rabbitmqc1),
            _ => None,
        }
    }

    /// The port of the service's own protocol.
    pub fn port(self, base: u16) -> u16 {
        base + match self {
            Self::Mysql => 6,
            Self::Mariadb => 7,
            Self::Nats => 22,
            Self::Postgres => 32,
            Self::Rabbitmq => 72,
            Self::Rabbitmq4 => 74,
            Self::Rabbitmq4b => 75,
            Self::Rabbitmq43 => 76,
            Self::Redis => 79,
            Self::Rabbitmqc1 => 82,
            Self::Rabbitmqc2 => 83,
            Self::Rabbitmqc3 => 84,
            Self::Rocketmq => 90,
            Self::Rocketmqsync => 100,
            Self::Rocketmqflush => 110,
        }
    }

    /// The listeners behind the one of [`Service::port`], where a service is made of several.
    pub fn rocketmq_ports(self, base: u16) -> Option<RocketmqPorts> {
        let proxy = self.port(base);
        self.is_rocketmq().then_some(RocketmqPorts {
            name_server: proxy + 1,
            proxy_remoting: proxy + 2,
            broker_fast: proxy + 3,
            broker: proxy + 5,
            broker_replication: proxy + 6,
        })
    }

    /// The port mapper of Erlang, one for each Erlang version; the nodes of a cluster share it.
    pub fn epmd_port(self, base: u16) -> Option<u16> {
        match self {
            Self::Rabbitmq => Some(base + 172),
            Self::Rabbitmq4 | Self::Rabbitmq4b => Some(base + 174),
            Self::Rabbitmq43 => Some(base + 176),
            Self::Rabbitmqc1 | Self::Rabbitmqc2 | Self::Rabbitmqc3 => Some(base + 178),
            _ => None,
        }
    }

    /// The TLS listener, where there is one.
    pub fn tls_port(self, base: u16) -> Option<u16> {
        match self {
            Self::Redis | Self::Rabbitmq4 => Some(self.port(base) + 400),
            // The proxy tells by the first bytes whether a client speaks TLS.
            Self::Rocketmq => Some(self.port(base)),
            _ => None,
        }
    }

    pub fn url(self, base: u16) -> String {
        let port = self.port(base);
        match self {
            Self::Mysql | Self::Mariadb => format!("mysql://root@127.0.0.1:{port}/mysql"),
            Self::Postgres => format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            Self::Redis => format!("redis://127.0.0.1:{port}/"),
            Self::Nats => format!("nats://127.0.0.1:{port}"),
            Self::Rabbitmq
            | Self::Rabbitmq4
            | Self::Rabbitmq4b
            | Self::Rabbitmq43
            | Self::Rabbitmqc1
            | Self::Rabbitmqc2
            | Self::Rabbitmqc3 => {
                format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
            }
            Self::Rocketmq | Self::Rocketmqsync => format!("rocketmq://127.0.0.1:{port}"),
            Self::Rocketmqflush => {
                let (user, secret) = ROCKETMQ_ACCOUNT;
                format!("rocketmq://{user}:{secret}@127.0.0.1:{port}")
            }
        }
    }

    pub fn tls_url(self, base: u16) -> Option<String> {
        let port = self.tls_port(base)?;
        Some(match self {
            Self::Redis => format!("rediss://localhost:{port}/"),
            Self::Rocketmq => format!("rocketmqs://localhost:{port}"),
            _ => format!("amqps://guest:guest@localhost:{port}/%2f"),
        })
    }

    /// The environment variable under which tests look for [`Service::url`].
    pub fn url_variable(self) -> String {
        format!("CONSIGN_TEST_{}_URL", self.name().to_uppercase())
    }

    /// The environment variable under which tests look for [`Service::tls_url`].
    pub fn tls_url_variable(self) -> String {
        format!("CONSIGN_TEST_{}_TLS_URL", self.name().to_uppercase())
    }

    /// The environment variable under which tests look for the authority that signed the TLS listener's certificate.
    pub fn tls_authority_variable(self) -> String {
        match self {
            Self::Rabbitmq4 => "CONSIGN_TEST_TLS_CA".into(),
            other => format!("CONSIGN_TEST_{}_TLS_CA", other.name().to_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_service_is_found_under_its_own_name() {
        for service in Service::ALL {
            assert_eq!(Service::from_name(service.name()).unwrap(), service);
        }
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        let error = Service::from_name("oracle").unwrap_err().to_string();

        assert!(error.contains("`oracle`") && error.contains("rabbitmq43"), "{error}");
    }

    #[test]
    fn no_two_listeners_share_a_port() {
        let mut seen = HashSet::new();
        for service in Service::ALL {
            assert!(seen.insert(service.port(100)), "{service:?}");
            if service.is_rabbitmq() {
                // Node-to-node traffic, see rabbitmq.rs.
                assert!(seen.insert(service.port(100) + 200), "{service:?}");
            }
            if let Some(port) = service.tls_port(100).filter(|&port| port != service.port(100)) {
                assert!(seen.insert(port), "{service:?}");
            }
            for port in service.rocketmq_ports(100).into_iter().flat_map(RocketmqPorts::all) {
                assert!(seen.insert(port), "{service:?}");
            }
        }
        for port in Service::ALL.iter().filter_map(|service| service.epmd_port(100)).collect::<HashSet<_>>() {
            assert!(seen.insert(port), "epmd {port}");
        }
    }

    #[test]
    fn cluster_nodes_share_one_port_mapper() {
        for service in Service::ALL {
            let first = service.joins().unwrap_or(service);
            assert_eq!(service.epmd_port(0), first.epmd_port(0), "{service:?}");
        }
    }
}
