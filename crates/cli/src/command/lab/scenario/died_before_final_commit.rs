//! The producer dies between the commit of its local transaction and the final commit of the message.

use consign_rocketmq::Resolution;

use crate::command::lab::halves::{self, ByHand};
use crate::command::lab::life::Life;
use crate::command::lab::record::{Actor, What};

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let by_hand = ByHand::open(life).await?;
    if life.first() {
        for order in 1..=3 {
            let half = by_hand.half(life, order).await?;
            halves::commit_order(life, order).await?;
            if order == 3 {
                life.die(Actor::Shop);
            }
            by_hand.commit(life, half, order).await?;
        }
    }
    // Which transactions committed was kept in memory, and the memory is new.
    let question = by_hand.question(life).await?;
    by_hand.answer(life, question, Resolution::Rollback).await
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        halves::take_orders(life, 1..=2).await?;
        let producer = halves::shipped(life).await?;
        commit_and_die(life, &producer).await?;
    }
    halves::answering_until(life, &life.database, What::AnsweredCommit).await?;
    halves::looking_later(life).await
}

/// The third order's local transaction commits, and its message is not ended.
pub async fn commit_and_die(life: &Life, producer: &halves::Shipped) -> anyhow::Result<()> {
    let prepared = halves::begin(life, producer, 3).await?;
    let mut tx = halves::open_order(life, 3).await?;
    let _marked = prepared.mark(&mut tx).await?;
    tx.commit().await?;
    life.tell(Actor::Shop, What::EventCommitted, 3);
    life.die(Actor::Shop);
    Ok(())
}
