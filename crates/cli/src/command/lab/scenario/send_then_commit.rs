//! The message is sent, then its order is committed; the process dies in between.

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::life::{Life, Paid, insert_order};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::shop;

fn orders(life: &Life) -> std::ops::RangeInclusive<i64> {
    if life.first() { 1..=3 } else { 4..=5 }
}

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    for order in orders(life) {
        let paid = Paid::order(order);
        let mut tx = life.database.begin().await?;
        insert_order(&mut tx, paid).await?;
        mailbox.send(&format!("message-{order}"), &paid.body()).await?;
        life.tell(Actor::Shop, What::Confirmed, order);
        if order == 3 {
            life.tell(Actor::Shop, What::NotYetCommitted, order);
            life.die(Actor::Shop);
        }
        tx.commit().await?;
        life.tell(Actor::Shop, What::OrderCommitted, order);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    for order in orders(life) {
        let tx = shop::open_order(life, Paid::order(order)).await?;
        if order == 3 {
            life.tell(Actor::Shop, What::NotYetCommitted, order);
            life.die(Actor::Shop);
        }
        tx.commit().await?;
        life.tell(Actor::Shop, What::EventCommitted, order);
    }
    chain::run(life, vec![Relaying::default()], vec![]).await
}
