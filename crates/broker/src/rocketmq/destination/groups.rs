//! One message of a message group at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// The message groups that have a message under way or waiting.
///
/// Order needs more than the right queue: the next message may leave only when the broker has confirmed the previous one
/// (apache/rocketmq's own rule for FIFO). When one does not end Confirmed, those that wait behind it are turned back
/// unsent, so that none of them overtakes its retry. Which event is next after that is for the relay to say: in ordered
/// mode it hands out the next event of an aggregate only when the row before it is settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(Arc<Mutex<HashMap<String, Gate>>>);

#[derive(Debug, Default)]
struct Gate {
    /// Messages under way or waiting.
    inside: usize,
    /// How many did not end Confirmed since the gate is here.
    broken: u64,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why a message of a group may not be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnedBack {
    /// An earlier message of its group was not confirmed.
    Broken,
    /// Earlier messages took until the deadline.
    TooLate,
}

/// The right to send one message of a group.
#[derive(Debug)]
pub(super) struct Turn {
    place: Place,
    confirmed: bool,
    _lock: OwnedMutexGuard<()>,
}

impl Turn {
    /// Ends the turn. Without this call, as when the publish was dropped, the group counts as broken.
    pub fn end(mut self, confirmed: bool) {
        self.confirmed = confirmed;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.confirmed {
            self.place.with(|gate| gate.broken += 1);
        }
    }
}

/// A message's place in its group, under way or waiting.
#[derive(Debug)]
struct Place {
    groups: Groups,
    name: String,
}

impl Place {
    fn with<T>(&self, act: impl FnOnce(&mut Gate) -> T) -> T {
        act(self.groups.lock().get_mut(&self.name).expect("a gate stays while a place in it is held"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut groups = self.groups.lock();
        let gate = groups.get_mut(&self.name).expect("a gate stays while a place in it is held");
        gate.inside -= 1;
        if gate.inside == 0 {
            groups.remove(&self.name);
        }
    }
}

impl Groups {
    /// Waits behind the messages of the group that came earlier.
    pub async fn enter(&self, group: &str, deadline: Instant) -> Result<Turn, TurnedBack> {
        let (place, turn, broken) = {
            let mut groups = self.lock();
            let gate = groups.entry(group.to_owned()).or_default();
            gate.inside += 1;
            let place = Place { groups: self.clone(), name: group.to_owned() };
            (place, Arc::clone(&gate.turn), gate.broken)
        };
        let turn = timeout_at(deadline, turn.lock_owned()).await.map_err(|_| TurnedBack::TooLate)?;
        if place.with(|gate| gate.broken) != broken {
            return Err(TurnedBack::Broken);
        }
        Ok(Turn { place, confirmed: false, _lock: turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_of_a_group_waits_until_the_previous_one_is_confirmed() {
        let groups = Groups::default();
        let first = groups.enter("order:1", soon()).await.unwrap();
        let mut second = Box::pin(groups.enter("order:1", soon()));
        let other = groups.enter("order:2", soon()).await;

        assert!(other.is_ok(), "another group does not wait");
        assert!(futures_now(second.as_mut()).await.is_none());
        first.end(true);
        assert!(second.await.is_ok());
    }

    /// apache/rocketmq: copies 1, 2, 1 are possible only when 2 is sent before 1 is settled.
    #[tokio::test(start_paused = true)]
    async fn those_behind_a_message_without_a_confirm_are_turned_back_and_later_ones_are_not() {
        let groups = Groups::default();
        for dropped in [false, true] {
            let first = groups.enter("order:1", soon()).await.unwrap();
            let (mut second, mut third) =
                (Box::pin(groups.enter("order:1", soon())), Box::pin(groups.enter("order:1", soon())));
            assert!(
                futures_now(second.as_mut()).await.is_none() && futures_now(third.as_mut()).await.is_none()
            );

            if dropped {
                drop(first);
            } else {
                first.end(false);
            }

            assert_eq!(second.await.unwrap_err(), TurnedBack::Broken);
            assert_eq!(third.await.unwrap_err(), TurnedBack::Broken);
            assert!(groups.enter("order:1", soon()).await.is_ok(), "the relay has settled it by now");
        }
        assert!(groups.lock().is_empty(), "nothing is kept of a group without messages");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_behind_a_slow_one_is_turned_back_at_its_deadline() {
        let groups = Groups::default();
        let _first = groups.enter("order:1", soon()).await.unwrap();

        assert_eq!(groups.enter("order:1", soon()).await.unwrap_err(), TurnedBack::TooLate);
    }

    /// What the future comes to at its first poll, if anything.
    async fn futures_now<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
