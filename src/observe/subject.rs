//! Collects what becomes known of a call while it runs, for listeners.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::time::Instant;

use crate::answered::Answered;
use crate::lock::lock;
use crate::protocol::Raw;
use crate::redact::Scrubber;
#[cfg(feature = "otel")]
use crate::traced::Traced;

/// What is known of a call.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// The server that it went to, and what it named there (its target); empty until it is routed.
    pub(super) at: OnceLock<At>,
    /// Whether its answer came from the cache.
    pub(super) is_kept: AtomicBool,
    /// Whether its client got only a part of the result.
    pub(super) is_cut: AtomicBool,
    /// How and when it ended, if its client gets the answer of another call (a fallback).
    pub(super) ended: Mutex<Option<Box<(Answered, Instant)>>>,
    /// The verdict of the rules, if any rules apply.
    pub(super) judged: OnceLock<Judged>,
    /// How the question to a person was answered.
    pub(super) asked: OnceLock<&'static str>,
    /// Whether a listener wants the view and the pin, which cost something to find.
    is_thorough: AtomicBool,
    /// The view that its client uses.
    pub(super) view: OnceLock<Box<str>>,
    /// The pin of the definition that is called.
    pub(super) pin: OnceLock<Box<str>>,
    /// The name of the script, if the call runs one. The script's own calls refer to this name.
    #[cfg_attr(not(all(unix, feature = "script")), allow(dead_code, reason = "only scripts have names"))]
    pub(super) script: OnceLock<Arc<str>>,
    /// The receiver of its progress.
    hears: OnceLock<Arc<dyn Hears>>,
    /// Its place in a trace.
    #[cfg(feature = "otel")]
    traced: OnceLock<Arc<Traced>>,
}

/// Receives the progress of a call.
pub(crate) trait Hears: fmt::Debug + Send + Sync {
    /// Handles the params of a progress notification of the server.
    fn progress(&self, params: &Raw);
}

/// The verdict of the rules on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// `allow`, `ask`, or `deny`.
    pub(crate) verdict: &'static str,
    /// The rule that decides; `None` if none matches.
    pub(crate) rule: Option<Arc<str>>,
    /// Whether the decision is enforced, or only recorded.
    pub(crate) enforced: bool,
}

/// A server, and the target of a request there.
#[derive(Debug)]
pub(crate) struct At {
    /// The server's name in errors and logs.
    pub(crate) server: Arc<str>,
    /// The server's own name or URI for the target.
    pub(crate) target: Arc<str>,
    /// Removes the server's secrets from what is reported.
    pub(crate) scrubber: Arc<Scrubber>,
}

impl Subject {
    /// Records the server and target of the request. Only the first call has an effect.
    pub(crate) fn is(&self, server: &Arc<str>, target: &Arc<str>, scrubber: &Arc<Scrubber>) {
        let at = At { server: server.clone(), target: target.clone(), scrubber: scrubber.clone() };
        let _ = self.at.set(at);
    }

    /// Records the verdict of the rules. Only the first call has an effect.
    pub(crate) fn judged(&self, judged: Judged) {
        let _ = self.judged.set(judged);
    }

    /// Records how the question to a person was answered: `yes`, `no`, or `nobody`. Only the first call has an effect.
    pub(crate) fn asked(&self, what: &'static str) {
        let _ = self.asked.set(what);
    }

    /// Records the name of the script that it runs. Only the first call has an effect.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn is_called(&self, name: &Arc<str>) {
        let _ = self.script.set(name.clone());
    }

    /// Sets the receiver of its progress. Only the first call has an effect.
    pub(crate) fn hears(&self, hears: Arc<dyn Hears>) {
        let _ = self.hears.set(hears);
    }

    /// Gives it a place in a trace. Only the first call has an effect.
    #[cfg(feature = "otel")]
    pub(crate) fn is_traced(&self, traced: Arc<Traced>) {
        let _ = self.traced.set(traced);
    }

    /// Returns its place in a trace.
    #[cfg(feature = "otel")]
    pub(crate) fn traced(&self) -> Option<&Arc<Traced>> {
        self.traced.get()
    }

    /// Adds to the trace that its server has asked something.
    pub(crate) fn was_asked(&self) {
        #[cfg(feature = "otel")]
        if let Some(traced) = self.traced.get() {
            traced.event("question");
        }
    }

    /// Passes on progress to the trace and to the receiver, if there are any.
    pub(crate) fn progress(&self, params: &Raw) {
        #[cfg(feature = "otel")]
        if let Some(traced) = self.traced.get() {
            traced.event("progress");
        }
        if let Some(hears) = self.hears.get() {
            hears.progress(params);
        }
    }

    /// Makes sure that the view and the pin are recorded. A listener that wants them calls this when the call begins.
    pub(crate) fn be_thorough(&self) {
        self.is_thorough.store(true, Ordering::Relaxed);
    }

    /// Records the view that its client uses, if a listener wants it. Only the first call has an effect.
    pub(crate) fn is_in(&self, view: impl FnOnce() -> Box<str>) {
        if self.is_thorough.load(Ordering::Relaxed) {
            self.view.get_or_init(view);
        }
    }

    /// Records the pin of the definition that is called, if a listener wants it. Only the first call has an effect.
    pub(crate) fn is_pinned(&self, pin: impl FnOnce() -> Box<str>) {
        if self.is_thorough.load(Ordering::Relaxed) {
            self.pin.get_or_init(pin);
        }
    }

    /// Records that its answer came from the cache.
    pub(crate) fn was_kept(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Records that its client gets only a part of the result.
    pub(crate) fn was_cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Records how the call ended, since its client gets the answer of another call (a fallback). Only the first call
    /// has an effect.
    pub(crate) fn ended(&self, answered: &Answered) {
        lock(&self.ended).get_or_insert_with(|| Box::new((answered.clone(), Instant::now())));
    }

    /// Forgets the answer of [`Subject::ended`].
    pub(crate) fn forget_answer(&self) {
        drop(lock(&self.ended).take());
    }

    /// Returns the server and target of the request, once it is routed.
    pub(crate) fn at(&self) -> Option<&At> {
        self.at.get()
    }
}
