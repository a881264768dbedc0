//! A table of messages to send, as teams write one by hand: committed with the orders, read by a loop.

use crate::command::lab::life::{Life, Paid, insert_order};
use crate::command::lab::record::{Actor, What};

/// Commits orders, each with its message to send.
pub async fn take_orders(life: &Life, orders: impl IntoIterator<Item = i64>) -> anyhow::Result<()> {
    for order in orders {
        let paid = Paid::order(order);
        let mut tx = life.database.begin().await?;
        insert_order(&mut tx, paid).await?;
        let sql = "INSERT INTO message_to_send (id, body, status) VALUES (?, ?, 'NEW')";
        tx.execute(sql, &[order.into(), paid.body().as_str().into()]).await?;
        tx.commit().await?;
        life.tell(Actor::Shop, What::EventCommitted, order);
    }
    Ok(())
}

/// What is to be sent.
pub async fn pending(life: &Life) -> anyhow::Result<Vec<(i64, String)>> {
    life.database.rows("SELECT id, body FROM message_to_send WHERE status = 'NEW' ORDER BY id").await
}

/// Sets a row's status, whatever it was.
pub async fn mark(life: &Life, actor: Actor, order: i64, status: &str) -> anyhow::Result<()> {
    let sql = "UPDATE message_to_send SET status = ? WHERE id = ?";
    life.database.execute(sql, &[status.into(), order.into()]).await?;
    life.tell(actor, if status == "SENT" { What::MarkedSent } else { What::MarkedNew }, order);
    Ok(())
}
