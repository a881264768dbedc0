//! The windows: one file each, with the naive way and the way with consign.

use super::audit::Audit;
use super::life::{Life, Side};
use super::place::{Backend, Messages};
use super::site::Bindings;

mod backlog;
mod todo;

macro_rules! scenarios {
    ($($variant:ident, $module:ident, $name:literal, $audit:ident;)*) => {
        $(mod $module;)*

        /// A scenario.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Window {
            $(
                #[doc = $name]
                $variant,
            )*
        }

        impl Window {
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
    ClaimWithoutLease, claim_without_lease, "claim-without-lease", Messages;
    DurableWithoutConfirms, durable_without_confirms, "durable-without-confirms", Messages;
    SendStatusIgnored, send_status_ignored, "send-status-ignored", Messages;
    ConfirmWithoutMandatory, confirm_without_mandatory, "confirm-without-mandatory", Messages;
    TimeoutMarkedSent, timeout_marked_sent, "timeout-marked-sent", Messages;
    SettleWithoutToken, settle_without_token, "settle-without-token", Messages;
    HalfThenDied, half_then_died, "half-then-died", Messages;
    DiedBeforeFinalCommit, died_before_final_commit, "died-before-final-commit", Messages;
    CheckBackWhileOpen, check_back_while_open, "check-back-while-open", Messages;
    CheckBackGivenUp, check_back_given_up, "check-back-given-up", Messages;
    CheckBackWithoutDatabase, check_back_without_database, "check-back-without-database", Messages;
    RetryWithNewId, retry_with_new_id, "retry-with-new-id", Effects;
    AckBeforeCommit, ack_before_commit, "ack-before-commit", Effects;
    LostAckWithoutMarker, lost_ack_without_marker, "lost-ack-without-marker", Effects;
    MarkerOutsideTransaction, marker_outside_transaction, "marker-outside-transaction", Effects;
    RedisSetnxAlone, redis_setnx_alone, "redis-setnx-alone", Effects;
    SelectThenInsert, select_then_insert, "select-then-insert", Effects;
    IdOnlyDedup, id_only_dedup, "id-only-dedup", Effects;
    BatchAckOverUnfinished, batch_ack_over_unfinished, "batch-ack-over-unfinished", Effects;
    RedeliveryStorm, redelivery_storm, "redelivery-storm", Effects;
    PoisonAtTheHead, poison_at_the_head, "poison-at-the-head", Effects;
    PoisonInAMessageGroup, poison_in_a_message_group, "poison-in-a-message-group", Effects;
    HandleExpired, handle_expired, "handle-expired", Effects;
    StaleOverwrite, stale_overwrite, "stale-overwrite", Copies;
    PurgeBeforeHorizon, purge_before_horizon, "purge-before-horizon", Effects;
}

impl Window {
    /// Where its window exists.
    pub const fn backends(self) -> &'static [Backend] {
        match self {
            // Without Redis there is nothing to show.
            Self::RedisSetnxAlone => &[Backend::Redis],
            // RocketMQ has send statuses and topics instead, and a message that fails holds up its message group alone.
            Self::DurableWithoutConfirms | Self::ConfirmWithoutMandatory | Self::PoisonAtTheHead => {
                &[Backend::Embedded, Backend::RabbitMq]
            }
            Self::SendStatusIgnored
            | Self::PoisonInAMessageGroup
            | Self::HalfThenDied
            | Self::DiedBeforeFinalCommit
            | Self::CheckBackWhileOpen
            | Self::CheckBackGivenUp
            | Self::CheckBackWithoutDatabase
            | Self::HandleExpired => &[Backend::RocketMq],
            Self::CommitThenSend
            | Self::SendThenCommit
            | Self::ClaimWithoutLease
            | Self::TimeoutMarkedSent
            | Self::SettleWithoutToken
            | Self::RetryWithNewId
            | Self::AckBeforeCommit
            | Self::LostAckWithoutMarker
            | Self::MarkerOutsideTransaction
            | Self::SelectThenInsert
            | Self::IdOnlyDedup
            | Self::BatchAckOverUnfinished
            | Self::RedeliveryStorm
            | Self::StaleOverwrite
            | Self::PurgeBeforeHorizon => &[Backend::Embedded, Backend::RabbitMq, Backend::RocketMq],
        }
    }

    /// How often a process of this side dies at the window. A side that does not has not been there.
    pub const fn deaths(self, side: Side) -> usize {
        match (self, side) {
            (Self::RedeliveryStorm, _) => 3,
            (
                Self::CommitThenSend
                | Self::SendThenCommit
                | Self::RetryWithNewId
                | Self::AckBeforeCommit
                | Self::LostAckWithoutMarker
                | Self::MarkerOutsideTransaction
                | Self::RedisSetnxAlone
                | Self::HalfThenDied
                | Self::DiedBeforeFinalCommit
                | Self::CheckBackGivenUp
                | Self::CheckBackWithoutDatabase
                | Self::BatchAckOverUnfinished,
                _,
            )
            | (
                Self::DurableWithoutConfirms | Self::SendStatusIgnored | Self::CheckBackWhileOpen,
                Side::Naive,
            ) => 1,
            (
                Self::DurableWithoutConfirms | Self::SendStatusIgnored | Self::CheckBackWhileOpen,
                Side::Consign,
            )
            | (
                Self::ClaimWithoutLease
                | Self::ConfirmWithoutMandatory
                | Self::TimeoutMarkedSent
                | Self::SettleWithoutToken
                | Self::SelectThenInsert
                | Self::IdOnlyDedup
                | Self::PoisonAtTheHead
                | Self::PoisonInAMessageGroup
                | Self::HandleExpired
                | Self::StaleOverwrite
                | Self::PurgeBeforeHorizon,
                _,
            ) => 0,
        }
    }

    /// Whether its queue is bound from the beginning.
    pub const fn bindings(self) -> Bindings {
        match self {
            Self::ConfirmWithoutMandatory => Bindings::Missing,
            _ => Bindings::Present,
        }
    }

    /// What is sent to its topic, on RocketMQ.
    pub const fn messages(self) -> Messages {
        match self {
            Self::PoisonInAMessageGroup => Messages::Fifo,
            Self::HalfThenDied
            | Self::DiedBeforeFinalCommit
            | Self::CheckBackWhileOpen
            | Self::CheckBackGivenUp
            | Self::CheckBackWithoutDatabase => Messages::Transaction,
            _ => Messages::Normal,
        }
    }
}
