//! A consumer acknowledges its messages at the end of a batch of ten, and dies three times just before it.

use crate::command::lab::chain::{self, Consuming, Deaths};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

const BATCH: usize = 10;
const DEATHS: u32 = 3;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=10).await?;
    let mailbox = life.mailbox().await?;
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        let Some(letter) = mailbox.next().await? else { break };
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        let mut tx = life.database.begin().await?;
        award(&mut tx, paid).await?;
        tx.commit().await?;
        life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        batch.push(letter);
    }
    life.die_often(Actor::Consumer, DEATHS);
    for letter in batch {
        let order = Paid::read(&letter.body)?.order_id;
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, order);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=10).await?;
    let deaths = Deaths::before_ack(1, DEATHS);
    chain::run(life, vec![], vec![Consuming { batch: BATCH, deaths, ..Consuming::default() }]).await
}
