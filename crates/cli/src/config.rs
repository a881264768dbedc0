//! The config: `consign.toml`, overridden by the environment, checked once at start.
//!
//! ```text
//! file ─┐
//!       ├─ source ─► raw (as written, defaults filled in) ─ checker ─► Config, or every mistake with its place
//! env ──┘
//! ```
//!
//! Two passes, so that as many mistakes as possible come at once: the first finds what is not TOML, unknown keys and
//! wrong types; the second judges values and what they refer to. Only the checked form leaves this module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use consign_core::route::{DestinationName, RouteTable};

mod attempts;
mod checker;
mod consumer;
mod destination;
mod filter;
mod horizon;
mod overlay;
mod problem;
mod raw;
mod relay;
mod retry;
mod route;
mod secret;
mod shape;
mod source;
mod store;
mod transaction;
mod url;
mod written;

pub use attempts::AttemptConfig;
pub use checker::Environment;
pub use consumer::{ConsumerConfig, OnConflict};
pub use destination::{
    DeadLetterStrategy, DestinationConfig, EmbeddedConfig, EmptyBody, ExchangeKind, GroupConfig, MessageType,
    Overflow, QueueConfig, QueueKind, RabbitMqConfig, RocketMqConfig, StoredStatus, TlsFiles, TopicConfig,
    TopicKind,
};
pub use filter::FilterConfig;
pub use horizon::Horizon;
pub use problem::{ConfigError, Place, Problem};
pub use relay::{ORDERED_HELD_ROWS, RelayConfig};
pub use store::{Database, InboxConfig, OutboxConfig, StoreConfig};
pub use transaction::TransactionConfig;
pub use url::ConnectionUrl;
pub use written::{Difference, Written};

use checker::Checker;
use destination::Target;
use overlay::Override;
use raw::{Raw, RawConsumer, RawRoute};
use source::Source;

/// Where the config is; part of every command that needs one.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArguments {
    /// The config file; relative paths inside it start at its folder.
    #[arg(long, env = "CONSIGN_CONFIG", value_name = "FILE", default_value = "consign.toml", global = true)]
    pub config: PathBuf,
}

/// A checked config: every name it refers to exists, every bound holds, every template and statement is parsed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database of outbox, inbox and business tables.
    pub store: StoreConfig,
    /// The outbox tables; at least one.
    pub outboxes: Vec<OutboxConfig>,
    /// The marker table.
    pub inbox: InboxConfig,
    /// The relay and its retry policy.
    pub relay: RelayConfig,
    /// The log of attempts.
    pub attempts: AttemptConfig,
    /// The destinations by name.
    pub destinations: BTreeMap<DestinationName, DestinationConfig>,
    /// Which events go where.
    pub routes: RouteTable,
    /// The declared consumers.
    pub consumers: Vec<ConsumerConfig>,
    /// What answers for transaction messages.
    pub transaction: Option<TransactionConfig>,
    /// The memory of repeats outside the database.
    pub filter: Option<FilterConfig>,
    /// How late copies of an event may come: markers that are kept shorter would let them be applied again.
    pub horizon: Horizon,
    /// What is created at start.
    pub setup: SetupConfig,
    /// All of it as written, for comparisons with a later config.
    pub written: Written,
}

/// `[setup]`: for examples, tests and first steps; a production database is migrated in a reviewed step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetupConfig {
    /// Long-running commands create the database, the tables and the topology before they start.
    pub on_start: bool,
    /// Statements for the business tables, run before consign's own tables are created; must be repeatable.
    pub sql_file: Option<PathBuf>,
}

impl ConfigArguments {
    /// Loads the config in this process's environment.
    ///
    /// # Errors
    /// The file cannot be read or the config cannot be used.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.config, &Environment::of_process())
    }
}

impl Config {
    /// Loads and checks a config file.
    ///
    /// # Errors
    /// The file cannot be read, or the config has mistakes: all that were found.
    pub fn load(file: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            ConfigError::new(vec![Problem {
                place: Place::File { file: shown.clone(), line: 1 },
                key: String::new(),
                text: format!("cannot be read: {error}: name the config with --config or CONSIGN_CONFIG"),
            }])
        })?;
        let directory = file.parent().unwrap_or(Path::new(""));
        Self::read(&shown, &text, directory, environment)
    }

    /// Checks a config's text; `directory` is where relative paths start.
    ///
    /// # Errors
    /// The config has mistakes: all that were found.
    pub fn read(
        file: &str,
        text: &str,
        directory: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let overrides = Override::among(&environment.variables);
        let (raw, source) = Source::read(file, text, &overrides)?;
        let mut checker = Checker::new(&source, environment, directory);
        let config = Self::check(&mut checker, raw);
        let problems = checker.into_problems();
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError::new(problems)),
        }
    }

    /// The config, unless a part of it could not even be stood in for; every mistake is reported to the checker.
    fn check(checker: &mut Checker<'_>, raw: Raw) -> Option<Self> {
        let written = Written::of(&raw);
        let Raw {
            store,
            outbox,
            inbox,
            relay,
            retry,
            mut destination,
            route,
            consumer,
            transaction,
            filter,
            setup,
        } = raw;
        let store = store::store(checker, store);
        let outboxes = store::outboxes(checker, outbox);
        let inbox = store::inbox(checker, inbox);
        horizon::check_sent_retention(checker, &outboxes, &inbox);
        let attempts = attempts::attempts(checker, &relay);
        let retry = retry::policy(checker, retry);
        let relay = relay::relay(checker, relay, retry);
        let of_destinations = retry::of_destinations(checker, &mut destination, retry);
        let owned_names: Vec<String> = destination.keys().cloned().collect();
        let names: Vec<&str> = owned_names.iter().map(String::as_str).collect();
        let destinations = destination::destinations(checker, destination);
        let transaction = transaction::transaction(checker, transaction, &destinations, &names);
        let targets = targets(&route, &consumer);
        destination::check_relay(checker, &destinations, relay.settings.order, &targets);
        let policies = route::Policies { relay: retry, destinations: of_destinations };
        let (routes, of_routes) = route::routes(checker, route, &names, &policies);
        let around = consumer::Surroundings { destinations: &destinations, names: &names, inbox: &inbox };
        let consumers = consumer::consumers(checker, consumer, &around);
        let others = policies.destinations.values().chain(&of_routes);
        let horizon = Horizon::of(&relay.settings, others, &inbox, &consumers);
        horizon::check_retention(checker, &inbox, horizon);
        let filter = filter::filter(checker, filter, horizon);
        let setup = SetupConfig {
            on_start: setup.on_start,
            sql_file: checker.file("setup.sql_file", setup.sql_file),
        };
        Some(Self {
            store: store?,
            outboxes,
            inbox,
            relay,
            attempts,
            destinations,
            routes,
            consumers,
            transaction,
            filter,
            horizon,
            setup,
            written,
        })
    }
}

/// Everything that is published under a key of the config.
fn targets(routes: &[RawRoute], consumers: &[RawConsumer]) -> Vec<Target> {
    let routes = routes.iter().enumerate().map(|(index, route)| Target {
        key: format!("route[{index}].key"),
        destination: route.destination.clone(),
        topic: Some(route.key.clone()),
    });
    let letters = consumers.iter().enumerate().filter_map(|(index, consumer)| {
        let letter = consumer.dead_letter.as_ref()?;
        Some(Target {
            key: format!("consumer[{index}].dead_letter.key"),
            destination: letter.destination.clone(),
            topic: letter.key.clone(),
        })
    });
    routes.chain(letters).collect()
}

#[cfg(test)]
mod tests;
