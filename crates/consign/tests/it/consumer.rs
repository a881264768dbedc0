//! What becomes of deliveries that are repeats, contradictions, early, late, refused, or bad.

use std::time::Duration;

use consign::consumer::ConflictPolicy;

use crate::world::{
    AWARDS, CONFLICTS, DEAD, HANGS, MARKERS, PANICS, PARKED, Paid, World, paid, step, within,
};

#[tokio::test]
async fn a_backlog_is_applied_in_few_transactions_and_its_repeats_once() {
    let world = World::new().await;
    for order in 0..200 {
        world.publish(&paid(order, 5)).await;
        if order % 4 == 0 {
            world.publish(&paid(order, 5)).await;
        }
    }

    let consumer = world.start(world.consumer(false).await, |_| {}).await;
    world.until_queued(0).await;
    let end = consumer.drain().await;

    assert_eq!((end.totals.applied, end.totals.duplicates), (200, 50), "{end:?}");
    assert!(end.totals.batches < 100, "{end:?}");
    assert_eq!(world.number("SELECT points FROM account WHERE user = 7").await, 1000);
    assert_eq!((world.number(MARKERS).await, world.number(AWARDS).await), (200, 200));
}

/// Back-off must not block the head of the queue.
#[tokio::test]
async fn a_refused_delivery_waits_in_the_database_while_others_pass_and_is_applied_later() {
    let world = World::new().await;
    world.publish(&Paid { user: 8, ..paid(1, 5) }).await;
    for order in 2..20 {
        world.publish(&paid(order, 5)).await;
    }

    let consumer = world.start(world.consumer(false).await, |settings| settings.attempts_max = 1000).await;
    world.until_queued(0).await;
    world.until(AWARDS, 18).await;
    assert_eq!(world.number(PARKED).await, 1, "the refused one is kept");
    world.open_account(8).await;
    world.until(AWARDS, 19).await;
    world.until(PARKED, 0).await;
    let end = consumer.drain().await;

    assert_eq!((end.totals.applied, end.totals.dead), (19, 0), "{end:?}");
    assert_eq!(world.number("SELECT points FROM account WHERE user = 8").await, 5);
}

#[tokio::test]
async fn attempts_are_counted_across_restarts_and_end_among_the_dead() {
    let world = World::new().await;
    world.publish(&Paid { user: 8, ..paid(1, 5) }).await;

    for attempt in 1..=2 {
        let consumer = world.start(world.consumer(false).await, |_| {}).await;
        world.until("SELECT COALESCE(MAX(attempts), 0) FROM consign_parked_delivery", attempt).await;
        consumer.drain().await;
    }
    let consumer = world.start(world.consumer(false).await, |_| {}).await;
    world.until(DEAD, 1).await;
    world.until(PARKED, 0).await;
    consumer.drain().await;

    assert_eq!(world.texts("SELECT reason FROM consign_dead_delivery").await, ["0 accounts, not 1"]);
    assert_eq!((world.number(MARKERS).await, world.number(AWARDS).await), (0, 0));
}

#[tokio::test]
async fn a_step_that_comes_early_waits_for_the_one_before_it_even_over_a_restart() {
    let world = World::new().await;
    world.publish(&step(1, 3)).await;
    world.publish(&step(1, 2)).await;

    let consumer = world.start(world.consumer(true).await, |_| {}).await;
    world.until(PARKED, 2).await;
    world.until_queued(0).await;
    consumer.drain().await;
    let consumer = world.start(world.consumer(true).await, |_| {}).await;
    world.publish(&step(1, 1)).await;
    world.until(AWARDS, 3).await;
    world.until(PARKED, 0).await;
    let end = consumer.drain().await;

    assert_eq!(
        world.texts("SELECT CAST(version AS TEXT) FROM award ORDER BY id").await,
        ["1", "2", "3"],
        "{end:?}"
    );
}

#[tokio::test]
async fn a_gap_that_never_closes_ends_among_the_dead_with_both_versions() {
    let world = World::new().await;
    world.publish(&step(1, 2)).await;

    let consumer =
        world.start(world.consumer(true).await, |settings| settings.gap_wait = Duration::ZERO).await;
    world.until(DEAD, 1).await;
    consumer.drain().await;

    assert_eq!(
        world.texts("SELECT reason FROM consign_dead_delivery").await,
        ["version 2 of order:1 came before version 1"]
    );
    assert_eq!((world.number(AWARDS).await, world.number(MARKERS).await), (0, 0));
}

