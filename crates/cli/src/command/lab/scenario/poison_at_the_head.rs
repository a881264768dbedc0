//! One message can never be handled. It goes back to the head of the queue each time, and the others wait behind it.

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

/// How often the lab watches the same failure before it believes that nothing else will come.
const DELIVERIES: u32 = 60;
/// How many of them it tells of.
const TOLD: u32 = 3;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    let mailbox = life.mailbox().await?;
    for delivery in 1..=DELIVERIES {
        let Some(letter) = mailbox.next().await? else { return Ok(()) };
        let paid = Paid::read(&letter.body)?;
        let tell = |what| {
            if delivery <= TOLD {
                life.tell(Actor::Consumer, what, paid.order_id);
            }
        };
        tell(What::Delivered);
        let mut tx = life.database.begin().await?;
        if award(&mut tx, paid).await.is_err() {
            drop(tx);
            tell(What::Failed);
            mailbox.requeue(letter).await?;
            tell(What::Requeued);
            continue;
        }
        tx.commit().await?;
        tell(What::EffectCommitted);
        mailbox.ack(letter).await?;
        tell(What::Acknowledged);
    }
    life.tell(Actor::Consumer, What::StillBlocked, None);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    chain::run(life, vec![], vec![Consuming::default()]).await?;
    life.until("SELECT COUNT(*) FROM consign_dead_delivery").await?;
    life.tell(Actor::Consumer, What::PutAside, 1);
    Ok(())
}

/// The first order is of a customer without an account.
async fn fill(life: &Life) -> anyhow::Result<()> {
    let poison = Paid { user_id: 8, ..Paid::order(1) };
    backlog::add_order(life, poison).await?;
    life.mailbox().await?.send("message-1", &poison.body()).await?;
    life.tell(Actor::Shop, What::Confirmed, 1);
    backlog::fill(life, 2..=5).await
}
