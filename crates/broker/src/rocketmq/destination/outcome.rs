//! What the answer to a send comes to. Pure.

use consign_core::outcome::{Doubt, Outcome, Proof};
use consign_rocketmq::{CallError, Code, Receipt};

use super::accepted::StoredStatus;

/// The outcome of one message's send.
pub(super) fn outcome(result: Result<Receipt, CallError>, accepted: &[StoredStatus]) -> Outcome {
    match result {
        Ok(receipt) => Outcome::Confirmed(Proof::Stored {
            endpoint: receipt.endpoint.to_string(),
            offset: receipt.offset,
        }),
        Err(CallError::NotSent { reason }) => refused(reason),
        Err(CallError::Unknown { reason }) => Outcome::Unknown(Doubt::ConnectionLost(reason)),
        Err(CallError::Answered { code, message }) => answered(code, &message, accepted),
    }
}

fn answered(code: Code, message: &str, accepted: &[StoredStatus]) -> Outcome {
    let text = format!("{code}: {message}");
    if let Some(status) = StoredStatus::of(code) {
        return if accepted.contains(&status) {
            Outcome::Confirmed(Proof::AcceptedAs { status: status.name() })
        } else {
            Outcome::Unknown(Doubt::Inconclusive(text))
        };
    }
    match code {
        Code::TOPIC_NOT_FOUND | Code::ILLEGAL_TOPIC => unroutable(code, message),
        // The type of a topic whose description the proxy cannot read; the topic may be there (apache/rocketmq#9595).
        Code::MESSAGE_PROPERTY_CONFLICT_WITH_TYPE if message.contains("expected type is UNSPECIFIED") => {
            unroutable(code, message)
        }
        Code::MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        | Code::ILLEGAL_MESSAGE_TAG
        | Code::ILLEGAL_MESSAGE_KEY
        | Code::ILLEGAL_MESSAGE_GROUP
        | Code::ILLEGAL_MESSAGE_PROPERTY_KEY
        | Code::ILLEGAL_MESSAGE_ID
        | Code::ILLEGAL_DELIVERY_TIME
        | Code::MESSAGE_CORRUPTED
        | Code::PAYLOAD_TOO_LARGE
        | Code::MESSAGE_BODY_TOO_LARGE
        | Code::MESSAGE_BODY_EMPTY
        | Code::MESSAGE_PROPERTIES_TOO_LARGE => Outcome::Rejected { reason: text },
        Code::ILLEGAL_ACCESS_POINT
        | Code::UNRECOGNIZED_CLIENT_TYPE
        | Code::CLIENT_ID_REQUIRED
        | Code::INVALID_CLIENT_PROPERTIES
        | Code::UNAUTHORIZED
        | Code::PAYMENT_REQUIRED
        | Code::FORBIDDEN
        | Code::PRECONDITION_FAILED
        | Code::TOO_MANY_REQUESTS
        | Code::NOT_IMPLEMENTED
        | Code::UNSUPPORTED
        | Code::VERSION_UNSUPPORTED => refused(text),
        Code::INTERNAL_SERVER_ERROR => in_words(code, message),
        _ => Outcome::Unknown(Doubt::Inconclusive(text)),
    }
}

/// The proxy has one code for nearly every refusal of the broker, whose words then say which it was: the remarks of
/// `SendMessageProcessor` and the exceptions of the remoting client in apache/rocketmq. Other words, and an exception
/// on the way back among them, leave open whether the message was stored.
fn in_words(code: Code, message: &str) -> Outcome {
    const THE_MESSAGE: [&str; 5] = [
        "message is illegal",
        "timer message illegal",
        "Required message key is missing",
        "message body size exceeded",
        "message size exceeded",
    ];
    const THE_BROKER: [&str; 9] = [
        "service not available now",
        "flow control",
        "broker busy",
        "in-sync replicas not enough",
        "create mapped file failed",
        "is forbidden",
        "no master available",
        "broker unable to service",
        "timer message is not enabled",
    ];
    /// Exceptions of a call that did not reach the broker.
    const NOT_REACHED: [&str; 2] = ["RemotingConnectException", "RemotingTooMuchRequestException"];
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if message.contains("topic[") && message.contains("not exist") {
        unroutable(code, message)
    } else if says(&THE_MESSAGE) {
        Outcome::Rejected { reason: format!("{code}: {message}") }
    } else if says(&THE_BROKER) || says(&NOT_REACHED) {
        refused(format!("{code}: {message}"))
    } else {
        Outcome::Unknown(Doubt::Inconclusive(format!("{code}: {message}")))
    }
}

fn unroutable(code: Code, message: &str) -> Outcome {
    let number = u16::try_from(code.number()).unwrap_or(u16::MAX);
    let name = code.name().unwrap_or_default();
    Outcome::Unroutable { code: number, text: format!("{name}: {message}") }
}

pub(super) fn refused(reason: impl Into<String>) -> Outcome {
    Outcome::Refused { reason: reason.into(), retry_after: None }
}

#[cfg(test)]
mod tests;
