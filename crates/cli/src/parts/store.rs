//! The store a config names, in either dialect.

use anyhow::Context;
use consign::draw::SystemDraw;
use consign_core::finding::Finding;
use consign_core::relay::Order;
use consign_core::time::Draw;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::mysql::PayloadColumn;
use consign_store::order::{OrderSettings, OrderStatus};
use consign_store::retention::Keeping;
use consign_store::status::{InboxStatus, OutboxStatus};
use consign_store::transaction::MarkerKeeping;
use consign_store::{mysql, sqlite};

use crate::config::{Config, ConnectionUrl, Database, InboxConfig, OutboxConfig, TransactionConfig};

mod outbox;
mod records;

pub use outbox::{MySqlOutbox, Partitioned, SqliteOutbox};
pub use records::missing_schema;

/// An open store.
pub enum Store {
    /// MySQL or MariaDB.
    MySql(MySqlStore),
    /// A SQLite file.
    Sqlite(SqliteStore),
}

/// A MySQL database.
#[derive(Clone)]
pub struct MySqlStore(pub mysql::Database);

/// A SQLite file.
#[derive(Clone)]
pub struct SqliteStore(pub sqlite::Database);

/// Both dialects have the same types under the same names; only their databases differ.
macro_rules! dialect {
    ($store:ident, $dialect:ident) => {
        impl $store {
            /// The outboxes of the config as the relay keeps them, in its order.
            pub fn relay_outboxes(&self, config: &Config) -> anyhow::Result<Vec<$dialect::Outbox>> {
                config.outboxes.iter().map(|outbox| self.relay_outbox(config, outbox)).collect()
            }

            /// The markers of transaction messages.
            pub fn transaction_markers(
                &self,
                transaction: &TransactionConfig,
            ) -> $dialect::TransactionMarkers {
                let keeping = MarkerKeeping { copy: transaction.copy, first_look: transaction.first_look };
                $dialect::TransactionMarkers::new(self.0.clone(), transaction.store.clone(), keeping)
            }

            fn relay_outbox(
                &self,
                config: &Config,
                outbox: &OutboxConfig,
            ) -> anyhow::Result<$dialect::Outbox> {
                let (mapping, keeping) = (outbox_mapping(outbox)?, keeping(config, outbox));
                Ok($dialect::Outbox::with_keeping(self.0.clone(), mapping, &config.relay.name, keeping))
            }

            /// One outbox, to look at and to decide about.
            pub fn outbox(&self, outbox: &OutboxConfig, relay: &str) -> anyhow::Result<$dialect::Outbox> {
                Ok($dialect::Outbox::new(self.0.clone(), outbox_mapping(outbox)?, relay))
            }

            /// The inbox. It looks for the payloads that conflicts are compared with in the first outbox, which need not
            /// be in the same database.
            pub async fn inbox(&self, config: &Config) -> anyhow::Result<$dialect::Inbox> {
                let inbox = $dialect::Inbox::new(self.0.clone(), marker_mapping(&config.inbox)?);
                match config.outboxes.first() {
                    Some(outbox) => Ok(inbox.with_outbox(outbox_mapping(outbox)?)),
                    None => Ok(inbox),
                }
            }

            async fn findings(&self, config: &Config) -> anyhow::Result<Vec<Finding>> {
                let mut findings = self.0.findings(process_micros()).await?;
                if !config.destinations.is_empty() {
                    for outbox in &config.outboxes {
                        let store = self.outbox(outbox, &config.relay.name)?;
                        findings.extend(store.findings().await?);
                        if let Some(settings) = order_settings(config) {
                            findings.extend(store.ordered(settings).ordered_findings().await?);
                        }
                    }
                }
                if !config.consumers.is_empty() {
                    findings.extend(self.inbox(config).await?.findings().await?);
                }
                Ok(findings)
            }
        }
    };
}

dialect!(MySqlStore, mysql);
dialect!(SqliteStore, sqlite);

impl MySqlStore {
    /// What the relay works on: one outbox per configured table, by name, each looked at once so that a wrong schema
    /// fails at start.
    pub async fn outboxes(&self, config: &Config) -> anyhow::Result<Vec<(String, MySqlOutbox)>> {
        let mut outboxes = Vec::new();
        for outbox in &config.outboxes {
            let store = self.relay_outbox(config, outbox)?;
            store.shape().await.with_context(|| format!("outbox {:?}", outbox.name))?;
            let store = match order_settings(config) {
                None => MySqlOutbox::Competing(store),
                Some(settings) => {
                    let ordered = shared(&store, settings).await?;
                    if ordered.settings().partitions == 0 {
                        tracing::warn!(
                            outbox = outbox.name,
                            "there is no consign_partition: relays do not share aggregates, run `consign migrate`"
                        );
                    }
                    MySqlOutbox::Ordered(ordered, process_name(config))
                }
            };
            outboxes.push((outbox.name.clone(), store));
        }
        Ok(outboxes)
    }
}

