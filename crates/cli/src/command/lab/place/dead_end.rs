//! A database that does not answer.

use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use super::Place;
use crate::command::lab::database::Database;

/// The place's database as somebody sees it who cannot reach it: connections are taken, and nobody speaks on them.
pub struct DeadEnd {
    /// Every call on it fails after a second.
    pub database: Database,
    _listener: TcpListener,
}

impl DeadEnd {
    /// Begins not to answer.
    pub async fn open(place: &Place) -> anyhow::Result<Self> {
        const SOON: Duration = Duration::from_secs(1);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on a local port")?;
        let store = place.store_at(listener.local_addr()?.port())?;
        Ok(Self { database: Database::open_within(&store, SOON).await?, _listener: listener })
    }
}
