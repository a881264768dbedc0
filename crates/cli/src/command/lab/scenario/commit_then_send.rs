//! The order is committed, then its message is sent; the process dies in between.

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::life::{Life, Paid, insert_order};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::shop;

/// Five orders come, and the service dies behind the third.
fn orders(life: &Life) -> std::ops::RangeInclusive<i64> {
    if life.first() { 1..=3 } else { 4..=5 }
}

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    for order in orders(life) {
        let paid = Paid::order(order);
        let mut tx = life.database.begin().await?;
        insert_order(&mut tx, paid).await?;
        tx.commit().await?;
        life.tell(Actor::Shop, What::OrderCommitted, order);
        if order == 3 {
            life.die(Actor::Shop);
        }
        mailbox.send(&format!("message-{order}"), &paid.body()).await?;
        life.tell(Actor::Shop, What::Confirmed, order);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    shop::take_orders(life, orders(life)).await?;
    life.die(Actor::Shop);
    chain::run(life, vec![Relaying::default()], vec![]).await
}
