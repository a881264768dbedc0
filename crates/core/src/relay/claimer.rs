//! Claims: when to ask for rows, for how many, and where each one waits.

use std::time::Duration;

use crate::lease::{Claim, ClaimRequest};
use crate::ports::{Claimed, StoreError};
use crate::route::Route;
use crate::safeguard::{Safeguard, stands};
use crate::time::{Draw, Monotonic};

use super::circuit::Admission;
use super::outlet::Outlet;
use super::{Command, Phase, Relay, Report};

/// How long a row without a route waits.
const NO_ROUTE_DELAY: Duration = Duration::from_secs(30);

impl<D: Draw> Relay<D> {
    pub(super) fn has_room(&self) -> bool {
        let weight: usize =
            self.outlets.values().map(Outlet::held_weight).sum::<usize>() + self.chains.weight();
        let batch_rows = self.settings.batch_rows as usize;
        let draining = self.phase != Phase::Running && stands(Safeguard::NoClaimInDrain);
        let claiming = self.claiming && stands(Safeguard::OneClaim);
        // What cannot be settled must not be added to.
        let unsettled = self.settle_backoff.failing() && stands(Safeguard::NoClaimWhileUnsettled);
        !draining
            && !claiming
            && !unsettled
            && self.alone.is_none()
            && self.alone_flight.is_none()
            && (self.held() + batch_rows <= self.settings.held_rows.max(2 * batch_rows)
                || !stands(Safeguard::RoomBeforeClaim))
            && weight + self.settings.batch_bytes <= self.settings.held_bytes.max(self.settings.batch_bytes)
    }

    /// How many rows to claim at `now`: none while every destination is unavailable, one for a probe.
    pub(super) fn claim_size(&self, now: Monotonic) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        // Rows for a destination in quarantine would only wait.
        let open = self.outlets.values().filter(|outlet| !outlet.quarantining());
        let mut admissions = open.map(|outlet| outlet.circuit.admission(now));
        let probe = admissions.clone().any(|admission| admission == Admission::Probe);
        if admissions.any(|admission| admission == Admission::Full) || self.outlets.is_empty() {
            Some(self.settings.batch_rows)
        } else {
            probe.then_some(1)
        }
    }

    pub(super) fn claim(&mut self, now: Monotonic) {
        if now < self.claim_due {
            return;
        }
        let Some(limit) = self.claim_size(now) else { return };
        let bits = if stands(Safeguard::FreshToken) { self.draw.bits() } else { [7; 16] };
        let request = ClaimRequest::new(limit, self.settings.batch_bytes, self.settings.lease, bits, now);
        self.claiming = true;
        self.commands.push_back(Command::Claim(request));
    }

    pub(super) fn claimed(&mut self, now: Monotonic, claimed: Claimed) {
        self.claiming = false;
        self.claim_backoff.succeeded();
        let rows = claimed.claims.len() + claimed.malformed.len();
        self.totals.claimed += rows as u64;
        self.poll = if rows == 0 {
            (self.poll * 2).clamp(self.settings.poll_min, self.settings.poll_max)
        } else {
            self.settings.poll_min
        };
        // A store that has more but gave nothing is asked again after the pause: its rows are locked by others.
        self.claim_due = if claimed.more && rows > 0 { now } else { now.plus(self.poll) };
        for settlement in claimed.malformed {
            self.push_settlement(now, settlement);
        }
        // Every row of a chain is known before its first one takes off: when that one goes back at once, all do.
        let free: Vec<Claim> =
            claimed.claims.into_iter().filter_map(|claim| self.chains.enlist(claim)).collect();
        for claim in free {
            self.accept(now, claim);
        }
    }

    pub(super) fn accept(&mut self, now: Monotonic, claim: Claim) {
        if self.phase != Phase::Running {
            return self.push_settlement(now, claim.release(Duration::ZERO, ""));
        }
        match self.routes.resolve(claim.event()) {
            Err(error) => {
                self.report(Report::NoRoute(claim.event().id.clone(), error.to_string()));
                self.push_settlement(now, claim.release(NO_ROUTE_DELAY, error.to_string()));
            }
            Ok(route) if !claim.suspect || !stands(Safeguard::SuspectAlone) => self.queue(now, claim, route),
            Ok(route) if self.alone.is_none() => self.alone = Some((claim, route)),
            Ok(_) => self.push_settlement(now, claim.release(Duration::ZERO, "one suspect at a time")),
        }
    }

    /// One destination that is slow must not fill the relay's hands while others could go on: what it cannot take for
    /// long goes back.
    fn queue(&mut self, now: Monotonic, claim: Claim, route: Route) {
        const SURPLUS_DELAY: Duration = Duration::from_secs(1);
        let shared = self.outlets.len() > 1;
        let (rows, bytes) = (self.settings.batch_rows as usize, self.settings.batch_bytes);
        let outlet = self.outlet(&route.destination);
        if shared && outlet.crowded(rows, bytes) {
            let delay = outlet.return_delay(now, SURPLUS_DELAY);
            self.push_settlement(now, claim.release(delay, "the destination is slow"));
        } else {
            outlet.queue(claim, route);
        }
    }

    pub(super) fn claim_failed(&mut self, now: Monotonic, error: StoreError) {
        self.claiming = false;
        self.claim_due = now.plus(self.claim_backoff.failed(&error, &mut self.draw));
        self.report(Report::Store("claim", error));
    }

    /// A missed wake-up costs latency, and one during a store failure changes nothing.
    pub(super) fn wake(&mut self, now: Monotonic) {
        self.poll = self.settings.poll_min;
        if !self.claim_backoff.failing() {
            self.claim_due = now;
        }
    }
}
