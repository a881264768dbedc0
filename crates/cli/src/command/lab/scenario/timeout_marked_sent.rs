//! The broker's answer does not come in time, and the row becomes SENT all the same.

use crate::command::lab::life::Life;
use crate::command::lab::line::{Line, PATIENCE};
use crate::command::lab::mailbox::Answer;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::{durable_without_confirms, todo};

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    todo::take_orders(life, 1..=5).await?;
    let mut line = Line::open(life).await?;
    let mut mailbox = life.mailbox_through(line.port()).await?;
    for (order, body) in todo::pending(life).await? {
        if order == 3 {
            line.lose().await?;
        }
        match mailbox.publish(&format!("message-{order}"), &body, PATIENCE).await? {
            Answer::Taken => life.tell(Actor::Relay, What::Confirmed, order),
            Answer::NoQueue => anyhow::bail!("the queue is bound"),
            Answer::None => {
                life.tell(Actor::Relay, What::TimedOut, order);
                line.restore().await?;
                mailbox = life.mailbox_through(line.port()).await?;
            }
        }
        // It usually got there.
        todo::mark(life, Actor::Relay, order, "SENT").await?;
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    durable_without_confirms::lose_three_messages(life).await
}
