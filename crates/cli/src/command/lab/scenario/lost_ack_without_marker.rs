//! The effect is committed, and the consumer dies before the acknowledgement; nothing remembers the effect.

use crate::command::lab::chain::{self, Consuming, Deaths};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let mailbox = life.mailbox().await?;
    while let Some(letter) = mailbox.next().await? {
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        let mut tx = life.database.begin().await?;
        award(&mut tx, paid).await?;
        tx.commit().await?;
        life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        if paid.order_id == 3 {
            life.die(Actor::Consumer);
        }
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=5).await?;
    let consuming = Consuming { deaths: Deaths::before_ack(3, 1), ..Consuming::default() };
    chain::run(life, vec![], vec![consuming]).await
}
