//! The server's status of a call or an entry.

use crate::code::Code;
use crate::error::CallError;
use crate::generated::messages::Status;

/// OK, or the answer as an error. An answer without a status is one with the code 0.
pub(crate) fn check(status: Option<&Status>) -> Result<(), CallError> {
    match status {
        Some(status) if Code::new(status.code) == Code::OK => Ok(()),
        Some(status) => {
            Err(CallError::Answered { code: Code::new(status.code), message: status.message.clone() })
        }
        None => Err(CallError::Answered {
            code: Code::CODE_UNSPECIFIED,
            message: "the answer has no status".to_owned(),
        }),
    }
}
