//! Publishing to one exchange with confirms.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use consign_amqp::{ConnectOptions, Connection, Publication, Publisher, ServerInfo};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness};
use consign_failpoint as failpoint;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{Backoff, Opening, Supervisor, with_causes};
use super::mapping::Mapping;
use super::outcome::{Company, outcome};

/// The default of `max_message_size` from RabbitMQ 4.0.
const BODY_BYTES_MAX_FROM_4: usize = 16 * 1024 * 1024;
/// The default of `max_message_size` before RabbitMQ 4.0.
const BODY_BYTES_MAX_BEFORE_4: usize = 128 * 1024 * 1024;

/// How to publish to one exchange.
#[derive(Clone, Debug)]
pub struct DestinationOptions {
    /// How to reach the broker.
    pub connect: ConnectOptions,
    /// The exchange; empty for the default exchange, whose routing keys are queue names.
    pub exchange: String,
    /// Window channels, 1 to 4. One is enough unless a single channel's ordering limits the throughput.
    pub channels: u8,
    /// The messages' `content_type`.
    pub content_type: String,
    /// The CloudEvents source.
    pub source: Arc<str>,
    /// Larger bodies are rejected unsent; `None` takes the broker's default by its version. Set it to the broker's
    /// `max_message_size` where that was changed.
    pub body_bytes_max: Option<usize>,
}

impl DestinationOptions {
    /// JSON messages to `exchange` over one channel.
    pub fn new(connect: ConnectOptions, exchange: impl Into<String>) -> Self {
        Self {
            connect,
            exchange: exchange.into(),
            channels: 1,
            content_type: "application/json".to_owned(),
            source: "consign".into(),
            body_bytes_max: None,
        }
    }
}

/// A destination that publishes to one exchange, mandatory and persistent, one outcome for each message.
#[derive(Debug)]
pub struct RabbitMqDestination {
    mapping: Mapping,
    origin: Instant,
    supervisor: Supervisor,
    body_bytes_max: Arc<AtomicUsize>,
    window: Vec<watch::Receiver<Option<Publisher>>>,
    next: AtomicUsize,
    quarantine: Quarantine,
    /// Keep the window channels open; ended with the destination.
    _keepers: JoinSet<()>,
}

impl RabbitMqDestination {
    /// Starts connecting and returns at once. `origin` is the moment the relay's monotonic clock counts from. Must
    /// run on a tokio runtime.
    pub fn new(options: DestinationOptions, origin: Instant) -> Self {
        let DestinationOptions { connect, exchange, channels, content_type, source, body_bytes_max } =
            options;
        let supervisor = Supervisor::start(connect.clone(), "publisher");
        let limit = Arc::new(AtomicUsize::new(body_bytes_max.unwrap_or(BODY_BYTES_MAX_BEFORE_4)));
        let mut keepers = JoinSet::new();
        let window = (0..channels.clamp(1, 4))
            .map(|_| {
                let (slot, receiver) = watch::channel(None);
                let limit = body_bytes_max.is_none().then(|| Arc::clone(&limit));
                keepers.spawn(keep_channel(supervisor.connection(), slot, limit));
                receiver
            })
            .collect();
        Self {
            mapping: Mapping { exchange, content_type, source },
            origin,
            supervisor,
            body_bytes_max: limit,
            window,
            next: AtomicUsize::new(0),
            quarantine: Quarantine::new(connect),
            _keepers: keepers,
        }
    }

    fn message(&self, publish: Publish) -> Result<Publication, Outcome> {
        let rejected = |reason| Outcome::Rejected { reason };
        let publication = self.mapping.publication(&publish.event, publish.route.key).map_err(rejected)?;
        let (bytes, limit) = (publication.body.len(), self.body_bytes_max.load(Ordering::Relaxed));
        if bytes > limit {
            return Err(rejected(format!(
                "the payload has {bytes} bytes, the broker takes at most {limit}: shrink it, or raise the broker's \
                 max_message_size and the destination's body_bytes_max"
            )));
        }
        Ok(publication)
    }

    async fn publish_in_window(&self, publication: Publication, deadline: Instant) -> Outcome {
        let publisher = match timeout_at(deadline, self.window_channel()).await {
            Ok(Ok(publisher)) => publisher,
            Ok(Err(reason)) => return refused(reason),
            Err(_) => return refused("no channel was open before the publish deadline".to_owned()),
        };
        let publishing = publisher.publish(publication, deadline);
        // On its way to the socket, or through it.
        failpoint::pass("publish.before_confirm");
        let verdict = publishing.await;
        let beside = if self.window.len() == 1 { Company::Alone } else { Company::Others };
        outcome(verdict, publisher.id(), publisher.ended(), beside)
    }

    /// An open window channel; waits while one is being reopened on a ready connection.
    async fn window_channel(&self) -> Result<Publisher, String> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.window.len();
        let slot = &self.window[turn];
        if let Some(publisher) = open(slot.borrow().as_ref()) {
            return Ok(publisher);
        }
        let (mut slot, mut readiness) = (slot.clone(), self.supervisor.readiness());
        loop {
            if let Some(publisher) = open(slot.borrow_and_update().as_ref()) {
                return Ok(publisher);
            }
            if let Readiness::Unavailable(reason) = &*readiness.borrow_and_update() {
                return Err(reason.clone());
            }
            tokio::select! {
                Ok(()) = slot.changed() => {}
                Ok(()) = readiness.changed() => {}
                else => return Err("the destination is closed".to_owned()),
            }
        }
    }
}

