//! Giving running relays new settings and routes.

use std::future;

use consign_core::relay::RelaySettings;
use consign_core::route::RouteTable;
use tokio::sync::watch;

/// What may change while a relay runs.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The engine's settings; their order stays what it was.
    pub settings: RelaySettings,
    /// The routes, over the same destinations as before.
    pub routes: RouteTable,
}

/// The side that gives.
#[derive(Debug)]
pub struct ReloadTrigger(watch::Sender<Option<Changes>>);

/// The side that takes; cheap to clone. The default gets nothing, ever.
#[derive(Clone, Debug, Default)]
pub struct Reload(Option<watch::Receiver<Option<Changes>>>);

/// A connected pair.
pub fn reload() -> (ReloadTrigger, Reload) {
    let (sender, receiver) = watch::channel(None);
    (ReloadTrigger(sender), Reload(Some(receiver)))
}

impl ReloadTrigger {
    /// Gives everybody the changes; those not taken yet are replaced.
    pub fn give(&self, changes: Changes) {
        self.0.send_replace(Some(changes));
    }
}

impl Reload {
    /// Resolves with the latest changes not taken yet; never, once nobody can give any. Dropping the future loses none.
    pub async fn taken(&mut self) -> Changes {
        if let Some(receiver) = &mut self.0 {
            while receiver.changed().await.is_ok() {
                if let Some(changes) = receiver.borrow_and_update().clone() {
                    return changes;
                }
            }
        }
        future::pending().await
    }
}
