//! Partitions: which relay claims which aggregates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};
use uuid::Uuid;

use super::{Held, OrderedOutbox};
use crate::mapping::{Identifier, OutboxMapping};
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::introspection;
use crate::mysql::outbox::count;
use crate::mysql::statement::{
    PARTITION_GIVE, PARTITION_HELD, PARTITION_INSERT, PARTITION_LOCK, PARTITION_RENEW, PARTITION_TAKE, QUOTE,
    RELAY_LEAVE, RELAY_LIVE, RELAY_SEEN, Text,
};
use crate::order::Holdings;
use crate::order::share::{Holder, Rebalance, Slot, rebalance};
use crate::settling::micros;
use crate::statement::{Rendering, lists, padded};

/// The rows of one outbox in the tables of partitions and relays.
#[derive(Clone, Debug)]
struct Key {
    outbox: String,
    partitions: u16,
}

impl OrderedOutbox {
    /// Whether the database has the tables that relays share aggregates by; `consign migrate` makes them. Without them
    /// every relay claims everything, which keeps the order just as well.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn can_share(&self) -> Result<bool, StoreError> {
        let look = self.outbox.database().read(Lane::General, |connection| {
            async move {
                for table in ["consign_partition", "consign_relay"] {
                    let table = Identifier::table(table).expect("a constant name");
                    if introspection::engine(connection, &table).await?.is_none() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            .boxed()
        });
        look.await
    }

    /// Looks at all partitions once: keeps this relay's, takes free ones up to its share, gives up what is above it.
    /// `relay` must be unique for each life of a process, such as its name with random bits. What is held is claimed
    /// from until `lease` is over; call it several times per lease. Without partitions it does nothing.
    ///
    /// Surplus goes at once: rows in flight are SENDING and hold their aggregates up for the next holder by themselves.
    ///
    /// # Errors
    /// The server cannot be reached, or the tables are missing. What was held stays held until its lease ends.
    pub async fn hold_partitions(&self, relay: &str, lease: Duration) -> Result<Holdings, StoreError> {
        let partitions = self.settings().partitions;
        if partitions == 0 {
            return Ok(Holdings::default());
        }
        let key = Key::new(self.outbox.mapping(), partitions);
        let before = self.held();
        let known = if before.relay == relay { before.tokens.clone() } else { BTreeMap::new() };
        let held = Held { relay: relay.into(), tokens: known };
        let look = self.outbox.database().transact(Lane::Settle, move |connection| {
            async move { key.look(connection, held, lease).await.map_err(explained) }.boxed()
        });
        let (held, relays, taken) = look.await?;
        let gone = before.tokens.keys().filter(|number| !held.tokens.contains_key(number)).count();
        let holdings = Holdings {
            partitions: held.tokens.keys().copied().collect(),
            taken,
            gone: u16::try_from(gone).unwrap_or(u16::MAX),
            relays,
        };
        *self.shared.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(holdings)
    }

    /// Gives up all partitions and takes leave, so that others need not wait for the lease to end. Nothing is claimed
    /// afterwards.
    ///
    /// # Errors
    /// The server cannot be reached: the leases end by themselves.
    pub async fn release_partitions(&self) -> Result<(), StoreError> {
        let held = std::mem::take(&mut *self.shared.held.lock().unwrap_or_else(PoisonError::into_inner));
        if held.relay.is_empty() {
            return Ok(());
        }
        let key = Key::new(self.outbox.mapping(), self.settings().partitions);
        let leaving = self.outbox.database().transact(Lane::Settle, move |connection| {
            async move {
                let numbers: Vec<u16> = held.tokens.keys().copied().collect();
                key.give(connection, &held.relay, &numbers).await.map_err(explained)?;
                key.leave(connection, &held.relay).await.map_err(explained)
            }
            .boxed()
        });
        leaving.await
    }
}

/// The tables are consign's own, and an older version may not have made them.
fn explained(error: UnitError) -> UnitError {
    match error {
        UnitError::Sql(error) => migrated(error),
        UnitError::Store(error) => error.into(),
    }
}

impl Key {
    fn new(mapping: &OutboxMapping, partitions: u16) -> Self {
        Self { outbox: mapping.table().as_str().into(), partitions }
    }

    /// One look; gives what is held afterwards, the number of relays, and how many partitions are new.
    async fn look(
        &self,
        connection: &mut MySqlConnection,
        mut held: Held,
        lease: Duration,
    ) -> Result<(Held, u16, u16), UnitError> {
        query(Text::own(RELAY_SEEN).sql())
            .bind(&self.outbox)
            .bind(self.partitions)
            .bind(&held.relay)
            .bind(micros(lease))
            .execute(&mut *connection)
            .await?;
        let mut slots = self.lock(connection, &held).await?;
        if slots.len() < usize::from(self.partitions) {
            self.insert(connection, &slots).await?;
            slots = self.lock(connection, &held).await?;
        }
        // After the lock, so that relays that look one after the other each see all those before them.
        let relays = self.live(connection).await?;
        let Rebalance { keep, take, give } = rebalance(&slots, &relays, &held.relay);
        let taken = u16::try_from(take.len()).unwrap_or(u16::MAX);
        held.tokens.retain(|number, _| keep.contains(number));
        self.renew(connection, &keep, lease).await?;
        self.give(connection, &held.relay, &give).await?;
        // A token for each look: what was taken earlier keeps the one it has.
        let token = Uuid::new_v4().simple().to_string();
        self.take(connection, &held.relay, &token, &take, lease).await?;
        held.tokens.extend(take.into_iter().map(|number| (number, token.clone())));
        Ok((held, u16::try_from(relays.len()).unwrap_or(u16::MAX), taken))
    }

