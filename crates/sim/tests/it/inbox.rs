//! The simulated inbox store passes the suite that the real ones pass: what the simulator finds is worth something only
//! while its database behaves like theirs.

use consign_conformance::inbox::{ConflictRecord, InboxCapabilities, InboxFixture};
use consign_sim::inbox::facts::Rule;
use consign_sim::inbox::shared::{Shared, State};
use consign_sim::inbox::store::SimInbox;
use consign_sim::inbox::transaction::KEY_CHARS_MAX;
use consign_sim::options::Faults;

/// A database in which nothing goes wrong and nobody schedules.
struct SimInboxFixture(Shared);

impl SimInboxFixture {
    fn count(&self, consumer: &str, of: impl Fn(&State) -> Vec<String>) -> u64 {
        let state = self.0.state();
        of(&state).iter().filter(|name| *name == consumer).count() as u64
    }
}

impl InboxFixture for SimInboxFixture {
    type Store = SimInbox;

    const KEY_CHARS_MAX: usize = KEY_CHARS_MAX;

    async fn fresh() -> Self {
        let mut state = State::new(0, Faults::NONE, Rule::Unguarded, 1);
        state.free = true;
        Self(Shared::new(state))
    }

    fn capabilities(&self) -> InboxCapabilities {
        InboxCapabilities { fingerprint: true, concurrent_writers: true }
    }

    fn store(&self) -> SimInbox {
        SimInbox(self.0.clone())
    }

    async fn another_store(&self) -> SimInbox {
        self.store()
    }

    async fn open_account(&self, user_id: i64) {
        self.0.state().tables.accounts.insert(user_id, 0);
    }

    async fn points(&self, user_id: i64) -> i64 {
        self.0.state().tables.accounts[&user_id]
    }

    async fn markers(&self, consumer: &str) -> u64 {
        let consumer_of = |place: &String| place.split('\0').next().unwrap_or_default().to_owned();
        self.count(consumer, |state| state.tables.markers.keys().map(consumer_of).collect())
    }

    async fn conflicts(&self) -> Vec<ConflictRecord> {
        let state = self.0.state();
        let record = |conflict: &consign_sim::inbox::tables::Conflict| ConflictRecord {
            consumer: conflict.consumer.clone(),
            business_key: conflict.key.clone(),
            count: conflict.count,
        };
        state.tables.conflicts.values().map(record).collect()
    }

    async fn dead_deliveries(&self, consumer: &str) -> u64 {
        self.count(consumer, |state| state.tables.dead.iter().map(|dead| dead.consumer.clone()).collect())
    }

    async fn open_transactions(&self) -> u32 {
        u32::try_from(self.0.state().tables.open_transactions()).expect("a small number")
    }
}

consign_conformance::inbox_suite!(simulated_inbox, SimInboxFixture);
