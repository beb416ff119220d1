//! What an mcp-host process remembers of the last minutes: its calls, the lines of its servers, and the events of its
//! feeds.
//!
//! In: calls as they begin and end (`observe/mod.rs`), lines, and changes, each with its time. Out: events, read by the
//! feeds of the status socket and the page. **Invariant:** nothing here waits, and each table has a cap.
//!
//! A call is kept as its names, sizes, times, and outcome. While a feed watches calls, and for ten minutes longer, 50
//! calls a second are events, too, and so are others that run for over a second. Calls that run already when a feed
//! begins to watch become events then (`Record::join`). Arguments and results are kept only while a feed asks for them
//! (`arguments.rs`).
//!
//! A feed has no queue of its own: all feeds read the same [`EVENTS`], so a feed that reads nothing costs no memory and
//! no call. A feed that is more than a mebibyte of events behind starts again with the newest.
//!
//! Start at `Record::line` and `Record::begin`; `calls.rs` has the calls, `passed.rs` the calls without events,
//! `lines.rs` the lines, `window.rs` what servers did in the last minutes, `feed.rs` the events and how feeds read
//! them.

mod arguments;
mod calls;
mod feed;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lines;
mod passed;
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
pub(crate) use self::feed::{Event, Past, Read, Wanted, Watcher};
use self::feed::{Events, State, What};
#[cfg(feature = "server")]
use self::lines::Line;
use self::lines::Lines;
pub(crate) use self::lines::{Level, Said, Source};
use self::passed::LastPassed;
use self::window::Timelines;
#[cfg(feature = "server")]
use self::window::Windows;
#[cfg(feature = "server")]
pub(crate) use self::window::{Lately, Moment};
use crate::answered::Failed;
use crate::counts::Counts;
#[cfg(feature = "server")]
use crate::counts::{ServerCounts, Tally};
use crate::lock::lock;
use crate::observe::{Begun, Ended, Hears, Listener, Passed, Pending, Wants, is_call};
#[cfg(feature = "server")]
use crate::observe::{Passing, Subject};
use crate::protocol::{Method, Raw};

/// How many events are kept at least, for feeds that reconnect.
const EVENTS: usize = 4096;
/// How many calls that begin in one second have events.
const BUSY: u64 = 50;
/// Separates, in `Inner::busy`, the second from the number of calls.
const PLACES: u64 = 64;
/// The most feeds at once at the status socket, and the most by the page.
const FEEDS: usize = 16;
const FEEDS_OF_PAGE: usize = 8;
/// How long calls are events after a feed has last watched them. If all calls always were, a small call would cost a
/// twentieth more CPU time; keeping the last ones in brief (`passed.rs`) does not.
const LOOKED: Duration = Duration::from_secs(600);

