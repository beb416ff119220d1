//! Counts one request: its method, its server, its outcome, how long it takes, and how much of that time the host
//! itself needs.
//!
//! In: its beginning, its server once it is routed, how long it waits for others, and its end. **Invariant:** a request
//! is counted once, however often its end is reported. The tally is part of the request's mailbox, so it is found
//! without a lookup.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::histogram::nanos;
use super::{Count, Counts, Group, Reader, ServerCounts, ToolCounts};
use crate::answered::{End, Kind};
use crate::protocol::Method;

/// What is known of a request in flight.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    begun: OnceLock<Begun>,
    server: OnceLock<Arc<ServerCounts>>,
    tool: OnceLock<Arc<ToolCounts>>,
    reader: OnceLock<Reader>,
    /// How long it has waited for each [`Awaited`], in nanoseconds.
    away: [AtomicU64; 3],
    is_over: AtomicBool,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A server: its answer, its start, its lists.
    Server,
    /// Its turn: a free slot, or a rate that allows it.
    Turn,
    /// A person.
    Person,
}

/// How long a request has waited, by what it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) server: Duration,
    pub(crate) turn: Duration,
    pub(crate) person: Duration,
}

impl Waits {
    /// Returns the sum of all waits.
    pub(crate) fn all(&self) -> Duration {
        self.server + self.turn + self.person
    }
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    group: Group,
    /// Whether it makes a server do or reveal something.
    is_call: bool,
    at: Instant,
    bytes_in: usize,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    pub(crate) end: End,
    /// The kind of the failure, if the host failed it.
    pub(crate) kind: Option<Kind>,
    pub(crate) bytes_out: usize,
    pub(crate) at: Instant,
}

impl Tally {
    /// Records that the request begins, whether it makes a server do or reveal something, and the size of its params.
    pub(crate) fn begin(&self, method: &Method, is_call: bool, bytes_in: usize, at: Instant) {
        let _ = self.begun.set(Begun { group: Group::of(method), is_call, at, bytes_in });
    }

    /// Reports whether the request makes a server do or reveal something.
    pub(crate) fn is_call(&self) -> bool {
        self.begun.get().is_some_and(|begun| begun.is_call)
    }

    /// Returns the size of its params in bytes.
    pub(crate) fn bytes_in(&self) -> usize {
        self.begun.get().map_or(0, |begun| begun.bytes_in)
    }

    /// Returns when the request began.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun.get().map(|begun| begun.at)
    }

    /// Records which server the request goes to. Only the first call has an effect.
    pub(crate) fn goes_to(&self, server: &Arc<ServerCounts>) {
        if self.server.get().is_none() {
            let _ = self.server.set(server.clone());
        }
    }

    /// Records which tool the request calls, by the server's name and the listed name, if tools are counted separately.
    pub(crate) fn calls(&self, counts: &Counts, own: &Arc<str>, shown: Option<&str>) {
        if let (Some(globs), Some(server)) = (counts.tool_globs(), self.server.get())
            && let Some(tool) = server.tools.of(globs, own, shown)
        {
            let _ = self.tool.set(tool);
        }
    }

    /// Records who gets its result. Not called for a client that has chosen no view.
    pub(crate) fn is_for(&self, reader: Reader) {
        let _ = self.reader.set(reader);
    }

    /// Records that the request has waited for this.
    pub(crate) fn was_away(&self, awaited: Awaited, time: Duration) {
        self.away[awaited as usize].fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Returns how long the request has waited so far.
    pub(crate) fn waits(&self) -> Waits {
        let [server, turn, person] =
            self.away.each_ref().map(|waited| Duration::from_nanos(waited.load(Ordering::Relaxed)));
        Waits { server, turn, person }
    }

    /// Measures a wait, from now until the returned value is dropped.
    pub(crate) fn away(&self, awaited: Awaited) -> Away<'_> {
        Away { tally: self, awaited, since: Instant::now() }
    }

    /// Counts the request, unless it was counted already.
    pub(crate) fn close(&self, counts: &Counts, over: &Over) {
        let Some(begun) = self.begun.get() else { return };
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let (group, took) = (begun.group, over.at.saturating_duration_since(begun.at));
        let (server, is_known) = match self.server.get() {
            Some(server) => (server, true),
            None => (counts.none(), false),
        };
        server.calls[group as usize][over.end as usize].fetch_add(1, Ordering::Relaxed);
        server.durations[group as usize].add(took);
        server.add(Count::RequestBytes, begun.bytes_in);
        server.add(Count::ResponseBytes, over.bytes_out);
        if group == Group::ToolsCall && matches!(over.end, End::Ok | End::ToolError) {
            server.given.add(self.reader.get(), over.bytes_out);
        }
        if let Some(kind) = over.kind {
            server.failures[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(tool) = self.tool.get() {
            tool.add(over.end, took);
        }
        // A request that was cut off may have been waiting at that moment.
        let is_whole = over.end != End::Cancelled && over.kind != Some(Kind::ShuttingDown);
        if is_known && group.is_hop() && is_whole {
            counts.0.overhead.0.add(took.saturating_sub(self.waits().all()));
        }
    }
}

/// A wait of a request, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Away<'a> {
    tally: &'a Tally,
    awaited: Awaited,
    since: Instant,
}

