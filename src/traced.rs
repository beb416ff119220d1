//! The place of one call in a trace, and its attempts at servers: the data from which spans are created.
//!
//! **Invariant:** a call has a [`Traced`] only if traces are sent and its method is a call. A parked call continues
//! after its request has ended; its later attempts are reported one by one ([`Late`]). Each attempt is reported once.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::hex;
use crate::lock::lock;
use crate::protocol::TraceParent;

/// The most attempts of one call that are kept.
const ATTEMPTS: usize = 16;
/// The most events of one attempt.
const EVENTS: usize = 16;
/// How many bytes of the hash of a session's id are shown.
const HASHED: usize = 16;
/// The names of progress events: only the first and the last one are kept.
const FIRST: &str = "progress first";
const LAST: &str = "progress last";

/// Where a request comes from, as its door knows it.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// The header `traceparent` of its HTTP request.
    pub(crate) parent: Option<TraceParent>,
    /// A hash of its session's id.
    pub(crate) session: Option<String>,
    /// Its id, as its client gave it.
    pub(crate) id: Option<String>,
}

/// A callback for attempts that end after the request of their call.
pub(crate) type Late = Box<dyn Fn(Attempt) + Send>;

/// One call in its trace.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) trace: u128,
    /// The span of the door.
    pub(crate) span: u64,
    /// The span of the client.
    pub(crate) parent: Option<TraceParent>,
    pub(crate) is_sampled: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The attempts that were not reported yet.
    attempts: Vec<Attempt>,
    /// The number of attempts so far.
    begun: usize,
    /// The wait for a turn before the next attempt.
    queued: Option<Event>,
    /// Whether the call continues after its request.
    is_parked: bool,
    late: Option<Late>,
}

/// One request to a server.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Its number, counted from 1.
    pub(crate) number: usize,
    pub(crate) span: u64,
    pub(crate) at: SystemTime,
    begun: Instant,
    /// How long it took; `None` while it runs.
    pub(crate) took: Option<Duration>,
    pub(crate) sent: Sent,
    /// Why it failed: an error code, or a word.
    pub(crate) error: Option<String>,
    pub(crate) events: Vec<Event>,
}

/// A request to a server, described for its span.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The server's name in the config.
    pub(crate) server: Arc<str>,
    /// The id of the request.
    pub(crate) id: u64,
    pub(crate) revision: Cow<'static, str>,
    /// Whether the server is reached through pipes, not over a network.
    pub(crate) by_pipe: bool,
    /// Host and port of the server's URL.
    pub(crate) address: Option<(String, Option<u16>)>,
    /// A hash of the id of the session with the server, if it gave one.
    pub(crate) session: Option<String>,
}

/// Something that happened in an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) at: SystemTime,
    /// How long the call waited, if that is what happened.
    pub(crate) waited: Option<Duration>,
}

impl Event {
    fn now(name: &'static str) -> Self {
        Self { name, at: SystemTime::now(), waited: None }
    }
}

impl Traced {
    /// Creates the trace data of a call with this parent. `samples` decides by the trace id whether it is exported.
    /// Returns `None` if the system has no random bytes.
    pub(crate) fn new(parent: Option<TraceParent>, samples: impl FnOnce(u128) -> bool) -> Option<Arc<Self>> {
        let span = random()?;
        let trace = match parent {
            Some(parent) => parent.trace,
            None => (u128::from(random()?) << 64) | u128::from(random()?),
        };
        Some(Arc::new(Self { trace, span, parent, is_sampled: samples(trace), state: Mutex::default() }))
    }

    /// Begins an attempt. Returns its `traceparent`; `None` if there were too many attempts.
    pub(crate) fn attempt(&self, sent: Sent) -> Option<TraceParent> {
        let mut state = lock(&self.state);
        let span = (state.begun < ATTEMPTS).then(random).flatten()?;
        state.begun += 1;
        let (number, at, begun) = (state.begun, SystemTime::now(), Instant::now());
        let events = state.queued.take().into_iter().collect();
        state.attempts.push(Attempt { number, span, at, begun, took: None, sent, error: None, events });
        Some(TraceParent { trace: self.trace, span, flags: u8::from(self.is_sampled) })
    }

    /// Records an event in the last attempt.
    pub(crate) fn event(&self, name: &'static str) {
        if let Some(last) = lock(&self.state).attempts.last_mut().filter(|last| last.took.is_none()) {
            last.note(name);
        }
    }

    /// Records that the call has waited for its turn until now.
    pub(crate) fn queued(&self, waited: Duration) {
        lock(&self.state).queued = Some(Event { waited: Some(waited), ..Event::now("queued") });
    }

    /// Records that the call continues after its request.
    pub(crate) fn is_parked(&self) {
        lock(&self.state).is_parked = true;
    }

    /// Ends the last attempt.
    pub(crate) fn attempted(&self, error: Option<String>) {
        let mut state = lock(&self.state);
        if let Some(last) = state.attempts.last_mut().filter(|last| last.took.is_none()) {
            last.over(error);
            state.tell();
        }
    }

