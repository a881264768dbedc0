//! A scripted proxy: it answers as a test says, and tells the test what came in.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_rocketmq::{Address, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status as GrpcStatus, Streaming};

use crate::messages::*;
use crate::service::messaging_service_server::{MessagingService, MessagingServiceServer};

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that must happen.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// A deadline no test reaches.
pub fn far() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[expect(clippy::unnecessary_wraps, reason = "a status is optional on the wire")]
pub fn status(code: i32) -> Option<Status> {
    Some(Status { code, message: format!("scripted {code}") })
}

/// What came in.
#[derive(Debug)]
pub enum Event {
    Settings(Box<Settings>),
    Heartbeat,
    Sent(MetadataMap),
    Ended(EndTransactionRequest),
    /// A poll began.
    Receiving,
    Acked(AckMessageRequest),
    Changed(ChangeInvisibleDurationRequest),
    Terminated,
}

/// What a call gets.
pub enum Reply<T> {
    Answer(T),
    /// A gRPC status instead of an answer.
    Fails(GrpcStatus),
    /// Nothing, ever.
    Silence,
}

type Script<Q, A> = Mutex<Box<dyn FnMut(&Q) -> Reply<A> + Send>>;

/// What the peer does.
struct Scripts {
    events: mpsc::UnboundedSender<Event>,
    route: Mutex<Vec<MessageQueue>>,
    heartbeat: Script<HeartbeatRequest, HeartbeatResponse>,
    send: Script<SendMessageRequest, SendMessageResponse>,
    change: Script<ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse>,
    receive: Mutex<Vec<ReceiveMessageResponse>>,
    /// Polls wait while this is true.
    polls_wait: watch::Sender<bool>,
    /// The open telemetry streams, for what the peer has to say there.
    streams: Mutex<Vec<mpsc::UnboundedSender<Result<TelemetryCommand, GrpcStatus>>>>,
}

/// A scripted proxy. Dropping it ends it.
pub struct Peer {
    scripts: Arc<Scripts>,
    events: mpsc::UnboundedReceiver<Event>,
    pub address: Address,
    wires: Arc<Mutex<JoinSet<()>>>,
    _tasks: JoinSet<()>,
}

