//! What is done between processes and servers, by proxies.

use std::time::Duration;

use anyhow::Result;
use consign_conformance::proxy::{Cut, Direction, Flow, Proxy};
use tokio::time::sleep;

use crate::stage::Stage;

/// How long a trouble lasts.
const SPELL: Duration = Duration::from_secs(3);
const DELAY: Duration = Duration::from_millis(300);
const BYTES_PER_SECOND: u64 = 64 * 1024;

/// The troubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// RST for every connection of the relays to the database.
    StoreReset,
    /// Nothing passes between relays and database, and nobody is told.
    StoreHalfOpen,
    /// Statements of the relays arrive, COMMIT too, and the answers do not.
    StoreAnswersLost,
    /// Every answer of the database to the relays is late.
    StoreDelay,
    /// RST for every connection of the relays to the broker.
    BrokerReset,
    /// RST in the middle of what a relay sends.
    BrokerCutInFrame,
    /// Nothing passes between relays and broker, and nobody is told.
    BrokerHalfOpen,
    /// Messages arrive, and the confirms do not.
    ConfirmsLost,
    /// The confirms come after the publish deadline.
    ConfirmsLate,
    /// 64 KiB per second to the broker, in slices.
    BrokerSlow,
    /// Acknowledgements of the consumers do not arrive.
    AcksLost,
    /// Statements of the consumers arrive, COMMIT too, and the answers do not.
    InboxAnswersLost,
}

/// Does it for a while, and heals it.
pub async fn strike(stage: &mut Stage, trouble: Trouble) -> Result<()> {
    use Direction::{ToClient, ToServer};
    let network = &stage.network;
    match trouble {
        Trouble::StoreReset => network.relays_store.cut(Cut::Reset),
        Trouble::StoreHalfOpen => lose(&network.relays_store, &[ToServer, ToClient]).await,
        Trouble::StoreAnswersLost => lose(&network.relays_store, &[ToClient]).await,
        Trouble::StoreDelay => spell(&network.relays_store, ToClient, Flow::Delay(DELAY)).await,
        Trouble::BrokerReset => network.relays_broker.cut(Cut::Reset),
        Trouble::BrokerCutInFrame => {
            let bytes = stage.random.between(1000, 20_000);
            spell(&network.relays_broker, ToServer, Flow::CutAfter(bytes)).await;
        }
        Trouble::BrokerHalfOpen => lose(&network.relays_broker, &[ToServer, ToClient]).await,
        Trouble::ConfirmsLost => lose(&network.relays_broker, &[ToClient]).await,
        Trouble::ConfirmsLate => spell(&network.relays_broker, ToClient, Flow::Hold).await,
        Trouble::BrokerSlow => spell(&network.relays_broker, ToServer, Flow::Slow(BYTES_PER_SECOND)).await,
        Trouble::AcksLost => lose(&network.consumers_broker, &[ToServer]).await,
        Trouble::InboxAnswersLost => lose(&network.consumers_store, &[ToClient]).await,
    }
    Ok(())
}

/// Something happens to the bytes for a while.
async fn spell(proxy: &Proxy, direction: Direction, flow: Flow) {
    proxy.set(direction, flow);
    sleep(SPELL).await;
    proxy.heal();
}

/// Bytes vanish for a while. What follows them on the same connection would make no sense to anybody, so connections
/// end before bytes pass again.
async fn lose(proxy: &Proxy, directions: &[Direction]) {
    for &direction in directions {
        proxy.set(direction, Flow::Swallow);
    }
    sleep(SPELL).await;
    proxy.cut(Cut::Reset);
    proxy.heal();
}
