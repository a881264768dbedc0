//! The order service, done with consign: an order and its event in one transaction.

use consign::outbox::{NewEvent, OutboxMapping};
use consign_store::{mysql, sqlite};

use super::database::{Database, Transaction};
use super::life::{Life, Paid, insert_order};
use super::record::{Actor, What};

/// Commits orders with their events.
pub async fn take_orders(life: &Life, orders: impl IntoIterator<Item = i64>) -> anyhow::Result<()> {
    for order in orders {
        let tx = open_order(life, Paid::order(order)).await?;
        tx.commit().await?;
        life.tell(Actor::Shop, What::EventCommitted, order);
    }
    Ok(())
}

/// Writes an order and its event, and leaves the transaction open.
pub async fn open_order(life: &Life, paid: Paid) -> anyhow::Result<Transaction> {
    let mut tx = life.database.begin().await?;
    insert_order(&mut tx, paid).await?;
    append(life, &mut tx, paid).await?;
    Ok(tx)
}

/// Appends the event of a payment.
pub async fn append(life: &Life, tx: &mut Transaction, paid: Paid) -> anyhow::Result<()> {
    let event = NewEvent::new("OrderPaid", paid.order_id, paid.body());
    match (&life.database, tx) {
        (Database::Sqlite(store, _), Transaction::Sqlite(tx)) => {
            let outbox = sqlite::Outbox::new(store.clone(), OutboxMapping::default(), "shop");
            outbox.append(tx, event).await?;
        }
        (Database::MySql(store), Transaction::MySql(tx)) => {
            let outbox = mysql::Outbox::new(store.clone(), OutboxMapping::default(), "shop");
            outbox.append(tx, event).await?;
        }
        (Database::Sqlite(..), Transaction::MySql(_)) | (Database::MySql(_), Transaction::Sqlite(_)) => {
            unreachable!("a transaction belongs to its database")
        }
    }
    Ok(())
}
