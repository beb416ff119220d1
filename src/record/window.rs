//! What each server did in the last minutes: its changes of state, how many calls it had, how long they took, and how
//! many failed.
//!
//! **Invariant:** a call pays nothing for this. The numbers are differences between readings of the counters
//! (`counts`), which are taken once a second while a feed is about servers. So they reach back only to the first such
//! reading.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use super::feed::State;
use crate::answered::End;
use crate::counts::{DURATIONS, Group, ServerCounts};

/// How many changes of a server's state are kept.
const CHANGES: usize = 64;
/// How long one slice is, and how many there are: five minutes.
const SLICE: u64 = 10_000;
const SLICES: usize = 30;
/// Over how many milliseconds the rate is taken.
const RATE: u64 = 10_000;
/// The kinds of requests that are calls.
const CALLS: [Group; 6] =
    [Group::ToolsCall, Group::PromptsGet, Group::ResourcesRead, Group::Complete, Group::Tasks, Group::Other];
/// The outcomes that count as errors.
const ERRORS: [End; 3] = [End::ToolError, End::Error, End::HostError];

/// The last changes of all servers' states, by name.
#[derive(Default)]
pub(super) struct Timelines(BTreeMap<Arc<str>, VecDeque<(u64, Arc<State>)>>);

/// One change, as feeds show it.
#[derive(Debug, Serialize)]
pub(crate) struct Moment {
    at: u64,
    from: &'static str,
    to: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

impl Timelines {
    pub(super) fn push(&mut self, at: u64, state: &Arc<State>) {
        let changes = self.0.entry(state.server.clone()).or_default();
        if changes.len() == CHANGES {
            changes.pop_front();
        }
        changes.push_back((at, state.clone()));
    }

    pub(super) fn of(&self, server: &str) -> Vec<Moment> {
        let moment = |(at, state): &(u64, Arc<State>)| Moment {
            at: *at,
            from: state.from,
            to: state.to,
            cause: state.cause.as_deref().map(str::to_owned),
        };
        self.0.get(server).into_iter().flatten().map(moment).collect()
    }

    pub(super) fn forget(&mut self, server: &str) {
        self.0.remove(server);
    }
}

/// How many calls were in each bucket of durations.
type Taken = [u64; DURATIONS.len() + 1];

/// What was counted of one server up to a moment.
#[derive(Clone, Default)]
struct Reading {
    at: u64,
    calls: u64,
    errors: u64,
    /// Shared by all readings between which no call ended.
    taken: Arc<Taken>,
}

impl Reading {
    /// Reads the counters. `before` is the last reading, if there is one.
    fn of(counts: &ServerCounts, at: u64, before: Option<&Self>) -> Self {
        let (mut calls, mut errors, mut taken) = (0, 0, Taken::default());
        for group in CALLS {
            calls += End::ALL.iter().map(|end| counts.calls(group, *end)).sum::<u64>();
            errors += ERRORS.iter().map(|end| counts.calls(group, *end)).sum::<u64>();
            let durations = counts.durations(group).unwrap_or_default();
            taken.iter_mut().zip(durations.counts).for_each(|(sum, (_, count))| *sum += count);
        }
        let same = before.map(|before| &before.taken).filter(|before| ***before == taken);
        Self { at, calls, errors, taken: same.cloned().unwrap_or_else(|| taken.into()) }
    }
}

/// The readings of one server.
#[derive(Default)]
struct Readings {
    /// One for the end of each slice, the oldest first.
    slices: VecDeque<Reading>,
    /// The time and the calls of each second, the oldest first.
    seconds: VecDeque<(u64, u64)>,
    last: Reading,
}

/// The readings of all servers, by name.
#[derive(Default)]
pub(super) struct Windows {
    servers: BTreeMap<String, Readings>,
    last: u64,
}

/// What a server did lately.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Lately {
    /// Calls that ended in a second, over the last ten.
    rate: f64,
    /// How many milliseconds 50, 95, and 99 of 100 calls took at most, over five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p95: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    /// Calls that failed, over five minutes in slices of ten seconds, the oldest first; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<u64>,
}

impl Windows {
    /// Reads the counters, unless that was done in this second.
    pub(super) fn read<'a>(&mut self, now: u64, servers: impl Iterator<Item = (&'a str, &'a ServerCounts)>) {
        if now < self.last + 900 && now >= self.last {
            return;
        }
        // The last reading is older than all slices together, or the clock was set back.
        if now < self.last || now > self.last + SLICE * SLICES as u64 {
            self.servers.clear();
        }
        self.last = now;
        let mut before = std::mem::take(&mut self.servers);
        for (name, counts) in servers {
            let mut readings = before.remove(name).unwrap_or_default();
            let reading = Reading::of(counts, now, readings.slices.back().map(|_| &readings.last));
            readings.seconds.push_back((now, reading.calls));
            while readings.seconds.front().is_some_and(|(first, _)| now - first > RATE) {
                readings.seconds.pop_front();
            }
            while readings.slices.front().is_some_and(|first| now - first.at > SLICE * SLICES as u64) {
                readings.slices.pop_front();
            }
            if readings.slices.back().is_none_or(|last| now / SLICE != last.at / SLICE) {
                readings.slices.push_back(reading.clone());
            }
            readings.last = reading;
            self.servers.insert(name.to_owned(), readings);
        }
    }

    /// Returns what a server did lately.
    pub(super) fn of(&self, server: &str) -> Lately {
        let Some(Readings { slices, seconds, last: now }) = self.servers.get(server) else { return Lately::default() };
        let (Some((first, calls)), Some(oldest)) = (seconds.front(), slices.front()) else { return Lately::default() };
        let mut buckets = *now.taken;
        buckets.iter_mut().zip(*oldest.taken).for_each(|(now, before)| *now -= before.min(*now));
        let at = |share: f64| percentile(&buckets, share);
        Lately {
            rate: rate(now.calls.saturating_sub(*calls), now.at - first),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            errors: errors(slices, now),
        }
    }
}

