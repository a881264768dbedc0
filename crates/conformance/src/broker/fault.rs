//! Restarts, silence and broken connections.
//!
//! Where there is no connection to break, the negative form holds: an answer cannot get lost, so a publish is
//! Confirmed exactly when its message is in the queue.

use std::time::Duration;

use bytes::Bytes;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Readiness};

use super::BrokerFixture;
use super::traffic::{
    PATIENCE, accept, assert_confirmed, assert_open, event, next, publish, publish_by,
    publish_until_confirmed, ready,
};
use crate::proxy::{Cut, Direction, Flow, Proxy};
use crate::waiting::{eventually, within};

/// A wait for an outcome that will not come.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// What holds where no answer can get lost.
async fn assert_answer_and_message_come_together<F: BrokerFixture>(fixture: &F) {
    assert_confirmed(&publish(fixture, event("certain", "{}")).await);
    assert_eq!(fixture.ready().await, 1);
}

/// Accepts deliveries until `id` came; copies of it that come later are none of a behaviour's business.
async fn accept_until<F: BrokerFixture>(fixture: &F, id: &str) {
    let mut source = fixture.source().await;
    within(PATIENCE, async {
        loop {
            let delivery = next(&mut source).await;
            let found = delivery.message.id.as_deref() == Some(id);
            if accept(delivery).await.is_ok() && found {
                return;
            }
        }
    })
    .await;
}

/// Confirmed messages are durable.
pub async fn a_confirmed_message_survives_a_restart<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    assert_confirmed(&publish(&fixture, event("durable", r#"{"kept":true}"#)).await);

    fixture.restart().await;

    let mut source = fixture.source().await;
    let delivery = next(&mut source).await;
    assert_eq!(delivery.message.id.as_deref(), Some("durable"));
    assert_eq!(&delivery.message.body[..], br#"{"kept":true}"#);
    accept(delivery).await.expect("the receipt is live");
}

/// The same destination and the same source work again after a restart, without help.
pub async fn a_destination_and_a_source_live_on_after_a_restart<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let mut source = fixture.source().await;
    assert_confirmed(&publish(&fixture, event("before", "{}")).await);
    accept(next(&mut source).await).await.expect("the receipt is live");

    fixture.restart().await;

    publish_until_confirmed(&fixture, event("after", "{}")).await;
    let delivery = next(&mut source).await;
    assert_eq!(delivery.message.id.as_deref(), Some("after"));
    accept(delivery).await.expect("the receipt is live");
}

/// A broker that stands still proves nothing, and the publish resolves by its deadline all the same.
pub async fn a_frozen_broker_never_confirms<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    ready(&fixture).await;
    fixture.freeze().await;

    let outcome = publish_by(&fixture, event("frozen", "{}"), fixture.bound_route(), SHORT_WAIT).await;

    fixture.thaw().await;
    assert_open(&outcome);
    publish_until_confirmed(&fixture, event("thawed", "{}")).await;
    accept_until(&fixture, "thawed").await;
}

/// The broker took the message and its confirm got lost: Unknown, and the message is there.
/// Case B31 (`nats-io/nats-server#2921`): the retry carries the same id, so that consumers can tell.
pub async fn swallowed_confirms_leave_the_outcome_unknown<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    ready(&fixture).await;
    proxy.set(Direction::ToClient, Flow::Swallow);

    let outcome = publish_by(&fixture, event("unheard", "{}"), fixture.bound_route(), SHORT_WAIT).await;

    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    heal(proxy);
    publish_until_confirmed(&fixture, event("unheard", "{}")).await;
    eventually(PATIENCE, || async { fixture.ready().await == 2 }).await;
}

/// Bytes that got lost on their way are no proof either.
pub async fn swallowed_publishes_are_never_confirmed<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    ready(&fixture).await;
    proxy.set(Direction::ToServer, Flow::Swallow);

    let outcome = publish_by(&fixture, event("swallowed", "{}"), fixture.bound_route(), SHORT_WAIT).await;

    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    heal(proxy);
    publish_until_confirmed(&fixture, event("swallowed", "{}")).await;
    accept_until(&fixture, "swallowed").await;
}

