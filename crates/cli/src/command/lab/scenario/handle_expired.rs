//! A handler takes longer than its message is invisible to others, and another consumer gets it meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::mailbox::{Letter, Mailbox};
use crate::command::lab::place::INVISIBLE;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, [1]).await?;
    let (slow, other) = (life.mailbox().await?, life.mailbox().await?);
    let letter = take(life, Actor::Consumer, &slow).await?;
    life.tell(Actor::Consumer, What::StillAtWork, 1);
    let again = take(life, Actor::OtherConsumer, &other).await?;
    handle(life, Actor::OtherConsumer, &other, again).await?;
    handle(life, Actor::Consumer, &slow, letter).await
}

async fn take(life: &Life, actor: Actor, mailbox: &Mailbox) -> anyhow::Result<Letter> {
    let letter = mailbox.next().await?.context("the message did not come")?;
    life.tell(actor, What::Delivered, Paid::read(&letter.body)?.order_id);
    Ok(letter)
}

async fn handle(life: &Life, actor: Actor, mailbox: &Mailbox, letter: Letter) -> anyhow::Result<()> {
    let paid = Paid::read(&letter.body)?;
    let mut tx = life.database.begin().await?;
    award(&mut tx, paid).await?;
    tx.commit().await?;
    life.tell(actor, What::EffectCommitted, paid.order_id);
    mailbox.ack(letter).await?;
    life.tell(actor, What::Acknowledged, paid.order_id);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    /// Longer than the invisible time, and shorter than a unit of work may take.
    const WORK: Duration = Duration::from_secs(INVISIBLE.as_secs() + 1);
    backlog::fill(life, [1]).await?;
    let consumer = |actor| {
        let life = life.clone();
        Consuming {
            actor,
            inside: Arc::new(move |paid| {
                let life = life.clone();
                Box::pin(async move {
                    tokio::time::sleep(WORK).await;
                    life.tell(actor, What::StillAtWork, paid.order_id);
                })
            }),
            ..Consuming::default()
        }
    };
    chain::run(life, vec![], vec![consumer(Actor::Consumer), consumer(Actor::OtherConsumer)]).await
}
