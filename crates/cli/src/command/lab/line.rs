//! The way to the broker, which can be made to lose what is sent: a cable to a server, the lock of a queue file.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, Transaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::life::Life;
use super::place::Broker;
use super::record::{Actor, What};

/// The way.
pub struct Line<'a> {
    life: &'a Life,
    kind: Kind,
}

enum Kind {
    Cable(Cable),
    /// Another process writes to the file for a long time.
    Lock(Option<Transaction<'static, Sqlite>>),
}

impl<'a> Line<'a> {
    /// A sound line.
    pub async fn open(life: &'a Life) -> anyhow::Result<Self> {
        let kind = match &life.place.broker {
            Broker::File(_) => Kind::Lock(None),
            Broker::RabbitMq(_) => {
                let options = life.place.rabbitmq()?;
                Kind::Cable(Cable::start(options.host.clone(), options.port).await?)
            }
            Broker::RocketMq(cluster) => {
                let (host, port) = cluster.first_proxy()?;
                Kind::Cable(Cable::start(host, port).await?)
            }
        };
        Ok(Self { life, kind })
    }

    /// The port it begins at; `None` where there is no network.
    pub const fn port(&self) -> Option<u16> {
        match &self.kind {
            Kind::Cable(cable) => Some(cable.port),
            Kind::Lock(_) => None,
        }
    }

    /// Loses what is sent from now on, without a word.
    pub async fn lose(&mut self) -> anyhow::Result<()> {
        match &mut self.kind {
            Kind::Cable(cable) => cable.state.send_modify(|state| state.swallows = true),
            Kind::Lock(held) => {
                let Broker::File(path) = &self.life.place.broker else { unreachable!("a lock is on a file") };
                let url = format!("sqlite:{}", path.display());
                let pool = SqlitePoolOptions::new().max_connections(1).connect(&url).await?;
                *held = Some(pool.begin_with("BEGIN IMMEDIATE").await?);
            }
        }
        self.life.tell(Actor::Operator, What::LineDead, None);
        Ok(())
    }

    /// Ends the connections that lost something, and carries again.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        match &mut self.kind {
            Kind::Cable(cable) => {
                cable.state.send_modify(|state| *state = State { swallows: false, cuts: state.cuts + 1 });
                self.life.tell(Actor::Operator, What::LineCut, None);
            }
            Kind::Lock(held) => {
                if let Some(held) = held.take() {
                    held.rollback().await?;
                }
            }
        }
        self.life.tell(Actor::Operator, What::LineRestored, None);
        Ok(())
    }
}

#[derive(Clone, Copy, Default)]
struct State {
    swallows: bool,
    cuts: u32,
}

/// Carries TCP connections to a server.
struct Cable {
    port: u16,
    state: Arc<watch::Sender<State>>,
}

impl Cable {
    async fn start(host: String, upstream: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on a local port")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(watch::Sender::new(State::default()));
        let states = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((host.as_str(), upstream)).await else { continue };
                tokio::spawn(carry(client, server, states.subscribe()));
            }
        });
        Ok(Self { port, state })
    }
}

async fn carry(client: TcpStream, server: TcpStream, mut state: watch::Receiver<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let cuts = state.borrow_and_update().cuts;
    let flowing = state.clone();
    tokio::select! {
        () = pump(from_client, to_server, Some(flowing)) => {}
        () = pump(from_server, to_client, None) => {}
        // An error means that the lab is over.
        _ = state.wait_for(|state| state.cuts != cuts) => {}
    }
}

/// Copies until either end closes; reads on while bytes are to be lost, so that their sender believes in them.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: Option<watch::Receiver<State>>) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let swallows = state.as_ref().is_some_and(|state| state.borrow().swallows);
        if !swallows && to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

/// How long hand-written code waits for an answer before it gives up.
pub const PATIENCE: Duration = Duration::from_millis(800);
