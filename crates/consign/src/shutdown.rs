//! Asking the parts of a process to drain.

use tokio::sync::watch;

/// The side that asks.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// The side that is asked; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A connected pair. Dropping the trigger asks too.
pub fn shutdown() -> (ShutdownTrigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownTrigger(sender), Shutdown(receiver))
}

impl ShutdownTrigger {
    /// Asks everybody to drain.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Resolves once a drain is asked for.
    pub async fn requested(&mut self) {
        // An error means that the trigger is gone, which asks as well.
        let _ = self.0.wait_for(|asked| *asked).await;
    }
}
