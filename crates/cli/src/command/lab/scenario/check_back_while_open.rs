//! The broker asks while the local transaction is still open; then it commits, and the producer dies.

use anyhow::ensure;
use consign_rocketmq::Resolution;

use crate::command::lab::halves::{self, ByHand};
use crate::command::lab::life::{Life, Paid, insert_order};
use crate::command::lab::record::{Actor, What};

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let by_hand = ByHand::open(life).await?;
    if !life.first() {
        // The order would be found by now, and nobody asks.
        return by_hand.no_question(life, 1).await;
    }
    let _half = by_hand.half(life, 1).await?;
    let mut tx = life.database.begin().await?;
    insert_order(&mut tx, Paid::order(1)).await?;
    life.tell(Actor::Shop, What::NotYetCommitted, 1);
    let mut answered = 0;
    // A busy broker asks once more before it has noted the answer.
    while let Some(question) = by_hand.question_soon(life).await? {
        let sql = "SELECT COUNT(*) FROM purchase_order WHERE id = ?";
        let found = life.database.number(sql, &[question.1.into()]).await?;
        ensure!(found == 0, "the order is not committed");
        // There is no such order.
        by_hand.answer(life, question, Resolution::Rollback).await?;
        answered += 1;
    }
    ensure!(answered > 0, "the broker did not ask");
    tx.commit().await?;
    life.tell(Actor::Shop, What::OrderCommitted, 1);
    // A broker takes a final commit behind a rollback, but it does not come any more.
    life.die(Actor::Shop);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    let producer = halves::shipped(life).await?;
    let script = async {
        let prepared = halves::begin(life, &producer, 1).await?;
        let mut tx = halves::open_order(life, 1).await?;
        life.tell(Actor::Shop, What::NotYetCommitted, 1);
        halves::fenced(life, 1).await?;
        ensure!(prepared.mark(&mut tx).await.is_err(), "a fenced transaction took its marker");
        tx.rollback().await?;
        life.tell(Actor::Shop, What::LocalRolledBack, 1);
        // The customer tries again.
        halves::take_orders(life, [1]).await?;
        halves::all_found(life).await
    };
    halves::answering(life, Box::pin(script)).await
}
