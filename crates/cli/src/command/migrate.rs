//! `consign migrate`: creates the tables, or adds what is missing to them.

use std::path::Path;

use anyhow::Context;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use crate::command::topology;
use crate::config::{Config, ConfigArguments, ConnectionUrl, Database, Environment};
use crate::exit::Exit;
use crate::output;
use crate::parts::{self, Store};

/// What `consign migrate` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign migrate --config consign.toml --print\n  consign migrate --config consign.toml\n\n\
                        Columns are added as nullable ones; nothing is dropped or changed. May be repeated."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print the statements and run nothing.
    #[arg(long)]
    print: bool,
}

/// Prints or applies what is missing.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    let store = parts::open_store(&config).await?;
    if arguments.print {
        for statement in store.plan(&config).await? {
            // Ended here, so that the output as a whole can be given to any SQL client.
            output::print(format!("{};\n", statement.trim_end()))?;
        }
        return Ok(Exit::Fine);
    }
    report(&store.migrate(&config).await?);
    Ok(Exit::Fine)
}

fn report(statements: &[String]) {
    match statements.len() {
        0 => eprintln!("migrate: everything is in place"),
        count => eprintln!("migrate: ran {count} statements"),
    }
}

/// Migrates the database of the config at `file`.
pub async fn apply(file: &Path) -> anyhow::Result<()> {
    let config = Config::load(file, &Environment::of_process())?;
    parts::open_store(&config).await?.migrate(&config).await?;
    Ok(())
}

/// Creates the database, the business tables of `setup.sql_file`, consign's tables and the topology.
pub async fn set_up(config: &Config) -> anyhow::Result<()> {
    if let Database::MySql { url, .. } = &config.store.database {
        create_database(url).await.context("cannot create the database of [store]")?;
    }
    let store = parts::open_store(config).await?;
    if let Some(file) = &config.setup.sql_file {
        let sql = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let sql = sqlx::AssertSqlSafe(sql);
        let ran = match &store {
            Store::MySql(store) => sqlx::raw_sql(sql).execute(store.0.pool()).await.map(drop),
            Store::Sqlite(store) => {
                let mut tx = store.0.begin().await?;
                sqlx::raw_sql(sql).execute(&mut *tx).await?;
                tx.commit().await
            }
        };
        ran.with_context(|| format!("setup.sql_file {} failed", file.display()))?;
    }
    store.migrate(config).await?;
    topology::apply(config).await
}

/// Connects without a database, since the database may not exist yet.
async fn create_database(url: &ConnectionUrl) -> anyhow::Result<()> {
    let name = url.path.as_deref().unwrap_or_default();
    let server = ConnectionUrl { path: None, ..url.clone() };
    let text = server.expose().replacen("mariadb://", "mysql://", 1);
    // The driver's own message may quote the url.
    let mut connection =
        MySqlConnection::connect(&text).await.map_err(|error| anyhow::anyhow!("{}", without_url(&error)))?;
    let quoted = name.replace('`', "``");
    // Identifiers cannot be bound; the name is quoted above.
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE IF NOT EXISTS `{quoted}`")))
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(())
}

fn without_url(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(_) => "the url cannot be used".into(),
        other => other.to_string(),
    }
}
