//! Which partitions a relay keeps, takes and gives up at one look at all of them.

use std::collections::BTreeSet;

/// One partition as it stands in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u16,
    /// Whose it is.
    pub holder: Holder,
}

/// Whose a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody's: free, or its holder's lease has ended.
    Nobody,
    /// This relay's, under the token it knows.
    Me,
    /// Another relay's.
    Other,
}

/// What a relay does with the partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// Those it keeps under the tokens they have.
    pub keep: Vec<u16>,
    /// Those it takes, each under a new token.
    pub take: Vec<u16>,
    /// Those it gives up.
    pub give: Vec<u16>,
}

/// Decides. `relays` are the names of all live relays, this one called `me`.
///
/// The share of each follows from the names alone, so the shares add up to all partitions and every relay reaches its
/// own without talking to the others: who has too many gives, who has too few takes what is free.
pub fn rebalance(slots: &[Slot], relays: &BTreeSet<String>, me: &str) -> Rebalance {
    let share = share(slots.len(), relays, me);
    let of = |holder| slots.iter().filter(move |slot| slot.holder == holder).map(|slot| slot.number);
    let mut keep: Vec<u16> = of(Holder::Me).collect();
    let give = keep.split_off(share.min(keep.len()));
    let take = of(Holder::Nobody).take(share - keep.len()).collect();
    Rebalance { keep, take, give }
}

fn share(slots: usize, relays: &BTreeSet<String>, me: &str) -> usize {
    let others = relays.iter().filter(|relay| *relay != me).count();
    let before = relays.iter().filter(|relay| relay.as_str() < me).count();
    let relays = others + 1;
    slots / relays + usize::from(before < slots % relays)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions and relays that look at them one after the other.
    struct World {
        slots: Vec<Option<&'static str>>,
        relays: BTreeSet<String>,
    }

    impl World {
        fn new(partitions: usize) -> Self {
            Self { slots: vec![None; partitions], relays: BTreeSet::new() }
        }

        fn tick(&mut self, me: &'static str) -> Rebalance {
            self.relays.insert(me.into());
            let slots: Vec<Slot> = (0_u16..)
                .zip(&self.slots)
                .map(|(number, holder)| {
                    let holder = match holder {
                        None => Holder::Nobody,
                        Some(holder) if *holder == me => Holder::Me,
                        Some(_) => Holder::Other,
                    };
                    Slot { number, holder }
                })
                .collect();
            let result = rebalance(&slots, &self.relays, me);
            for number in &result.take {
                self.slots[usize::from(*number)] = Some(me);
            }
            for number in &result.give {
                self.slots[usize::from(*number)] = None;
            }
            result
        }

        fn die(&mut self, relay: &str) {
            self.relays.remove(relay);
            for slot in self.slots.iter_mut().filter(|slot| **slot == Some(relay)) {
                *slot = None;
            }
        }

        fn count(&self, relay: &str) -> usize {
            self.slots.iter().filter(|slot| **slot == Some(relay)).count()
        }
    }

    #[test]
    fn one_relay_takes_everything_and_then_keeps_it() {
        let mut world = World::new(64);

        assert_eq!(world.tick("a").take.len(), 64);
        let again = world.tick("a");

        assert_eq!((again.keep.len(), again.take.len(), again.give.len()), (64, 0, 0));
    }

    #[test]
    fn two_four_and_one_relays_reach_their_shares_within_two_looks_each() {
        let mut world = World::new(64);
        for _ in 0..2 {
            for relay in ["a", "b"] {
                world.tick(relay);
            }
        }
        assert_eq!(["a", "b"].map(|relay| world.count(relay)), [32; 2]);

        for _ in 0..2 {
            for relay in ["c", "a", "d", "b"] {
                world.tick(relay);
            }
        }
        assert_eq!(["a", "b", "c", "d"].map(|relay| world.count(relay)), [16; 4]);

        for relay in ["a", "c", "d"] {
            world.die(relay);
        }
        world.tick("b");
        assert_eq!(world.count("b"), 64);
    }

    #[test]
    fn shares_differ_by_one_at_most_and_leave_nothing_free() {
        for partitions in [1, 2, 5, 16, 64] {
            let mut world = World::new(partitions);
            for _ in 0..3 {
                for relay in ["x", "a", "m"] {
                    world.tick(relay);
                }
            }

            let counts = ["a", "m", "x"].map(|relay| world.count(relay));
            assert_eq!(counts.iter().sum::<usize>(), partitions, "{counts:?}");
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    #[test]
    fn what_another_relay_holds_is_never_touched() {
        let slots = [Holder::Other, Holder::Me, Holder::Nobody, Holder::Other];
        let slots: Vec<Slot> = (0..).zip(slots).map(|(number, holder)| Slot { number, holder }).collect();
        let relays = BTreeSet::from(["a".to_owned(), "b".to_owned()]);

        let result = rebalance(&slots, &relays, "a");

        assert_eq!(result, Rebalance { keep: vec![1], take: vec![2], give: vec![] });
    }
}