/// The record of an mcp-host process. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Whether anything is kept: only if something can read it.
    is_on: AtomicBool,
    kept: Mutex<Kept>,
    /// The last calls without events.
    passed: Mutex<LastPassed>,
    /// The number of feeds: at the status socket, and by the page.
    watchers: [AtomicUsize; 2],
    /// The number of feeds that ask for arguments and results.
    tellers: AtomicUsize,
    #[cfg(feature = "server")]
    windows: Mutex<Windows>,
    /// Until when calls have events, in milliseconds since 1970; 0 if they have none.
    calls_told_until: AtomicU64,
    /// The current second, and how many calls with events have begun in it.
    busy: AtomicU64,
    news: Notify,
    counts: Counts,
    /// The wall clock of a test.
    #[cfg(test)]
    clock: Mutex<Option<SystemTime>>,
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
    /// Returns the counters. They count whether anything is kept or not.
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
        self.briefs().limit(calls);
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

    /// Reads the counters of servers, at most once a second. Called while a feed is about servers.
    #[cfg(feature = "server")]
    pub(crate) fn read<'a>(&self, now: SystemTime, servers: impl Iterator<Item = (&'a str, &'a ServerCounts)>) {
        lock(&self.0.windows).read(unix_ms(now), servers);
    }

    /// Returns what a server did lately: the changes of its state, and its calls.
    #[cfg(feature = "server")]
    pub(crate) fn lately(&self, server: &str) -> (Vec<Moment>, Lately) {
        (self.kept().timelines.of(server), lock(&self.0.windows).of(server))
    }

    /// Opens a feed that shows this much of arguments. Returns `None` if there are as many feeds at that place as
    /// allowed.
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
        // Writing searches each line for secrets, so it happens after the lock is released.
        lines.iter().map(write).collect()
    }

    /// Adds a running call whose beginning was no event, because a feed watches calls now. `subject` collects what
    /// becomes known of the call from now on.
    #[cfg(feature = "server")]
    pub(crate) fn join(&self, passing: &Passing, tally: &Tally, subject: &Arc<Subject>) {
        let ago = tally.begun().map(|begun| begun.elapsed()).unwrap_or_default();
        let at = unix_ms(self.now()).saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
        let mut told = None;
        passing.tell(|noted, aim| {
            if let Some((whose, target)) = aim {
                subject.is(&whose.server, target, &whose.scrubber);
            }
            let mut kept = self.kept();
            let call = kept.calls.join(noted, at, tally.bytes_in(), subject.clone());
            kept.events.push(call.began_at(), What::Begun(call.clone()));
            let number = call.number();
            told = Some(call);
            number
        });
        if let Some(call) = told {
            subject.hears(Arc::new(Hearing { call: Arc::downgrade(&call), record: Arc::downgrade(&self.0) }));
            self.tell();
        }
    }

    /// Makes calls events for the next [`LOOKED`], because a feed watches them now.
    fn look(&self, now: SystemTime) {
        if self.0.calls_told_until.fetch_max(unix_ms(now + LOOKED), Ordering::Relaxed) == 0 {
            self.briefs().forget_counts();
        }
    }

    /// Returns the time in milliseconds since 1970 if calls are events now.
    fn tells_calls(&self) -> Option<u64> {
        let until = self.0.calls_told_until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let now = unix_ms(self.now());
        if until <= now {
            // If a feed begins to watch at this moment, its later time is kept.
            let _ = self.0.calls_told_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        Some(now)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0.kept)
    }

    fn briefs(&self) -> MutexGuard<'_, LastPassed> {
        lock(&self.0.passed)
    }

    /// Adds the end of a call that became an event while it ran.
    fn left(&self, number: u64, passed: Passed) {
        let mut kept = self.kept();
        let Some(call) = kept.calls.joined(number) else { return };
        call.passed(passed);
        kept.calls.end(&call);
        kept.events.push(call.ended_at(), What::Ended(call));
        drop(kept);
        self.tell();
    }

    /// Adds an event that says how many calls were no events, if there were any in an earlier second.
    fn settle(&self, at: u64) {
        let counted = self.briefs().counted(at);
        if !counted.is_empty() {
            self.kept().events.push(at, What::Counts(counted.into()));
            self.tell();
        }
    }

    /// Claims one of the events that calls may have in a second. Returns whether one was free.
    fn has_place(&self, now: u64) -> bool {
        let second = now / 1000;
        let place = |busy: u64| match (busy / PLACES == second, busy % PLACES) {
            (true, BUSY) => None,
            (true, _) => Some(busy + 1),
            (false, _) => Some(second * PLACES + 1),
        };
        self.0.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place).is_ok()
    }

    fn now(&self) -> SystemTime {
        #[cfg(test)]
        if let Some(now) = *lock(&self.0.clock) {
            return now;
        }
        SystemTime::now()
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
}

impl Listener for Record {
    fn wants(&self, method: &Method) -> Wants {
        match method {
            method if !self.is_on() || !is_call(method) => Wants::Nothing,
            _ if self.tells_calls().is_some_and(|now| self.has_place(now)) => Wants::Whole,
            _ => Wants::End,
        }
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        let at = unix_ms(call.at);
        self.settle(at);
        let tells = self.0.tellers.load(Ordering::Relaxed) > 0;
        let subject = &call.subject;
        let call = {
            let mut kept = self.kept();
            let call = kept.calls.begin(call, at, tells);
            kept.events.push(at, What::Begun(call.clone()));
            call
        };
        subject.hears(Arc::new(Hearing { call: Arc::downgrade(&call), record: Arc::downgrade(&self.0) }));
        self.tell();
        Ok(Box::new(Recorded { call, record: self.clone() }))
    }

    fn passed(&self, call: &mut Option<Passed>) {
        let Some(call) = call.take() else { return };
        if let Some(number) = call.number {
            return self.left(number, call);
        }
        let counts = self.0.calls_told_until.load(Ordering::Relaxed) > 0;
        // The oldest call is freed after the lock is released.
        let oldest = self.briefs().push(call, counts, || self.now());
        drop(oldest);
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Receives the progress of one call.
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
            kept.events.push(call.ended_at(), What::Ended(call));
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
