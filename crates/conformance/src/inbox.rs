//! The inbox suite: markers, business changes and records of one consumer's database, driven through
//! [`Inbox`](consign_core::inbox::Inbox) as in production.
//!
//! Every behaviour plays the points story: `points-award` adds points to one account, once per paid order.

pub mod batch;
pub mod guard;
pub mod keys;
pub mod parking;
pub mod process;
pub mod race;
pub mod record;
pub mod rollback;

mod story;

use std::fmt::Debug;
use std::future::Future;

use consign_core::ports::{InboxStore, Parking};

/// Expands the inbox suite for an [`InboxFixture`] into `mod $module`, one `#[test]` per behaviour.
#[macro_export]
macro_rules! inbox_suite {
    ($module:ident, $fixture:ident) => {
        $crate::expand_suite! {
            $module, $fixture, inbox,
            process: [
                a_first_delivery_is_applied_and_a_repeat_is_a_duplicate,
                the_same_fact_under_another_event_id_is_a_duplicate,
                another_comparison_under_the_same_key_is_a_conflict,
                two_consumers_apply_the_same_event_each_on_its_own,
                the_marker_holds_the_event_and_the_comparison,
                fingerprints_tell_a_duplicate_from_a_conflict,
                numbers_beyond_every_float_are_told_apart,
                a_statement_counts_the_rows_it_matched,
                bound_values_arrive_as_they_are,
                markers_are_judged_by_the_version_that_wrote_them,
            ]
            batch: [
                many_markers_are_read_in_order_at_once,
                a_taken_key_among_many_takes_none,
                a_batch_comes_to_what_its_deliveries_come_to_alone,
                a_statement_for_each_comes_to_what_one_after_another_does,
                a_statement_for_each_never_hides_a_wrong_row_count,
            ]
            guard: [
                progress_is_kept_for_each_consumer_and_aggregate,
                a_first_step_somebody_else_took_is_contended,
                versions_are_skipped_when_older_and_wait_when_early,
                an_aggregate_longer_than_its_column_is_refused,
            ]
            parking: [
                a_parked_delivery_comes_back_whole_to_one_holder,
                a_parked_delivery_waits_for_its_time_and_its_consumer,
                parking_again_replaces_and_ends_the_lease,
                an_early_step_waits_for_the_step_before_it,
                a_step_that_waited_too_long_is_overdue,
            ]
            rollback: [
                a_refusing_handler_leaves_neither_marker_nor_effect,
                an_effect_on_no_row_is_refused_and_rolled_back,
                a_failing_statement_leaves_neither_marker_nor_effect,
                an_open_transaction_is_invisible_until_it_commits,
                a_dropped_transaction_leaves_nothing,
                a_taken_key_leaves_the_connection_usable,
                a_dropped_process_leaves_nothing_half_done,
            ]
            race: [
                concurrent_copies_make_one_effect,
                concurrent_copies_survive_the_first_ones_rollback,
                concurrent_different_keys_are_all_applied,
                concurrent_batches_with_common_keys_make_one_effect_each,
            ]
            record: [
                a_conflict_is_recorded_once_and_counted,
                conflicts_of_other_content_are_recorded_apart,
                a_dead_delivery_is_recorded_before_its_ack,
                odd_messages_can_be_recorded,
            ]
            keys: [
                keys_that_differ_by_case_or_trailing_space_are_different_operations,
                a_key_longer_than_its_column_is_an_error_and_never_cut,
                a_key_of_the_longest_length_is_taken,
            ]
        }
    };
}

/// What a consumer's server can and cannot do.
#[derive(Clone, Copy, Debug)]
pub struct InboxCapabilities {
    /// The marker table has the optional columns, `fingerprint` and `comparison_version`.
    pub fingerprint: bool,
    /// Two transactions can write at the same time as long as their keys differ. Without it the second waits.
    pub concurrent_writers: bool,
}

/// A conflict as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictRecord {
    /// The consumer.
    pub consumer: String,
    /// The business key.
    pub business_key: String,
    /// How often this content came.
    pub count: u64,
}

/// A fresh schema: the marker table with comparison columns `user_id` and `amount` (whole numbers), consign's own tables,
/// and `points_account(user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)`.
pub trait InboxFixture: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: InboxStore<Transaction: Debug> + Parking + Clone + Send + Sync + 'static;

    /// The longest business key its column takes, in characters.
    const KEY_CHARS_MAX: usize;

    /// A fresh schema without accounts.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// What the server can do.
    fn capabilities(&self) -> InboxCapabilities;

    /// The store.
    fn store(&self) -> Self::Store;

    /// A second store on the same schema with connections of its own, as another consumer process has it.
    fn another_store(&self) -> impl Future<Output = Self::Store> + Send;

    /// Opens an account with no points.
    fn open_account(&self, user_id: i64) -> impl Future<Output = ()> + Send;

    /// An account's points.
    fn points(&self, user_id: i64) -> impl Future<Output = i64> + Send;

    /// How many markers a consumer has.
    fn markers(&self, consumer: &str) -> impl Future<Output = u64> + Send;

    /// Every recorded conflict.
    fn conflicts(&self) -> impl Future<Output = Vec<ConflictRecord>> + Send;

    /// How many dead deliveries are recorded for a consumer.
    fn dead_deliveries(&self, consumer: &str) -> impl Future<Output = u64> + Send;

    /// How many transactions sessions other than the fixture's have open on this schema.
    fn open_transactions(&self) -> impl Future<Output = u32> + Send;
}
