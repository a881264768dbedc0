//! Invariants of the consumers' side, checked whenever something is committed or leaves its place.

use consign_core::time::Monotonic;

use super::facts::{CONSUMER, Fact, Rule};
use super::shared::State;
use super::situations::Met;
use super::tables::{Open, place};
use crate::require;

impl State {
    /// A transaction is committed: its changes become visible, and must be whole.
    pub fn apply(&mut self, number: usize) {
        let open = self.tables.open[number].take().expect("a transaction is committed while it is open");
        self.serials[number] += 1;
        if !self.free {
            self.check_commit(&open);
            self.applied_by.extend(open.entries.iter().map(|entry| (entry.order, open.owner)));
            for entry in &open.entries {
                let last = self.streams.entry(entry.stream).or_default();
                *last = entry.version.max(*last);
            }
            self.note("commits", None, number as u64);
        }
        self.tables.apply(open);
        self.release(number);
    }

    fn check_commit(&mut self, open: &Open) {
        let key = |order: i64| place(CONSUMER, &format!("order:{order}:paid"));
        for (marker, _) in &open.markers {
            let effects = open.entries.iter().filter(|entry| key(entry.order) == *marker).count();
            require!(
                self.book,
                "I16",
                None,
                effects == 1,
                "the marker {marker:?} was committed with {effects} effects"
            );
        }
        for entry in &open.entries {
            let wanted = key(entry.order);
            let marked = open.markers.iter().any(|(marker, _)| *marker == wanted);
            require!(
                self.book,
                "I16",
                None,
                marked,
                "order {} has an effect without its marker",
                entry.order
            );
            let before = self.tables.entries.get(&entry.order).map_or(0, Vec::len);
            require!(self.book, "I17", None, before == 0, "order {} has a second effect", entry.order);
        }
        let points: i64 = open.points.iter().map(|(_, points)| points).sum();
        let amounts: i64 = open.entries.iter().map(|entry| entry.amount).sum();
        let whole = open.points.is_empty() || points == amounts;
        require!(self.book, "I16", None, whole, "{points} points were added for {amounts}");
        self.check_order(open);
    }

    /// I20: what a guard promises, seen in the business table.
    fn check_order(&mut self, open: &Open) {
        let mut last = self.streams.clone();
        for entry in &open.entries {
            let before = last.insert(entry.stream, entry.version).unwrap_or(0);
            let fits = match self.rule {
                Rule::Unguarded => true,
                Rule::ApplyIfNewer => entry.version > before,
                Rule::Sequential => entry.version == before + 1,
            };
            require!(
                self.book,
                "I20",
                None,
                fits,
                "version {} of stream {} was applied after version {before}",
                entry.version,
                entry.stream
            );
        }
    }

    /// I18, I19, I22: a delivery leaves its place only when what became of it is committed.
    pub fn check_gone(&mut self, fact: Option<usize>, how: &str) {
        if self.free {
            return;
        }
        let Some(number) = fact else { return };
        let accounted = self.accounted(number);
        require!(
            self.book,
            "I18",
            fact,
            accounted,
            "{how}, and nothing is committed of {:?}",
            self.facts[number]
        );
    }

    /// True when something committed tells what became of a fact.
    pub fn accounted(&self, number: usize) -> bool {
        let fact = &self.facts[number];
        let id = number.to_string();
        let mine = |message_id: &Option<String>| message_id.as_deref() == Some(id.as_str());
        self.dead(number)
            || self.tables.parked.iter().any(|row| mine(&row.message.id))
            || (!fact.undecodable && (self.applied(fact) || self.conflicting(fact) || self.stale(fact)))
    }

    /// True when a fact was put aside.
    pub fn dead(&self, number: usize) -> bool {
        let id = number.to_string();
        let recorded = self.tables.dead.iter().any(|dead| dead.message_id.as_deref() == Some(id.as_str()));
        recorded || self.deliveries.dead_letters.contains(&number)
    }

    /// True when the fact, or the same fact in another envelope, had its effect.
    fn applied(&self, fact: &Fact) -> bool {
        let entries = self.tables.entries.get(&fact.order);
        entries.is_some_and(|entries| {
            entries.iter().any(|entry| (entry.user, entry.amount) == (fact.user, fact.amount))
        })
    }

