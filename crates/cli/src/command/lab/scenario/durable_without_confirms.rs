//! The queue is durable and the messages persistent, but nobody waits for the broker's confirms; the connection dies
//! with messages in flight.

use std::time::Duration;

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::life::Life;
use crate::command::lab::line::Line;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::todo;
use crate::command::lab::shop;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        todo::take_orders(life, 1..=5).await?;
    }
    let mut line = Line::open(life).await?;
    let mailbox = life.mailbox_through(line.port()).await?;
    for (order, body) in todo::pending(life).await? {
        if order == 3 {
            // What was sent before has arrived.
            while mailbox.left().await? < 2 {
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            line.lose().await?;
        }
        mailbox.send_blindly(&format!("message-{order}"), &body);
        life.tell(Actor::Relay, What::SentBlindly, order);
        todo::mark(life, Actor::Relay, order, "SENT").await?;
    }
    life.die(Actor::Relay);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    lose_three_messages(life).await
}

/// Two events go through, then the line loses whatever the relay sends, until an attempt has come to nothing.
pub async fn lose_three_messages(life: &Life) -> anyhow::Result<()> {
    let mut line = Line::open(life).await?;
    let relay =
        Relaying { through: line.port(), deadline: Duration::from_millis(2500), ..Relaying::default() };
    chain::run_beside(life, vec![relay], vec![], async {
        shop::take_orders(life, 1..=2).await?;
        life.until("SELECT COUNT(*) = 2 FROM outbox_event WHERE status = 'SENT'").await?;
        line.lose().await?;
        shop::take_orders(life, 3..=5).await?;
        life.until("SELECT COUNT(*) > 0 FROM outbox_event WHERE last_error IS NOT NULL").await?;
        line.restore().await
    })
    .await
}