#[tokio::test]
async fn an_old_step_is_stale_and_acknowledged() {
    let world = World::new().await;
    world.publish(&step(1, 1)).await;

    let consumer = world.start(world.consumer(true).await, |_| {}).await;
    world.until(AWARDS, 1).await;
    // The same version under another key: not the operation that was applied, and not newer either.
    world.publish_raw(r#"{"order":1,"user":7,"amount":1,"version":0}"#).await;
    world.until_queued(0).await;
    let end = consumer.drain().await;

    assert_eq!((end.totals.applied, end.totals.stale), (1, 1), "{end:?}");
    assert_eq!(world.number(AWARDS).await, 1);
}

#[tokio::test]
async fn a_conflict_is_recorded_and_acknowledged_by_default() {
    let world = World::new().await;
    world.publish(&paid(1, 5)).await;
    world.publish(&paid(1, 6)).await;

    let consumer = world.start(world.consumer(false).await, |_| {}).await;
    world.until_queued(0).await;
    let end = consumer.drain().await;

    assert_eq!((end.totals.applied, end.totals.conflicts, end.halted), (1, 1, None));
    assert_eq!((world.number(CONFLICTS).await, world.number(DEAD).await), (1, 0));
}

#[tokio::test]
async fn a_conflict_goes_to_the_dead_letters_when_the_policy_says_so() {
    let world = World::new().await;
    world.publish(&paid(1, 5)).await;
    world.publish(&paid(1, 6)).await;

    let consumer = world
        .start(world.consumer(false).await, |settings| settings.on_conflict = ConflictPolicy::DeadLetter)
        .await;
    world.until_queued(0).await;
    consumer.drain().await;

    assert_eq!((world.number(CONFLICTS).await, world.number(DEAD).await), (1, 1));
}

#[tokio::test]
async fn a_conflict_stops_the_consumer_when_the_policy_says_so_and_stays_in_the_queue() {
    let world = World::new().await;
    world.publish(&paid(1, 5)).await;
    world.publish(&paid(1, 6)).await;

    let consumer = world
        .start(world.consumer(false).await, |settings| settings.on_conflict = ConflictPolicy::Stop)
        .await;
    let end = consumer.ended().await;

    assert!(end.halted.as_deref().is_some_and(|reason| reason.contains("order:1:paid")), "{end:?}");
    assert_eq!((world.number(CONFLICTS).await, world.queued().await), (1, 1));
    assert_eq!(world.number("SELECT points FROM account WHERE user = 7").await, 5);
}

#[tokio::test]
async fn a_handler_that_panics_or_hangs_leaves_nothing_and_its_neighbours_are_applied() {
    for bad in [PANICS, HANGS] {
        let world = World::new().await;
        for order in 0..10 {
            world.publish(&paid(order, if order == 5 { bad } else { 5 })).await;
        }

        let consumer = world.start(world.consumer(false).await, |settings| settings.attempts_max = 1).await;
        world.until(DEAD, 1).await;
        world.until_queued(0).await;
        let end = consumer.drain().await;

        assert_eq!((end.totals.applied, end.totals.dead), (9, 1), "{end:?}");
        assert_eq!(world.number("SELECT points FROM account WHERE user = 7").await, 45);
        let reasons = world.texts("SELECT reason FROM consign_dead_delivery").await;
        let expected = if bad == PANICS { "panicked" } else { "took longer" };
        assert!(reasons[0].contains(expected), "{reasons:?}");
    }
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_goes_to_the_dead_letters_at_once_without_its_content() {
    let world = World::new().await;
    world.publish_raw(r#"{"order":"secret"}"#).await;

    let consumer = world.start(world.consumer(false).await, |_| {}).await;
    world.until(DEAD, 1).await;
    within(world.until_queued(0)).await;
    consumer.drain().await;

    let reasons = world.texts("SELECT reason FROM consign_dead_delivery").await;
    assert!(!reasons[0].contains("secret"), "{reasons:?}");
}

/// Without the table, refused deliveries wait in hand, as they did before it existed.
#[tokio::test]
async fn a_database_without_the_table_of_parked_deliveries_still_retries() {
    let world = World::new().await;
    world.number("SELECT COUNT(*) FROM consign_parked_delivery").await;
    world.drop_parked().await;
    world.publish(&Paid { user: 8, ..paid(1, 5) }).await;

    let consumer = world.start(world.consumer(false).await, |settings| settings.attempts_max = 1000).await;
    world.publish(&paid(2, 5)).await;
    world.until(AWARDS, 1).await;
    world.open_account(8).await;
    world.until(AWARDS, 2).await;
    consumer.drain().await;
}
