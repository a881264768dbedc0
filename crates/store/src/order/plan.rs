//! Which of the due rows one ordered claim takes, and which stand in the way. Decides from rows that were read without
//! locks; what it takes is locked afterwards.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::order::DEAD_DELAY;
use crate::row::cut;

/// Rows behind one that is SENDING come back soon: it takes a broker's answer.
const HELD_DELAY: Duration = Duration::from_millis(100);

/// A NEW row as ordered claims see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// `event_id`.
    pub id: String,
    /// `event_id` of the aggregate's earliest NEW row; a row without an aggregate is its own.
    pub head: String,
    /// True when a row of the aggregate is SENDING.
    pub held: bool,
    /// True when a row of the aggregate before this one is DEAD, and the policy says block.
    pub dead: bool,
    /// Microseconds until the row is due; not positive when it is.
    pub wait_micros: i64,
    /// The payload's size.
    pub payload_bytes: u64,
    /// True when the row was swept twice.
    pub suspect: bool,
}

/// What one claim may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows.
    pub rows: usize,
    /// Payload bytes, though always one row.
    pub bytes: usize,
    /// The number of rows that were looked for; fewer mean that nothing is behind them.
    pub page: usize,
}

impl Limits {
    /// For a request of so many rows and bytes: a few rows more are looked at, since some will have to wait.
    pub fn new(rows: u32, bytes: usize) -> Self {
        let rows = rows as usize;
        Self { rows, bytes, page: rows + rows / 8 + 8 }
    }
}

/// What a claim takes, and what it moves out of the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The rows to take, each with the head of its chain: all heads first, then all second rows, and so on, so that the
    /// rows of an aggregate are in their order and a limit cuts the ends of chains.
    pub rows: Vec<Planned>,
    /// True when the only row is a suspect.
    pub suspect: bool,
    /// Rows that cannot be published for now, by the delay in microseconds after which they are looked at again.
    pub deferred: BTreeMap<i64, Vec<String>>,
    /// True when it is worth coming again at once.
    pub more: bool,
}

/// A row to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// `event_id`.
    pub id: String,
    /// The first row of its chain.
    pub head: String,
}

/// The due rows of one aggregate, in the order of the page.
struct Group<'a> {
    head: &'a str,
    due: Vec<&'a Waiting>,
}

/// The heads whose chains must be read before planning, each with the number of rows to read: those of aggregates with
/// several rows in the page, and those that are not in the page themselves.
pub fn chains_wanted(page: &[Waiting], limits: Limits) -> Vec<(String, u32)> {
    let groups = groups(page).into_iter().filter(|group| !group.is_plain() && !group.is_held());
    groups
        .map(|group| {
            // One more, since the head itself may be none of them.
            let length = (group.due.len() + 1).min(limits.rows);
            (group.head.to_owned(), u32::try_from(length).unwrap_or(u32::MAX))
        })
        .collect()
}

/// Decides. `page` holds due rows, the longest waiting first; `chains` what was read for [`chains_wanted`], each the
/// aggregate's earliest NEW rows in order, due or not.
pub fn plan(page: &[Waiting], chains: &BTreeMap<String, Vec<Waiting>>, limits: Limits) -> Plan {
    let mut deferral = Deferral::default();
    let mut taken: Vec<Vec<&Waiting>> = Vec::new();
    let mut held = Vec::new();
    for group in groups(page) {
        if group.is_held() {
            held.extend(group.due);
            continue;
        }
        let links: Vec<&Waiting> = if group.is_plain() {
            group.due.clone()
        } else {
            // Without its head the chain has changed since; the next claim sees it as it is.
            chains
                .get(group.head)
                .filter(|links| links.first().is_some_and(|link| link.id == group.head))
                .map(|links| links.iter().collect())
                .unwrap_or_default()
        };
        let ready = links.iter().take_while(|link| link.is_ready()).count();
        if let Some(stop) = links.get(ready) {
            let passed: HashSet<&str> = links[..ready].iter().map(|link| link.id.as_str()).collect();
            let behind = group.due.iter().copied().filter(|row| !passed.contains(row.id.as_str()));
            if stop.held {
                held.extend(behind);
            } else {
                deferral.push(stop.delay(), behind);
            }
        }
        let chain = chain(&links[..ready]);
        if !chain.is_empty() {
            taken.push(chain.to_vec());
        }
    }
    let rows = side_by_side(&taken, limits.rows);
    let weights: Vec<(u64, bool)> = rows.iter().map(|row| (row.payload_bytes, row.suspect)).collect();
    let fitting = cut(&weights, limits.bytes);
    let full = page.len() >= limits.page;
    // Rows that wait for a broker's answer are moved only when they keep others from being seen.
    if full && fitting <= limits.rows / 2 {
        deferral.push(HELD_DELAY, held.into_iter());
    }
    let total: usize = taken.iter().map(Vec::len).sum();
    Plan {
        suspect: rows.first().is_some_and(|row| row.suspect),
        more: full || fitting < total,
        rows: rows[..fitting]
            .iter()
            .map(|row| Planned { id: row.id.clone(), head: row.head.clone() })
            .collect(),
        deferred: deferral.0,
    }
}

