//! What a proxy says about a consumer group.

use crate::generated::messages::Settings;
use crate::generated::messages::settings::PubSub;

/// What a proxy says about a consumer group in its answer to the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether messages of one message group come one after the other.
    pub fifo: Option<bool>,
    /// How often a message is delivered at most before it goes to the dead-letter topic.
    pub max_attempts: Option<u32>,
}

impl GroupSettings {
    pub(crate) fn new(settings: &Settings) -> Self {
        let fifo = match &settings.pub_sub {
            Some(PubSub::Subscription(subscription)) => subscription.fifo,
            Some(PubSub::Publishing(_)) | None => None,
        };
        let max_attempts =
            settings.backoff_policy.as_ref().and_then(|policy| policy.max_attempts.try_into().ok());
        Self { fifo, max_attempts }
    }
}
