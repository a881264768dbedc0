//! What consumers find: paid orders, and a message for each of them in the queue.

use std::sync::Arc;

use crate::command::lab::chain::Inside;
use crate::command::lab::life::{Life, Paid, insert_order};
use crate::command::lab::record::{Actor, What};

/// Commits orders and puts their messages into the queue, in the first life.
pub async fn fill(life: &Life, orders: impl IntoIterator<Item = i64>) -> anyhow::Result<()> {
    if !life.first() {
        return Ok(());
    }
    let mailbox = life.mailbox().await?;
    for order in orders {
        add_order(life, Paid::order(order)).await?;
        mailbox.send(&format!("message-{order}"), &Paid::order(order).body()).await?;
        life.tell(Actor::Shop, What::Confirmed, order);
    }
    Ok(())
}

/// Commits an order.
pub async fn add_order(life: &Life, paid: Paid) -> anyhow::Result<()> {
    let mut tx = life.database.begin().await?;
    insert_order(&mut tx, paid).await?;
    tx.commit().await
}

/// The process dies while a handler is at work on this order.
pub fn die_at(life: &Life, order: i64) -> Inside {
    let life = life.clone();
    Arc::new(move |paid| {
        let life = life.clone();
        Box::pin(async move {
            if paid.order_id == order {
                life.die(Actor::Consumer);
            }
        })
    })
}
