//! Rare situations by name: a run that never meets one proves nothing about it.
//!
//! Each half of the world lists its own with [`situations!`](crate::situations); [`GROUPS`] puts the lists together.

use std::fmt;

use crate::{inbox, world};

/// A situation as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For instance `settle-fenced`.
    pub name: &'static str,
    /// What it means, as a sentence.
    pub meaning: &'static str,
}

/// All situations there are, in groups.
pub const GROUPS: [&[Entry]; 2] = [world::situations::SITUATIONS, inbox::situations::SITUATIONS];

/// Room for all of them.
const ROOM: usize = 160;

/// One of a group's situations.
pub trait Situation: Copy {
    /// Its place among all.
    fn place(self) -> usize;
}

/// Where the situations of a group begin.
pub const fn base(group: usize) -> usize {
    let mut before = 0;
    let mut next = 0;
    while next < group {
        before += GROUPS[next].len();
        next += 1;
    }
    before
}

/// All situations, in the order of their places.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().copied().flatten()
}

/// How often each situation was met.
#[derive(Clone, PartialEq, Eq)]
pub struct Witness([u64; ROOM]);

impl Default for Witness {
    fn default() -> Self {
        const { assert!(base(GROUPS.len()) <= ROOM, "there is room for every situation") };
        Self([0; ROOM])
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.counts().map(|(entry, count)| (entry.name, count))).finish()
    }
}

impl Witness {
    /// It happened.
    pub fn meet(&mut self, situation: impl Situation) {
        self.0[situation.place()] += 1;
    }

    /// It happened, if the condition holds.
    pub fn meet_if(&mut self, condition: bool, situation: impl Situation) {
        if condition {
            self.meet(situation);
        }
    }

    /// Adds what another one saw.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// How often each situation was met.
    pub fn counts(&self) -> impl Iterator<Item = (&'static Entry, u64)> {
        all().zip(self.0)
    }
}

/// Makes an enum of situations and the list that tells their names and meanings.
#[macro_export]
macro_rules! situations {
    ($group:literal, $($situation:ident $name:literal $meaning:literal,)+) => {
        /// A situation worth meeting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Met {
            $(#[doc = $meaning] $situation,)+
        }

        /// Their names and meanings.
        pub const SITUATIONS: &[$crate::situation::Entry] =
            &[$($crate::situation::Entry { name: $name, meaning: $meaning },)+];

        impl $crate::situation::Situation for Met {
            fn place(self) -> usize {
                const BASE: usize = $crate::situation::base($group);
                BASE + self as usize
            }
        }
    };
}
