//! What a side came to, queried from its tables and its queue after the run. Both sides are asked the same questions.

use serde::Serialize;

use super::database::Database;
use super::life::Paid;
use super::mailbox::Mailbox;
use super::place::{Broker, Place};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audit {
    /// Points for orders, as far as the consumers went.
    Effects,
    /// Messages for orders, as they stand in the queue.
    Messages,
    /// Copies of orders.
    Copies,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Facts that arrived nowhere and are recorded nowhere.
    pub lost: i64,
    /// Facts that arrived more than once.
    pub doubled: i64,
    /// Facts that never were, and figures that do not fit.
    pub wrong: i64,
}

impl Found {
    /// True without any defect.
    pub fn is_good(self) -> bool {
        self == Self::default()
    }
}

/// An order's payment has an effect of its content, or stands among the conflicts or the dead for people to see.
const EFFECTS_LOST: &str = "
SELECT COUNT(*) FROM purchase_order
WHERE status = 'PAID'
  AND NOT EXISTS (SELECT 1 FROM points_entry
                  WHERE points_entry.order_id = purchase_order.id AND points_entry.amount = purchase_order.amount)
  AND NOT EXISTS (SELECT 1 FROM consign_conflict
                  WHERE consign_conflict.business_key = CONCAT('order:', purchase_order.id, ':paid'))
  AND NOT EXISTS (SELECT 1 FROM consign_dead_delivery
                  WHERE consign_dead_delivery.business_key = CONCAT('order:', purchase_order.id, ':paid'))";
const EFFECTS_DOUBLED: &str = "
SELECT CAST(COALESCE(SUM(entries - 1), 0) AS SIGNED)
FROM (SELECT COUNT(*) AS entries FROM points_entry GROUP BY order_id) AS counted";
/// An entry without its order, or an account that does not add up.
const EFFECTS_WRONG: &str = "
SELECT (SELECT COUNT(*) FROM points_entry
        WHERE NOT EXISTS (SELECT 1 FROM purchase_order
                          WHERE purchase_order.id = points_entry.order_id AND status = 'PAID'))
     + (SELECT COUNT(*) FROM points_account
        WHERE points <> COALESCE((SELECT SUM(amount) FROM points_entry
                                  WHERE points_entry.user_id = points_account.user_id), 0))";

const MESSAGES_LOST: &str = "
SELECT COUNT(*) FROM purchase_order
WHERE status = 'PAID'
  AND NOT EXISTS (SELECT 1 FROM arrived_message WHERE arrived_message.order_id = purchase_order.id)";
const MESSAGES_DOUBLED: &str = "
SELECT CAST(COALESCE(SUM(copies - 1), 0) AS SIGNED)
FROM (SELECT COUNT(*) AS copies FROM arrived_message GROUP BY order_id) AS counted";
const MESSAGES_WRONG: &str = "
SELECT COUNT(*) FROM arrived_message
WHERE NOT EXISTS (SELECT 1 FROM purchase_order
                  WHERE purchase_order.id = arrived_message.order_id AND status = 'PAID')";

const COPIES_LOST: &str = "
SELECT COUNT(*) FROM purchase_order
WHERE NOT EXISTS (SELECT 1 FROM order_copy WHERE order_copy.order_id = purchase_order.id)";
const COPIES_WRONG: &str = "
SELECT COUNT(*) FROM order_copy
JOIN purchase_order ON purchase_order.id = order_copy.order_id
WHERE order_copy.version <> purchase_order.version OR order_copy.amount <> purchase_order.amount";

impl Audit {
    /// Asks.
    pub async fn take(self, place: &Place) -> anyhow::Result<Found> {
        let database = Database::open(&place.store).await?;
        let found = self.query(place, &database).await;
        database.close().await;
        found
    }

    async fn query(self, place: &Place, database: &Database) -> anyhow::Result<Found> {
        let count = async |sql| database.number(sql, &[]).await;
        Ok(match self {
            Self::Effects => Found {
                lost: count(EFFECTS_LOST).await?,
                doubled: count(EFFECTS_DOUBLED).await?,
                wrong: count(EFFECTS_WRONG).await?,
            },
            Self::Messages => {
                collect(place, database).await?;
                Found {
                    lost: count(MESSAGES_LOST).await?,
                    doubled: count(MESSAGES_DOUBLED).await?,
                    wrong: count(MESSAGES_WRONG).await?,
                }
            }
            Self::Copies => {
                Found { lost: count(COPIES_LOST).await?, doubled: 0, wrong: count(COPIES_WRONG).await? }
            }
        })
    }
}

/// Copies what is in the queue into a table, where it can be joined.
async fn collect(place: &Place, database: &Database) -> anyhow::Result<()> {
    let mailbox = Mailbox::open(place, database, None).await?;
    if let Broker::RocketMq(_) = &place.broker {
        for message in mailbox.topic()?.stored().await? {
            let (id, order) = (message.message_id().unwrap_or_default(), Paid::read(&message.body)?.order_id);
            arrived(database, id, order).await?;
        }
        return Ok(());
    }
    while let Some(letter) = mailbox.next().await? {
        let order = Paid::read(&letter.body)?.order_id;
        arrived(database, &letter.id, order).await?;
        mailbox.ack(letter).await?;
    }
    Ok(())
}

async fn arrived(database: &Database, id: &str, order: i64) -> anyhow::Result<()> {
    let sql = "INSERT INTO arrived_message (message_id, order_id) VALUES (?, ?)";
    database.execute(sql, &[id.into(), order.into()]).await.map(drop)
}
