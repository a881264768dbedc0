//! The broker suite: one destination, and sources of the queue behind it.

pub mod consume;
pub mod fault;
pub mod publish;

mod traffic;

use std::future::Future;

use consign_core::ports::{Destination, Source};
use consign_core::route::Route;
use consign_core::time::Monotonic;

use crate::proxy::Proxy;

/// The header that says that a body stands for an SQL NULL.
pub const NULL_PAYLOAD_HEADER: &str = "consign-null";

/// Expands the broker suite for a [`BrokerFixture`] into `mod $module`, one `#[test]` per behaviour.
#[macro_export]
macro_rules! broker_suite {
    ($module:ident, $fixture:ident) => {
        $crate::expand_suite! {
            $module, $fixture, broker,
            publish: [
                a_publish_is_confirmed_and_delivered_once_unchanged,
                both_lanes_confirm,
                a_message_without_a_route_is_unroutable,
                a_binding_added_later_makes_the_message_routable,
                returned_messages_are_told_from_their_neighbours,
                many_publishes_at_once_are_each_confirmed,
                a_large_body_is_delivered_unchanged,
                a_binary_body_is_delivered_unchanged,
                empty_and_null_payloads_are_told_apart,
                names_in_any_script_are_delivered_unchanged,
                an_odd_header_is_delivered_or_rejected_alone,
                a_deadline_that_has_passed_is_never_confirmed,
                a_dropped_publish_hurts_nobody,
                a_reachable_destination_accepts,
            ]
            consume: [
                an_ack_removes_the_message,
                a_retry_delivers_the_message_again,
                a_retried_message_does_not_hold_up_the_others,
                a_dropped_consumer_gives_its_messages_back,
                two_sources_share_one_queue,
                stop_ends_the_source_and_leaves_receipts_valid,
                a_closed_source_leaves_behind_what_was_not_settled,
                a_source_waits_for_messages_to_come,
                a_dropped_next_loses_no_message,
            ]
            fault: [
                a_confirmed_message_survives_a_restart,
                a_destination_and_a_source_live_on_after_a_restart,
                a_frozen_broker_never_confirms,
                swallowed_confirms_leave_the_outcome_unknown,
                swallowed_publishes_are_never_confirmed,
                a_cut_connection_leaves_the_outcome_open_and_heals,
                a_connection_cut_in_the_middle_of_a_message_is_never_confirmed,
                an_unreachable_broker_refuses_and_is_waited_for,
                a_receipt_of_a_lost_connection_settles_nothing_of_the_next_one,
            ]
        }
    };
}

/// What a broker can and cannot do.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
#[derive(Clone, Copy, Debug)]
pub struct BrokerCapabilities {
    /// A message that reaches no queue comes back. Without it such a message is confirmed and gone.
    pub mandatory_return: bool,
    /// The broker counts deliveries of a message. Without it `delivery_count` stays 1 and only `redelivered` tells.
    pub delivery_count: bool,
    /// Messages come in the order in which they were published. Without it they may lie in several queues.
    pub keeps_order: bool,
    /// The broker takes messages without a body. Without it an empty or NULL payload is rejected.
    pub empty_body: bool,
    /// A receipt belongs to its message and not to a connection. Without it a lost connection makes it stale.
    pub receipts_outlive_connections: bool,
}

/// A fresh queue, a destination that leads to it and the means to hurt both.
pub trait BrokerFixture: Send + Sync + Sized + 'static {
    /// The destination under test.
    type Destination: Destination + Send + Sync + 'static;
    /// The source under test.
    type Source: Source + Send + 'static;

    /// A fresh, empty, durable queue bound to [`BrokerFixture::bound_route`].
    fn fresh() -> impl Future<Output = Self> + Send;

    /// What the broker can do.
    fn capabilities(&self) -> BrokerCapabilities;

    /// The destination; one for the fixture's whole life.
    fn destination(&self) -> &Self::Destination;

    /// A new source of the queue. A delivery it loses without settling must come again within seconds.
    fn source(&self) -> impl Future<Output = Self::Source> + Send;

    /// The clock that deadlines are measured on.
    fn now(&self) -> Monotonic;

    /// A route into the queue.
    fn bound_route(&self) -> Route;

    /// A route that leads nowhere until [`BrokerFixture::bind`].
    fn unbound_route(&self) -> Route;

    /// Binds the queue to the unbound route.
    fn bind(&self) -> impl Future<Output = ()> + Send;

    /// How many messages the queue holds that no consumer has in hand.
    fn ready(&self) -> impl Future<Output = u64> + Send;

    /// Stops the broker and starts it again, or closes and opens an embedded one.
    fn restart(&self) -> impl Future<Output = ()> + Send;

    /// Lets the broker answer nothing, without closing connections.
    fn freeze(&self) -> impl Future<Output = ()> + Send;

    /// Ends [`BrokerFixture::freeze`].
    fn thaw(&self) -> impl Future<Output = ()> + Send;

    /// The proxy all connections of destination and sources go through; `None` when there is no connection, so that
    /// an answer can never get lost on its way.
    fn proxy(&self) -> Option<&Proxy>;
}
