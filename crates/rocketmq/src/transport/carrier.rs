//! What carries one call over an established connection, and knows whether the call left.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tonic::body::Body;
use tonic::client::GrpcService;

/// Whether the request of one call may have reached the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Departure(Arc<AtomicBool>);

impl Departure {
    pub(super) fn may_have_left(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, may_have_left: bool) {
        self.0.store(may_have_left, Ordering::Release);
    }
}

/// Carries one call.
pub(crate) struct Carrier {
    sender: SendRequest<Body>,
    departure: Departure,
}

impl Carrier {
    pub(super) fn new(sender: SendRequest<Body>) -> (Self, Departure) {
        let departure = Departure::default();
        (Self { sender, departure: departure.clone() }, departure)
    }
}

impl GrpcService<Body> for Carrier {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let departure = self.departure.clone();
        departure.set(true);
        let answer = self.sender.try_send_request(request);
        Box::pin(async move {
            answer.await.map_err(|mut error| {
                // Given back means that it was never written.
                let given_back = error.take_message().is_some();
                let error = error.into_error();
                if given_back || refused_unprocessed(&error) {
                    departure.set(false);
                }
                error
            })
        })
    }
}

/// Whether the server reset the stream with REFUSED_STREAM, which promises that it processed nothing of it
/// (RFC 9113, section 8.7).
fn refused_unprocessed(error: &hyper::Error) -> bool {
    let reset = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    reset.is_some_and(|reset| {
        reset.is_reset() && reset.is_remote() && reset.reason() == Some(h2::Reason::REFUSED_STREAM)
    })
}
