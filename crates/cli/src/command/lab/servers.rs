//! Which servers a run has: named on the command line, or in a config.

use std::path::Path;

use consign_core::route::DestinationName;
use consign_rocketmq::Options;

use crate::config::{Config, ConnectionUrl, Database, DestinationConfig, Environment};
use crate::parts;

use super::place::{Address, Backend, Cluster};

/// The servers on the command line.
#[derive(Debug, clap::Args)]
pub struct ServerArguments {
    /// A config whose store, RabbitMQ and RocketMQ destinations and filter are used.
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// MySQL, such as mysql://root:${PASSWORD}@127.0.0.1:3306/mysql; databases of the lab's own are created and dropped.
    #[arg(long, value_name = "URL")]
    mysql: Option<String>,
    /// RabbitMQ, such as amqp://guest:guest@127.0.0.1:5672/.
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// Redis, such as redis://127.0.0.1:6379/: only keys under the lab's own prefix are touched.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// A proxy of RocketMQ, such as rocketmq://127.0.0.1:8081: topics and groups of the lab's own are made and deleted.
    #[arg(long, value_name = "URL")]
    rocketmq: Option<String>,
    /// The name servers of that RocketMQ, such as 127.0.0.1:9876.
    #[arg(long, value_name = "HOST:PORT,...")]
    rocketmq_name_servers: Option<String>,
}

/// The servers of a run.
#[derive(Clone, Default)]
pub struct Servers {
    /// MySQL.
    pub mysql: Option<Address>,
    /// RabbitMQ.
    pub rabbitmq: Option<Address>,
    /// Redis.
    pub redis: Option<Address>,
    /// RocketMQ.
    pub rocketmq: Option<Cluster>,
}

impl Servers {
    /// Reads the config, and what the command line says over it. `asked`: scenarios on servers are asked for, and when
    /// none is named those are taken that `cargo xtask services urls` tells of.
    ///
    /// # Errors
    /// The config or a url cannot be used, or there is a MySQL without a broker or the other way round.
    pub fn of(arguments: &ServerArguments, asked: bool) -> anyhow::Result<Self> {
        let environment = Environment::of_process();
        let variable = |name: &str| environment.variables.get(name).cloned();
        let ServerArguments { config, mysql, rabbitmq, redis, rocketmq, rocketmq_name_servers } = arguments;
        let mut servers = match config {
            Some(file) => Self::of_config(&Config::load(file, &environment)?, file)?,
            None => Self::default(),
        };
        let named = [mysql, rabbitmq, redis, rocketmq].iter().any(|url| url.is_some()) || config.is_some();
        let test_server = |name: &str| if asked && !named { variable(name) } else { None };
        let flags = [
            ("--mysql", mysql, "CONSIGN_TEST_MYSQL_URL", &mut servers.mysql, &["mysql", "mariadb"][..]),
            (
                "--rabbitmq",
                rabbitmq,
                "CONSIGN_TEST_RABBITMQ_URL",
                &mut servers.rabbitmq,
                &["amqp", "amqps"][..],
            ),
            ("--redis", redis, "CONSIGN_TEST_REDIS_URL", &mut servers.redis, &["redis", "rediss"][..]),
        ];
        for (flag, given, test_variable, address, schemes) in flags {
            let Some(text) = given.clone().or_else(|| test_server(test_variable)) else { continue };
            *address = Some(Address::plain(checked(flag, &text, schemes, variable)?));
        }
        let flag = "--rocketmq";
        if let Some(text) = rocketmq.clone().or_else(|| test_server("CONSIGN_TEST_ROCKETMQ_URL")) {
            let url = checked(flag, &text, &["rocketmq", "rocketmqs"], variable)?;
            let options: Options = url.parse().map_err(|error| refused(flag, format!("{error}")))?;
            let name_servers =
                rocketmq_name_servers.clone().or_else(|| test_server("CONSIGN_TEST_ROCKETMQ_NAMESRV"));
            let name_servers = name_servers
                .ok_or_else(|| refused("--rocketmq-name-servers", "is needed beside --rocketmq"))?;
            servers.rocketmq = Some(Cluster::new(options, name_servers));
        }
        servers.fit_together()
    }

