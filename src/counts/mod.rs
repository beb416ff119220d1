//! Counters of each server and of the host: how often something happens, how long it takes, and how much it is.
//!
//! In: events, each counted where it happens. Out: numbers, at each scrape (`export`). **Invariant:** counting takes a
//! few additions: no lock, no lookup, no label and no allocation. Code that counts for a server holds that server's
//! [`ServerCounts`], which outlive the server's entry in the config until the next scrape. The exceptions are counts of
//! single tools (`tools.rs`), if the config asks for them, of verdicts, if rules match, and of hosts that a sandbox
//! refused (`refused.rs`). Start at `tally.rs`, which counts a request.

mod histogram;
#[cfg_attr(not(feature = "sandbox"), allow(dead_code, reason = "only a sandbox refuses hosts"))]
mod refused;
mod results;
mod tally;
mod tools;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::time::Instant;

pub(crate) use self::histogram::{Buckets, DURATIONS, Histogram, OVERHEADS};
pub(crate) use self::refused::Refused;
use self::results::Given;
pub(crate) use self::results::Reader;
pub(crate) use self::tally::{Awaited, Over, Tally, Waits};
use self::tools::Tools;
pub(crate) use self::tools::{ToolCounts, ToolGlobs};
use crate::answered::{End, Kind};
use crate::lock::lock;
use crate::protocol::Method;

/// Everything that is counted; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The counters of each server, by its name in the config.
    servers: Mutex<BTreeMap<String, Arc<ServerCounts>>>,
    /// The counters of requests that went to no server.
    none: Arc<ServerCounts>,
    host: Cells<{ HostCount::ALL.len() }>,
    /// Whether the audit cannot be written now.
    is_audit_failing: AtomicBool,
    overhead: Overhead,
    /// The number of answers, by door and by the first digit of their status, from 2 to 5.
    requests: [[AtomicU64; 4]; Door::ALL.len()],
    tools: ToolGlobs,
    /// How long clients' sessions lasted, by door and revision.
    #[cfg(feature = "otel")]
    sessions: Mutex<BTreeMap<(&'static str, &'static str), SessionTimes>>,
    verdicts: Mutex<BTreeMap<Verdict, u64>>,
    /// The last metrics text, and when it was written.
    text: tokio::sync::Mutex<Option<(Instant, Bytes)>>,
    started: Started,
}

/// A door whose requests are counted by status. Messages over stdio and the socket count with the status that HTTP
/// would give them: 2xx for an answer, 4xx for a message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Http,
    Sse,
    Console,
    Stdio,
    Socket,
}

impl Door {
    pub(crate) const ALL: [Self; 5] = [Self::Http, Self::Sse, Self::Console, Self::Stdio, Self::Socket];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Console => "console",
            Self::Stdio => "stdio",
            Self::Socket => "socket",
        }
    }
}

/// What a rule decided about a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Verdict {
    /// The rule; `None` if no rule matched.
    pub(crate) rule: Option<Arc<str>>,
    pub(crate) verdict: &'static str,
    pub(crate) enforced: bool,
}

/// When counting began.
struct Started(Instant);

impl Default for Started {
    fn default() -> Self {
        Self(Instant::now())
    }
}

#[cfg(feature = "otel")]
struct SessionTimes(Histogram<{ DURATIONS.len() }>);

#[cfg(feature = "otel")]
impl Default for SessionTimes {
    fn default() -> Self {
        Self(Histogram::new(&DURATIONS))
    }
}

struct Overhead(Histogram<{ OVERHEADS.len() }>);

impl Default for Overhead {
    fn default() -> Self {
        Self(Histogram::new(&OVERHEADS))
    }
}

/// A kind of method: the label `method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    ToolsCall,
    PromptsGet,
    ResourcesRead,
    Complete,
    Tasks,
    List,
    Other,
}

impl Group {
    pub(crate) const ALL: [Self; 7] =
        [Self::ToolsCall, Self::PromptsGet, Self::ResourcesRead, Self::Complete, Self::Tasks, Self::List, Self::Other];

