//! Settling deliveries: acknowledge, change the invisible time, dead-letter.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status};

use super::received::Origin;
use super::{Consumer, Handle};
use crate::error::CallError;
use crate::generated::messages::{
    AckMessageEntry, AckMessageRequest, AckMessageResultEntry, ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
};
use crate::message::duration;
use crate::options::Address;
use crate::status::check;
use crate::transport::Stub;

/// How old a handle must be before its time is changed: more than a millisecond, whatever the rounding of clocks.
const CHANGE_AFTER: Duration = Duration::from_millis(2);

/// A settlement that is not proven, with the handle it was tried with. `INVALID_RECEIPT_HANDLE` means that the
/// invisible time is over: somebody else may have the message, and this handle is good for nothing.
#[derive(Debug, thiserror::Error)]
#[error("message {} is not settled: {error}", handle.message_id())]
pub struct HandleKept {
    /// The handle.
    pub handle: Handle,
    /// What the call came to.
    pub error: CallError,
}

impl Consumer {
    /// Acknowledges one delivery.
    pub async fn ack(&self, handle: Handle, deadline: Instant) -> Result<(), HandleKept> {
        let mut acked = self.ack_many(vec![handle], deadline).await;
        acked.pop().expect("one handle makes one result")
    }

    /// Acknowledges deliveries, each with a result of its own, in the order given: one call per topic and proxy, all at
    /// once. An acknowledgement is not durable: a broker that crashes may deliver again.
    pub async fn ack_many(&self, handles: Vec<Handle>, deadline: Instant) -> Vec<Result<(), HandleKept>> {
        let mut results: Vec<Option<Result<(), CallError>>> = handles.iter().map(|_| None).collect();
        let mut batches: HashMap<&Origin, Vec<usize>> = HashMap::new();
        for (place, handle) in handles.iter().enumerate() {
            batches.entry(&*handle.origin).or_default().push(place);
        }
        let calls = batches.into_values().map(|places| {
            let handles: Vec<&Handle> = places.iter().map(|place| &handles[*place]).collect();
            async move { (places, self.ack_batch(handles, deadline).await) }
        });
        for (places, batch) in futures_util::future::join_all(calls).await {
            for (place, result) in places.into_iter().zip(batch) {
                results[place] = Some(result);
            }
        }
        let settled = handles.into_iter().zip(results).map(|(handle, result)| match result {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(HandleKept { handle, error }),
            None => Err(HandleKept {
                handle,
                error: CallError::unknown("the answer has no entry of this handle"),
            }),
        });
        settled.collect()
    }

    /// Acknowledges deliveries of one topic that came from one broker.
    async fn ack_batch(&self, handles: Vec<&Handle>, deadline: Instant) -> Vec<Result<(), CallError>> {
        let Some(first) = handles.first() else { return Vec::new() };
        let entries = handles.iter().map(|handle| AckMessageEntry {
            message_id: handle.message_id.clone(),
            receipt_handle: handle.receipt.clone(),
            lite_topic: None,
        });
        let request = AckMessageRequest {
            group: Some(self.inner.group.clone()),
            topic: Some(first.origin.topic.clone()),
            entries: entries.collect(),
        };
        let called = self.call(&first.origin.addresses, request, deadline, |mut stub, request| async move {
            stub.ack_message(request).await
        });
        let response = match called.await {
            Ok(response) => response,
            Err(error) => return vec![Err(error); handles.len()],
        };
        if response.entries.is_empty() {
            // The request failed as a whole. A whole that is OK without entries proves nothing of any of them.
            let error = check(response.status.as_ref()).err();
            let error = error.unwrap_or_else(|| CallError::unknown("the answer has no entries"));
            return vec![Err(error); handles.len()];
        }
        let entries: BTreeMap<&str, &AckMessageResultEntry> =
            response.entries.iter().map(|entry| (entry.receipt_handle.as_str(), entry)).collect();
        let results = handles.iter().map(|handle| match entries.get(handle.receipt.as_str()) {
            Some(entry) => check(entry.status.as_ref()),
            None => Err(CallError::unknown("the answer has no entry of this handle")),
        });
        results.collect()
    }

    /// Makes a delivery invisible for this long from now on. The new handle replaces the old one, which is given back
    /// unless the server said OK (apache/rocketmq#9515).
    ///
    /// The broker counts this as a delivery: it moves the message to the group's retry topic when the time is over
    /// (apache/rocketmq-clients#951). Do not extend in a loop.
    ///
    /// Waits until the handle is two milliseconds old. A broker keeps what it handed out under topic, group, queue, offset
    /// and the *millisecond* (`PopReviveService` of apache/rocketmq 5.5.0): changed within the same one, the new record
    /// and the acknowledgement of the old one fall together, and the message never comes again.
    pub async fn change_invisible(
        &self,
        handle: Handle,
        invisible: Duration,
        deadline: Instant,
    ) -> Result<Handle, HandleKept> {
        sleep_until(handle.given + CHANGE_AFTER).await;
        let request = ChangeInvisibleDurationRequest {
            group: Some(self.inner.group.clone()),
            topic: Some(handle.origin.topic.clone()),
            receipt_handle: handle.receipt.clone(),
            invisible_duration: Some(duration(invisible)),
            message_id: handle.message_id.clone(),
            ..ChangeInvisibleDurationRequest::default()
        };
        let called = self.call(&handle.origin.addresses, request, deadline, |mut stub, request| async move {
            stub.change_invisible_duration(request).await
        });
        let changed = called.await.and_then(|response| {
            check(response.status.as_ref())?;
            Ok(response.receipt_handle)
        });
        match changed {
            // "Server may generate a new receipt handle": without one the old one stays good.
            Ok(receipt) if receipt.is_empty() => Ok(handle),
            Ok(receipt) => Ok(Handle { receipt, given: Instant::now(), ..handle }),
            Err(error) => Err(HandleKept { handle, error }),
        }
    }

    /// Moves a message to the dead-letter topic of the group and acknowledges it. `delivery_attempt` and
    /// `max_attempts` are for the broker's records.
    pub async fn forward_to_dead_letter(
        &self,
        handle: Handle,
        delivery_attempt: u32,
        max_attempts: u32,
        deadline: Instant,
    ) -> Result<(), HandleKept> {
        let request = ForwardMessageToDeadLetterQueueRequest {
            group: Some(self.inner.group.clone()),
            topic: Some(handle.origin.topic.clone()),
            receipt_handle: handle.receipt.clone(),
            message_id: handle.message_id.clone(),
            delivery_attempt: i32::try_from(delivery_attempt).unwrap_or(i32::MAX),
            max_delivery_attempts: i32::try_from(max_attempts).unwrap_or(i32::MAX),
            lite_topic: None,
        };
        let called = self.call(&handle.origin.addresses, request, deadline, |mut stub, request| async move {
            stub.forward_message_to_dead_letter_queue(request).await
        });
        match called.await.and_then(|response| check(response.status.as_ref())) {
            Ok(()) => Ok(()),
            Err(error) => Err(HandleKept { handle, error }),
        }
    }

    /// Calls the first of the proxies that connects.
    async fn call<Q: Clone, A, F>(
        &self,
        addresses: &[Address],
        request: Q,
        deadline: Instant,
        rpc: impl Fn(Stub, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let shared = self.inner.session.shared();
        let mut failure = CallError::not_sent("the handle names no proxy");
        for link in addresses.iter().map(|address| shared.link(address)) {
            match link.call(request.clone(), deadline, &rpc).await {
                Err(error @ CallError::NotSent { .. }) => failure = error,
                answered => return answered,
            }
        }
        Err(failure)
    }
}