impl Peer {
    /// A peer that says OK to everything and routes all topics to itself.
    pub async fn start() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let ok = |entries| SendMessageResponse { status: status(20000), entries };
        let scripts = Arc::new(Scripts {
            events: sender,
            route: Mutex::default(),
            heartbeat: Mutex::new(Box::new(|_| Reply::Answer(HeartbeatResponse { status: status(20000) }))),
            send: Mutex::new(Box::new(move |request: &SendMessageRequest| {
                Reply::Answer(ok(request.messages.iter().map(|_| entry(20000)).collect()))
            })),
            change: Mutex::new(Box::new(|_| {
                let receipt_handle = "changed".to_owned();
                Reply::Answer(ChangeInvisibleDurationResponse { status: status(20000), receipt_handle })
            })),
            receive: Mutex::default(),
            polls_wait: watch::Sender::new(false),
            streams: Mutex::default(),
        });
        let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = inner.local_addr().unwrap();
        let outer = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::new("127.0.0.1", outer.local_addr().unwrap().port());
        let mut tasks = JoinSet::new();
        let server = MessagingServiceServer::new(Service(scripts.clone()));
        let incoming = tonic::transport::server::TcpIncoming::from(inner);
        let server = tonic::transport::Server::builder().add_service(server).serve_with_incoming(incoming);
        tasks.spawn(async move { server.await.unwrap() });
        // A wire of our own between client and server can be cut.
        let wires = Arc::new(Mutex::new(JoinSet::new()));
        let cut = wires.clone();
        tasks.spawn(async move {
            loop {
                let (mut client, _) = outer.accept().await.unwrap();
                cut.lock().unwrap().spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                });
            }
        });
        let peer = Self { scripts, events, address, wires, _tasks: tasks };
        peer.route(&[&peer.address]);
        peer
    }

    pub fn options(&self) -> Options {
        Options { addresses: vec![self.address.clone()], ..Options::default() }
    }

    /// Routes every topic to brokers behind these proxies, one each.
    pub fn route(&self, addresses: &[&Address]) {
        let queues = addresses.iter().enumerate().map(|(index, address)| {
            let address =
                crate::messages::Address { host: address.host.clone(), port: i32::from(address.port) };
            let endpoints = Endpoints { scheme: AddressScheme::IPv4.into(), addresses: vec![address] };
            MessageQueue {
                permission: Permission::ReadWrite.into(),
                broker: Some(Broker { name: format!("broker-{index}"), id: 0, endpoints: Some(endpoints) }),
                accept_message_types: vec![MessageType::Normal.into()],
                ..MessageQueue::default()
            }
        });
        *self.scripts.route.lock().unwrap() = queues.collect();
    }

    pub fn on_send(
        &self,
        script: impl FnMut(&SendMessageRequest) -> Reply<SendMessageResponse> + Send + 'static,
    ) {
        *self.scripts.send.lock().unwrap() = Box::new(script);
    }

    pub fn on_heartbeat(
        &self,
        script: impl FnMut(&HeartbeatRequest) -> Reply<HeartbeatResponse> + Send + 'static,
    ) {
        *self.scripts.heartbeat.lock().unwrap() = Box::new(script);
    }

    pub fn on_change(
        &self,
        script: impl FnMut(&ChangeInvisibleDurationRequest) -> Reply<ChangeInvisibleDurationResponse>
        + Send
        + 'static,
    ) {
        *self.scripts.change.lock().unwrap() = Box::new(script);
    }

    /// What each receive gets.
    pub fn on_receive(&self, answers: Vec<ReceiveMessageResponse>) {
        *self.scripts.receive.lock().unwrap() = answers;
    }

    /// Lets polls wait for messages, or ends their wait.
    pub fn let_polls_wait(&self, wait: bool) {
        self.scripts.polls_wait.send_replace(wait);
    }

    /// Says this on the open streams.
    pub fn tell(&self, command: &TelemetryCommand) {
        self.scripts.streams.lock().unwrap().retain(|stream| stream.send(Ok(command.clone())).is_ok());
    }

    /// Ends the open streams.
    pub fn end_streams(&self) {
        self.scripts.streams.lock().unwrap().clear();
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.wires.lock().unwrap().abort_all();
    }

    /// The next thing that came in and is wanted.
    pub async fn next<T>(&mut self, what: &str, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let next = async {
            loop {
                let event = self.events.recv().await.expect("the peer is running");
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
        };
        soon(what, next).await
    }

    /// The next settings.
    pub async fn settings(&mut self) -> Settings {
        self.next(
            "settings",
            |event| if let Event::Settings(settings) = event { Some(*settings) } else { None },
        )
        .await
    }

    /// The next end of a transaction.
    pub async fn end(&mut self) -> EndTransactionRequest {
        self.next("an end", |event| if let Event::Ended(end) = event { Some(end) } else { None }).await
    }
}

/// An entry with that code.
pub fn entry(code: i32) -> SendResultEntry {
    SendResultEntry {
        status: status(code),
        message_id: "the-servers".to_owned(),
        transaction_id: if code == 20000 { "tx".to_owned() } else { String::new() },
        offset: 7,
        recall_handle: String::new(),
    }
}

struct Service(Arc<Scripts>);

impl Service {
    fn tell(&self, event: Event) {
        // The test may be over.
        drop(self.0.events.send(event));
    }
}