    /// Returns the group of a method.
    pub(crate) fn of(method: &Method) -> Self {
        match method {
            Method::ToolsCall => Self::ToolsCall,
            Method::PromptsGet => Self::PromptsGet,
            Method::ResourcesRead => Self::ResourcesRead,
            Method::Complete => Self::Complete,
            Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel | Method::TasksUpdate => {
                Self::Tasks
            }
            Method::ToolsList | Method::PromptsList | Method::ResourcesList | Method::ResourceTemplatesList => {
                Self::List
            }
            _ => Self::Other,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ToolsCall => "tools/call",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesRead => "resources/read",
            Self::Complete => "completion/complete",
            Self::Tasks => "tasks",
            Self::List => "list",
            Self::Other => "other",
        }
    }

    /// Reports whether the host only forwards such requests and their answers, if they reach a server. Then the time
    /// that was not spent waiting is the host's own.
    fn is_hop(self) -> bool {
        matches!(self, Self::ToolsCall | Self::PromptsGet | Self::ResourcesRead | Self::Complete)
    }
}

/// Declares counters, each with a name and an index.
macro_rules! cells {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$case_doc])* $case,)+
        }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$case,)+];
        }
    };
}

cells! {
    /// The counters of each server.
    Count {
        /// Attempts to start the server or to connect to it.
        Starts,
        /// Attempts and connections that ended because the process exited.
        LostExit,
        LostTimeout,
        LostTransport,
        /// Connections that ended because the server sent something that is not MCP.
        LostProtocol,
        /// Requests that were sent again.
        Repeats,
        /// Bytes of params in clients' requests.
        RequestBytes,
        /// Bytes of results and errors.
        ResponseBytes,
        StderrLines,
        /// Progress notifications that the host itself sent.
        Heartbeats,
        DroppedNotification,
        DroppedAnswer,
        /// Log messages that were dropped.
        DroppedLog,
        /// Lines that are not messages and were dropped.
        DroppedNoise,
        ElicitationAnswered,
        ElicitationRefused,
        ElicitationExpired,
        SamplingAnswered,
        SamplingRefused,
        SamplingExpired,
        RootsAnswered,
        RootsRefused,
        RootsExpired,
        CacheHit,
        CacheMiss,
        CacheJoined,
        DefinitionChanges,
    }
}

cells! {
    /// The counters of the host.
    HostCount {
        ReloadOk,
        ReloadRefused,
        /// Sessions that ended because their client's credentials were no longer valid.
        CutAuth,
        AuditLines,
        /// Events that a feed missed.
        FeedDropped,
        /// Spans that no collector accepted.
        OtelSpansDropped,
        OtelMetricsDropped,
    }
}

/// Counters that only grow.
#[derive(Debug)]
struct Cells<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Cells<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Cells<N> {
    fn add(&self, at: usize, more: u64) {
        self.0[at].fetch_add(more, Ordering::Relaxed);
    }

