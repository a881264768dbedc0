//! Which servers a run has: named on the command line, or in a config.

use std::path::Path;

use consign_core::route::DestinationName;

use crate::config::{Config, ConnectionUrl, Database, DestinationConfig, Environment};

use super::place::{Address, Backend};

/// The servers on the command line.
#[derive(Debug, clap::Args)]
pub struct ServerArguments {
    /// A config whose store, RabbitMQ destination and filter are used.
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
}

impl Servers {
    /// Reads the config, and what the command line says over it.
    ///
    /// # Errors
    /// The config or a url cannot be used, or there is a MySQL without a RabbitMQ or the other way round.
    pub fn of(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let environment = Environment::of_process();
        let mut servers = match &arguments.config {
            Some(file) => Self::of_config(&Config::load(file, &environment)?, file)?,
            None => Self::default(),
        };
        let flags = [
            ("--mysql", &arguments.mysql, &mut servers.mysql, &["mysql", "mariadb"][..]),
            ("--rabbitmq", &arguments.rabbitmq, &mut servers.rabbitmq, &["amqp", "amqps"][..]),
            ("--redis", &arguments.redis, &mut servers.redis, &["redis", "rediss"][..]),
        ];
        for (flag, given, address, schemes) in flags {
            let Some(text) = given else { continue };
            let variable = |name: &str| environment.variables.get(name).cloned();
            let url =
                ConnectionUrl::parse(text, variable).map_err(|invalid| refused(flag, invalid.to_string()))?;
            if !schemes.contains(&url.scheme.as_str()) {
                return Err(refused(flag, format!("must begin with {}://", schemes.join(":// or "))));
            }
            *address = Some(Address::plain(url.expose()));
        }
        match (&servers.mysql, &servers.rabbitmq, &servers.redis) {
            (Some(_), None, _) => Err(refused("--rabbitmq", "is needed beside --mysql")),
            (None, Some(_), _) => Err(refused("--mysql", "is needed beside --rabbitmq")),
            (None, None, Some(_)) => Err(refused("--mysql", "and --rabbitmq are needed beside --redis")),
            (Some(_), Some(_), _) | (None, None, None) => Ok(servers),
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
        Ok(Self { mysql: Some(mysql), rabbitmq, redis })
    }

    /// What scenarios can run on.
    pub fn backends(&self) -> Vec<Backend> {
        let both = self.mysql.is_some() && self.rabbitmq.is_some();
        let available = |backend: &Backend| match backend {
            Backend::Embedded => true,
            Backend::RabbitMq => both,
            Backend::Redis => both && self.redis.is_some(),
        };
        Backend::ALL.into_iter().filter(available).collect()
    }
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