impl Away<'_> {
    /// Returns how long this wait has taken so far.
    pub(crate) fn so_far(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.tally.was_away(self.awaited, self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(end: End, kind: Option<Kind>) -> Over {
        Over { end, kind, bytes_out: 7, at: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_counted_once_for_its_server() {
        let (counts, tally) = (Counts::default(), Tally::default());
        tally.close(&counts, &over(End::Ok, None));
        tally.begin(&Method::ToolsCall, true, 3, Instant::now());
        let server = counts.of("a");
        tally.goes_to(&server);
        tally.goes_to(&counts.of("b"));
        let wait = tally.away(Awaited::Server);
        tokio::time::advance(Duration::from_millis(30)).await;
        drop(wait);
        tokio::time::advance(Duration::from_micros(60)).await;
        tally.close(&counts, &over(End::Ok, None));
        tally.close(&counts, &over(End::Error, None));
        assert_eq!((server.calls(Group::ToolsCall, End::Ok), server.calls(Group::ToolsCall, End::Error)), (1, 0));
        assert_eq!((server.read(Count::RequestBytes), server.read(Count::ResponseBytes)), (3, 7));
        let server_alone = Waits { server: Duration::from_millis(30), ..Waits::default() };
        assert_eq!(tally.waits(), server_alone);
        assert_eq!(server.durations(Group::ToolsCall).unwrap().sum, 0.030_06);
        assert_eq!(counts.overhead().sum, 0.000_06);
        assert_eq!(counts.none().durations(Group::ToolsCall), None);
        assert_eq!(counts.of("b").durations(Group::ToolsCall), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_whole_calls_to_a_server_have_an_overhead() {
        let counts = Counts::default();
        let ended = |method: &Method, goes: bool, over: &Over| {
            let tally = Tally::default();
            tally.begin(method, true, 0, Instant::now());
            if goes {
                tally.goes_to(&counts.of("a"));
            }
            tally.close(&counts, over);
        };
        ended(&Method::ToolsCall, false, &over(End::Ok, None));
        ended(&Method::ToolsList, false, &over(End::Ok, None));
        ended(&Method::TasksResult, true, &over(End::Ok, None));
        ended(&Method::ToolsCall, true, &over(End::Cancelled, None));
        ended(&Method::ToolsCall, true, &over(End::HostError, Some(Kind::ShuttingDown)));
        assert_eq!(counts.overhead().count(), 0);
        ended(&Method::ResourcesRead, true, &over(End::HostError, Some(Kind::RateLimited)));
        assert_eq!(counts.overhead().count(), 1);
        let server = counts.of("a");
        assert_eq!((server.failures(Kind::RateLimited), server.failures(Kind::Timeout)), (1, 0));
    }
}
