//! Two consumers get a copy of the same message at once; each looks first whether it was handled already.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::command::lab::chain::{self, Consuming};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::backlog;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    // Both look before either has written.
    let together = Barrier::new(2);
    tokio::try_join!(
        handle(life, Actor::Consumer, &together),
        handle(life, Actor::OtherConsumer, &together)
    )?;
    Ok(())
}

async fn handle(life: &Life, actor: Actor, together: &Barrier) -> anyhow::Result<()> {
    let mailbox = life.mailbox().await?;
    let letter = mailbox.next().await?.context("there are two copies")?;
    let paid = Paid::read(&letter.body)?;
    life.tell(actor, What::Delivered, paid.order_id);
    let sql = "SELECT COUNT(*) FROM points_entry WHERE order_id = ?";
    let handled = life.database.number(sql, &[paid.order_id.into()]).await? > 0;
    together.wait().await;
    if handled {
        life.tell(actor, What::TakenForRepeat, paid.order_id);
    } else {
        life.tell(actor, What::NoMarkerSeen, paid.order_id);
        let mut tx = life.database.begin().await?;
        award(&mut tx, paid).await?;
        tx.commit().await?;
        life.tell(actor, What::EffectCommitted, paid.order_id);
    }
    mailbox.ack(letter).await?;
    life.tell(actor, What::Acknowledged, paid.order_id);
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    fill(life).await?;
    let (read, met) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let consumer = |actor| {
        let (reading, read, met) = (Arc::clone(&read), Arc::clone(&read), Arc::clone(&met));
        Consuming {
            actor,
            prefetch: NonZeroU16::MIN,
            on_read: Arc::new(move |_| {
                reading.fetch_add(1, Ordering::SeqCst);
            }),
            inside: Arc::new(move |_| Box::pin(wait_for_both(Arc::clone(&read), Arc::clone(&met)))),
            ..Consuming::default()
        }
    };
    chain::run(life, vec![], vec![consumer(Actor::Consumer), consumer(Actor::OtherConsumer)]).await?;
    anyhow::ensure!(met.load(Ordering::SeqCst), "the consumers did not have their copies at the same time");
    Ok(())
}

/// The effect stays open until the other consumer has its copy in hand, too.
async fn wait_for_both(read: Arc<AtomicU32>, met: Arc<AtomicBool>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while read.load(Ordering::SeqCst) < 2 {
        if Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    met.store(true, Ordering::SeqCst);
}

/// One order, and its message twice.
async fn fill(life: &Life) -> anyhow::Result<()> {
    backlog::fill(life, [1]).await?;
    life.mailbox().await?.send("message-1", &Paid::order(1).body()).await?;
    life.tell(Actor::Shop, What::Confirmed, 1);
    Ok(())
}
