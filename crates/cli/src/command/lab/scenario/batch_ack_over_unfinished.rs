//! Five messages are handled side by side; the last one is finished first, and everything up to it is acknowledged.

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let mailbox = life.mailbox().await?;
    let mut batch = Vec::new();
    while batch.len() < 5 {
        let Some(letter) = mailbox.next().await? else { break };
        life.tell(Actor::Consumer, What::Delivered, Paid::read(&letter.body)?.order_id);
        batch.push(letter);
    }
    let Some(fastest) = batch.last() else { return Ok(()) };
    let paid = Paid::read(&fastest.body)?;
    let mut tx = life.database.begin().await?;
    award(&mut tx, paid).await?;
    tx.commit().await?;
    life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
    // One acknowledgement for all up to this one: basic.ack with multiple, or a committed offset.
    for letter in batch {
        let order = Paid::read(&letter.body)?.order_id;
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, order);
    }
    // The others are still at work.
    life.die(Actor::Consumer);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let consuming = Consuming { batch: 5, inside: backlog::die_at(life, 5), ..Consuming::default() };
    chain::run(life, vec![], vec![consuming]).await
}
