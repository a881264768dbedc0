//! One HTTP/2 connection per proxy, opened before a call and never behind its back.
//!
//! A gRPC channel that reconnects on its own cannot say whether a failed call had left. Here a call is handed to a
//! connection that is already established, so that everything before that moment is proven not to have been sent.

mod carrier;
mod dial;
mod link;

pub(crate) use dial::Dialer;
pub(crate) use link::{Link, Messages, Stub};
