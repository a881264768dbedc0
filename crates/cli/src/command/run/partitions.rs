//! Keeping a relay's share of an ordered outbox: a look at all partitions every so often, until the relay has drained.

use std::sync::Arc;
use std::time::Duration;

use consign::shutdown::Shutdown;
use tokio::time::sleep;

use crate::parts::Partitioned;

/// Looks no rarer than this, so that relays that come and go are noticed within two looks.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// Keeps the partitions of `outbox` for a `lease` at a time; gives them up when it is told to stop.
///
/// A look that fails costs nothing by itself: the partitions stay until their lease ends, and without them the relay
/// claims nothing.
pub async fn keep<O: Partitioned>(outbox: String, store: Arc<O>, lease: Duration, mut stop: Shutdown) {
    let every = (lease / 3).min(LOOK_EVERY_MAX);
    loop {
        match store.hold(lease).await {
            Ok(None) => return,
            Ok(Some(holdings)) if holdings.taken > 0 || holdings.gone > 0 => tracing::info!(
                outbox,
                partitions = holdings.partitions.len(),
                taken = holdings.taken,
                gone = holdings.gone,
                relays = holdings.relays,
                "partitions changed hands"
            ),
            Ok(Some(_)) => {}
            Err(error) => tracing::warn!(outbox, %error, "partitions could not be renewed, trying again"),
        }
        tokio::select! {
            () = sleep(every) => {}
            () = stop.requested() => break,
        }
    }
    if let Err(error) = store.release().await {
        tracing::warn!(outbox, %error, "partitions were not given up, their leases end by themselves");
    }
}
