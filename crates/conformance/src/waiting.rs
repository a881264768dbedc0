//! Waiting for conditions, never for time.

use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Longer than any behaviour may take; a test that hangs fails instead.
const TEST_DEADLINE: Duration = Duration::from_mins(2);

/// Resolves when `condition` gives true.
///
/// # Panics
/// The condition does not come true before `deadline`; the message names the caller's line.
#[track_caller]
pub fn eventually<C, F>(deadline: Duration, mut condition: C) -> impl Future<Output = ()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        while !condition().await {
            assert!(Instant::now() < end, "not within {deadline:?}: the condition at {caller}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The result of `work`.
///
/// # Panics
/// It takes longer than `deadline`; the message names the caller's line.
#[track_caller]
pub fn within<F: Future>(deadline: Duration, work: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let result = tokio::time::timeout(deadline, work).await;
        result.unwrap_or_else(|_| panic!("not within {deadline:?}: the work at {caller}"))
    }
}

/// Polls `future` `polls` times, then drops it: a caller that lost patience.
pub async fn drop_after<F: Future>(polls: usize, future: F) {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 || future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs one behaviour on a runtime of its own, as the suites' macros do.
///
/// # Panics
/// The behaviour panics or hangs.
pub fn run<F: Future<Output = ()>>(behaviour: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(within(TEST_DEADLINE, behaviour));
}