/// A connection that breaks leaves the outcome open; the next one serves the next publish.
pub async fn a_cut_connection_leaves_the_outcome_open_and_heals<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    for how in [Cut::Reset, Cut::Close] {
        ready(&fixture).await;
        // Without its confirm the publish is still open when the connection goes.
        proxy.set(Direction::ToClient, Flow::Swallow);
        let bytes = proxy.bytes(Direction::ToServer);
        let cut = async {
            eventually(PATIENCE, || async { proxy.bytes(Direction::ToServer) > bytes }).await;
            proxy.cut(how);
        };
        let publish =
            publish_by(&fixture, event("cut", "{}"), fixture.bound_route(), Duration::from_secs(10));

        let (outcome, ()) = tokio::join!(publish, cut);

        assert_open(&outcome);
        proxy.heal();
        publish_until_confirmed(&fixture, event("cut", "{}")).await;
    }
    accept_until(&fixture, "cut").await;
}

/// A message of which only a part went out was not taken.
pub async fn a_connection_cut_in_the_middle_of_a_message_is_never_confirmed<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    ready(&fixture).await;
    proxy.set(Direction::ToServer, Flow::CutAfter(100_000));

    let body = Bytes::from(vec![b'x'; 1024 * 1024]);
    let outcome = publish_by(&fixture, event("half", body.clone()), fixture.bound_route(), SHORT_WAIT).await;

    assert_open(&outcome);
    proxy.heal();
    assert_eq!(fixture.ready().await, 0, "half a message is no message");
    publish_until_confirmed(&fixture, event("half", body)).await;
    eventually(PATIENCE, || async { fixture.ready().await == 1 }).await;
}

/// No connection: Refused, since provably nothing left; the destination says that it is unavailable, and when it is not.
pub async fn an_unreachable_broker_refuses_and_is_waited_for<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    ready(&fixture).await;
    proxy.refuse();
    proxy.cut(Cut::Reset);

    let known = within(PATIENCE, fixture.destination().readiness_after(&Readiness::Accepting)).await;
    assert!(matches!(known, Readiness::Unavailable(_)), "{known:?}");
    let outcome = publish_by(&fixture, event("refused", "{}"), fixture.bound_route(), SHORT_WAIT).await;

    assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    eventually(PATIENCE, || async { proxy.refused() > 0 }).await;
    proxy.heal();
    ready(&fixture).await;
    publish_until_confirmed(&fixture, event("refused", "{}")).await;
    assert_eq!(fixture.ready().await, 1, "the refused copy never left");
}

/// A receipt whose connection is gone settles nothing on the next one, and its message comes again.
/// Where receipts belong to messages, it settles its own message all the same.
/// Case B34 (`rabbitmq/rabbitmq-java-client#343`): an old tag on a new channel kills it or acknowledges a stranger.
pub async fn a_receipt_of_a_lost_connection_settles_nothing_of_the_next_one<F: BrokerFixture>() {
    let fixture = F::fresh().await;
    let Some(proxy) = fixture.proxy() else {
        return assert_answer_and_message_come_together(&fixture).await;
    };
    for id in ["a", "b"] {
        assert_confirmed(&publish(&fixture, event(id, "{}")).await);
    }
    let mut source = fixture.source().await;
    let stale = next(&mut source).await;
    let id = stale.message.id.clone();

    proxy.cut(Cut::Reset);
    if fixture.capabilities().receipts_outlive_connections {
        accept(stale).await.expect("the receipt is the message's");
        let other = next(&mut source).await;
        assert_ne!(other.message.id, id, "an accepted message does not come again");
        accept(other).await.expect("the receipt is live");
        eventually(PATIENCE, || async { fixture.ready().await == 0 }).await;
        return;
    }
    let mut again = next(&mut source).await;
    while !again.message.redelivered && again.message.id != id {
        // The neighbour was prefetched on the old connection or comes first on the new one.
        let _ = accept(again).await;
        again = next(&mut source).await;
    }
    assert!(accept(stale).await.is_err(), "the receipt knows that its connection is gone");

    let mut seen = vec![again.message.id.clone()];
    accept(again).await.expect("the receipt is live");
    while !seen.contains(&id) {
        let delivery = next(&mut source).await;
        seen.push(delivery.message.id.clone());
        accept(delivery).await.expect("the receipt is live");
    }
    eventually(PATIENCE, || async { fixture.ready().await == 0 }).await;
}

fn heal(proxy: &Proxy) {
    // What was swallowed has torn the stream: only a new connection can go on.
    proxy.cut(Cut::Reset);
    proxy.heal();
}
