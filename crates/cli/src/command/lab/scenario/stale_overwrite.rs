//! Two versions of an order arrive in the wrong order, and the later message overwrites the newer state.

use crate::command::lab::chain::{self, Consuming, Effect};
use crate::command::lab::life::{AMOUNT, Life, Paid};
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
        tx.execute(sql, &[letter.id.as_str().into()]).await?;
        tx.execute("DELETE FROM order_copy WHERE order_id = ?", &[paid.order_id.into()]).await?;
        let sql = "INSERT INTO order_copy (order_id, amount, version) VALUES (?, ?, ?)";
        tx.execute(sql, &[paid.order_id, paid.amount, paid.version].map(Into::into)).await?;
        tx.commit().await?;
        life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    let consuming = Consuming { effect: Effect::Copy, ..Consuming::default() };
    chain::run(life, vec![], vec![consuming]).await
}

/// The first version's message was published again after the second one's.
async fn fill(life: &Life) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    let (first, second) = (Paid::order(1), Paid { version: 2, amount: AMOUNT + 150, ..Paid::order(1) });
    backlog::add_order(life, second).await?;
    for (id, paid) in [("message-1-second", second), ("message-1-first", first)] {
        mailbox.send(id, &paid.body()).await?;
        life.tell(Actor::Relay, What::Confirmed, paid.order_id);
    }
    Ok(())
}
