//! What a host remembers of the last minutes: its calls, the lines of its servers, and the events of its feeds.
//!
//! In: calls as they begin and end (`observe/mod.rs`), lines, and changes, each with its time. Out: events, read by the
//! feeds of the status socket. **Invariant:** nothing here waits, and each table has a cap. A call is its names, sizes,
//! times, and outcome, and it is kept only while somebody looks at calls, and ten minutes longer. Its arguments and its
//! result are kept only while a feed asks for them (`arguments.rs`). A feed has no queue of its own: it reads the same
//! [`EVENTS`] as all others, so a feed that reads nothing costs no memory and no call. Start at `Record::line` and
//! `Record::begin`; `calls.rs` has the calls, `lines.rs` the lines, `window.rs` what servers did in the last
//! minutes, `feed.rs` the events and how feeds read them.

mod arguments;
mod calls;
mod feed;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lines;
#[cfg(test)]
mod tests;
mod window;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

pub use self::arguments::Arguments;
#[cfg(feature = "otel")]
pub(crate) use self::arguments::masked;
#[cfg_attr(not(feature = "server"), allow(unused_imports, reason = "only the status socket reads it"))]
pub(crate) use self::calls::Running;
use self::calls::{Call, Calls};
pub use self::feed::Part;
#[cfg_attr(not(feature = "server"), allow(unused_imports, reason = "only the status socket reads it"))]
pub(crate) use self::feed::{Event, Read, Wanted, Watcher};
use self::feed::{Events, State, What};
#[cfg(feature = "server")]
use self::lines::Line;
use self::lines::Lines;
pub(crate) use self::lines::{Level, Said, Source};
use self::window::Timelines;
#[cfg(feature = "server")]
use self::window::Windows;
#[cfg(feature = "server")]
pub(crate) use self::window::{Lately, Moment};
use crate::answered::Failed;
use crate::counts::Counts;
#[cfg(feature = "server")]
use crate::counts::ServerCounts;
use crate::lock::lock;
use crate::observe::{Begun, Ended, Hears, Listener, Pending, is_call};
use crate::protocol::{Method, Raw};

/// The most events that are kept for feeds that come back or fall behind.
const EVENTS: usize = 4096;
/// The most feeds at once at the status socket, and the most by the page.
const FEEDS: usize = 16;
const FEEDS_OF_PAGE: usize = 8;
/// How long calls are kept after somebody has last looked at them. To keep all of them, always, would cost each call a
/// twentieth of its time.
const LOOKED: Duration = Duration::from_secs(600);

/// What a host remembers.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Whether somebody can ask for it, so that anything is kept.
    is_on: AtomicBool,
    kept: Mutex<Kept>,
    /// The number of feeds: at the status socket, and by the page.
    watchers: [AtomicUsize; 2],
    /// The number of feeds that ask for arguments and results.
    tellers: AtomicUsize,
    #[cfg(feature = "server")]
    windows: Mutex<Windows>,
    /// Until when calls are kept, in milliseconds since 1970; 0 if they are not.
    calls_until: AtomicU64,
    news: Notify,
    counts: Counts,
}

#[derive(Default)]
struct Kept {
    events: Events,
    calls: Calls,
    lines: Lines,
    timelines: Timelines,
}

/// Where a feed is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the status socket.
    Socket,
    /// By the page, over HTTP.
    Page,
}

/// One change of a server's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) server: &'a str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) cause: Option<&'a str>,
}

impl Record {
    /// Returns what is counted. That goes on whether anything is kept or not.
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Keeps everything from now on.
    pub(crate) fn open(&self) {
        self.0.is_on.store(true, Ordering::Relaxed);
    }

    /// Reports whether anything is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Sets how many calls are kept, and how many bytes of lines of each server.
    pub(crate) fn limit(&self, calls: usize, lines: usize) {
        let mut kept = self.kept();
        kept.calls.limit(calls);
        kept.lines.limit(lines);
    }

    /// Keeps a line.
    pub(crate) fn line(&self, said: &Said<'_>, at: SystemTime) {
        if self.is_on() {
            self.kept().line(said, unix_ms(at));
            self.tell();
        }
    }

    /// Keeps a change of a server's state, as an event and as a line.
    pub(crate) fn changed(&self, change: &Change<'_>, at: SystemTime) {
        if !self.is_on() {
            return;
        }
        let Change { server, from, to, cause } = *change;
        let (mut kept, at) = (self.kept(), unix_ms(at));
        let server: Arc<str> = server.into();
        let cause: Option<Arc<str>> = cause.map(Into::into);
        let state = State { server: server.clone(), from, to, cause: cause.clone() };
        let state = Arc::new(state);
        kept.timelines.push(at, &state);
        kept.events.push(at, What::State(state));
        let why = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        let level = match to {
            "failed" => Level::Error,
            "unauthorized" | "reconnecting" => Level::Warning,
            _ => Level::Info,
        };
        let text = format!("{from} -> {to}{why}").into_bytes().into();
        kept.line(&Said { server: Some(&server), source: Source::State, level, text: &text, scrubber: None }, at);
        drop(kept);
        self.tell();
    }

    /// Keeps an event of another part. `members` are the JSON of what happened.
    pub(crate) fn happened(&self, part: Part, members: &str, at: SystemTime) {
        if self.is_on() {
            self.kept().events.push(unix_ms(at), What::Other(part, members.into()));
            self.tell();
        }
    }

