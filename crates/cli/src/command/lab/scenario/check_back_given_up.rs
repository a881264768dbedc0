//! The producer is away for longer than the broker asks: the half message is given up.

use anyhow::ensure;

use crate::command::lab::halves::{self, ByHand};
use crate::command::lab::life::Life;
use crate::command::lab::record::Actor;
use crate::command::lab::scenario::died_before_final_commit;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        let by_hand = ByHand::open(life).await?;
        let _half = by_hand.half(life, 3).await?;
        halves::commit_order(life, 3).await?;
        life.die(Actor::Shop);
    }
    halves::given_up(life, &halves::message_id(life, 3), 3).await?;
    // It would answer rightly, from the orders table.
    let by_hand = ByHand::open(life).await?;
    by_hand.no_question(life, 3).await
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        let producer = halves::shipped(life).await?;
        return died_before_final_commit::commit_and_die(life, &producer).await;
    }
    let keys = life.database.rows("SELECT 3, transaction_key FROM consign_transaction").await?;
    ensure!(keys.len() == 1, "there is one transaction");
    halves::given_up(life, &keys[0].1, keys[0].0).await?;
    halves::answering(life, halves::all_found(life)).await
}