/// An ordered outbox, with partitions where the database has their tables.
async fn shared(store: &mysql::Outbox, settings: OrderSettings) -> anyhow::Result<mysql::OrderedOutbox> {
    let ordered = store.ordered(settings);
    if ordered.can_share().await? {
        return Ok(ordered);
    }
    Ok(store.ordered(OrderSettings { partitions: 0, ..settings }))
}

impl SqliteStore {
    /// What the relay works on: one outbox per configured table, by name, each looked at once so that a wrong schema
    /// fails at start.
    pub async fn outboxes(&self, config: &Config) -> anyhow::Result<Vec<(String, SqliteOutbox)>> {
        let mut outboxes = Vec::new();
        for outbox in &config.outboxes {
            let store = self.relay_outbox(config, outbox)?;
            store.shape().await.with_context(|| format!("outbox {:?}", outbox.name))?;
            let store = match order_settings(config) {
                None => SqliteOutbox::Competing(store),
                Some(settings) => SqliteOutbox::Ordered(store.ordered(settings)),
            };
            outboxes.push((outbox.name.clone(), store));
        }
        Ok(outboxes)
    }
}

/// How an ordered relay claims; `None` in competing mode.
fn order_settings(config: &Config) -> Option<OrderSettings> {
    match config.relay.settings.order {
        Order::Competing => None,
        Order::PerAggregate { dead } => Some(OrderSettings { partitions: config.relay.partitions, dead }),
    }
}

/// The relay's name with something of this process's own: two relays of one name, or two lives of one, share nothing.
fn process_name(config: &Config) -> String {
    let own = SystemDraw.bits().iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("{}-{own}", config.relay.name)
}

impl Store {
    /// What `doctor` has to say about the database and the tables.
    pub async fn findings(&self, config: &Config) -> anyhow::Result<Vec<Finding>> {
        match self {
            Self::MySql(store) => store.findings(config).await,
            Self::Sqlite(store) => store.findings(config).await,
        }
    }

    /// The outbox in numbers.
    pub async fn outbox_status(&self, outbox: &OutboxConfig) -> anyhow::Result<OutboxStatus> {
        Ok(match self {
            Self::MySql(store) => store.outbox(outbox, "status")?.status().await?,
            Self::Sqlite(store) => store.outbox(outbox, "status")?.status().await?,
        })
    }

    /// Who holds which share of an ordered outbox, and which aggregates are held up; `None` in competing mode.
    pub async fn order_status(
        &self,
        config: &Config,
        outbox: &OutboxConfig,
    ) -> anyhow::Result<Option<OrderStatus>> {
        let Some(settings) = order_settings(config) else { return Ok(None) };
        Ok(Some(match self {
            Self::MySql(store) => {
                shared(&store.outbox(outbox, "status")?, settings).await?.order_status().await?
            }
            Self::Sqlite(store) => store.outbox(outbox, "status")?.ordered(settings).order_status().await?,
        }))
    }

    /// The inbox in numbers.
    pub async fn inbox_status(&self, config: &Config) -> anyhow::Result<InboxStatus> {
        Ok(match self {
            Self::MySql(store) => store.inbox(config).await?.status().await?,
            Self::Sqlite(store) => store.inbox(config).await?.status().await?,
        })
    }

    /// The statements that would create or extend the tables this config needs.
    pub async fn plan(&self, config: &Config) -> anyhow::Result<Vec<String>> {
        let mut statements = Vec::new();
        match self {
            Self::MySql(store) => {
                for schema in mysql_schemas(store, config)? {
                    statements.extend(schema.plan().await?);
                }
            }
            Self::Sqlite(store) => {
                for schema in sqlite_schemas(store, config)? {
                    statements.extend(schema.plan().await?);
                }
            }
        }
        Ok(unique(statements))
    }

    /// Creates or extends the tables this config needs; the statements that ran.
    pub async fn migrate(&self, config: &Config) -> anyhow::Result<Vec<String>> {
        let mut statements = Vec::new();
        match self {
            Self::MySql(store) => {
                for schema in mysql_schemas(store, config)? {
                    statements.extend(schema.apply().await?);
                }
            }
            Self::Sqlite(store) => {
                for schema in sqlite_schemas(store, config)? {
                    statements.extend(schema.apply().await?);
                }
            }
        }
        Ok(statements)
    }
}

/// Opens the configured store.
pub async fn open_store(config: &Config) -> anyhow::Result<Store> {
    match &config.store.database {
        Database::MySql { .. } => {
            let options = mysql_options(config)?;
            let database = mysql::Database::connect(&options).await.context("cannot connect to the store")?;
            Ok(Store::MySql(MySqlStore(database)))
        }
        Database::Sqlite { path } => {
            let database = sqlite::Database::open(path, sqlite::Creation::IfMissing)
                .await
                .with_context(|| format!("cannot open {}", path.display()))?;
            Ok(Store::Sqlite(SqliteStore(database)))
        }
    }
}

