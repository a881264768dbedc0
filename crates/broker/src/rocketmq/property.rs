//! User properties with a meaning of their own, beside those of [`crate::envelope`].

use consign_rocketmq::admin::is_system_property;

/// The event's id, where it cannot be the message id.
pub(super) const EVENT_ID: &str = "consign-event-id";
/// The event's type, where it cannot be the tag.
pub(super) const EVENT_TYPE: &str = "consign-event-type";
/// `1` when the payload is empty: a proxy takes no empty body, so that a placeholder stands for it.
pub(super) const EMPTY: &str = "consign-empty";

/// All of them. A producer's header of such a name does not travel: consumers rely on what consign wrote.
pub(super) const ALL: [&str; 3] = [EVENT_ID, EVENT_TYPE, EMPTY];

/// Whether RocketMQ gives this name a meaning of its own, or may do so in its next version: the names that it made up
/// since 4.x begin with underscores.
pub(super) fn is_reserved(name: &str) -> bool {
    is_system_property(name) || name.starts_with("__") || name.starts_with("_SYS_")
}
