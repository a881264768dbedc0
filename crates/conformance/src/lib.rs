//! Behaviour suites: what every store, inbox and broker adapter must do, written against the ports of `consign-core`.
//!
//! An adapter's tests implement a fixture and expand a suite; each behaviour becomes one `#[test]`, so that the
//! runner lists, runs and repeats them singly:
//!
//! ```text
//! consign_conformance::store_suite!(sqlite_outbox, SqliteOutbox);
//! consign_conformance::ordered_suite!(sqlite_ordered, SqliteOrdered);
//! consign_conformance::inbox_suite!(sqlite_inbox, SqliteInbox);
//! consign_conformance::broker_suite!(rabbitmq, RabbitFixture);
//! ```
//!
//! - [`store`]: [`OutboxStore`](consign_core::ports::OutboxStore). [`inbox`]: [`InboxStore`](consign_core::ports::InboxStore).
//! - [`ordered`]: the same in the order of each aggregate.
//! - [`broker`]: [`Destination`](consign_core::ports::Destination) and [`Source`](consign_core::ports::Source).
//! - [`proxy`]: a TCP proxy with faults. [`waiting`]: conditions with deadlines.
//!
//! What a server cannot do is declared as a capability and tested in its negative form; no behaviour is skipped.

pub mod broker;
pub mod inbox;
pub mod ordered;
pub mod proxy;
pub mod store;
pub mod waiting;

/// Expands one behaviour per `#[test]`; the suites' own macros call it.
#[doc(hidden)]
#[macro_export]
macro_rules! expand_suite {
    ($module:ident, $fixture:ident, $suite:ident, $($group:ident: [$($behaviour:ident),* $(,)?])*) => {
        mod $module {
            use super::$fixture as Fixture;
            $($(
                #[test]
                fn $behaviour() {
                    $crate::waiting::run($crate::$suite::$group::$behaviour::<Fixture>());
                }
            )*)*
        }
    };
}