fn open(publisher: Option<&Publisher>) -> Option<Publisher> {
    publisher.filter(|publisher| publisher.is_open()).cloned()
}

impl Destination for RabbitMqDestination {
    async fn publish(&self, lane: Lane, publish: Publish) -> Outcome {
        let deadline = self.origin + publish.deadline.since_origin();
        let publication = match self.message(publish) {
            Ok(publication) => publication,
            Err(rejected) => return rejected,
        };
        match lane {
            Lane::Window => self.publish_in_window(publication, deadline).await,
            Lane::Quarantine => self.quarantine.publish(publication, deadline).await,
        }
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        let mut readiness = self.supervisor.readiness();
        let mut slots = self.window.clone();
        loop {
            let now = match &*readiness.borrow_and_update() {
                Readiness::Accepting if !slots.iter_mut().any(is_open) => {
                    Readiness::Unavailable("no channel is open yet".to_owned())
                }
                now => now.clone(),
            };
            if now != *known {
                return now;
            }
            // The senders live as long as the destination, which is borrowed here.
            tokio::select! {
                _ = readiness.changed() => {}
                () = any_changed(&mut slots) => {}
            }
        }
    }
}

fn is_open(slot: &mut watch::Receiver<Option<Publisher>>) -> bool {
    slot.borrow_and_update().as_ref().is_some_and(Publisher::is_open)
}

/// Resolves when any of the slots changes.
async fn any_changed(slots: &mut [watch::Receiver<Option<Publisher>>]) {
    let mut changes: Vec<_> = slots.iter_mut().map(|slot| Box::pin(slot.changed())).collect();
    std::future::poll_fn(|context| {
        if changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Opens a window channel, again and again: on every new connection, and after the broker closed it.
async fn keep_channel(
    mut connections: Opening,
    slot: watch::Sender<Option<Publisher>>,
    limit: Option<Arc<AtomicUsize>>,
) {
    /// A channel that lived this long is reopened at once.
    const HEALTHY_AFTER: Duration = Duration::from_secs(1);
    /// The connection lives and the culprits wait in quarantine: good messages must not wait long for a channel.
    const PAUSE_MAX: Duration = Duration::from_millis(500);
    let mut backoff = Backoff::new();
    while let Some(connection) = connections.next().await {
        if let Some(limit) = &limit {
            limit.store(body_bytes_max(connection.server()), Ordering::Relaxed);
        }
        let asked_at = Instant::now();
        let why = match connection.open_publisher().await {
            Ok(publisher) => {
                slot.send_replace(Some(publisher.clone()));
                publisher.closed().await
            }
            Err(error) => error,
        };
        slot.send_replace(None);
        if !connection.is_open() {
            backoff.reset();
            continue;
        }
        tracing::warn!(incarnation = connection.incarnation(), reason = %why, "a publisher channel was closed");
        if asked_at.elapsed() > HEALTHY_AFTER {
            backoff.reset();
        } else {
            sleep(backoff.pause().min(PAUSE_MAX)).await;
        }
    }
}

fn body_bytes_max(server: &ServerInfo) -> usize {
    let major = server.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(4..) if server.product == "RabbitMQ" => BODY_BYTES_MAX_FROM_4,
        _ => BODY_BYTES_MAX_BEFORE_4,
    }
}

/// One message at a time, on a channel and connection of its own: what happens to either is this message's doing,
/// and nobody else's messages share its fate.
#[derive(Debug)]
struct Quarantine {
    options: ConnectOptions,
    turn: Semaphore,
    publisher: Mutex<Option<Publisher>>,
}

impl Quarantine {
    fn new(mut options: ConnectOptions) -> Self {
        options.connection_name.get_or_insert_with(|| "consign quarantine".to_owned());
        Self { options, turn: Semaphore::new(1), publisher: Mutex::new(None) }
    }

    async fn publish(&self, publication: Publication, deadline: Instant) -> Outcome {
        let prepared = timeout_at(deadline, async {
            let turn = self.turn.acquire().await.map_err(|_| "the destination is closed".to_owned())?;
            Ok::<_, String>((turn, self.open().await?))
        });
        let (turn, publisher) = match prepared.await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(reason)) => return refused(reason),
            Err(_) => {
                return refused("the quarantine channel was not free before the publish deadline".to_owned());
            }
        };
        let verdict = publisher.publish(publication, deadline).await;
        let ended = publisher.ended();
        let id = publisher.id();
        // A channel that owes a confirm is not handed on: the next message would not be alone there.
        let settled = matches!(
            verdict,
            consign_amqp::Verdict::Acked { .. }
                | consign_amqp::Verdict::Nacked
                | consign_amqp::Verdict::Returned { .. }
                | consign_amqp::Verdict::NotSent { .. }
        );
        if settled && publisher.is_open() {
            self.slot().replace(publisher);
        }
        drop(turn);
        outcome(verdict, id, ended, Company::Alone)
    }

    async fn open(&self) -> Result<Publisher, String> {
        if let Some(publisher) = self.slot().take().filter(Publisher::is_open) {
            return Ok(publisher);
        }
        let connection = Connection::open(&self.options).await.map_err(|error| with_causes(&error))?;
        // The connection lives as long as its last handle: the publisher.
        connection.open_publisher().await.map_err(|error| error.to_string())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Publisher>> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(reason: String) -> Outcome {
    Outcome::Refused { reason, retry_after: None }
}
