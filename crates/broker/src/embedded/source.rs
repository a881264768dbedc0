//! Consuming from the embedded queue: leases, adaptive polling, receipts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use consign_core::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use consign_core::ports::Source;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::writer::{ClaimCommand, Command, Leased, LeasedId, SettleTo};
use super::{QueueError, Shared};

/// The first wait after an empty claim; each further one is twice as long.
const IDLE_MIN: Duration = Duration::from_millis(5);
/// The longest wait between two claims: what a message of another process waits at most.
const IDLE_MAX: Duration = Duration::from_millis(250);

/// How a source consumes.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// The queue.
    pub queue: String,
    /// At most this many deliveries are unsettled at a time; at least 1.
    pub prefetch: u16,
    /// How long a delivery belongs to this source. Choose it longer than the slowest handler: a message whose lease
    /// ends is delivered again. A delivery is handed out with at least half of its lease left.
    pub lease: Duration,
}

/// A source of one queue's messages.
#[derive(Debug)]
pub struct EmbeddedSource {
    shared: Arc<Shared>,
    options: SourceOptions,
    slots: Arc<Semaphore>,
    buffer: VecDeque<Buffered>,
    claim: Option<Claiming>,
    arrivals: watch::Receiver<u64>,
    idle: Duration,
    stopped: bool,
}

#[derive(Debug)]
struct Buffered {
    leased: Leased,
    receipt: EmbeddedReceipt,
    /// Half of the lease is gone then.
    stale_at: Instant,
}

/// A claim under way. It is kept here, so that dropping the future of `next` loses no rows.
#[derive(Debug)]
struct Claiming {
    token: Arc<str>,
    asked_at: Instant,
    slots: OwnedSemaphorePermit,
    answer: oneshot::Receiver<Result<Vec<Leased>, QueueError>>,
}

/// The handle on one leased message. Dropped, it leaves the message to its lease.
#[derive(Debug)]
pub struct EmbeddedReceipt {
    shared: Arc<Shared>,
    message: LeasedId,
    _slot: Option<OwnedSemaphorePermit>,
}

impl EmbeddedSource {
    pub(super) fn new(shared: Arc<Shared>, options: SourceOptions) -> Self {
        let slots = Arc::new(Semaphore::new(usize::from(options.prefetch.max(1))));
        let arrivals = shared.arrivals.subscribe();
        Self {
            shared,
            options,
            slots,
            buffer: VecDeque::new(),
            claim: None,
            arrivals,
            idle: IDLE_MIN,
            stopped: false,
        }
    }

    /// The oldest buffered delivery with enough of its lease left; staler ones are handed back uncounted.
    fn take_buffered(&mut self) -> Option<Delivery<EmbeddedReceipt>> {
        while let Some(buffered) = self.buffer.pop_front() {
            if Instant::now() < buffered.stale_at {
                return Some(Delivery {
                    message: message(buffered.leased, &self.options.queue),
                    receipt: buffered.receipt,
                });
            }
            buffered.receipt.release();
        }
        None
    }

    /// Claims into the buffer; waits while nothing comes.
    async fn fill(&mut self) {
        if self.claim.is_none() {
            self.arrivals.mark_unchanged();
            self.claim = self.start_claim().await;
        }
        let Some(claim) = &mut self.claim else { return self.wait().await };
        let answer = (&mut claim.answer).await;
        let Some(claim) = self.claim.take() else { return };
        let found = match answer {
            Ok(Ok(leased)) => self.accept(claim, leased),
            Ok(Err(error)) => {
                tracing::warn!(queue = %self.options.queue, %error, "claiming from the embedded queue failed");
                false
            }
            // The writer ends only with the runtime.
            Err(_) => std::future::pending().await,
        };
        if found {
            self.idle = IDLE_MIN;
        } else {
            self.wait().await;
        }
    }

