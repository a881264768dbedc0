//! The broker confirms a message that it has no queue for, and the confirm is all that is looked at.

use crate::command::lab::chain::{self, Relaying};
use crate::command::lab::life::Life;
use crate::command::lab::line::PATIENCE;
use crate::command::lab::mailbox::Answer;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::todo;
use crate::command::lab::{shop, site};

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    todo::take_orders(life, 1..=3).await?;
    let mailbox = life.mailbox().await?;
    for (order, body) in todo::pending(life).await? {
        // RabbitMQ confirms an unroutable message like any other; that it returns it as well is heard by those only who
        // published it as mandatory and listen. With a queue in SQL it is an INSERT of no row.
        match mailbox.publish(&format!("message-{order}"), &body, PATIENCE * 10).await? {
            Answer::Taken => life.tell(Actor::Relay, What::Confirmed, order),
            Answer::NoQueue => life.tell(Actor::Relay, What::ConfirmedUnroutable, order),
            Answer::None => anyhow::bail!("the broker did not answer"),
        }
        todo::mark(life, Actor::Relay, order, "SENT").await?;
    }
    site::bind(&life.place).await?;
    life.tell(Actor::Operator, What::QueueBound, None);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    chain::run_beside(life, vec![Relaying::default()], vec![], async {
        shop::take_orders(life, 1..=3).await?;
        life.until("SELECT COUNT(*) > 0 FROM outbox_event WHERE last_error IS NOT NULL").await?;
        site::bind(&life.place).await?;
        life.tell(Actor::Operator, What::QueueBound, None);
        Ok(())
    })
    .await
}
