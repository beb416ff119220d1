//! What becomes known of a call that nobody is told of while it runs, so that it can be told of when it has ended.
//!
//! **Invariant:** this costs a call next to nothing. Nothing is allocated, no clock is read, and no text is written: what is
//! kept are numbers, and names that others hold already. A target that is longer than a name is the exception.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::counts::{Over, Tally, Waits};
use crate::lock::lock;
use crate::protocol::Method;
use crate::redact::{Scrubber, without_query};

/// The most bytes of a target that is kept as it is. It may be a URI of a client, of any length.
const TARGET: usize = 1024;

/// A server, as those who tell of its calls know it.
#[derive(Debug)]
pub(crate) struct Whose {
    /// The server's name in errors and logs.
    pub(crate) server: Arc<str>,
    /// Removes the server's secrets from what is reported.
    pub(crate) scrubber: Arc<Scrubber>,
}

/// Who calls what, as it is known when a call begins.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) method: Method,
    pub(crate) client: Option<Arc<str>>,
    pub(crate) door: Option<&'static str>,
    pub(crate) via: Option<&'static str>,
}

/// What becomes known of one call while it runs.
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
    /// How it ended, if its client gets another answer.
    early: Option<Over>,
    /// The number by which the listener knows it that was told of it while it ran.
    number: Option<u64>,
}

/// A call that has ended, as one that was not told of its beginning is told of it.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) noted: Noted,
    /// The server and the target, if it was routed.
    pub(crate) at: Option<(Arc<Whose>, Arc<str>)>,
    /// The rule that decided.
    pub(crate) rule: Option<Arc<str>>,
    /// Whether the answer was given before, and kept.
    pub(crate) is_cached: bool,
    pub(crate) bytes_in: usize,
    pub(crate) took: Duration,
    pub(crate) waits: Waits,
    pub(crate) over: Over,
    /// The number by which the listener knows it that was told of it while it ran.
    pub(crate) number: Option<u64>,
}

impl Passing {
    /// Notes who calls what, and lets become known what does.
    pub(super) fn begin(&self, noted: Noted) {
        lock(&self.known).noted = Some(noted);
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Tells of the call while it runs: what is noted of it, the server and the target. `told` returns the number by which the
    /// end of the call is told later. Nothing happens if the call does not run, or was told of before.
    #[cfg(feature = "server")]
    pub(crate) fn tell(&self, told: impl FnOnce(&Noted, Option<&(Arc<Whose>, Arc<str>)>) -> u64) {
        let mut known = lock(&self.known);
        if let Known { noted: Some(noted), at, early: None, number: None, .. } = &*known {
            known.number = Some(told(noted, at.as_ref()));
        }
    }

    /// Reports whether the call runs, and nobody was told of it.
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

    /// Notes that the answer was given before, and kept.
    pub(crate) fn was_kept(&self) {
        self.note(|known| known.is_cached = true);
    }

    /// Notes how the call ended, since its client gets another answer.
    pub(super) fn ended(&self, over: &Over) {
        self.note(|known| known.early = Some(*over));
    }

    /// Makes the notice of the end of the call, which `tally` counts; `None` if the call has not begun.
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

/// Returns the beginning of a target, without secrets: a part of a secret would not be found any more.
fn short(target: &str, scrubber: &Scrubber) -> Arc<str> {
    let shown = scrubber.without_known(&without_query(target)).into_owned();
    shown.char_indices().take_while(|(at, _)| *at < TARGET).map(|(_, c)| c).collect::<String>().into()
}