    /// Forgets the lines of a server, and the changes of its state.
    pub(crate) fn forget(&self, server: &str) {
        let mut kept = self.kept();
        kept.lines.forget(server);
        kept.timelines.forget(server);
    }

    /// Reads what is counted of servers, once a second: somebody looks at them now.
    #[cfg(feature = "server")]
    pub(crate) fn read<'a>(&self, now: SystemTime, servers: impl Iterator<Item = (&'a str, &'a ServerCounts)>) {
        lock(&self.0.windows).read(unix_ms(now), servers);
    }

    /// Returns what a server did lately: the changes of its state, and its calls.
    #[cfg(feature = "server")]
    pub(crate) fn lately(&self, server: &str) -> (Vec<Moment>, Lately) {
        (self.kept().timelines.of(server), lock(&self.0.windows).of(server))
    }

    /// Begins to watch, and to ask for so much of arguments. Returns `None` if those who watch at that place have as many
    /// feeds as they may.
    pub(crate) fn watch(&self, at: At, arguments: Arguments) -> Option<Watcher> {
        let most = match at {
            At::Socket => FEEDS,
            At::Page => FEEDS_OF_PAGE,
        };
        let more = |feeds: usize| (feeds < most).then_some(feeds + 1);
        let counted = self.0.watchers[at as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.ok()?;
        let tells = arguments != Arguments::None;
        self.0.tellers.fetch_add(usize::from(tells), Ordering::Relaxed);
        Some(Watcher::new(self.clone(), at, tells))
    }

    /// Returns the last lines of a server as events, oldest first: at most `most`.
    #[cfg(feature = "server")]
    pub(crate) fn lines_of(&self, server: &str, most: usize) -> Vec<Vec<u8>> {
        let lines = self.kept().lines.last(most, Some(server));
        let write = |line: &Arc<Line>| {
            let mut out = Vec::new();
            line.write(&mut out);
            out
        };
        // Secrets are looked for in each line: not while others wait for the record.
        lines.iter().map(write).collect()
    }

    /// Keeps calls for the next [`LOOKED`]: somebody looks at them now.
    fn look(&self, now: SystemTime) {
        self.0.calls_until.fetch_max(unix_ms(now + LOOKED), Ordering::Relaxed);
    }

    /// Reports whether calls are kept.
    fn keeps_calls(&self) -> bool {
        let until = self.0.calls_until.load(Ordering::Relaxed);
        if until > 0 && until <= unix_ms(SystemTime::now()) {
            // Somebody may look at this moment, and that counts.
            let _ = self.0.calls_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        until > 0
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0.kept)
    }

    /// Wakes the feeds, if there are any.
    fn tell(&self) {
        if self.0.watchers.iter().any(|feeds| feeds.load(Ordering::Relaxed) > 0) {
            self.0.news.notify_waiters();
        }
    }
}

impl Kept {
    fn line(&mut self, said: &Said<'_>, at: u64) {
        for line in self.lines.keep(said, at, self.events.last()) {
            self.events.push(at, What::Line(line));
        }
    }

    /// Adds an event that says how many calls had none of their own, if there are any.
    fn settle(&mut self, at: u64) {
        if let Some(counts) = self.calls.left_out(at) {
            self.events.push(at, What::Counts(counts));
        }
    }
}

impl Listener for Record {
    fn wants(&self, method: &Method) -> bool {
        self.keeps_calls() && is_call(method)
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        let at = unix_ms(call.at);
        let call = {
            let mut kept = self.kept();
            kept.settle(at);
            let tells = self.0.tellers.load(Ordering::Relaxed) > 0;
            let (subject, call) = (&call.subject, kept.calls.begin(call, at, tells));
            if call.has_events {
                let hearing = Hearing { call: Arc::downgrade(&call), record: Arc::downgrade(&self.0) };
                subject.hears(Arc::new(hearing));
                kept.events.push(at, What::Begun(call.clone()));
            }
            call
        };
        self.tell();
        Ok(Box::new(Recorded { call, record: self.clone() }))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Hears of the progress of one call.
struct Hearing {
    call: Weak<Call>,
    record: Weak<Inner>,
}

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hearing")
    }
}

impl Hears for Hearing {
    fn progress(&self, params: &Raw) {
        let (Some(call), Some(inner)) = (self.call.upgrade(), self.record.upgrade()) else { return };
        let (record, now) = (Record(inner), unix_ms(SystemTime::now()));
        let is_watched = record.0.watchers.iter().any(|feeds| feeds.load(Ordering::Relaxed) > 0);
        if is_watched && let Some(progress) = call.progress(params, now) {
            record.kept().events.push(now, What::Progress(call, Arc::new(progress)));
            record.tell();
        }
    }
}

/// One call in flight.
#[derive(Debug)]
struct Recorded {
    call: Arc<Call>,
    record: Record,
}

impl Pending for Recorded {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Self { call, record } = *self;
        call.end(ended);
        {
            let mut kept = record.kept();
            kept.calls.end(&call);
            if call.has_events {
                kept.events.push(call.ended_at(), What::Ended(call));
            }
        }
        record.tell();
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

/// Converts a time to milliseconds since 1970.
pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).ok().and_then(|at| u64::try_from(at.as_millis()).ok()).unwrap_or(0)
}