/// The MySQL driver's options of a config.
fn mysql_options(config: &Config) -> anyhow::Result<mysql::Options> {
    let Database::MySql { url, time_zone, tls_ca_file } = &config.store.database else {
        anyhow::bail!("[store] is not MySQL: this needs a mysql:// url");
    };
    let mut options = mysql::Options::new(exposed(url));
    options.time_zone.clone_from(time_zone);
    options.certificate_authority.clone_from(tls_ca_file);
    if tls_ca_file.is_some() {
        options.encryption = mysql::Encryption::VerifyIdentity;
    }
    options.connections_max = config.store.connections;
    Ok(options)
}

/// The url for the driver. MariaDB's scheme means the same protocol.
fn exposed(url: &ConnectionUrl) -> String {
    let text = url.expose();
    text.strip_prefix("mariadb://").map_or(text.clone(), |rest| format!("mysql://{rest}"))
}

/// What a relay keeps of an outbox.
fn keeping(config: &Config, outbox: &OutboxConfig) -> Keeping {
    Keeping { on_sent: outbox.on_sent, attempts: config.attempts.log, lease: config.relay.settings.lease }
}

fn outbox_mapping(outbox: &OutboxConfig) -> anyhow::Result<OutboxMapping> {
    let mut mapping = OutboxMapping::new(Identifier::table(&outbox.table)?);
    for (column, actual) in &outbox.columns {
        mapping = mapping.with_column(column, Identifier::column(actual)?)?;
    }
    Ok(mapping)
}

fn marker_mapping(inbox: &InboxConfig) -> anyhow::Result<MarkerMapping> {
    let mut mapping = MarkerMapping::new(Identifier::table(&inbox.table)?);
    for (column, actual) in &inbox.columns {
        mapping = mapping.with_column(column, Identifier::column(actual)?)?;
    }
    Ok(mapping)
}

/// The columns the declared consumers compare by, in their current versions and in earlier ones, each once.
fn comparison_columns(config: &Config) -> anyhow::Result<Vec<ComparisonColumn>> {
    let mut columns: Vec<ComparisonColumn> = Vec::new();
    for consumer in &config.consumers {
        for (column, kind) in consumer.consumer.compared_columns() {
            let name = Identifier::column(column)?;
            if columns.iter().all(|known| known.name != name) {
                columns.push(ComparisonColumn { name, kind });
            }
        }
    }
    Ok(columns)
}

/// A database that only consumers use gets no outbox, and one that only relays use gets no markers.
fn wants_outbox(config: &Config) -> bool {
    !config.routes.is_empty() || config.consumers.is_empty()
}

fn mysql_schemas(store: &MySqlStore, config: &Config) -> anyhow::Result<Vec<mysql::Schema>> {
    let mut schemas = Vec::new();
    if wants_outbox(config) {
        for outbox in &config.outboxes {
            let schema = mysql::Schema::new(store.0.clone());
            let schema = schema.with_outbox(outbox_mapping(outbox)?, PayloadColumn::default());
            schemas.push(if order_settings(config).is_some() { schema.with_order() } else { schema });
        }
    }
    if !config.consumers.is_empty() {
        let schema = mysql::Schema::new(store.0.clone()).with_markers(marker_mapping(&config.inbox)?);
        schemas.push(schema.with_comparison(comparison_columns(config)?));
    }
    if config.transaction.is_some() {
        schemas.push(mysql::Schema::new(store.0.clone()).with_transactions());
    }
    Ok(schemas)
}

fn sqlite_schemas(store: &SqliteStore, config: &Config) -> anyhow::Result<Vec<sqlite::Schema>> {
    let mut schemas = Vec::new();
    if wants_outbox(config) {
        for outbox in &config.outboxes {
            let schema = sqlite::Schema::new(store.0.clone()).with_outbox(outbox_mapping(outbox)?);
            schemas.push(if order_settings(config).is_some() { schema.with_order() } else { schema });
        }
    }
    if !config.consumers.is_empty() {
        let schema = sqlite::Schema::new(store.0.clone()).with_markers(marker_mapping(&config.inbox)?);
        schemas.push(schema.with_comparison(comparison_columns(config)?));
    }
    if config.transaction.is_some() {
        schemas.push(sqlite::Schema::new(store.0.clone()).with_transactions());
    }
    Ok(schemas)
}

/// Several outboxes share consign's own tables: each plan names them again.
fn unique(statements: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    statements.into_iter().filter(|statement| seen.insert(statement.clone())).collect()
}

/// The process's wall clock, for the one finding that compares it with the database's.
#[expect(
    clippy::disallowed_methods,
    reason = "doctor reports how far the two clocks are apart; nothing is decided by it"
)]
fn process_micros() -> i64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}
