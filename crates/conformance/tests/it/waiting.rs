//! Waiting.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use consign_conformance::waiting::{drop_after, eventually, within};

#[tokio::test]
async fn a_condition_is_looked_at_until_it_holds() {
    let looks = AtomicU32::new(0);

    eventually(Duration::from_secs(10), || async { looks.fetch_add(1, Ordering::SeqCst) == 3 }).await;

    assert_eq!(looks.load(Ordering::SeqCst), 4);
}

#[tokio::test]
#[should_panic(expected = "tests/it/waiting.rs")]
async fn a_condition_that_never_holds_names_the_line_that_waits() {
    eventually(Duration::from_millis(20), || async { false }).await;
}

#[tokio::test]
#[should_panic(expected = "not within 20ms")]
async fn work_that_hangs_fails() {
    within(Duration::from_millis(20), std::future::pending::<()>()).await;
}

#[tokio::test]
async fn a_dropped_future_is_polled_as_often_as_asked() {
    for polls in 0..4 {
        let mut polled = 0;
        let work = std::future::poll_fn(|context| {
            polled += 1;
            context.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        });

        drop_after(polls, work).await;

        assert_eq!(polled, polls);
    }
}
