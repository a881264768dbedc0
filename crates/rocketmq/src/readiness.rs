//! Whether a client can work.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::CallError;
use crate::options::Address;

/// Whether a client can work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// At least one proxy has taken the settings of this client and keeps its stream.
    Connected,
    /// No proxy has: why, as last seen.
    NotConnected(String),
    /// The client was closed.
    Closed,
}

/// How this client stands with each proxy.
#[derive(Default)]
pub(crate) struct Standing {
    proxies: watch::Sender<BTreeMap<Address, Result<(), String>>>,
    readiness: watch::Sender<Readiness>,
}

impl Standing {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Waits until one of these proxies has taken the settings, and names those that have.
    pub(crate) async fn known_among(
        &self,
        addresses: &[Address],
        deadline: Instant,
    ) -> Result<Vec<Address>, CallError> {
        let mut proxies = self.proxies.subscribe();
        let knows = |proxies: &BTreeMap<Address, Result<(), String>>, address: &Address| {
            proxies.get(address).is_some_and(Result::is_ok)
        };
        let waited = timeout_at(
            deadline,
            proxies.wait_for(|proxies| addresses.iter().any(|address| knows(proxies, address))),
        );
        if let Ok(Ok(proxies)) = waited.await {
            return Ok(addresses.iter().filter(|address| knows(&proxies, address)).cloned().collect());
        }
        let proxies = self.proxies.borrow();
        let reason = addresses.iter().find_map(|address| proxies.get(address)?.as_ref().err());
        let reason = reason.map_or("none has answered", String::as_str);
        Err(CallError::not_sent(format!("no proxy has taken the settings of this client: {reason}")))
    }

    /// The proxy has taken the settings.
    pub(crate) fn known(&self, address: &Address) {
        self.proxies.send_modify(|proxies| drop(proxies.insert(address.clone(), Ok(()))));
        self.judge(None);
    }

    /// The stream to the proxy ended, or never was.
    pub(crate) fn lost(&self, address: &Address, reason: &str) {
        let standing = Err(reason.to_owned());
        self.proxies.send_modify(|proxies| drop(proxies.insert(address.clone(), standing)));
        self.judge(Some(reason.to_owned()));
    }

    /// No route names the proxy any more.
    pub(crate) fn gone(&self, address: &Address) {
        self.proxies.send_modify(|proxies| drop(proxies.remove(address)));
        self.judge(Some(format!("{address} is in no route any more")));
    }

    /// A topic has no route.
    pub(crate) fn no_route(&self, topic: &str, error: &CallError) {
        self.judge(Some(format!("topic {topic} has no route: {error}")));
    }

    pub(crate) fn closed(&self) {
        self.readiness.send_replace(Readiness::Closed);
    }

    fn judge(&self, reason: Option<String>) {
        let known = self.proxies.borrow().values().any(Result::is_ok);
        let next = match (known, reason) {
            (true, _) => Readiness::Connected,
            (false, Some(reason)) => Readiness::NotConnected(reason),
            (false, None) => return,
        };
        self.readiness.send_if_modified(|now| {
            let changed = *now != Readiness::Closed && *now != next;
            if changed {
                *now = next;
            }
            changed
        });
    }
}
