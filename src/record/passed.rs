//! The last calls without events, in brief: those that began while no feed watched calls, and those beyond the limit
//! for one second. They become calls that feeds see when a feed asks for the past. While a feed watches, they are
//! counted by server.
//!
//! **Invariant:** keeping a call costs it a lock, writing a slot of two cache lines that exists already, and freeing
//! the oldest call. The wall clock is read once a second at most, since reading it costs as much as the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::unix_ms;
use crate::answered::{End, Kind};
use crate::counts::Waits;
use crate::observe::{Noted, Passed, Whose};
use crate::protocol::Method;

/// How many calls are kept unless a limit is set.
pub(super) const USUAL: usize = 1000;
/// For how long one reading of the wall clock is used. While a machine sleeps, the wall clock goes on and the other
/// clock stops.
const LOOK: Duration = Duration::from_secs(1);

/// One call, as small as it can be.
#[derive(Debug)]
pub(super) struct Brief {
    /// When it began, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) method: Method,
    pub(super) client: Option<Arc<str>>,
    pub(super) door: Option<&'static str>,
    /// The server and the target, if it was routed.
    pub(super) aim: Option<(Arc<Whose>, Arc<str>)>,
    /// Tenths of milliseconds: the whole call, and in `waits` the waits for its server, its turn, and a person.
    took: u32,
    waits: [u32; 3],
    bytes_in: u32,
    bytes_out: u32,
    pub(super) end: End,
    pub(super) kind: Option<Kind>,
    pub(super) is_cached: bool,
    /// What only few calls have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug)]
struct Rare {
    via: Option<&'static str>,
    rule: Option<Arc<str>>,
}

impl Brief {
    fn new(at: u64, passed: Passed) -> Self {
        let Passed { noted, at: aim, rule, is_cached, bytes_in, took, waits, over, .. } = passed;
        let Noted { method, client, door, via } = noted;
        let tenths = |time: Duration| u32::try_from(time.as_micros() / 100).unwrap_or(u32::MAX);
        let bytes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let is_rare = via.is_some() || rule.is_some();
        Self {
            at,
            method,
            client,
            door,
            aim,
            took: tenths(took),
            waits: [waits.server, waits.turn, waits.person].map(tenths),
            bytes_in: bytes(bytes_in),
            bytes_out: bytes(over.bytes_out),
            end: over.end,
            kind: over.kind,
            is_cached,
            rare: is_rare.then(|| Box::new(Rare { via, rule })),
        }
    }

    /// Returns how long it took, and how much of that it waited for others.
    pub(super) fn times(&self) -> (Duration, Waits) {
        let time = |tenths: u32| Duration::from_micros(u64::from(tenths) * 100);
        let [server, turn, person] = self.waits.map(time);
        (time(self.took), Waits { server, turn, person })
    }

    /// Returns the bytes of the request and of the answer.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let bytes = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        (bytes(self.bytes_in), bytes(self.bytes_out))
    }

    pub(super) fn via(&self) -> Option<&'static str> {
        self.rare.as_ref().and_then(|rare| rare.via)
    }

    /// Returns the rule that decided.
    pub(super) fn rule(&self) -> Option<Arc<str>> {
        self.rare.as_ref().and_then(|rare| rare.rule.clone())
    }
}

/// How many calls of one server had no events.
#[derive(Debug)]
pub(super) struct Counted {
    /// `None` for calls that went to no server.
    of: Option<Arc<Whose>>,
    pub(super) calls: u64,
    pub(super) failed: u64,
}

impl Counted {
    /// Returns the server's alias; it is empty for calls that went to no server.
    pub(super) fn server(&self) -> &str {
        self.of.as_ref().map_or("", |whose| &whose.server)
    }

    fn is_of(&self, aim: Option<&(Arc<Whose>, Arc<str>)>) -> bool {
        match (&self.of, aim) {
            (Some(of), Some((whose, _))) => Arc::ptr_eq(of, whose),
            (None, None) => true,
            _ => false,
        }
    }
}

/// The last calls without events.
#[derive(Debug)]
pub(super) struct LastPassed {
    most: usize,
    /// The oldest first.
    ring: VecDeque<Brief>,
    /// The counts since they were last taken, and the second in which they began.
    counted: Vec<Counted>,
    second: u64,
    /// The last reading of the wall clock.
    seen: Option<(Instant, u64)>,
}

impl Default for LastPassed {
    fn default() -> Self {
        Self { most: USUAL, ring: VecDeque::new(), counted: Vec::new(), second: 0, seen: None }
    }
}

impl LastPassed {
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
        self.ring.drain(..self.ring.len().saturating_sub(most));
    }

    /// Adds a call, and counts it if `counts`. Returns the oldest call if there is no room for it any more.
    pub(super) fn push(&mut self, call: Passed, counts: bool, now: impl FnOnce() -> SystemTime) -> Option<Brief> {
        let over = call.over.at;
        let since = |seen: Instant| over.saturating_duration_since(seen);
        let (seen, at) = match self.seen.filter(|(seen, _)| since(*seen) < LOOK) {
            Some(seen) => seen,
            None => *self.seen.insert((over, unix_ms(now()))),
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let ended = at.saturating_add(ms(since(seen)));
        if counts {
            self.count(&call, ended / 1000);
        }
        let began = ended.saturating_sub(ms(call.took));
        let brief = Brief::new(began, call);
        if self.most == 0 {
            return Some(brief);
        }
        let oldest = if self.ring.len() >= self.most { self.ring.pop_front() } else { None };
        self.ring.push_back(brief);
        oldest
    }

    fn count(&mut self, call: &Passed, second: u64) {
        if self.counted.is_empty() {
            self.second = second;
        }
        let failed = u64::from(matches!(call.over.end, End::ToolError | End::Error | End::HostError));
        match self.counted.iter_mut().find(|counted| counted.is_of(call.at.as_ref())) {
            Some(counted) => {
                counted.calls += 1;
                counted.failed += failed;
            }
            None => {
                let of = call.at.as_ref().map(|(whose, _)| whose.clone());
                self.counted.push(Counted { of, calls: 1, failed });
            }
        }
    }

    /// Takes the counts, once their second is over.
    pub(super) fn counted(&mut self, now: u64) -> Vec<Counted> {
        if self.second == now / 1000 {
            return Vec::new();
        }
        let mut all: Vec<Counted> = Vec::new();
        for counted in self.counted.drain(..) {
            // After a reload, the counts of one server may be in two entries of the same name.
            match all.iter_mut().find(|known| known.server() == counted.server()) {
                Some(known) => {
                    known.calls += counted.calls;
                    known.failed += counted.failed;
                }
                None => all.push(counted),
            }
        }
        all
    }

    pub(super) fn forget_counts(&mut self) {
        self.counted.clear();
    }

    /// Takes all of them, the oldest first.
    pub(super) fn take(&mut self) -> VecDeque<Brief> {
        std::mem::take(&mut self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_two_cache_lines() {
        assert!(size_of::<Brief>() <= 128, "{}", size_of::<Brief>());
    }
}
