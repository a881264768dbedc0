//! Where the next claim begins to read.
//!
//! Claims read `idx_pending` from its oldest due row. At its head entries gather that cost time and give nothing: rows
//! that others hold locked, and entries of rows claimed long ago that InnoDB may not purge because some old snapshot could
//! still read them. So each claim leaves a bookmark at the last row it took, and the next one goes on from there.
//!
//! A bookmark is only a hint, and no row is passed by for good:
//! - The statement never begins later than ten seconds ago, so rows that were inserted in the order of their dates and
//!   committed up to ten seconds late are never passed by.
//! - What lies before the bookmark all the same is seen by the next *full look*, which begins at the oldest row: rows
//!   inserted with an old date, rows that were locked, rows of a claim that was rolled back, rows whose date compares
//!   otherwise around the end of daylight saving time. Every 32nd claim is a full look, and so is every claim after
//!   one that brought fewer rows than it asked for; the first such claim looks again itself.
//! - Full looks take at most a sixteenth of the time: after a slow one the next waits for sixteen times as long as it
//!   took, but never more than ten seconds. On a table without such entries this never waits longer than 32 claims.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Every so many claims one is a full look.
const CLAIMS: u32 = 32;
/// After a full look the next waits for this many times as long as it took.
const REST: u32 = 16;
/// It waits no longer than this.
const REST_MAX: Duration = Duration::from_secs(10);

/// A row's place in the order of claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its date as the database wrote it, in the time zone of all sessions. Never read by the process.
    pub(crate) available_at: String,
    pub(crate) event_id: String,
}

/// The bookmark that all claims of one outbox share.
#[derive(Debug, Default)]
pub(crate) struct Bookmark(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    place: Option<Place>,
    /// Claims since the last full look.
    claims: u32,
    /// The last claim brought fewer rows than it asked for.
    short: bool,
    /// No full look before this moment, unless there is no place.
    rests_until: Option<Instant>,
}

impl Bookmark {
    /// Where to begin; `None` is a full look.
    pub(crate) fn start(&self, now: Instant) -> Option<Place> {
        let mut state = self.state();
        state.claims += 1;
        let wanted = state.short || state.claims >= CLAIMS;
        if wanted && state.rested(now) {
            // Claims at the same time need not look as well.
            state.claims = 0;
            state.short = false;
            return None;
        }
        state.place.clone()
    }

    /// Whether a claim that began at a place and brought fewer rows than it asked for does a full look itself.
    pub(crate) fn looks_again(&self, now: Instant) -> bool {
        self.state().rested(now)
    }

    /// A full look took from `began` to `ended`.
    pub(crate) fn looked(&self, began: Instant, ended: Instant) {
        let rest = ended.duration_since(began).saturating_mul(REST).min(REST_MAX);
        let mut state = self.state();
        state.claims = 0;
        state.rests_until = Some(ended + rest);
    }

    /// A claim took rows up to `last`, if any. `short`: it found fewer than it asked for.
    pub(crate) fn took(&self, last: Option<Place>, short: bool) {
        let mut state = self.state();
        state.short = short;
        if last.is_some() {
            state.place = last;
        }
    }

    /// A claim failed: whatever it passed is looked at again.
    pub(crate) fn forget(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn rested(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn place(id: &str) -> Place {
        Place { available_at: "2026-01-02 03:04:05.000006".into(), event_id: id.into() }
    }

    /// A bookmark at `a` after a full look that took `took`, and the moment that look ended.
    fn after_a_look(took: Duration) -> (Bookmark, Instant) {
        let bookmark = Bookmark::default();
        let began = Instant::now();
        assert_eq!(bookmark.start(began), None);
        bookmark.looked(began, began + took);
        bookmark.took(Some(place("a")), false);
        (bookmark, began + took)
    }

    #[test]
    fn claims_go_on_where_the_last_one_ended() {
        let (bookmark, now) = after_a_look(MOMENT);

        assert_eq!(bookmark.start(now), Some(place("a")));
        bookmark.took(Some(place("b")), false);
        assert_eq!(bookmark.start(now), Some(place("b")));
    }

    #[test]
    fn every_thirty_second_claim_is_a_full_look() {
        let (bookmark, mut now) = after_a_look(MOMENT);

        for _ in 0..3 {
            for _ in 0..31 {
                now += MOMENT;
                assert_eq!(bookmark.start(now), Some(place("a")));
            }
            now += MOMENT;
            assert_eq!(bookmark.start(now), None);
            bookmark.looked(now, now + MOMENT);
        }
    }

    #[test]
    fn a_short_claim_looks_again_and_so_does_the_one_after_it() {
        let (bookmark, ended) = after_a_look(MOMENT);
        let now = ended + MOMENT * REST;

        assert_eq!(bookmark.start(now), Some(place("a")));
        assert!(bookmark.looks_again(now));
        bookmark.looked(now, now + MOMENT);
        bookmark.took(None, true);
        let later = now + MOMENT + MOMENT * REST;

        assert_eq!(bookmark.start(later), None);
        bookmark.looked(later, later);
        bookmark.took(None, false);
        assert_eq!(bookmark.start(later), Some(place("a")), "a claim without rows leaves the place as it is");
    }

    #[test]
    fn a_slow_look_is_followed_by_a_rest_that_has_an_end() {
        let (bookmark, ended) = after_a_look(Duration::from_millis(100));
        bookmark.took(None, true);
        let early = ended + Duration::from_millis(1_599);
        for _ in 0..100 {
            assert_eq!(bookmark.start(early), Some(place("a")));
            assert!(!bookmark.looks_again(early));
        }
        assert_eq!(bookmark.start(ended + Duration::from_millis(1_600)), None);

        let (bookmark, ended) = after_a_look(Duration::from_hours(1));
        bookmark.took(None, true);
        assert_eq!(bookmark.start(ended + REST_MAX), None);
    }

    #[test]
    fn claims_at_the_same_time_do_not_all_look() {
        let (bookmark, ended) = after_a_look(MOMENT);
        bookmark.took(None, true);
        let now = ended + MOMENT * REST;

        assert_eq!(bookmark.start(now), None);
        assert_eq!(bookmark.start(now), Some(place("a")));
    }

    #[test]
    fn after_a_failure_the_next_claim_looks() {
        let (bookmark, ended) = after_a_look(Duration::from_hours(1));

        bookmark.forget();

        assert_eq!(bookmark.start(ended), None);
    }
}
