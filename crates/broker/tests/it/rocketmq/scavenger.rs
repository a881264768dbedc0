//! Reading what the broker gave up on. The discard topic is shared with everybody who tests transactions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use consign_broker::rocketmq::{DISCARDED_TOPIC, Discarded, Judge, Ruling, Scavenger, TopicKind};

use super::remoting::send_expired_half;
use super::{admin, unique};

/// Rules as told about the ids it knows, and settles everybody else's messages.
#[derive(Default)]
struct Court {
    rulings: Mutex<BTreeMap<String, Ruling>>,
    seen: Mutex<Vec<Discarded>>,
}

impl Court {
    fn rule(&self, id: &str, ruling: Ruling) {
        self.rulings.lock().unwrap().insert(id.to_owned(), ruling);
    }

    /// What was judged of the ids it knows, in order; forgotten by telling.
    fn told(&self) -> Vec<Discarded> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Judge for Court {
    async fn judge(&self, discarded: &Discarded) -> Ruling {
        let ruling = discarded.message_id().and_then(|id| self.rulings.lock().unwrap().get(id).copied());
        if ruling.is_some() {
            self.seen.lock().unwrap().push(discarded.clone());
        }
        ruling.unwrap_or(Ruling::Settled)
    }
}

/// Runs rounds until one has judged so many messages of the test.
async fn rounds_until(scavenger: &Scavenger, court: &Court, count: usize) -> Vec<Discarded> {
    let start = Instant::now();
    let mut told = Vec::new();
    while told.len() < count {
        assert!(start.elapsed() < Duration::from_mins(1), "{count} did not come: {told:?}");
        scavenger.round(court).await.unwrap();
        told.extend(court.told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    told
}

#[tokio::test]
async fn every_given_up_message_is_judged_once_and_an_undecided_one_comes_again() {
    let admin = admin();
    let broker = admin.masters().await.unwrap().remove(0).address;
    let (topic, group) = (unique("half"), unique("scavenger"));
    let [first, second] = [unique("first"), unique("second")];
    admin.create_topic(&topic, TopicKind::Transaction, 1).await.unwrap();
    let scavenger = Scavenger::new(admin.clone(), group.as_str());
    let court = Court::default();
    court.rule(&first, Ruling::Settled);
    court.rule(&second, Ruling::Later);

    send_expired_half(&broker, &topic, &first, b"order 1").await;
    let judged = rounds_until(&scavenger, &court, 1).await;
    assert_eq!(judged.len(), 1);
    assert_eq!(judged[0].message_id(), Some(first.as_str()));
    assert_eq!(judged[0].topic(), Some(topic.as_str()));
    assert_eq!(judged[0].broker, broker);
    assert_eq!(&judged[0].message.body[..], b"order 1");
    assert_eq!(judged[0].message.user_properties().collect::<Vec<_>>(), [("colour", "red")]);

    send_expired_half(&broker, &topic, &second, b"order 2").await;
    let undecided = rounds_until(&scavenger, &court, 2).await;
    for discarded in &undecided {
        assert_eq!(discarded.message_id(), Some(second.as_str()), "the first came again");
    }
    assert!(scavenger.unread().await.unwrap() >= 1);

    // Another process goes on at the place that the broker remembers.
    let successor = Scavenger::new(admin.clone(), group.as_str());
    court.rule(&second, Ruling::Settled);
    let settled = rounds_until(&successor, &court, 1).await;
    assert_eq!(settled[0].message_id(), Some(second.as_str()));
    successor.round(&court).await.unwrap();
    assert_eq!(court.told(), [], "settled messages came again");

    admin.delete_group(&group).await.unwrap();
    admin.delete_topic(&topic).await.unwrap();
}

#[tokio::test]
async fn a_place_behind_the_end_is_brought_back() {
    const FAR: u64 = 1_000_000_000;
    let (admin, group) = (admin(), unique("scavenger"));
    let broker = admin.masters().await.unwrap().remove(0).address;
    let (topic, id) = (unique("half"), unique("id"));
    admin.create_topic(&topic, TopicKind::Transaction, 1).await.unwrap();
    let (scavenger, court) = (Scavenger::new(admin.clone(), group.as_str()), Court::default());
    court.rule(&id, Ruling::Settled);
    send_expired_half(&broker, &topic, &id, b"order 1").await;
    rounds_until(&scavenger, &court, 1).await;
    admin.put_group_offset(&broker, &group, DISCARDED_TOPIC, 0, FAR).await.unwrap();

    scavenger.round(&court).await.unwrap();

    let place = admin.group_offset(&broker, &group, DISCARDED_TOPIC, 0).await.unwrap().unwrap();
    assert!(place < FAR, "{place}");
    admin.delete_group(&group).await.unwrap();
    admin.delete_topic(&topic).await.unwrap();
}