    async fn start_claim(&self) -> Option<Claiming> {
        // Wait for one free slot, then take all that are free.
        drop(Arc::clone(&self.slots).acquire_owned().await.ok()?);
        let limit = u32::try_from(self.slots.available_permits()).unwrap_or(u32::MAX);
        let slots = Arc::clone(&self.slots).try_acquire_many_owned(limit).ok()?;
        let place = self.shared.commands.reserve().await.ok()?;
        let (sender, answer) = oneshot::channel();
        let token: Arc<str> = fresh_token().into();
        let asked_at = Instant::now();
        place.send(Command::Claim(ClaimCommand {
            queue: self.options.queue.clone(),
            limit,
            length: self.options.lease,
            token: Arc::clone(&token),
            answer: sender,
        }));
        Some(Claiming { token, asked_at, slots, answer })
    }

    fn accept(&mut self, mut claim: Claiming, leased: Vec<Leased>) -> bool {
        let stale_at = claim.asked_at + self.options.lease / 2;
        let found = !leased.is_empty();
        for leased in leased {
            let message = LeasedId { id: leased.id, token: Arc::clone(&claim.token) };
            let receipt =
                EmbeddedReceipt { shared: Arc::clone(&self.shared), message, _slot: claim.slots.split(1) };
            self.buffer.push_back(Buffered { leased, receipt, stale_at });
        }
        found
    }

    /// Waits for a publish in this process, or for the next poll.
    async fn wait(&mut self) {
        let idle = self.idle;
        self.idle = (idle * 2).min(IDLE_MAX);
        // The sender lives as long as `shared`; whether it was a publish or the time makes no difference.
        let _ = timeout(idle, self.arrivals.changed()).await;
    }
}

impl Source for EmbeddedSource {
    type Receipt = EmbeddedReceipt;

    async fn next(&mut self) -> Option<Delivery<EmbeddedReceipt>> {
        while !self.stopped {
            if let Some(delivery) = self.take_buffered() {
                return Some(delivery);
            }
            self.fill().await;
        }
        None
    }

    async fn stop(&mut self) {
        self.stopped = true;
        if let Some(claim) = &mut self.claim {
            let answer = (&mut claim.answer).await;
            if let (Some(claim), Ok(Ok(leased))) = (self.claim.take(), answer) {
                self.accept(claim, leased);
            }
        }
        for buffered in std::mem::take(&mut self.buffer) {
            // A message that cannot be handed back comes again when its lease ends.
            let _ = buffered.receipt.settle(SettleTo::Released).await;
        }
    }

    /// Settlements are in the file when they return.
    async fn close(mut self) {
        self.stop().await;
    }
}

impl Drop for EmbeddedSource {
    fn drop(&mut self) {
        for buffered in self.buffer.drain(..) {
            buffered.receipt.release();
        }
    }
}

impl EmbeddedReceipt {
    async fn settle(self, to: SettleTo) -> Result<(), ReceiptLost> {
        let Self { shared, message, _slot } = self;
        match shared.ask(|answer| Command::Settle { message, to, answer }).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(ReceiptLost("its lease ended and another consumer took it".to_owned())),
            Ok(Err(error)) | Err(error) => Err(ReceiptLost(error.to_string())),
        }
    }

    /// Hands the message back without waiting; with no place in the writer's queue it is left to its lease.
    fn release(self) {
        let (answer, _) = oneshot::channel();
        let release = Command::Settle { message: self.message, to: SettleTo::Released, answer };
        let _ = self.shared.commands.try_send(release);
    }
}

impl Receipt for EmbeddedReceipt {
    async fn ack(self, _permit: AckPermit) -> Result<(), ReceiptLost> {
        self.settle(SettleTo::Acknowledged).await
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.settle(SettleTo::Retry(delay)).await
    }
}

fn message(leased: Leased, queue: &str) -> Message {
    let headers: Result<Vec<(String, String)>, _> = serde_json::from_str(&leased.headers);
    let undecodable = headers.as_ref().err().map(|error| format!("headers are not pairs of texts: {error}"));
    Message {
        id: Some(leased.message_id).filter(|id| !id.is_empty()),
        message_type: Some(leased.message_type).filter(|message_type| !message_type.is_empty()),
        headers: headers.unwrap_or_default(),
        body: leased.body.into(),
        redelivered: leased.delivery_count > 1,
        delivery_count: leased.delivery_count,
        source: queue.to_owned(),
        undecodable,
    }
}

/// 128 bits of the operating system, in hexadecimal.
fn fresh_token() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system always has random bits");
    format!("{:032x}", u128::from_le_bytes(bits))
}
