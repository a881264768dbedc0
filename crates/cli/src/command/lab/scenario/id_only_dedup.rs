//! The same key comes again with other content, and only keys are compared.

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{AMOUNT, Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    let mailbox = life.mailbox().await?;
    while let Some(letter) = mailbox.next().await? {
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        let mut tx = life.database.begin().await?;
        let sql = "INSERT INTO processed_message (message_id) VALUES (?)";
        // The primary key refuses a repeat.
        if tx.execute(sql, &[paid.key().as_str().into()]).await.is_err() {
            drop(tx);
            life.tell(Actor::Consumer, What::TakenForRepeat, paid.order_id);
        } else {
            award(&mut tx, paid).await?;
            tx.commit().await?;
            life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        }
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    chain::run(life, vec![], vec![Consuming::default()]).await
}

/// Three orders, and then the second one's amount is corrected under its old key.
async fn fill(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, 1..=3).await?;
    let corrected = Paid { amount: AMOUNT + 150, ..Paid::order(2) };
    let sql = "UPDATE purchase_order SET amount = ? WHERE id = ?";
    life.database.execute(sql, &[corrected.amount.into(), corrected.order_id.into()]).await?;
    life.mailbox().await?.send("message-2-corrected", &corrected.body()).await?;
    life.tell(Actor::Shop, What::Confirmed, corrected.order_id);
    Ok(())
}
