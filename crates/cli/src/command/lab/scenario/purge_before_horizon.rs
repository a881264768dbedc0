//! Markers are deleted while events that they stand for can still be published again.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::ensure;
use tokio::process::Command;

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::database::Database;
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::mailbox::Mailbox;
use crate::command::lab::place::{Place, Store};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=3).await?;
    let mailbox = life.mailbox().await?;
    consume(life, &mailbox).await?;
    // A nightly job keeps the table small.
    life.database.execute("DELETE FROM processed_message", &[]).await?;
    life.tell(Actor::Operator, What::MarkersPurged, None);
    replay(life).await?;
    consume(life, &mailbox).await
}

async fn consume(life: &Life, mailbox: &Mailbox) -> anyhow::Result<()> {
    while let Some(letter) = mailbox.next().await? {
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        let mut tx = life.database.begin().await?;
        let sql = "INSERT INTO processed_message (message_id) VALUES (?)";
        if tx.execute(sql, &[letter.id.as_str().into()]).await.is_ok() {
            award(&mut tx, paid).await?;
            tx.commit().await?;
            life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        }
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

/// Last night's events are published again, under their old ids.
async fn replay(life: &Life) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    for order in 1..=3 {
        mailbox.send(&format!("message-{order}"), &Paid::order(order).body()).await?;
        life.tell(Actor::Operator, What::Replayed, order);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=3).await?;
    chain::run(life, vec![], vec![Consuming::default()]).await?;
    age_markers(life).await?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("consign.toml");
    std::fs::write(&config, config_text(&life.place))?;
    let refused = purge(&life.place, &config, "1d").await?;
    ensure!(refused.code() == Some(2), "a purge before the horizon was not refused: {refused}");
    life.tell(Actor::Operator, What::PurgeRefused, None);
    let purged = purge(&life.place, &config, "30d").await?;
    ensure!(purged.success(), "a purge beyond the horizon failed: {purged}");
    life.tell(Actor::Operator, What::MarkersPurged, None);
    replay(life).await?;
    chain::run(life, vec![], vec![Consuming::default()]).await
}

/// The markers are two days old.
async fn age_markers(life: &Life) -> anyhow::Result<()> {
    let sql = match &life.database {
        Database::Sqlite(..) => {
            "UPDATE consumed_operation SET applied_at = strftime('%Y-%m-%d %H:%M:%f000', 'now', '-2 days')"
        }
        Database::MySql(_) => "UPDATE consumed_operation SET applied_at = NOW(6) - INTERVAL 2 DAY",
    };
    life.database.execute(sql, &[]).await.map(drop)
}

const STORE_URL: &str = "CONSIGN_LAB_STORE_URL";

async fn purge(place: &Place, config: &Path, older_than: &str) -> anyhow::Result<ExitStatus> {
    let url = match &place.store {
        Store::File(path) => format!("sqlite:{}", path.display()),
        Store::Server(address) => address.url.clone(),
    };
    let status = Command::new(std::env::current_exe()?)
        .args(["purge", "--markers", "--yes", "--older-than", older_than, "--config"])
        .arg(config)
        .env(STORE_URL, url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    Ok(status.await?)
}

/// The consumer as declared in a config. Where its queue is does not matter to a purge.
fn config_text(place: &Place) -> String {
    let url = match &place.store {
        Store::File(path) => toml::Value::String(format!("sqlite:{}", path.display())),
        Store::Server(_) => toml::Value::String(format!("${{{STORE_URL}}}")),
    };
    let ca = match &place.store {
        Store::Server(address) => address.ca.as_ref(),
        Store::File(_) => None,
    };
    let ca = ca.map_or(String::new(), |path| {
        format!("tls_ca_file = {}\n", toml::Value::String(path.display().to_string()))
    });
    format!(
        r#"[store]
url = {url}
{ca}
[inbox]
replay_horizon_days = 7

[destination.broker]
type = "embedded"
path = "unused.db"
queue = [{{ name = "points-award", bindings = ["OrderPaid"] }}]

[[consumer]]
name = "points-award"
source = "broker"
queue = "points-award"
key = "order:{{order_id}}:paid"
compare = ["user_id", "amount"]
bind.order_id = {{ pointer = "/orderId", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}
bind.amount = {{ pointer = "/amount", type = "integer" }}

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id"
expect_rows = 1
"#
    )
}
