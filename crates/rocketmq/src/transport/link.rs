//! The way to one proxy: connects on demand, makes calls, and sorts what they came to.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http2::SendRequest;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Request, Response, Status, Streaming};

use super::carrier::{Carrier, Departure};
use super::dial::Dialer;
use crate::code::Code;
use crate::error::CallError;
use crate::generated::messages::{ReceiveMessageRequest, ReceiveMessageResponse, TelemetryCommand};
use crate::generated::service::messaging_service_client::MessagingServiceClient;
use crate::identity::Identity;
use crate::options::Address;

/// How long a failed attempt to connect answers for the next ones: calls fail at once instead of queueing up.
const FAILURE_STANDS: Duration = Duration::from_millis(250);
/// Largest answer accepted: a message of the largest size a broker can be set to, with room.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// The client of one call.
pub(crate) type Stub = MessagingServiceClient<Carrier>;

/// The way to one proxy.
pub(crate) struct Link {
    address: Address,
    origin: Uri,
    dialer: Dialer,
    identity: Arc<Identity>,
    state: Mutex<State>,
    settings_wanted: Notify,
}

#[derive(Default)]
struct State {
    sender: Option<SendRequest<Body>>,
    failure: Option<(Instant, String)>,
}

impl Link {
    pub(crate) fn new(address: Address, dialer: Dialer, identity: Arc<Identity>) -> Self {
        let scheme = if dialer.is_secure() { "https" } else { "http" };
        let origin = Uri::builder().scheme(scheme).authority(address.to_string()).path_and_query("/").build();
        // Nothing of an address that is no authority ever becomes a connection.
        let origin = origin.unwrap_or_else(|_| Uri::from_static("http://invalid/"));
        Self { address, origin, dialer, identity, state: Mutex::default(), settings_wanted: Notify::new() }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The proxy seems to have lost this client's settings: they must be sent again.
    pub(crate) fn want_settings(&self) {
        self.settings_wanted.notify_one();
    }

    /// Waits until the settings must be sent again.
    pub(crate) async fn settings_wanted(&self) {
        self.settings_wanted.notified().await;
    }

    /// Whether the last connection is still there, as far as this side knows.
    pub(crate) fn is_connected(&self) -> bool {
        // Somebody who holds the lock is about to connect.
        self.state
            .try_lock()
            .is_ok_and(|state| state.sender.as_ref().is_some_and(|sender| !sender.is_closed()))
    }

    /// An established connection.
    async fn connected(&self, deadline: Instant) -> Result<SendRequest<Body>, CallError> {
        let connecting = async {
            let mut state = self.state.lock().await;
            if let Some(sender) = state.sender.as_ref().filter(|sender| !sender.is_closed()) {
                return Ok(sender.clone());
            }
            state.sender = None;
            if let Some((at, reason)) = &state.failure
                && at.elapsed() < FAILURE_STANDS
            {
                return Err(CallError::not_sent(reason.clone()));
            }
            match self.dialer.dial(&self.address).await {
                Ok(sender) => {
                    state.failure = None;
                    Ok(state.sender.insert(sender).clone())
                }
                Err(reason) => {
                    state.failure = Some((Instant::now(), reason.clone()));
                    Err(CallError::not_sent(reason))
                }
            }
        };
        let late =
            || Err(CallError::not_sent(format!("{}: no connection before the deadline", self.address)));
        timeout_at(deadline, connecting).await.unwrap_or_else(|_| late())
    }

    /// Makes one call with one answer. Dropping the future resets the stream; the server may have acted all the same.
    pub(crate) async fn call<Q, A, F>(
        &self,
        request: Q,
        deadline: Instant,
        rpc: impl FnOnce(Stub, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (stub, departure) = self.stub(deadline).await?;
        let request = self.identity.request(request, Some(deadline));
        match timeout_at(deadline, rpc(stub, request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.sort(&status, &departure)),
            Err(_) => Err(self.late(&departure)),
        }
    }

    /// Asks for messages; what comes out is read with [`Messages::next`].
    pub(crate) async fn receive(
        &self,
        request: ReceiveMessageRequest,
        deadline: Instant,
    ) -> Result<Messages, CallError> {
        let (mut stub, departure) = self.stub(deadline).await?;
        let request = self.identity.request(request, Some(deadline));
        match timeout_at(deadline, stub.receive_message(request)).await {
            Ok(Ok(answer)) => Ok(Messages { stream: answer.into_inner(), deadline }),
            Ok(Err(status)) => Err(self.sort(&status, &departure)),
            Err(_) => Err(self.late(&departure)),
        }
    }

    /// Opens the telemetry stream, which has no deadline of its own.
    pub(crate) async fn telemetry(
        &self,
        commands: impl tokio_stream::Stream<Item = TelemetryCommand> + Send + 'static,
        deadline: Instant,
    ) -> Result<Streaming<TelemetryCommand>, CallError> {
        let (mut stub, departure) = self.stub(deadline).await?;
        let request = self.identity.request(commands, None);
        match timeout_at(deadline, stub.telemetry(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.sort(&status, &departure)),
            Err(_) => Err(self.late(&departure)),
        }
    }

    async fn stub(&self, deadline: Instant) -> Result<(Stub, Departure), CallError> {
        let (carrier, departure) = Carrier::new(self.connected(deadline).await?);
        let stub = MessagingServiceClient::with_origin(carrier, self.origin.clone());
        Ok((stub.max_decoding_message_size(ANSWER_BYTES_MAX), departure))
    }

    fn late(&self, departure: &Departure) -> CallError {
        let reason = format!("{}: no answer before the deadline", self.address);
        if departure.may_have_left() { CallError::unknown(reason) } else { CallError::not_sent(reason) }
    }

    fn sort(&self, status: &Status, departure: &Departure) -> CallError {
        let reason = format!("{}: {} {}", self.address, status.code(), status.message());
        if !departure.may_have_left() {
            return CallError::not_sent(reason);
        }
        match status.code() {
            // Whoever refuses a caller by these two has not let the call through, be it the proxy or a gateway.
            tonic::Code::Unauthenticated => {
                CallError::Answered { code: Code::UNAUTHORIZED, message: status.message().to_owned() }
            }
            tonic::Code::PermissionDenied => {
                CallError::Answered { code: Code::FORBIDDEN, message: status.message().to_owned() }
            }
            _ => CallError::unknown(reason),
        }
    }
}

/// The answers to one receive.
pub(crate) struct Messages {
    stream: Streaming<ReceiveMessageResponse>,
    deadline: Instant,
}

impl Messages {
    /// The next answer, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ReceiveMessageResponse>, CallError> {
        let next = timeout_at(self.deadline, self.stream.message()).await;
        let next = next.map_err(|_| CallError::unknown("the messages did not end before the deadline"))?;
        next.map_err(|status| CallError::unknown(format!("{} {}", status.code(), status.message())))
    }
}
