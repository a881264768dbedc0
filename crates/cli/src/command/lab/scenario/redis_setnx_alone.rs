//! `SET key NX` in Redis is the only memory of what was done; the consumer dies behind it, and later Redis forgets.

use anyhow::Context;

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::mailbox::Mailbox;
use crate::command::lab::memory::Memory;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let (mailbox, mut memory) = (life.mailbox().await?, memory(life).await?);
    consume(life, &mailbox, &mut memory).await?;
    forget_and_repeat(life, &mut memory).await?;
    consume(life, &mailbox, &mut memory).await
}

async fn consume(life: &Life, mailbox: &Mailbox, memory: &mut Memory) -> anyhow::Result<()> {
    while let Some(letter) = mailbox.next().await? {
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        if !memory.set_if_absent(&paid.key()).await? {
            life.tell(Actor::Consumer, What::TakenForRepeat, paid.order_id);
            mailbox.ack(letter).await?;
            continue;
        }
        life.tell(Actor::Consumer, What::MarkerStored, paid.order_id);
        if paid.order_id == 3 {
            life.die(Actor::Consumer);
        }
        let mut tx = life.database.begin().await?;
        award(&mut tx, paid).await?;
        tx.commit().await?;
        life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let consuming = Consuming { inside: backlog::die_at(life, 3), ..Consuming::default() };
    chain::run(life, vec![], vec![consuming]).await?;
    forget_and_repeat(life, &mut memory(life).await?).await?;
    chain::run(life, vec![], vec![Consuming::default()]).await
}

async fn memory(life: &Life) -> anyhow::Result<Memory> {
    let address = life.place.redis.as_ref().context("this scenario needs Redis")?;
    Memory::open(address, &life.place.name).await
}

/// Redis is flushed, and the relay publishes the first message once more.
async fn forget_and_repeat(life: &Life, memory: &mut Memory) -> anyhow::Result<()> {
    memory.forget().await?;
    life.tell(Actor::Operator, What::MemoryLost, None);
    life.mailbox().await?.send("message-1", &Paid::order(1).body()).await?;
    life.tell(Actor::Relay, What::Confirmed, 1);
    Ok(())
}
