//! A failure made small: what of its faults, events and relays can be left out so that the same invariant breaks.

use crate::options::{Cut, Options};
use crate::run::{Outcome, run_options};

/// So many runs at most: a failure that is not small by then stays as it is.
const RUNS_MAX: u32 = 4_000;

/// A failure, with everything left out that it does not need.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What was left out.
    pub cut: Cut,
    /// The failure, with its trace.
    pub outcome: Outcome,
    /// How many runs it took.
    pub runs: u32,
}

/// Makes the failure of these options small; `None` when they do not fail.
pub fn shrink(options: &Options) -> Option<Shrunk> {
    let whole = run_options(options.clone(), Cut::default(), true);
    let invariant = whole.violation.as_ref()?.invariant;
    let mut shrinker = Shrinker { options, invariant, cut: Cut::default(), best: whole, runs: 1 };
    loop {
        let before = shrinker.cut.clone();
        let kinds: Vec<_> = options.faults.kinds().collect();
        shrinker.leave_out(&kinds, |cut| &mut cut.faults);
        let strikes: Vec<u32> = (0..shrinker.best.struck).collect();
        shrinker.leave_out(&strikes, |cut| &mut cut.strikes);
        let rows: Vec<usize> = (0..options.rows).collect();
        shrinker.leave_out(&rows, |cut| &mut cut.rows);
        let relays: Vec<usize> = (0..options.relays).collect();
        shrinker.leave_out(&relays, |cut| &mut cut.relays);
        if shrinker.cut == before || shrinker.runs >= RUNS_MAX {
            return Some(Shrunk { cut: shrinker.cut, outcome: shrinker.best, runs: shrinker.runs });
        }
    }
}

struct Shrinker<'a> {
    options: &'a Options,
    invariant: &'static str,
    cut: Cut,
    best: Outcome,
    runs: u32,
}

impl Shrinker<'_> {
    /// Leaves out as many of `parts` as it can: halves first, then ever smaller shares, at last each by itself.
    fn leave_out<T: Clone + PartialEq>(&mut self, parts: &[T], list: impl Fn(&mut Cut) -> &mut Vec<T>) {
        let out = list(&mut self.cut).clone();
        let mut left: Vec<T> = parts.iter().filter(|part| !out.contains(part)).cloned().collect();
        let mut size = left.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < left.len() && self.runs < RUNS_MAX {
                let to = left.len().min(from + size);
                let mut cut = self.cut.clone();
                list(&mut cut).extend_from_slice(&left[from..to]);
                if self.fails(cut) {
                    left.drain(from..to);
                } else {
                    from = to;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// True when the same invariant breaks with this much left out, which is kept then.
    fn fails(&mut self, cut: Cut) -> bool {
        self.runs += 1;
        let outcome = run_options(self.options.clone(), cut.clone(), true);
        let fails = outcome.violation.as_ref().is_some_and(|violation| violation.invariant == self.invariant);
        if fails {
            (self.cut, self.best) = (cut, outcome);
        }
        fails
    }
}
