//! The producer dies between the half message and the commit of its local transaction.

use consign_rocketmq::Resolution;

use crate::command::lab::halves::{self, ByHand};
use crate::command::lab::life::Life;
use crate::command::lab::record::Actor;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let by_hand = ByHand::open(life).await?;
    if life.first() {
        for order in 1..=3 {
            let half = by_hand.half(life, order).await?;
            if order == 3 {
                life.die(Actor::Shop);
            }
            halves::commit_order(life, order).await?;
            by_hand.commit(life, half, order).await?;
        }
    }
    // Failed orders are kept in memory, and this one is not among them.
    let question = by_hand.question(life).await?;
    by_hand.answer(life, question, Resolution::Commit).await?;
    let topic = life.mailbox().await?.topic()?;
    topic.wait_for(3).await
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        halves::take_orders(life, 1..=2).await?;
        let producer = halves::shipped(life).await?;
        let _prepared = halves::begin(life, &producer, 3).await?;
        life.die(Actor::Shop);
    }
    halves::answering(life, async {
        halves::all_found(life).await?;
        halves::fenced(life, 3).await
    })
    .await
}