    async fn lock(&self, connection: &mut MySqlConnection, held: &Held) -> Result<Vec<Slot>, UnitError> {
        let select = query(Text::own(PARTITION_LOCK).sql()).bind(&self.outbox).bind(self.partitions);
        let rows = select.fetch_all(connection).await?;
        let slots = rows.iter().map(|row| {
            let number: i64 = row.try_get_unchecked(0)?;
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            let relay: Option<String> = row.try_get_unchecked(1)?;
            let token: Option<String> = row.try_get_unchecked(2)?;
            let live = row.try_get_unchecked::<i64, _>(3)? == 1;
            let mine = relay.as_deref() == Some(held.relay.as_str());
            let holder = match (live, mine) {
                (true, true) if held.tokens.get(&number) == token.as_ref() => Holder::Me,
                (true, false) if relay.is_some() => Holder::Other,
                // Its own name with a token it does not know: the answer of an earlier look was lost.
                _ => Holder::Nobody,
            };
            Ok(Slot { number, holder })
        });
        Ok(slots.collect::<Result<_, sqlx::Error>>()?)
    }

    async fn insert(&self, connection: &mut MySqlConnection, present: &[Slot]) -> Result<(), UnitError> {
        const ROWS_MAX: usize = 128;
        let present: BTreeSet<u16> = present.iter().map(|slot| slot.number).collect();
        let missing: Vec<u16> = (0..self.partitions).filter(|number| !present.contains(number)).collect();
        for part in missing.chunks(ROWS_MAX) {
            let text = Text::rendered(Rendering::new(QUOTE).rows(part.len()).render(PARTITION_INSERT));
            let mut insert = query(text.sql()).persistent(false);
            for number in part {
                insert = insert.bind(&self.outbox).bind(self.partitions).bind(number);
            }
            insert.execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn live(&self, connection: &mut MySqlConnection) -> Result<BTreeSet<String>, UnitError> {
        let select = query(Text::own(RELAY_LIVE).sql()).bind(&self.outbox).bind(self.partitions);
        let rows = select.fetch_all(connection).await?;
        Ok(rows.iter().map(|row| row.try_get_unchecked(0)).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn renew(
        &self,
        connection: &mut MySqlConnection,
        numbers: &[u16],
        lease: Duration,
    ) -> Result<(), UnitError> {
        for list in lists(numbers) {
            let text = Text::own_list(PARTITION_RENEW, list.len());
            let mut update = query(text.sql()).bind(micros(lease)).bind(&self.outbox).bind(self.partitions);
            for number in padded(list) {
                update = update.bind(number);
            }
            update.execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn take(
        &self,
        connection: &mut MySqlConnection,
        relay: &str,
        token: &str,
        numbers: &[u16],
        lease: Duration,
    ) -> Result<(), UnitError> {
        for list in lists(numbers) {
            let text = Text::own_list(PARTITION_TAKE, list.len());
            let mut update = query(text.sql()).bind(relay).bind(token).bind(micros(lease));
            update = update.bind(&self.outbox).bind(self.partitions);
            for number in padded(list) {
                update = update.bind(number);
            }
            update.execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn give(
        &self,
        connection: &mut MySqlConnection,
        relay: &str,
        numbers: &[u16],
    ) -> Result<(), UnitError> {
        for list in lists(numbers) {
            let text = Text::own_list(PARTITION_GIVE, list.len());
            let mut update = query(text.sql()).bind(&self.outbox).bind(self.partitions).bind(relay);
            for number in padded(list) {
                update = update.bind(number);
            }
            update.execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn leave(&self, connection: &mut MySqlConnection, relay: &str) -> Result<(), UnitError> {
        let delete = query(Text::own(RELAY_LEAVE).sql()).bind(&self.outbox).bind(self.partitions).bind(relay);
        delete.execute(connection).await?;
        Ok(())
    }
}

/// What a claim checks before it looks for rows.
#[derive(Debug)]
pub(super) struct Fence {
    key: Key,
    held: Held,
}

impl Fence {
    pub(super) fn new(mapping: &OutboxMapping, partitions: u16, held: Held) -> Self {
        Self { key: Key::new(mapping, partitions), held }
    }

    /// True when nothing is held to begin with.
    pub(super) fn is_empty(&self) -> bool {
        self.held.tokens.is_empty()
    }

    /// Those of the partitions that are still held, under locks that last as long as the claim.
    pub(super) async fn held(&self, connection: &mut MySqlConnection) -> Result<Vec<u16>, UnitError> {
        let select = query(Text::own(PARTITION_HELD).sql())
            .bind(&self.key.outbox)
            .bind(self.key.partitions)
            .bind(&self.held.relay);
        let rows = select.fetch_all(connection).await.map_err(migrated)?;
        let mut held = Vec::with_capacity(rows.len());
        for row in &rows {
            let number = u16::try_from(count(row.try_get_unchecked(0)?)).unwrap_or(u16::MAX);
            let token: Option<String> = row.try_get_unchecked(1)?;
            if token.is_some() && self.held.tokens.get(&number) == token.as_ref() {
                held.push(number);
            }
        }
        Ok(held)
    }

    /// The partitions as the claim's statement takes them; `None` when they are all there are.
    pub(super) fn restriction(&self, held: &[u16]) -> Option<String> {
        let numbers = || held.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        (held.len() < usize::from(self.key.partitions)).then(numbers)
    }
}