    fn read(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct ServerCounts {
    /// The number of requests, by method and outcome.
    calls: [[AtomicU64; End::ALL.len()]; Group::ALL.len()],
    durations: [Histogram<{ DURATIONS.len() }>; Group::ALL.len()],
    /// The number of failures of the host, by kind.
    failures: [AtomicU64; Kind::ALL.len()],
    /// How long calls waited for their turn.
    queue: Histogram<{ DURATIONS.len() }>,
    /// How long connections to the server lasted.
    #[cfg(feature = "otel")]
    sessions: Histogram<{ DURATIONS.len() }>,
    cells: Cells<{ Count::ALL.len() }>,
    /// The bytes of its tools' results.
    given: Given,
    tools: Tools,
    /// Hosts that its sandbox refused.
    refused: Refused,
}

impl Default for ServerCounts {
    fn default() -> Self {
        Self {
            calls: [const { [const { AtomicU64::new(0) }; End::ALL.len()] }; Group::ALL.len()],
            durations: std::array::from_fn(|_| Histogram::new(&DURATIONS)),
            failures: [const { AtomicU64::new(0) }; Kind::ALL.len()],
            queue: Histogram::new(&DURATIONS),
            #[cfg(feature = "otel")]
            sessions: Histogram::new(&DURATIONS),
            cells: Cells::default(),
            given: Given::default(),
            tools: Tools::default(),
            refused: Refused::default(),
        }
    }
}

impl ServerCounts {
    /// Returns the hosts that its sandbox refused.
    pub(crate) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Adds one to a counter.
    pub(crate) fn one(&self, count: Count) {
        self.cells.add(count as usize, 1);
    }

    /// Adds a number to a counter.
    pub(crate) fn add(&self, count: Count, more: usize) {
        self.cells.add(count as usize, more as u64);
    }

    /// Counts a wait for a turn.
    pub(crate) fn queued(&self, time: std::time::Duration) {
        self.queue.add(time);
    }

    /// Counts a connection if it has ended: `before` is when it opened, and `now` when the present one opened, if any.
    #[cfg(feature = "otel")]
    pub(crate) fn session(&self, before: Option<std::time::Instant>, now: Option<std::time::Instant>) {
        if let (Some(since), None) = (before, now) {
            self.sessions.add(Instant::now().into_std().saturating_duration_since(since));
        }
    }

    /// Returns how long connections lasted; `None` if none has ended.
    #[cfg(feature = "otel")]
    pub(crate) fn sessions(&self) -> Option<Buckets> {
        (!self.sessions.is_empty()).then(|| self.sessions.read())
    }

    pub(crate) fn read(&self, count: Count) -> u64 {
        self.cells.read(count as usize)
    }

    /// Returns how many bytes of results the clients with this view got. `is_default` says whether this is the view of
    /// clients that choose none.
    pub(crate) fn results_in(&self, view: &str, is_default: bool) -> u64 {
        self.given.of(view, is_default)
    }

    /// Returns how many bytes of results all clients got.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the metrics ask"))]
    pub(crate) fn results(&self) -> u64 {
        self.given.all()
    }

    /// Returns how many requests of these methods had this outcome.
    pub(crate) fn calls(&self, group: Group, end: End) -> u64 {
        self.calls[group as usize][end as usize].load(Ordering::Relaxed)
    }

    /// Returns how many requests failed because of the host.
    pub(crate) fn failures(&self, kind: Kind) -> u64 {
        self.failures[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns how long requests of these methods took; `None` if there were none.
    pub(crate) fn durations(&self, group: Group) -> Option<Buckets> {
        let histogram = &self.durations[group as usize];
        (!histogram.is_empty()).then(|| histogram.read())
    }

    /// Returns how long calls waited for their turn; `None` if no call had to wait.
    pub(crate) fn queue(&self) -> Option<Buckets> {
        (!self.queue.is_empty()).then(|| self.queue.read())
    }

    /// Returns the counters of single tools.
    pub(crate) fn tools(&self) -> Vec<(Arc<str>, Arc<ToolCounts>)> {
        self.tools.all()
    }
}

impl Counts {
    /// Returns the counters of the server with this name in the config. They are kept when the config is reloaded.
    pub(crate) fn of(&self, server: &str) -> Arc<ServerCounts> {
        let mut servers = lock(&self.0.servers);
        if let Some(counts) = servers.get(server) {
            return counts.clone();
        }
        servers.entry(server.to_owned()).or_default().clone()
    }

    /// Returns the counters of requests that went to no server.
    pub(crate) fn none(&self) -> &Arc<ServerCounts> {
        &self.0.none
    }

    /// Forgets servers that the config no longer has.
    pub(crate) fn keep(&self, names: &HashSet<&str>) {
        let mut servers = lock(&self.0.servers);
        servers.retain(|name, _| names.contains(name.as_str()));
        self.0.tools.recount(servers.values().map(|server| server.tools.len()).sum());
    }

    /// Sets which tools are counted separately. Their counts so far are dropped.
    pub(crate) fn set_tools(&self, globs: &[String]) {
        if self.0.tools.set(globs) {
            lock(&self.0.servers).values().for_each(|server| server.tools.clear());
        }
    }

    /// Returns which tools are counted separately; `None` if none are.
    pub(crate) fn tool_globs(&self) -> Option<&ToolGlobs> {
        Some(&self.0.tools).filter(|globs| globs.is_on())
    }

    /// Returns when counting began, which is when the host started.
    pub(crate) fn started(&self) -> Instant {
        self.0.started.0
    }

    /// Locks the last metrics text.
    pub(crate) async fn text(&self) -> tokio::sync::MutexGuard<'_, Option<(Instant, Bytes)>> {
        self.0.text.lock().await
    }

    /// Adds one to a counter.
    pub(crate) fn one(&self, count: HostCount) {
        self.0.host.add(count as usize, 1);
    }

    /// Adds a number to a counter.
    pub(crate) fn add(&self, count: HostCount, more: u64) {
        self.0.host.add(count as usize, more);
    }

    pub(crate) fn read(&self, count: HostCount) -> u64 {
        self.0.host.read(count as usize)
    }

    /// Records whether the audit cannot be written.
    pub(crate) fn audit_fails(&self, fails: bool) {
        self.0.is_audit_failing.store(fails, Ordering::Relaxed);
    }

    /// Reports whether the audit cannot be written now.
    pub(crate) fn is_audit_failing(&self) -> bool {
        self.0.is_audit_failing.load(Ordering::Relaxed)
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, door: Door, status: u16) {
        if let Some(at) = usize::from(status / 100).checked_sub(2).filter(|at| *at < 4) {
            self.0.requests[door as usize][at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many answers at a door had a status with this first digit, from 2 to 5.
    pub(crate) fn answers(&self, door: Door, hundred: usize) -> u64 {
        self.0.requests[door as usize][hundred - 2].load(Ordering::Relaxed)
    }

    /// Counts a client's session that has ended, by its door and its revision.
    #[cfg(feature = "otel")]
    pub(crate) fn session(&self, door: &'static str, revision: &'static str, took: std::time::Duration) {
        lock(&self.0.sessions).entry((door, revision)).or_default().0.add(took);
    }

    /// Returns how long sessions of clients lasted, by door and revision.
    #[cfg(feature = "otel")]
    pub(crate) fn sessions(&self) -> Vec<((&'static str, &'static str), Buckets)> {
        lock(&self.0.sessions).iter().map(|(which, times)| (*which, times.0.read())).collect()
    }

    /// Returns the counts of all servers, by name in the config.
    #[cfg(feature = "otel")]
    pub(crate) fn servers(&self) -> Vec<(String, Arc<ServerCounts>)> {
        lock(&self.0.servers).iter().map(|(name, counts)| (name.clone(), counts.clone())).collect()
    }

    /// Counts a verdict.
    pub(crate) fn judged(&self, verdict: Verdict) {
        *lock(&self.0.verdicts).entry(verdict).or_default() += 1;
    }

    /// Returns each verdict with the number of its requests.
    pub(crate) fn verdicts(&self) -> Vec<(Verdict, u64)> {
        lock(&self.0.verdicts).iter().map(|(verdict, count)| (verdict.clone(), *count)).collect()
    }

    /// Returns how much time calls spent in the host itself.
    pub(crate) fn overhead(&self) -> Buckets {
        self.0.overhead.0.read()
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_counts_until_it_is_gone() {
        let counts = Counts::default();
        counts.of("a").one(Count::Starts);
        counts.of("b").add(Count::RequestBytes, 5);
        assert_eq!(counts.of("a").read(Count::Starts), 1);
        counts.keep(&HashSet::from(["b"]));
        assert_eq!((counts.of("a").read(Count::Starts), counts.of("b").read(Count::RequestBytes)), (0, 5));
    }

    #[test]
    fn only_known_hundreds_are_counted() {
        let counts = Counts::default();
        [101, 200, 204, 404, 503, 600].into_iter().for_each(|status| counts.answered(Door::Sse, status));
        let seen = [2, 3, 4, 5].map(|hundred| counts.answers(Door::Sse, hundred));
        assert_eq!((seen, counts.answers(Door::Http, 2)), ([2, 0, 1, 1], 0));
    }
}