/// The rows that were had of those planned, in their order: a chain ends before its first row that was not.
pub fn unbroken(planned: &[Planned], had: impl Fn(&str) -> bool) -> Vec<&Planned> {
    let mut broken = HashSet::new();
    planned
        .iter()
        .filter(|row| {
            let whole = !broken.contains(row.head.as_str()) && had(&row.id);
            if !whole {
                broken.insert(row.head.as_str());
            }
            whole
        })
        .collect()
}

impl Group<'_> {
    /// One row, which is the head: nothing else needs to be known.
    fn is_plain(&self) -> bool {
        self.due.len() == 1 && self.due[0].id == self.head
    }

    fn is_held(&self) -> bool {
        self.due.iter().any(|row| row.held)
    }
}

impl Waiting {
    fn is_ready(&self) -> bool {
        !self.held && !self.dead && self.wait_micros <= 0
    }

    /// For how long the rows behind this one have to wait, when it is not ready.
    fn delay(&self) -> Duration {
        if self.dead {
            return DEAD_DELAY;
        }
        Duration::from_micros(u64::try_from(self.wait_micros).unwrap_or(0))
    }
}

fn groups(page: &[Waiting]) -> Vec<Group<'_>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in page {
        let place = *places.entry(row.head.as_str()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group { head: &row.head, due: Vec::new() });
        }
        groups[place].due.push(row);
    }
    groups
}

/// A suspect goes alone, so a chain ends before it, or with it when it is the head.
fn chain<'l, 'a>(ready: &'l [&'a Waiting]) -> &'l [&'a Waiting] {
    match ready.iter().position(|row| row.suspect) {
        Some(0) => &ready[..1],
        Some(place) => &ready[..place],
        None => ready,
    }
}

/// All first rows, then all second ones, and so on, at most `rows_max`.
fn side_by_side<'a>(chains: &[Vec<&'a Waiting>], rows_max: usize) -> Vec<&'a Waiting> {
    let longest = chains.iter().map(Vec::len).max().unwrap_or(0);
    let rows =
        (0..longest).flat_map(|place| chains.iter().filter_map(move |chain| chain.get(place).copied()));
    rows.take(rows_max).collect()
}

/// Rows by the delay they get.
#[derive(Default)]
struct Deferral(BTreeMap<i64, Vec<String>>);

impl Deferral {
    /// Notes rows. Delays are rounded up by at most an eighth: one statement moves all rows of one delay.
    fn push<'a>(&mut self, delay: Duration, rows: impl Iterator<Item = &'a Waiting>) {
        let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
        let ids: Vec<String> = rows.map(|row| row.id.clone()).collect();
        if micros > 0 && !ids.is_empty() {
            self.0.entry(rounded(micros)).or_default().extend(ids);
        }
    }
}

/// The next number that has only its four leading binary digits set.
fn rounded(micros: i64) -> i64 {
    let unit = 1_i64 << (micros.max(1).ilog2().saturating_sub(3));
    micros.saturating_add(unit - 1) / unit * unit
}

#[cfg(test)]
mod tests;
