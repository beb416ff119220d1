//! The place of one call in a trace, and its attempts at servers: what spans are made of when the call ends.
//!
//! **Invariant:** a call has one only if traces are sent and its method is a call.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::lock::lock;
use crate::protocol::TraceParent;

/// The most attempts of one call that are kept.
const ATTEMPTS: usize = 16;
/// The most events of one attempt.
const EVENTS: usize = 16;

/// One call in its trace.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) trace: u128,
    /// The span of the door.
    pub(crate) span: u64,
    /// What the client said.
    pub(crate) parent: Option<TraceParent>,
    pub(crate) is_sampled: bool,
    attempts: Mutex<Vec<Attempt>>,
}

/// One request to a server.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) span: u64,
    pub(crate) at: SystemTime,
    begun: Instant,
    /// `None` while it runs.
    pub(crate) took: Option<Duration>,
    /// The server's name in the config.
    pub(crate) server: Arc<str>,
    pub(crate) revision: Cow<'static, str>,
    pub(crate) transport: &'static str,
    /// Host and port of the server's URL.
    pub(crate) address: Option<(String, Option<u16>)>,
    /// Why it failed: a code, or a word.
    pub(crate) error: Option<String>,
    pub(crate) events: Vec<(&'static str, SystemTime)>,
}

impl Traced {
    /// Makes one for a call with that parent. `samples` says by the id of the trace whether it is exported. Returns `None`
    /// if the system has no random bytes.
    pub(crate) fn new(parent: Option<TraceParent>, samples: impl FnOnce(u128) -> bool) -> Option<Arc<Self>> {
        let span = random()?;
        let trace = match parent {
            Some(parent) => parent.trace,
            None => (u128::from(random()?) << 64) | u128::from(random()?),
        };
        Some(Arc::new(Self { trace, span, parent, is_sampled: samples(trace), attempts: Mutex::default() }))
    }

    /// Begins an attempt. Returns its `traceparent`; `None` if there were too many.
    pub(crate) fn attempt(
        &self,
        (server, transport): (Arc<str>, &'static str),
        revision: Cow<'static, str>,
        address: Option<(String, Option<u16>)>,
    ) -> Option<TraceParent> {
        let mut attempts = lock(&self.attempts);
        let span = (attempts.len() < ATTEMPTS).then(random).flatten()?;
        let (at, begun) = (SystemTime::now(), Instant::now());
        let (took, error, events) = Default::default();
        attempts.push(Attempt { span, at, begun, took, server, revision, transport, address, error, events });
        Some(TraceParent { trace: self.trace, span, flags: u8::from(self.is_sampled) })
    }

    /// Notes that something happened in the last attempt.
    pub(crate) fn event(&self, name: &'static str) {
        if let Some(last) = lock(&self.attempts).last_mut()
            && last.took.is_none()
        {
            let progress = last.events.iter().position(|(known, _)| *known == "progress last");
            match (name, progress) {
                // The first one and the last one are kept.
                ("progress", Some(at)) => last.events[at].1 = SystemTime::now(),
                ("progress", None) if last.events.iter().any(|(known, _)| *known == "progress first") => {
                    last.events.push(("progress last", SystemTime::now()));
                }
                ("progress", None) => last.events.push(("progress first", SystemTime::now())),
                _ if last.events.len() < EVENTS => last.events.push((name, SystemTime::now())),
                _ => {}
            }
        }
    }

    /// Ends the last attempt.
    pub(crate) fn attempted(&self, error: Option<String>) {
        if let Some(last) = lock(&self.attempts).last_mut()
            && last.took.is_none()
        {
            last.took = Some(last.begun.elapsed());
            last.error = error;
        }
    }

    /// Takes all attempts. One that still runs ends now.
    pub(crate) fn take(&self) -> Vec<Attempt> {
        let mut attempts = std::mem::take(&mut *lock(&self.attempts));
        for attempt in attempts.iter_mut().filter(|attempt| attempt.took.is_none()) {
            attempt.took = Some(attempt.begun.elapsed());
            attempt.error = Some("cancelled".to_owned());
        }
        attempts
    }
}

/// Returns a random number that is not zero, which means no id.
fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_its_end_and_two_events_of_progress() {
        let traced = Traced::new(None, |_| true).unwrap();
        let first = traced.attempt(("a".into(), "stdio"), "2025-11-25".into(), None).unwrap();
        assert_eq!((first.trace, first.flags), (traced.trace, 1));
        for name in ["question", "progress", "progress", "progress"] {
            traced.event(name);
        }
        traced.attempted(Some("timeout".to_owned()));
        traced.event("late");
        let second = traced.attempt(("a".into(), "stdio"), "2025-11-25".into(), None).unwrap();
        assert_ne!(first.span, second.span);
        let attempts = traced.take();
        let names: Vec<&str> = attempts[0].events.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["question", "progress first", "progress last"]);
        assert_eq!((attempts[0].error.as_deref(), attempts[1].error.as_deref()), (Some("timeout"), Some("cancelled")));
        assert!(attempts.iter().all(|attempt| attempt.took.is_some()) && traced.take().is_empty());
    }
}