    /// True when the fact's content is recorded as a conflict.
    fn conflicting(&self, fact: &Fact) -> bool {
        self.tables.conflicts.values().any(|conflict| {
            let number = self.fact_of(conflict.message_id.as_deref());
            number.is_some_and(|number| self.facts[number].same_as(fact))
        })
    }

    /// True when something newer was applied, and the guard skips what is older.
    fn stale(&self, fact: &Fact) -> bool {
        let last = self.streams.get(&fact.stream).copied().unwrap_or(0);
        self.rule == Rule::ApplyIfNewer && last >= fact.version
    }

    /// I10: only what was refused, or waited too long, is put aside.
    pub fn check_dead(&mut self, fact: Option<usize>) {
        if self.free {
            return;
        }
        let Some(number) = fact else { return };
        let fact = &self.facts[number];
        let guilty = fact.undecodable
            || self.refused_orders.contains(&fact.order)
            || self.missed_users.contains(&fact.user)
            || self.conflicting(fact)
            || self.early.contains(&number);
        require!(self.book, "I10", Some(number), guilty, "put aside for no reason: {:?}", self.facts[number]);
    }

    /// A guard found that a fact came too early: it must be so. Progress only grows, so what it saw was there.
    pub fn check_early(&mut self, number: usize, expected: i64, version: i64) {
        let fact = &self.facts[number];
        let last = self.streams.get(&fact.stream).copied().unwrap_or(0);
        let early = self.rule == Rule::Sequential && fact.version == version && version > expected;
        require!(
            self.book,
            "I20",
            Some(number),
            early && expected <= last + 1,
            "version {version} was called too early for {expected}, and {last} is applied"
        );
        self.early.push(number);
    }

    /// A COMMIT got no answer.
    pub fn lost_commit(&mut self, number: usize, applied: bool) {
        let orders: Vec<i64> =
            self.tables.transaction(number).entries.iter().map(|entry| entry.order).collect();
        self.unknown_commits.extend(orders.into_iter().map(|order| (order, applied)));
    }

    /// The server applies a COMMIT that nobody waits for any more.
    pub fn commit_late(&mut self, number: usize, serial: u64) {
        if self.serials[number] != serial {
            return;
        }
        if self.tables.transaction(number).broken.is_some() {
            self.discard(number);
        } else {
            self.book.met.meet(Met::CommitAppliedLate);
            self.apply(number);
        }
    }

    /// The server notices that a transaction's client is gone.
    pub fn notice(&mut self, number: usize, serial: u64) {
        if self.serials[number] == serial {
            self.discard(number);
        }
    }

    /// True when nothing waits, in the queue or in the database.
    pub fn drained(&self) -> bool {
        self.deliveries.is_empty() && self.tables.parked.is_empty() && self.tables.open_transactions() == 0
    }

    /// I24: at the end each fact that arrived has come to something, and nothing is left anywhere.
    pub fn check_at_the_end(&mut self) {
        for number in 0..self.facts.len() {
            if self.deliveries.arrived(number) && !self.accounted(number) {
                let what = format!("came to nothing: {:?}", self.facts[number]);
                self.book.violate("I24", Some(number), what);
            }
        }
        for (order, entries) in &self.tables.entries {
            let marker = place(CONSUMER, &format!("order:{order}:paid"));
            if entries.len() != 1 || !self.tables.markers.contains_key(&marker) {
                let what = format!("order {order} has {} effects", entries.len());
                self.book.violate("I17", None, what);
            }
        }
        if self.tables.entries.len() != self.tables.markers.len() {
            self.book.violate("I16", None, "there are other markers than effects".into());
        }
    }

    /// L9: what is left long after the faults.
    pub fn check_liveness(&mut self, since: Monotonic) {
        let waited = self.book.now.since(since);
        let what = format!(
            "not drained {waited:?} after the faults: {:?}, {} parked, {} transactions open",
            self.deliveries,
            self.tables.parked.len(),
            self.tables.open_transactions()
        );
        self.book.violate("L9", None, what);
    }
}
