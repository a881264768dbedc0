//! Two relays read the same rows, and nothing keeps the one from what the other has.

use tokio::sync::Barrier;

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::life::Life;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::todo;
use crate::command::lab::shop;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    todo::take_orders(life, 1..=5).await?;
    // Both read before either has sent.
    let together = Barrier::new(2);
    tokio::try_join!(send(life, Actor::Relay, &together), send(life, Actor::OtherRelay, &together))?;
    Ok(())
}

async fn send(life: &Life, actor: Actor, together: &Barrier) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    let rows = todo::pending(life).await?;
    life.tell(actor, What::Selected, None);
    together.wait().await;
    for (order, body) in rows {
        mailbox.send(&format!("message-{order}"), &body).await?;
        life.tell(actor, What::Confirmed, order);
        todo::mark(life, actor, order, "SENT").await?;
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    let relays = [Actor::Relay, Actor::OtherRelay].map(|actor| Relaying { actor, ..Relaying::default() });
    chain::run_beside(life, relays.into(), vec![], shop::take_orders(life, 1..=5)).await
}