    fn fit_together(self) -> anyhow::Result<Self> {
        let brokers = self.rabbitmq.is_some() || self.rocketmq.is_some();
        match (&self.mysql, brokers, &self.rabbitmq, &self.redis) {
            (Some(_), false, ..) => Err(refused("--rabbitmq", "or --rocketmq is needed beside --mysql")),
            (None, true, ..) => Err(refused("--mysql", "is needed beside --rabbitmq and --rocketmq")),
            (None, false, _, Some(_)) | (Some(_), true, None, Some(_)) => {
                Err(refused("--mysql", "and --rabbitmq are needed beside --redis"))
            }
            (Some(_), true, Some(_), _) | (Some(_), true, None, None) | (None, false, _, None) => Ok(self),
        }
    }

    fn of_config(config: &Config, file: &Path) -> anyhow::Result<Self> {
        let Database::MySql { url, tls_ca_file, .. } = &config.store.database else {
            return Err(refused(
                "--config",
                format!("{} has a SQLite store: it needs no servers", file.display()),
            ));
        };
        let mysql = Address { url: url.expose(), ca: tls_ca_file.clone(), client: None };
        let broker = |(_, destination): (&DestinationName, &DestinationConfig)| match destination {
            DestinationConfig::RabbitMq(broker) => Some(broker.clone()),
            DestinationConfig::RocketMq(_) | DestinationConfig::Embedded(_) => None,
        };
        let rabbitmq = config.destinations.iter().find_map(broker).map(|broker| Address {
            url: broker.url.expose(),
            ca: broker.tls.ca.clone(),
            client: broker.tls.client_cert.clone().zip(broker.tls.client_key.clone()),
        });
        let redis = config.filter.as_ref().map(|filter| Address {
            url: filter.url.expose(),
            ca: filter.tls_ca_file.clone(),
            client: None,
        });
        let cluster = |(_, destination): (&DestinationName, &DestinationConfig)| match destination {
            DestinationConfig::RocketMq(cluster) if !cluster.name_servers.is_empty() => Some(cluster.clone()),
            DestinationConfig::RocketMq(_)
            | DestinationConfig::RabbitMq(_)
            | DestinationConfig::Embedded(_) => None,
        };
        let rocketmq = config.destinations.iter().find_map(cluster).map(|cluster| {
            let name_servers: Vec<String> = cluster.name_servers.iter().map(ToString::to_string).collect();
            anyhow::Ok(Cluster::new(parts::rocketmq::connect_options(&cluster)?, name_servers.join(";")))
        });
        Ok(Self { mysql: Some(mysql), rabbitmq, redis, rocketmq: rocketmq.transpose()? })
    }

    /// What scenarios can run on.
    pub fn backends(&self) -> Vec<Backend> {
        let both = self.mysql.is_some() && self.rabbitmq.is_some();
        let available = |backend: &Backend| match backend {
            Backend::Embedded => true,
            Backend::RabbitMq => both,
            Backend::Redis => both && self.redis.is_some(),
            Backend::RocketMq => self.mysql.is_some() && self.rocketmq.is_some(),
        };
        Backend::ALL.into_iter().filter(available).collect()
    }
}

/// A url that has one of these schemes, with its variables filled in.
fn checked(
    flag: &'static str,
    text: &str,
    schemes: &[&str],
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<String> {
    let url = ConnectionUrl::parse(text, variable).map_err(|invalid| refused(flag, invalid.to_string()))?;
    if !schemes.contains(&url.scheme.as_str()) {
        return Err(refused(flag, format!("must begin with {}://", schemes.join(":// or "))));
    }
    Ok(url.expose())
}

/// The command line cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {problem}")]
pub struct Refused {
    flag: &'static str,
    problem: String,
}

/// A usage error about this flag.
pub fn refused(flag: &'static str, problem: impl Into<String>) -> anyhow::Error {
    Refused { flag, problem: problem.into() }.into()
}
