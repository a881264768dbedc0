//! The relay dies after the broker's confirm and before it is noted; the retry has a new message id, and the consumer
//! knows repeats by their message id.

use std::time::Duration;

use consign::draw::SystemDraw;
use consign_core::time::Draw;

use crate::command::lab::chain::{self, Consuming, Deaths, Relaying};
use crate::command::lab::life::{Life, Paid, award};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::todo;
use crate::command::lab::shop;

pub async fn naive(life: &Life) -> anyhow::Result<()> {
    if life.first() {
        todo::take_orders(life, 1..=3).await?;
    }
    let mailbox = life.mailbox().await?;
    for (order, body) in todo::pending(life).await? {
        mailbox.send(&format!("{:032x}", u128::from_le_bytes(SystemDraw.bits())), &body).await?;
        life.tell(Actor::Relay, What::Confirmed, order);
        if order == 2 {
            life.die(Actor::Relay);
        }
        todo::mark(life, Actor::Relay, order, "SENT").await?;
    }
    while let Some(letter) = mailbox.next().await? {
        let paid = Paid::read(&letter.body)?;
        life.tell(Actor::Consumer, What::Delivered, paid.order_id);
        let mut tx = life.database.begin().await?;
        let sql = "INSERT INTO processed_message (message_id) VALUES (?)";
        if tx.execute(sql, &[letter.id.as_str().into()]).await.is_ok() {
            award(&mut tx, paid).await?;
            tx.commit().await?;
            life.tell(Actor::Consumer, What::EffectCommitted, paid.order_id);
        }
        mailbox.ack(letter).await?;
        life.tell(Actor::Consumer, What::Acknowledged, paid.order_id);
    }
    Ok(())
}

pub async fn consign(life: &Life) -> anyhow::Result<()> {
    let relay = Relaying {
        deaths: Deaths::after_confirms(2),
        lease: Duration::from_millis(1500),
        deadline: Duration::from_secs(1),
        ..Relaying::default()
    };
    if life.first() {
        shop::take_orders(life, 1..=3).await?;
        return chain::run(life, vec![relay], vec![]).await;
    }
    chain::run(life, vec![relay], vec![Consuming::default()]).await
}