async fn reply<T>(reply: Reply<T>) -> Result<Response<T>, GrpcStatus> {
    match reply {
        Reply::Answer(answer) => Ok(Response::new(answer)),
        Reply::Fails(status) => Err(status),
        Reply::Silence => std::future::pending().await,
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, GrpcStatus>> + Send>>;

#[tonic::async_trait]
impl MessagingService for Service {
    type ReceiveMessageStream = Answers<ReceiveMessageResponse>;
    type TelemetryStream = Answers<TelemetryCommand>;

    async fn query_route(
        &self,
        _: Request<QueryRouteRequest>,
    ) -> Result<Response<QueryRouteResponse>, GrpcStatus> {
        let message_queues = self.0.route.lock().unwrap().clone();
        Ok(Response::new(QueryRouteResponse { status: status(20000), message_queues }))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, GrpcStatus> {
        self.tell(Event::Heartbeat);
        let scripted = (self.0.heartbeat.lock().unwrap())(request.get_ref());
        reply(scripted).await
    }

    async fn send_message(
        &self,
        request: Request<SendMessageRequest>,
    ) -> Result<Response<SendMessageResponse>, GrpcStatus> {
        let scripted = (self.0.send.lock().unwrap())(request.get_ref());
        self.tell(Event::Sent(request.into_parts().0));
        reply(scripted).await
    }

    async fn receive_message(
        &self,
        _: Request<ReceiveMessageRequest>,
    ) -> Result<Response<Self::ReceiveMessageStream>, GrpcStatus> {
        self.tell(Event::Receiving);
        self.0.polls_wait.subscribe().wait_for(|wait| !wait).await.unwrap();
        let answers = self.0.receive.lock().unwrap().clone();
        Ok(Response::new(Box::pin(tokio_stream::iter(answers.into_iter().map(Ok)))))
    }

    async fn ack_message(
        &self,
        request: Request<AckMessageRequest>,
    ) -> Result<Response<AckMessageResponse>, GrpcStatus> {
        let request = request.into_inner();
        self.tell(Event::Acked(request.clone()));
        // Every other handle has expired.
        let entries = request.entries.into_iter().enumerate().map(|(index, entry)| AckMessageResultEntry {
            message_id: entry.message_id,
            receipt_handle: entry.receipt_handle,
            status: status(if index % 2 == 0 { 20000 } else { 40013 }),
        });
        Ok(Response::new(AckMessageResponse { status: status(30000), entries: entries.rev().collect() }))
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        _: Request<ForwardMessageToDeadLetterQueueRequest>,
    ) -> Result<Response<ForwardMessageToDeadLetterQueueResponse>, GrpcStatus> {
        Ok(Response::new(ForwardMessageToDeadLetterQueueResponse { status: status(20000) }))
    }

    async fn end_transaction(
        &self,
        request: Request<EndTransactionRequest>,
    ) -> Result<Response<EndTransactionResponse>, GrpcStatus> {
        self.tell(Event::Ended(request.into_inner()));
        Ok(Response::new(EndTransactionResponse { status: status(20000) }))
    }

    async fn telemetry(
        &self,
        request: Request<Streaming<TelemetryCommand>>,
    ) -> Result<Response<Self::TelemetryStream>, GrpcStatus> {
        let mut incoming = request.into_inner();
        let (answers, stream) = mpsc::unbounded_channel();
        let weak = answers.downgrade();
        self.0.streams.lock().unwrap().push(answers);
        let events = self.0.events.clone();
        tokio::spawn(async move {
            while let Ok(Some(command)) = incoming.message().await {
                if let Some(telemetry_command::Command::Settings(settings)) = command.command.clone()
                    && let Some(answers) = weak.upgrade()
                {
                    drop(events.send(Event::Settings(Box::new(settings))));
                    drop(answers.send(Ok(TelemetryCommand { status: status(20000), ..command })));
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(stream))))
    }

    async fn notify_client_termination(
        &self,
        _: Request<NotifyClientTerminationRequest>,
    ) -> Result<Response<NotifyClientTerminationResponse>, GrpcStatus> {
        self.tell(Event::Terminated);
        Ok(Response::new(NotifyClientTerminationResponse { status: status(20000) }))
    }

    async fn change_invisible_duration(
        &self,
        request: Request<ChangeInvisibleDurationRequest>,
    ) -> Result<Response<ChangeInvisibleDurationResponse>, GrpcStatus> {
        self.tell(Event::Changed(request.get_ref().clone()));
        let scripted = (self.0.change.lock().unwrap())(request.get_ref());
        reply(scripted).await
    }
}
