//! The windows: one file each, with the naive way and the way with consign.

use super::audit::Audit;
use super::life::{Life, Side};
use super::place::Backend;
use super::site::Bindings;

mod backlog;

macro_rules! scenarios {
    ($($variant:ident, $module:ident, $name:literal, $audit:ident;)*) => {
        $(mod $module;)*

        /// A scenario.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Id {
            $(
                #[doc = $name]
                $variant,
            )*
        }

        impl Id {
            /// All of them, along the way of a message.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What its two sides are asked at the end.
            pub const fn audit(self) -> Audit {
                match self {
                    $(Self::$variant => Audit::$audit,)*
                }
            }

            /// Lives one life of a side.
            pub async fn live(self, side: Side, life: &Life) -> anyhow::Result<()> {
                match (self, side) {
                    $(
                        (Self::$variant, Side::Naive) => Box::pin($module::naive(life)).await,
                        (Self::$variant, Side::Consign) => Box::pin($module::consign(life)).await,
                    )*
                }
            }
        }
    };
}

scenarios! {
    CommitThenSend, commit_then_send, "commit-then-send", Messages;
    SendThenCommit, send_then_commit, "send-then-commit", Messages;
    AckBeforeCommit, ack_before_commit, "ack-before-commit", Effects;
    MarkerOutsideTransaction, marker_outside_transaction, "marker-outside-transaction", Effects;
}

impl Id {
    /// Where its window exists.
    pub const fn backends(self) -> &'static [Backend] {
        &[Backend::Embedded, Backend::RabbitMq]
    }

    /// Whether its queue is bound from the beginning.
    pub const fn bindings(self) -> Bindings {
        Bindings::Present
    }
}
