//! The codes a server answers with.

use std::fmt;

/// A code of the gRPC v2 protocol.
///
/// The type is open: a server newer than this crate may answer with a code that has no name here, and that is a value
/// like any other. The names are those of `apache/rocketmq-apis`, `definition.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(i32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name of the code in the protocol, if this crate knows it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// No code was set: the answer had no status.
    CODE_UNSPECIFIED = 0;
    /// Done.
    OK = 20000;
    /// Several entries with different codes; the entries say more.
    MULTIPLE_RESULTS = 30000;
    /// A required field or header is missing.
    BAD_REQUEST = 40000;
    /// The address of the access point is malformed.
    ILLEGAL_ACCESS_POINT = 40001;
    /// The name of the topic is malformed or reserved.
    ILLEGAL_TOPIC = 40002;
    /// The name of the consumer group is malformed.
    ILLEGAL_CONSUMER_GROUP = 40003;
    /// The tag is malformed.
    ILLEGAL_MESSAGE_TAG = 40004;
    /// A key is malformed.
    ILLEGAL_MESSAGE_KEY = 40005;
    /// The message group is blank, too long or has control characters.
    ILLEGAL_MESSAGE_GROUP = 40006;
    /// A property key is reserved or has control characters.
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007;
    /// The transaction id is blank.
    INVALID_TRANSACTION_ID = 40008;
    /// The message id is blank.
    ILLEGAL_MESSAGE_ID = 40009;
    /// The filter does not parse.
    ILLEGAL_FILTER_EXPRESSION = 40010;
    /// The invisible time is outside the proxy's limits.
    ILLEGAL_INVISIBLE_TIME = 40011;
    /// The delivery time is further away than the proxy allows.
    ILLEGAL_DELIVERY_TIME = 40012;
    /// The receipt handle is malformed or has expired: somebody else may have the message.
    INVALID_RECEIPT_HANDLE = 40013;
    /// The topic does not take messages of this kind.
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014;
    /// The server has no settings of this client.
    UNRECOGNIZED_CLIENT_TYPE = 40015;
    /// The message is corrupted.
    MESSAGE_CORRUPTED = 40016;
    /// The client id is missing.
    CLIENT_ID_REQUIRED = 40017;
    /// The polling time is illegal, or does not fit in the deadline.
    ILLEGAL_POLLING_TIME = 40018;
    /// The offset is illegal.
    ILLEGAL_OFFSET = 40019;
    /// The name of the lite topic is malformed.
    ILLEGAL_LITE_TOPIC = 40020;
    /// The client's properties are refused.
    INVALID_CLIENT_PROPERTIES = 40021;
    /// The credentials are missing or wrong.
    UNAUTHORIZED = 40100;
    /// The account is suspended.
    PAYMENT_REQUIRED = 40200;
    /// No permission, or no writable queue.
    FORBIDDEN = 40300;
    /// Not found.
    NOT_FOUND = 40400;
    /// No message.
    MESSAGE_NOT_FOUND = 40401;
    /// The topic does not exist, or the proxy cannot reach who knows.
    TOPIC_NOT_FOUND = 40402;
    /// The consumer group does not exist.
    CONSUMER_GROUP_NOT_FOUND = 40403;
    /// The offset does not exist.
    OFFSET_NOT_FOUND = 40404;
    /// The server waited too long for the request.
    REQUEST_TIMEOUT = 40800;
    /// The request is too large.
    PAYLOAD_TOO_LARGE = 41300;
    /// The body is too large.
    MESSAGE_BODY_TOO_LARGE = 41301;
    /// The body is empty.
    MESSAGE_BODY_EMPTY = 41302;
    /// Something that must come first did not.
    PRECONDITION_FAILED = 42800;
    /// Flow control: come back later.
    TOO_MANY_REQUESTS = 42900;
    /// Too many lite topics.
    LITE_TOPIC_QUOTA_EXCEEDED = 42901;
    /// Too many lite subscriptions.
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902;
    /// The headers are too large.
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100;
    /// The message's properties are too large.
    MESSAGE_PROPERTIES_TOO_LARGE = 43101;
    /// The server failed.
    INTERNAL_ERROR = 50000;
    /// The server failed, or the broker answered something the proxy has no code for.
    INTERNAL_SERVER_ERROR = 50001;
    /// Stored, but the broker has no usable replica (`SLAVE_NOT_AVAILABLE`).
    HA_NOT_AVAILABLE = 50002;
    /// The server does not know the call.
    NOT_IMPLEMENTED = 50100;
    /// The proxy did not hear from the broker in time: what happened is unknown.
    PROXY_TIMEOUT = 50400;
    /// Stored, but not flushed to disk in time (`FLUSH_DISK_TIMEOUT`).
    MASTER_PERSISTENCE_TIMEOUT = 50401;
    /// Stored, but not replicated in time (`FLUSH_SLAVE_TIMEOUT`).
    SLAVE_PERSISTENCE_TIMEOUT = 50402;
    /// Not supported.
    UNSUPPORTED = 50500;
    /// Not supported by this version.
    VERSION_UNSUPPORTED = 50501;
    /// A message with a group cannot be verified.
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502;
    /// Consuming failed.
    FAILED_TO_CONSUME_MESSAGE = 60000;
}

impl Code {
    /// The code with that number, known or not.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// The number on the wire.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Whether the broker has the message in its log, without the durability it was configured for.
    ///
    /// A retry of such a send makes a duplicate; a power failure may still lose the message. The proxy sends no
    /// message id, offset or transaction id along (`SendMessageActivity` of apache/rocketmq).
    pub fn is_stored_not_safe(self) -> bool {
        matches!(
            self,
            Self::MASTER_PERSISTENCE_TIMEOUT | Self::SLAVE_PERSISTENCE_TIMEOUT | Self::HA_NOT_AVAILABLE
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "{} {name}", self.0),
            None => write!(formatter, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_nobody_knows_is_a_value_like_any_other() {
        let code = Code::new(49_999);

        assert_eq!((code.name(), code.to_string().as_str()), (None, "49999"));
        assert_eq!(Code::new(40_402).to_string(), "40402 TOPIC_NOT_FOUND");
    }

    #[test]
    fn only_the_three_statuses_of_a_stored_message_are_stored_not_safe() {
        let safe = (0..70_000).map(Code::new).filter(|code| code.is_stored_not_safe());

        assert_eq!(safe.map(Code::number).collect::<Vec<_>>(), [50_002, 50_401, 50_402]);
    }
}
