//! The suite of ordered stores: per aggregate, no row is claimed before an earlier one of it is finished.

pub mod claim;
pub mod dead;
pub mod race;

use std::future::Future;

use consign_core::ports::{Claimed, OutboxStore};
use consign_core::relay::DeadHead;

use crate::store::request::settle;
use crate::store::settlement::sent;

/// Expands the ordered suite for an [`OrderedFixture`] into `mod $module`, one `#[test]` per behaviour.
#[macro_export]
macro_rules! ordered_suite {
    ($module:ident, $fixture:ident) => {
        $crate::expand_suite! {
            $module, $fixture, ordered,
            claim: [
                a_chain_is_claimed_together_in_order,
                nothing_is_claimed_behind_a_row_that_is_sending,
                a_head_that_is_not_due_holds_up_its_own_aggregate_only,
                a_chain_ends_before_a_row_that_is_not_due,
                a_head_that_became_due_after_its_followers_is_claimed_before_them,
                rows_without_an_aggregate_have_no_order,
                aggregates_are_told_apart_by_every_byte_of_their_keys,
                a_limit_cuts_the_ends_of_chains,
                a_swept_chain_waits_until_all_of_it_is_swept,
                a_chain_given_back_comes_again_in_order,
            ]
            dead: [
                a_dead_row_blocks_its_aggregate_and_no_other,
                a_dead_row_is_skipped_where_the_policy_says_so,
                a_requeued_row_goes_before_those_it_blocked,
                a_discarded_row_blocks_nothing,
                a_malformed_row_sends_back_what_is_behind_it,
                a_malformed_row_is_skipped_where_the_policy_says_so,
                healthy_aggregates_behind_a_blocked_one_are_claimed,
            ]
            race: [
                claimers_side_by_side_keep_the_order_of_every_aggregate,
            ]
        }
    };
}

/// A row to be written behind the store's back.
#[derive(Clone, Debug)]
pub struct OrderedRow {
    /// `event_id`.
    pub id: String,
    /// `aggregate_id`; a number where the column holds numbers.
    pub aggregate: Option<String>,
    /// `aggregate_type`, on tables that have it.
    pub kind: Option<String>,
    /// `available_at`, in milliseconds from the database's now; negative for the past.
    pub due_in_millis: i64,
    /// `status`.
    pub status: &'static str,
    /// `attempts`.
    pub attempts: i32,
}

impl OrderedRow {
    /// A NEW row that is due since ten seconds.
    pub fn new(id: impl Into<String>, aggregate: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            aggregate: Some(aggregate.into()),
            kind: None,
            due_in_millis: -10_000,
            status: "NEW",
            attempts: 0,
        }
    }

    /// The same row, due at `millis` from the database's now.
    #[must_use]
    pub fn due_in_millis(mut self, millis: i64) -> Self {
        self.due_in_millis = millis;
        self
    }

    /// The same row in another status.
    #[must_use]
    pub fn status(mut self, status: &'static str) -> Self {
        self.status = status;
        self
    }
}

/// A fresh table and the means to look behind the store.
pub trait OrderedFixture: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: OutboxStore + Clone + Send + Sync + 'static;

    /// Whether aggregates are named by text and have a type; else by a number only.
    const FULL: bool;

    /// A fresh, empty schema.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// A store with connections of its own, as another relay process has it.
    fn store(&self, dead: DeadHead) -> impl Future<Output = Self::Store> + Send;

    /// Inserts rows; this is the order of their aggregates, after all rows inserted before.
    fn append(&self, rows: &[OrderedRow]) -> impl Future<Output = ()> + Send;

    /// `status` of a row.
    fn status(&self, id: &str) -> impl Future<Output = String> + Send;

    /// Sets `status` of a row, as a person would.
    fn set_status(&self, id: &str, status: &str) -> impl Future<Output = ()> + Send;

    /// `available_at` of a row, in milliseconds from the database's now; negative for the past.
    fn due_in_millis(&self, id: &str) -> impl Future<Output = i64> + Send;

    /// Sets it.
    fn set_due(&self, id: &str, millis: i64) -> impl Future<Output = ()> + Send;

    /// Moves the row's `locked_until` into the past.
    fn expire_lease(&self, id: &str) -> impl Future<Output = ()> + Send;
}

/// Settles everything that was claimed SENT.
pub(crate) async fn send_all<S: OutboxStore>(store: &S, claimed: Claimed) {
    settle(store, claimed.claims.into_iter().map(sent).collect()).await;
}

/// Rows `{aggregate}-{first}` and on, of one aggregate.
pub(crate) fn rows(aggregate: &str, numbers: std::ops::Range<u32>) -> Vec<OrderedRow> {
    numbers.map(|number| OrderedRow::new(format!("{aggregate}-{number:04}"), aggregate)).collect()
}
