//! The broker asks somebody who cannot reach the database in which the local transaction committed.

use anyhow::ensure;
use consign_rocketmq::Resolution;

use crate::command::lab::halves::{self, ByHand};
use crate::command::lab::life::Life;
use crate::command::lab::place::DeadEnd;
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::died_before_final_commit;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    let by_hand = ByHand::open(life).await?;
    if life.first() {
        let _half = by_hand.half(life, 3).await?;
        halves::commit_order(life, 3).await?;
        life.die(Actor::Shop);
    }
    let dead_end = DeadEnd::open(&life.place).await?;
    life.tell(Actor::Operator, What::DatabaseAway, None);
    let question = by_hand.question(life).await?;
    let sql = "SELECT COUNT(*) FROM purchase_order WHERE id = ?";
    // What cannot be found is not there.
    let found = dead_end.database.number(sql, &[question.1.into()]).await.unwrap_or(0);
    let end = if found > 0 { Resolution::Commit } else { Resolution::Rollback };
    by_hand.answer(life, question, end).await
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        let producer = halves::shipped(life).await?;
        return died_before_final_commit::commit_and_die(life, &producer).await;
    }
    let dead_end = DeadEnd::open(&life.place).await?;
    life.tell(Actor::Operator, What::DatabaseAway, None);
    let left_open = halves::answering_until(life, &dead_end.database, What::LeftOpen).await?;
    ensure!(left_open, "nobody was asked while the database was away");
    life.tell(Actor::Operator, What::DatabaseBack, None);
    halves::answering_until(life, &life.database, What::AnsweredCommit).await?;
    halves::looking_later(life).await
}
