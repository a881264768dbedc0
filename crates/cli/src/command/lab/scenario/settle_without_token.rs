//! A relay is stopped for longer than its lease; another one takes over and finishes; then the first one goes on.

use std::time::Duration;

use anyhow::ensure;
use consign::clock::ProcessClock;
use consign::draw::SystemDraw;
use consign_core::lease::ClaimRequest;
use consign_core::ports::OutboxStore;
use consign_core::settle::{SettleBatch, Settled};
use consign_core::time::Draw;
use consign_store::mapping::OutboxMapping;
use consign_store::{mysql, sqlite};

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::database::Database;
use crate::command::lab::life::Life;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::todo;
use crate::command::lab::shop;

/// How long the first relay's claim lasts.
const LEASE: Duration = Duration::from_millis(300);

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    todo::take_orders(life, 1..=3).await?;
    let claimed = todo::pending(life).await?;
    for (order, _) in &claimed {
        life.database.execute("UPDATE message_to_send SET status = 'SENDING' WHERE id = ?", &[(*order).into()]).await?;
        life.tell(Actor::Relay, What::Claimed, *order);
    }
    life.tell(Actor::Relay, What::Paused, None);
    tokio::time::sleep(LEASE).await;
    // The other relay finds rows that have been SENDING for too long.
    let sql = "UPDATE message_to_send SET status = 'NEW' WHERE status = 'SENDING'";
    life.database.execute(sql, &[]).await?;
    send_pending(life, Actor::OtherRelay).await?;
    life.tell(Actor::Relay, What::Resumed, None);
    for (order, _) in claimed {
        // Its connection did not survive the stop: the rows are to be tried again.
        todo::mark(life, Actor::Relay, order, "NEW").await?;
    }
    send_pending(life, Actor::OtherRelay).await
}

async fn send_pending(life: &Life, actor: Actor) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    for (order, body) in todo::pending(life).await? {
        mailbox.send(&format!("message-{order}"), &body).await?;
        life.tell(actor, What::Confirmed, order);
        todo::mark(life, actor, order, "SENT").await?;
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    shop::take_orders(life, 1..=3).await?;
    match life.database.clone() {
        Database::Sqlite(store, _) => {
            stop_and_go(life, &sqlite::Outbox::new(store, OutboxMapping::default(), "stopped")).await
        }
        Database::MySql(store) => {
            stop_and_go(life, &mysql::Outbox::new(store, OutboxMapping::default(), "stopped")).await
        }
    }
}

async fn stop_and_go(life: &Life, outbox: &impl OutboxStore) -> anyhow::Result<()> {
    let request = ClaimRequest::new(10, 1 << 20, LEASE, SystemDraw.bits(), ProcessClock::start().now());
    let claimed = outbox.claim(request).await?.claims;
    ensure!(claimed.len() == 3, "three rows were due");
    for claim in &claimed {
        let order = claim.event().aggregate.id.as_ref().and_then(|id| id.parse().ok());
        life.tell(Actor::Relay, What::Claimed, order);
    }
    life.tell(Actor::Relay, What::Paused, None);
    let other = Relaying { actor: Actor::OtherRelay, ..Relaying::default() };
    chain::run(life, vec![other.clone()], vec![]).await?;
    life.tell(Actor::Relay, What::Resumed, None);
    let why = "the connection did not survive the stop";
    let settlements = claimed.into_iter().map(|claim| claim.release(Duration::ZERO, why)).collect();
    let answers = outbox.settle(&SettleBatch { settlements, repeat: false }).await?;
    ensure!(answers.iter().all(|answer| *answer == Settled::Fenced), "a late settle was not fenced: {answers:?}");
    life.tell(Actor::Relay, What::Fenced, None);
    chain::run(life, vec![other], vec![]).await
}
