//! Requests and settlements the way the relay engine makes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled, Settlement};
use consign_core::time::Monotonic;

const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A request for `limit` rows under a token nobody had before.
pub fn request(limit: u32) -> ClaimRequest {
    request_with_bytes(limit, BYTES_MAX)
}

/// The same with a byte limit.
pub fn request_with_bytes(limit: u32, bytes_max: usize) -> ClaimRequest {
    ClaimRequest::new(limit, bytes_max, Duration::from_secs(30), random(), Monotonic::default())
}

/// Bits that differ at every call and in every process, which is all the suite needs of them.
fn random() -> [u8; 16] {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::SeqCst);
    let process = u64::from(std::process::id());
    let mut bits = [0; 16];
    bits[..8].copy_from_slice(&process.to_be_bytes());
    bits[8..].copy_from_slice(&call.to_be_bytes());
    bits
}

/// How often a contended unit is tried again, as the relay does.
const CONTENDED_TRIES: u32 = 50;

/// Claims; a contended store is asked again.
pub async fn claim<S: OutboxStore>(store: &S, limit: u32) -> Claimed {
    claim_as(store, || request(limit)).await
}

/// Claims with requests made by `make`; a contended store is asked again.
pub async fn claim_as<S: OutboxStore>(store: &S, make: impl Fn() -> ClaimRequest) -> Claimed {
    for _ in 1..CONTENDED_TRIES {
        match store.claim(make()).await {
            Err(StoreError::Contended(_)) => {}
            result => return result.expect("the claim succeeds"),
        }
    }
    store.claim(make()).await.expect("the claim succeeds")
}

/// Settles a batch for the first time.
pub async fn settle<S: OutboxStore>(store: &S, settlements: Vec<Settlement>) -> Vec<Settled> {
    settle_batch(store, &SettleBatch { settlements, repeat: false }).await
}

/// Settles a batch; a contended store is asked again.
pub async fn settle_batch<S: OutboxStore>(store: &S, batch: &SettleBatch) -> Vec<Settled> {
    for _ in 1..CONTENDED_TRIES {
        match store.settle(batch).await {
            Err(StoreError::Contended(_)) => {}
            result => return result.expect("the settle succeeds"),
        }
    }
    store.settle(batch).await.expect("the settle succeeds")
}

/// The ids of a claim, in its order.
pub fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.claims.iter().map(|claim| claim.event().id.as_str()).collect()
}
