//! The demo's order service: business rows and outbox rows in one transaction, repeats and conflicts on purpose.

use anyhow::Context;
use consign::outbox::{NewEvent, OutboxMapping, SqliteDatabase, SqliteOutbox};
use consign_store::sqlite::Creation;
use sqlx::SqlitePool;

use super::world::World;

/// A seeded generator (SplitMix64): the same seed gives the same demo.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// An index into a list of `length` entries.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
    }
}

/// One purchase, as its event tells it.
#[derive(Clone, Copy, Debug)]
struct Purchase {
    order: i64,
    user: i64,
    amount: i64,
}

impl Purchase {
    fn event(self) -> NewEvent {
        let Self { order, user, amount } = self;
        let payload = format!(r#"{{"orderId":{order},"userId":{user},"amount":{amount}}}"#);
        NewEvent::new("OrderPaid", order, payload)
    }
}

/// The service's database.
pub struct OrderService {
    database: SqliteDatabase,
    outbox: SqliteOutbox,
    consumers: SqlitePool,
}

impl OrderService {
    /// Opens the service's database, and the consumers' to see which orders were applied.
    pub async fn open(world: &World) -> anyhow::Result<Self> {
        let database = SqliteDatabase::open(world.folder().join("orders.db"), Creation::Never).await?;
        let outbox = SqliteOutbox::new(database.clone(), OutboxMapping::default(), "order-service");
        Ok(Self { database, outbox, consumers: world.points_pool().await? })
    }

    async fn buy(&self, purchase: Purchase) -> anyhow::Result<()> {
        let mut tx = self.database.begin().await?;
        sqlx::query("INSERT INTO purchase_order (id, user_id, amount, status) VALUES (?, ?, ?, 'PAID')")
            .bind(purchase.order)
            .bind(purchase.user)
            .bind(purchase.amount)
            .execute(&mut *tx)
            .await?;
        self.outbox.append(&mut tx, purchase.event()).await?;
        tx.commit().await?;
        Ok(())
    }

    /// The same or an altered fact again, under a new event id.
    async fn repeat(&self, purchase: Purchase) -> anyhow::Result<()> {
        let mut tx = self.database.begin().await?;
        self.outbox.append(&mut tx, purchase.event()).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn applied(&self, order: i64) -> anyhow::Result<bool> {
        let sql = "SELECT COUNT(*) FROM consumed_operation WHERE business_key = 'order:' || ? || ':paid'";
        let markers: i64 = sqlx::query_scalar(sql).bind(order).fetch_one(&self.consumers).await?;
        // Both consumers must have seen the true fact before an altered one may follow.
        Ok(markers == 2)
    }
}

/// The stream of purchases of one seed.
#[derive(Debug)]
pub struct Purchases {
    dice: Dice,
    produced: u64,
    orders: Vec<Purchase>,
    conflicts_owed: u64,
}

/// Of so many events one is a repeat.
const REPEAT_EVERY: u64 = 40;
/// Of so many events one is a conflict.
const CONFLICT_EVERY: u64 = 100;

impl Purchases {
    /// The purchases of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), produced: 0, orders: Vec::new(), conflicts_owed: 0 }
    }

    /// How many events were committed.
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// Commits one more event: a purchase, a repeat of an earlier one, or one with another amount.
    pub async fn next(&mut self, service: &mut OrderService) -> anyhow::Result<()> {
        let turn = self.produced + 1;
        if turn.is_multiple_of(CONFLICT_EVERY) {
            self.conflicts_owed += 1;
        }
        if !self.try_conflict(service).await? {
            if turn.is_multiple_of(REPEAT_EVERY) && !self.orders.is_empty() {
                let chosen = self.dice.index(self.orders.len());
                service.repeat(self.orders[chosen]).await?;
            } else {
                let order = i64::try_from(self.orders.len()).context("too many orders")? + 1;
                let user = i64::try_from(self.dice.below(super::world::USERS))? + 1;
                let amount = i64::try_from(self.dice.below(500))? + 1;
                let purchase = Purchase { order, user, amount };
                service.buy(purchase).await?;
                self.orders.push(purchase);
            }
        }
        self.produced += 1;
        Ok(())
    }

    /// An altered fact for an order whose true fact was applied; none while no such order is at hand.
    async fn try_conflict(&mut self, service: &OrderService) -> anyhow::Result<bool> {
        if self.conflicts_owed == 0 || self.orders.is_empty() {
            return Ok(false);
        }
        let chosen = self.orders[self.dice.index(self.orders.len())];
        if !service.applied(chosen.order).await? {
            return Ok(false);
        }
        service.repeat(Purchase { amount: chosen.amount + 1_000, ..chosen }).await?;
        self.conflicts_owed -= 1;
        Ok(true)
    }
}