/// Returns the errors of each slice.
fn errors(slices: &VecDeque<Reading>, now: &Reading) -> Vec<u64> {
    let mut errors = vec![0; SLICES];
    let ends = slices.iter().skip(1).chain([now]);
    for (begin, end) in slices.iter().zip(ends) {
        let back = usize::try_from(now.at / SLICE - begin.at / SLICE).unwrap_or(usize::MAX);
        if let Some(slice) = SLICES.checked_sub(1 + back).and_then(|at| errors.get_mut(at)) {
            *slice += end.errors.saturating_sub(begin.errors);
        }
    }
    if errors.iter().all(|count| *count == 0) { Vec::new() } else { errors }
}

/// Returns how many calls there are in a second, with tenths.
fn rate(calls: u64, milliseconds: u64) -> f64 {
    let Ok(tenths) = u32::try_from(calls.saturating_mul(10_000) / milliseconds.max(1000)) else { return f64::MAX };
    f64::from(tenths) / 10.0
}

/// Returns the time, in milliseconds, that this share of calls took at most, interpolated within its bucket. A time
/// above the last bound counts as that bound.
#[expect(clippy::cast_precision_loss, reason = "a share of so many calls has no exact place anyway")]
fn percentile(buckets: &Taken, share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    if all == 0 {
        return None;
    }
    let (wanted, mut below) = (all as f64 * share, 0.0);
    let mut lower = 0.0;
    for (count, bound) in buckets.iter().zip(DURATIONS) {
        let (count, upper) = (*count as f64, bound as f64 / 1e6);
        if below + count >= wanted && count > 0.0 {
            let time = lower + (upper - lower) * (wanted - below) / count;
            return Some((time * 10.0).round() / 10.0);
        }
        below += count;
        lower = upper;
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::counts::{Counts, Over, Tally};
    use crate::protocol::Method;

    fn call(counts: &Counts, end: End, took: Duration) {
        let (tally, begun) = (Tally::default(), Instant::now());
        tally.begin(&Method::ToolsCall, true, 0, begun);
        tally.goes_to(&counts.of("a"));
        tally.close(counts, &Over { end, kind: None, bytes_out: 0, at: begun + took });
    }

    #[test]
    fn a_window_has_the_last_minutes_and_no_more() {
        let (counts, mut windows) = (Counts::default(), Windows::default());
        call(&counts, End::Error, Duration::from_secs(1));
        let server = counts.of("a");
        let read = |windows: &mut Windows, second: u64| windows.read(second * 1000, std::iter::once(("a", &*server)));
        read(&mut windows, 100);
        assert_eq!(windows.of("a"), Lately::default(), "what was before somebody looked is not known");
        for _ in 0..20 {
            call(&counts, End::Ok, Duration::from_micros(900));
        }
        call(&counts, End::ToolError, Duration::from_millis(150));
        read(&mut windows, 102);
        let lately = windows.of("a");
        assert_eq!((lately.rate, lately.p50, lately.p99), (10.5, Some(0.5), Some(179.0)));
        assert_eq!((lately.errors.len(), lately.errors[29]), (30, 1));
        (103..=130).for_each(|second| read(&mut windows, second));
        let lately = windows.of("a");
        assert_eq!((lately.rate, lately.errors[26], lately.errors.iter().sum::<u64>()), (0.0, 1, 1));
        (131..=500).for_each(|second| read(&mut windows, second));
        assert_eq!(windows.of("a"), Lately::default());
        assert_eq!(windows.of("b"), Lately::default());
    }

    #[test]
    fn a_pause_or_a_clock_that_is_set_back_begins_anew() {
        let (counts, mut windows) = (Counts::default(), Windows::default());
        let server = counts.of("a");
        windows.read(1_000_000, std::iter::once(("a", &*server)));
        call(&counts, End::Ok, Duration::ZERO);
        windows.read(2_000_000, std::iter::once(("a", &*server)));
        assert_eq!(windows.of("a"), Lately::default());
        call(&counts, End::Ok, Duration::ZERO);
        windows.read(5_000, std::iter::once(("a", &*server)));
        assert_eq!(windows.of("a"), Lately::default());
    }

    #[test]
    fn percentiles_are_within_their_buckets() {
        let mut buckets = [0; DURATIONS.len() + 1];
        assert_eq!(percentile(&buckets, 0.5), None);
        buckets[3] = 100;
        assert_eq!((percentile(&buckets, 0.5), percentile(&buckets, 0.99)), (Some(7.5), Some(10.0)));
        buckets[17] = 1000;
        assert_eq!(percentile(&buckets, 0.95), Some(300_000.0));
    }
}
