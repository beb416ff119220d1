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
#[derive(Debug)]
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
    /// The server and the target; `None` until it is routed.
    at: Option<(Arc<Whose>, Arc<str>)>,
    rule: Option<Arc<str>>,
    is_cached: bool,
    /// How it ended, if its client gets another answer.
    early: Option<Over>,
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
}

impl Passing {
    /// Lets become known what does.
    pub(super) fn begin(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
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

    /// Makes the notice of the end of the call, which `tally` counts.
    pub(super) fn passed(&self, noted: Noted, tally: &Tally, over: Over) -> Passed {
        let Known { at, rule, is_cached, early } = std::mem::take(&mut *lock(&self.known));
        let over = early.unwrap_or(over);
        let took = over.at.saturating_duration_since(tally.begun().unwrap_or(over.at));
        Passed { noted, at, rule, is_cached, bytes_in: tally.bytes_in(), took, waits: tally.waits(), over }
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