    /// Ends the request. Returns its attempts, and its wait for a turn if no attempt followed. An attempt that still
    /// runs ends now. But if the call continues, that attempt and all later ones are reported to `late` when they end.
    pub(crate) fn end(&self, late: impl FnOnce() -> Late) -> (Vec<Attempt>, Option<Event>) {
        let mut state = lock(&self.state);
        if state.is_parked {
            state.late = Some(late());
            let (ended, running) = std::mem::take(&mut state.attempts).into_iter().partition(|one| one.took.is_some());
            state.attempts = running;
            return (ended, None);
        }
        state.cut_off();
        (std::mem::take(&mut state.attempts), state.queued.take())
    }
}

impl State {
    /// Ends the current attempt as cancelled.
    fn cut_off(&mut self) {
        if let Some(last) = self.attempts.last_mut().filter(|last| last.took.is_none()) {
            last.over(Some("cancelled".to_owned()));
        }
    }

    /// Reports all attempts, if the request has ended.
    fn tell(&mut self) {
        if let Some(late) = &self.late {
            self.attempts.drain(..).for_each(late);
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.cut_off();
        self.tell();
    }
}

impl Attempt {
    fn note(&mut self, name: &'static str) {
        let has = |name: &str, events: &[Event]| events.iter().position(|event| event.name == name);
        let name = match name {
            "progress" if has(FIRST, &self.events).is_none() => FIRST,
            "progress" => LAST,
            other => other,
        };
        match has(LAST, &self.events).filter(|_| name == LAST) {
            Some(last) => self.events[last].at = SystemTime::now(),
            None if self.events.len() < EVENTS => self.events.push(Event::now(name)),
            None => {}
        }
    }

    fn over(&mut self, error: Option<String>) {
        self.took = Some(self.begun.elapsed());
        self.error = error;
    }
}

/// Returns the hash of a session's id that spans show. The id itself must stay secret: it gives access to the session.
pub(crate) fn hashed(id: &[u8]) -> String {
    hex::encode(&Sha256::digest(id)[..HASHED])
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

    fn sent() -> Sent {
        let (server, revision) = ("a".into(), "2025-11-25".into());
        Sent { server, id: 1, revision, by_pipe: true, address: None, session: None }
    }

    fn none() -> Late {
        Box::new(|attempt| panic!("{attempt:?} is late"))
    }

    #[test]
    fn an_attempt_has_its_end_and_two_events_of_progress() {
        let traced = Traced::new(None, |_| true).unwrap();
        traced.queued(Duration::from_millis(7));
        let first = traced.attempt(sent()).unwrap();
        assert_eq!((first.trace, first.flags), (traced.trace, 1));
        for name in ["question", "progress", "progress", "progress"] {
            traced.event(name);
        }
        traced.attempted(Some("timeout".to_owned()));
        traced.event("late");
        let second = traced.attempt(sent()).unwrap();
        assert_ne!(first.span, second.span);
        let (attempts, queued) = traced.end(none);
        let names: Vec<&str> = attempts[0].events.iter().map(|event| event.name).collect();
        assert_eq!(names, ["queued", "question", "progress first", "progress last"]);
        assert_eq!(attempts[0].events[0].waited, Some(Duration::from_millis(7)));
        let ends: Vec<_> = attempts.iter().map(|attempt| (attempt.number, attempt.error.as_deref())).collect();
        assert_eq!(ends, [(1, Some("timeout")), (2, Some("cancelled"))]);
        assert!(attempts.iter().all(|attempt| attempt.took.is_some()) && queued.is_none());
    }

    #[test]
    fn a_wait_that_no_attempt_follows_is_the_calls() {
        let traced = Traced::new(None, |_| true).unwrap();
        traced.queued(Duration::from_millis(7));
        let (attempts, queued) = traced.end(none);
        assert!(attempts.is_empty());
        assert_eq!(queued.unwrap().waited, Some(Duration::from_millis(7)));
    }

    #[test]
    fn attempts_of_a_parked_call_are_told_after_its_request() {
        let traced = Traced::new(None, |_| true).unwrap();
        let told = Arc::<Mutex<Vec<(usize, Option<String>)>>>::default();
        traced.is_parked();
        traced.attempt(sent());
        traced.attempted(Some("outcome_unknown".to_owned()));
        traced.attempt(sent());
        let late = || -> Late {
            let told = told.clone();
            Box::new(move |attempt| lock(&told).push((attempt.number, attempt.error)))
        };
        let (attempts, _) = traced.end(late);
        assert_eq!(attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1]);
        traced.attempted(None);
        assert_eq!(*lock(&told), [(2, None)]);
        traced.attempt(sent());
        drop(traced);
        assert_eq!(*lock(&told), [(2, None), (3, Some("cancelled".to_owned()))]);
    }
}
