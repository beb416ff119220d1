//! Notes on a call for listeners that are told of it only when it has ended.
//!
//! **Invariant:** this costs a call next to nothing. Nothing is allocated, no clock is read, and no text is written:
//! the notes are numbers, and references to names that exist anyway. The exception is a target that is longer than a
//! name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::counts::{Over, Tally, Waits};
use crate::lock::lock;
use crate::protocol::Method;
use crate::redact::{Scrubber, without_query};

/// The most bytes of a target that is kept unchanged. A target may be a URI from a client, of any length.
const TARGET: usize = 1024;

/// What reports on calls have to know about a server.
#[derive(Debug)]
pub(crate) struct Whose {
    /// The server's name in errors and logs.
    pub(crate) server: Arc<str>,
    /// Removes the server's secrets from what is reported.
    pub(crate) scrubber: Arc<Scrubber>,
}

/// What is known when a call begins: who calls what.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) method: Method,
    pub(crate) client: Option<Arc<str>>,
    pub(crate) door: Option<&'static str>,
    pub(crate) via: Option<&'static str>,
}

/// The notes on one call.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    is_wanted: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Who calls what; `None` before the call begins, and once it has ended.
    noted: Option<Noted>,
    /// The server and the target; `None` until it is routed.
    at: Option<(Arc<Whose>, Arc<str>)>,
    rule: Option<Arc<str>>,
    is_cached: bool,
    /// How the call ended, if its client gets the answer of another call (a fallback).
    early: Option<Over>,
    /// The number under which a listener knows the call, if the listener was told of the call while it ran.
    number: Option<u64>,
}

/// A call that has ended, for a listener that was not told of its beginning.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) noted: Noted,
    /// The server and the target, if it was routed.
    pub(crate) at: Option<(Arc<Whose>, Arc<str>)>,
    /// The rule that decided.
    pub(crate) rule: Option<Arc<str>>,
    /// Whether the answer came from the cache.
    pub(crate) is_cached: bool,
    pub(crate) bytes_in: usize,
    pub(crate) took: Duration,
    pub(crate) waits: Waits,
    pub(crate) over: Over,
    /// The number under which a listener knows the call, if the listener was told of the call while it ran.
    pub(crate) number: Option<u64>,
}

impl Passing {
    /// Notes who calls what. From now on further notes are accepted.
    pub(super) fn begin(&self, noted: Noted) {
        lock(&self.known).noted = Some(noted);
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Tells a listener of the call while it runs: passes the notes, the server, and the target to `told`, which
    /// returns the number of the call. The end is told under that number later. Does nothing if the call does not run,
    /// or was told before.
    #[cfg(feature = "server")]
    pub(crate) fn tell(&self, told: impl FnOnce(&Noted, Option<&(Arc<Whose>, Arc<str>)>) -> u64) {
        let mut known = lock(&self.known);
        if let Known { noted: Some(noted), at, early: None, number: None, .. } = &*known {
            known.number = Some(told(noted, at.as_ref()));
        }
    }

    /// Reports whether the call runs and no listener was told of it.
    #[cfg(feature = "server")]
    pub(crate) fn is_untold(&self) -> bool {
        let is_untold = |known: &Known| known.noted.is_some() && known.early.is_none() && known.number.is_none();
        self.is_wanted.load(Ordering::Relaxed) && is_untold(&lock(&self.known))
    }

    /// Notes the server and target of the call.
    pub(crate) fn is(&self, whose: &Arc<Whose>, target: &Arc<str>) {
        self.note(|known| {
            let short = if target.len() > TARGET { short(target, &whose.scrubber) } else { target.clone() };
            known.at = Some((whose.clone(), short));
        });
    }

    /// Notes the rule that decides on the call.
    pub(crate) fn judged(&self, rule: Option<&Arc<str>>) {
        self.note(|known| known.rule = rule.cloned());
    }

    /// Notes that the answer came from the cache.
    pub(crate) fn was_kept(&self) {
        self.note(|known| known.is_cached = true);
    }

    /// Notes how the call ended, since its client gets the answer of another call (a fallback).
    pub(super) fn ended(&self, over: &Over) {
        self.note(|known| known.early = Some(*over));
    }

    /// Makes the notice that the call, which `tally` counts, has ended; `None` if the call has not begun.
    pub(super) fn passed(&self, tally: &Tally, over: Over) -> Option<Passed> {
        let Known { noted, at, rule, is_cached, early, number } = std::mem::take(&mut *lock(&self.known));
        let over = early.unwrap_or(over);
        let took = over.at.saturating_duration_since(tally.begun().unwrap_or(over.at));
        let (bytes_in, waits) = (tally.bytes_in(), tally.waits());
        Some(Passed { noted: noted?, at, rule, is_cached, bytes_in, took, waits, over, number })
    }

    fn note(&self, change: impl FnOnce(&mut Known)) {
        if self.is_wanted.load(Ordering::Relaxed) {
            change(&mut lock(&self.known));
        }
    }
}

/// Returns the beginning of a target, without secrets. They are removed before the cut, since a part of a secret would
/// not be recognized.
fn short(target: &str, scrubber: &Scrubber) -> Arc<str> {
    let shown = scrubber.without_known(&without_query(target)).into_owned();
    shown.char_indices().take_while(|(at, _)| *at < TARGET).map(|(_, c)| c).collect::<String>().into()
}
