//! The feed: a daemon's events as lines of JSON, for one process of its user.
//!
//! In: a [`FeedRequest`]. Out: `hello`, then the past events that were asked for and a `snapshot`, then events as they
//! happen (`record`). A feed that resumes gets the events since its last one instead. **Invariant:** a feed has no
//! queue of its own but one batch. If it falls more than a mebibyte of events behind, it gets a `gap` with the number
//! of missed events, and a new snapshot. Past events may be dropped before a slow feed reads them; a `gap` says how
//! many.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at, sleep};

use super::known::Known;
use super::replies;
use super::usage::{self, Usage};
use super::{Arguments, Hello, Part, Refused, watched};
use crate::counts::HostCount;
use crate::manager::{ConfigStatus, Server, ServerStatus};
use crate::record::{At, Event, Past, Read, Running, Wanted, Watcher, unix_ms};
use crate::router::{OpenAsk, Router};
use crate::upstream::StateName;

/// The beginning of a request for the feed.
pub(super) const FEED: &[u8] = br#"{"feed""#;
/// The beginning of the other request that keeps its connection open: a login (`held.rs`).
#[cfg(unix)]
pub(super) const HELD: &[u8] = br#"{"held""#;
/// The version of the format of events.
const VERSION: u32 = 1;
/// How often an open feed gets a heartbeat.
const BEAT: Duration = Duration::from_secs(15);
/// How often servers are checked for changes.
const SECOND: Duration = Duration::from_secs(1);
/// How long events are collected before they are written.
const PAUSE: Duration = Duration::from_millis(50);
/// The maximum number of events in one batch. The lines among them are searched for secrets.
const BATCH: usize = 64;
/// The maximum number of past calls, and of past lines.
const PAST: usize = 10_000;
/// The maximum number of running calls that a new feed is told of.
const RUNNING: usize = 1000;
/// How many calls per second get a late first event, because they run long and had no event when they began.
const LONG: usize = 50;
/// Why a feed is refused when there are too many.
pub(crate) const BUSY: &str = "busy: too many feeds are open";

/// A request for the feed.
///
/// ```
/// use mcp_host::admin::{FeedRequest, Part};
///
/// let request = FeedRequest::default().parts([Part::Calls, Part::Lines]).server("github");
/// assert_eq!(serde_json::to_string(&request)?, r#"{"parts":["calls","lines"],"server":"github"}"#);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FeedRequest {
    /// Resumes after the event with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The parts of the events that the feed gets; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
    /// Only this server: its name in the config, or its alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How many of the last calls and lines come before the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past: Option<usize>,
    /// How much of arguments and results the events contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
}

impl FeedRequest {
    /// Resumes after the event with this number.
    #[must_use]
    pub fn from(self, seq: u64) -> Self {
        Self { from: Some(seq), ..self }
    }

    /// Limits the feed to these parts.
    #[must_use]
    pub fn parts(self, parts: impl Into<Vec<Part>>) -> Self {
        Self { parts: Some(parts.into()), ..self }
    }

    /// Limits the feed to one server.
    #[must_use]
    pub fn server(self, server: impl Into<String>) -> Self {
        Self { server: Some(server.into()), ..self }
    }

    /// Sets how much of arguments and results the events contain.
    #[must_use]
    pub fn arguments(self, arguments: Arguments) -> Self {
        Self { arguments: Some(arguments), ..self }
    }

    /// Begins with this many of the last calls, and of the last lines.
    #[must_use]
    pub fn past(self, most: usize) -> Self {
        Self { past: Some(most), ..self }
    }
}

/// The line of a request.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    feed: T,
}

/// Writes a request as a line.
pub(super) fn line(request: &FeedRequest) -> String {
    replies::line(&Line { feed: request })
}

/// An event that only one feed gets.
#[derive(Serialize)]
struct Own<T> {
    #[serde(rename = "type")]
    kind: &'static str,
    seq: u64,
    at: u64,
    #[serde(flatten)]
    members: T,
}

#[derive(Serialize)]
struct Greeting<'a> {
    v: u32,
    #[serde(flatten)]
    hello: &'a Hello,
}

/// The current state of everything that the feed covers.
#[derive(Serialize)]
struct Snapshot<'a> {
    config: ConfigStatus,
    servers: Vec<&'a RawValue>,
    running: Vec<Running>,
    approvals: Vec<Approval>,
    asks: Vec<Ask>,
    logins: Vec<String>,
    totals: Totals,
}

/// The definitions of one server that are not approved.
#[derive(Serialize)]
struct Approval {
    server: String,
    changed: Vec<String>,
    withheld: usize,
}

/// A call that waits for a person's permission, without its arguments.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ask {
    id: u64,
    rule: String,
    server: String,
    name: String,
    method: String,
    principal: String,
    client: Option<String>,
    waits_secs: u64,
    person_only: bool,
}

impl From<OpenAsk> for Ask {
    fn from(ask: OpenAsk) -> Self {
        let OpenAsk { id, rule, server, name, method, principal, client, waits_secs, person_only, .. } = ask;
        Self { id, rule, server, name, method, principal, client, waits_secs, person_only }
    }
}

/// How many requests have ended since the start.
#[derive(Serialize)]
struct Totals {
    results: u64,
    errors: u64,
    failures: u64,
    cancelled: u64,
}

#[derive(Serialize)]
struct Servers<'a> {
    changed: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
}

#[derive(Serialize)]
struct Gap {
    missed: u64,
}

#[derive(Serialize)]
struct Beat {}

/// Serves a feed until its reader is gone.
///
/// # Errors
/// When the connection fails.
pub(super) async fn serve(
    router: &Router,
    hello: Hello,
    request: &[u8],
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let asked = serde_json::from_slice::<Line<FeedRequest>>(request);
    let asked = asked.map_err(|error| Refused::because(format!("not a request for a feed: {error}")));
    let opened = match asked {
        Ok(Line { feed }) => Feed::open(router, hello, feed, At::Socket).await,
        Err(refused) => Err(refused),
    };
    let mut feed = match opened {
        Ok(feed) => feed,
        Err(refused) => {
            output.write_all(replies::line(&refused).as_bytes()).await?;
            return output.write_all(b"\n").await;
        }
    };
    let gone = async {
        let mut piece = [0; 64];
        while input.read(&mut piece).await? > 0 {}
        Ok(())
    };
    let run = async {
        loop {
            output.write_all(&feed.next().await).await?;
            yield_now().await;
        }
    };
    tokio::select! {
        gone = gone => gone,
        ended = run => ended,
    }
}

/// One open feed.
pub(crate) struct Feed {
    router: Router,
    /// The first event; `None` once it is written.
    hello: Option<Hello>,
    wanted: Wanted,
    from: Option<u64>,
    /// The events from before the feed was opened. They are written before the snapshot; `None` once that is done.
    past: Option<Past>,
    /// How many past events were dropped before the feed could write them.
    gone: u64,
    watcher: Watcher,
    /// The number of the last event that was written.
    seq: u64,
    /// The number of the last event before the feed was opened.
    opened: u64,
    /// The state of the servers that the feed was last told.
    known: Known,
    /// The config names of servers whose aliases differ from them, by alias; and the servers from which this was
    /// computed.
    names: BTreeMap<String, String>,
    named: Arc<Vec<Arc<Server>>>,
    /// The memory and processor time of servers' processes.
    usage: Usage,
    out: Vec<u8>,
    second: Interval,
    measure: Interval,
    beat: Interval,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("seq", &self.seq).finish_non_exhaustive()
    }
}

impl Feed {
    /// Opens a feed.
    ///
    /// # Errors
    /// When there is no such server, or too many feeds are open there.
    pub(crate) async fn open(router: &Router, hello: Hello, request: FeedRequest, at: At) -> Result<Self, Refused> {
        let servers = router.manager().servers();
        let server = request.server.as_ref().map(|wanted| {
            let named =
                servers.iter().find(|server| server.config.name == *wanted || server.config.alias.as_str() == wanted);
            let unknown = || {
                let names: Vec<&str> = servers.iter().map(|server| server.config.name.as_str()).collect();
                Refused::unknown(format!("no server is called `{wanted}`; there are: {}", names.join(", ")))
            };
            let config = named.map(|server| &server.config).ok_or_else(unknown)?;
            Ok::<_, Refused>((config.name.clone(), config.alias.to_string()))
        });
        let arguments = request.arguments.unwrap_or_default();
        let wanted = Wanted { parts: request.parts, server: server.transpose()?, arguments };
        let busy = || Refused::because(BUSY);
        let watcher = router.manager().record().watch(at, arguments).ok_or_else(busy)?;
        if wanted.has(Part::Calls) {
            watcher.look(SystemTime::now());
            router.clients().tell_of_running(RUNNING, Duration::ZERO).await;
        }
        // Events that happen while the past is written come after it.
        let (seq, past) = watcher.past(request.past.unwrap_or(0).min(PAST), &wanted);
        Ok(Self {
            router: router.clone(),
            hello: Some(hello),
            from: request.from,
            past: request.from.is_none().then_some(past),
            gone: 0,
            wanted,
            watcher,
            seq,
            opened: seq,
            known: Known::default(),
            names: BTreeMap::new(),
            named: Arc::default(),
            usage: Usage::default(),
            out: Vec::new(),
            second: ticks(SECOND),
            measure: interval(usage::EVERY),
            beat: ticks(BEAT),
        })
    }

    /// Returns the next lines.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        if self.hello.is_some() {
            self.begin().await;
        }
        loop {
            if !self.out.is_empty() {
                return std::mem::take(&mut self.out);
            }
            if self.fill().await {
                continue;
            }
            tokio::select! {
                () = self.watcher.changed(self.seq) => sleep(PAUSE).await,
                _ = self.second.tick() => self.look().await,
                _ = self.measure.tick(), if self.wanted.has(Part::Servers) => self.measure().await,
                _ = self.beat.tick() => self.own("beat", Beat {}),
            }
        }
    }

    /// Writes `hello`; if the feed wanted to resume and cannot, also a `gap` and a snapshot.
    async fn begin(&mut self) {
        let resumed = self.from.filter(|from| matches!(self.watcher.after(*from, 1, self.opened), Read::Events(_)));
        let missed = match (resumed, self.from) {
            (None, Some(from)) => Some((self.seq.saturating_sub(from), self.look_at_all().await)),
            _ => None,
        };
        let Some(hello) = self.hello.take() else { return };
        self.seq = resumed.unwrap_or(self.seq);
        self.own("hello", Greeting { v: VERSION, hello: &hello });
        if let Some((missed, now)) = missed {
            self.gap(missed);
            self.snapshot(&now);
        }
    }

    /// Writes an event of this feed alone. It has the number of the last event before it.
    fn own(&mut self, kind: &'static str, members: impl Serialize) {
        write_own(&mut self.out, (kind, self.seq), members);
    }

    fn gap(&mut self, missed: u64) {
        self.router.manager().record().counts().add(HostCount::FeedDropped, missed);
        self.own("gap", Gap { missed });
    }

    /// Writes the next past events; after the last one, how many are missing, and the snapshot.
    async fn recall(&mut self) -> bool {
        let Some(past) = &mut self.past else { return false };
        if let Some((events, gone)) = past.take(BATCH) {
            self.gone += gone;
            self.write(&events);
            return true;
        }
        let now = self.look_at_all().await;
        self.past = None;
        if self.gone > 0 {
            self.gap(self.gone);
        }
        self.snapshot(&now);
        true
    }

    /// Writes the next events. Returns false if there are none.
    async fn fill(&mut self) -> bool {
        if self.recall().await {
            return true;
        }
        match self.watcher.after(self.seq, BATCH, self.opened) {
            Read::Missed(missed) => {
                // Events that happen from here on come after the snapshot.
                let (seq, now) = (self.watcher.now().0, self.look_at_all().await);
                self.gap(missed);
                self.seq = seq;
                self.snapshot(&now);
                true
            }
            Read::Events(events) => {
                let Some(last) = events.last() else { return false };
                self.seq = last.seq;
                self.write(&events);
                true
            }
        }
    }

    fn write(&mut self, events: &[Event]) {
        self.name_servers();
        for event in events {
            event.write(&mut self.out, &self.wanted, |alias| named(&self.names, alias));
        }
    }

    /// Asks the system for the memory and processor time of servers' processes.
    async fn measure(&mut self) {
        let pids: BTreeSet<u32> = self.router.manager().pids().into_iter().collect();
        if !pids.is_empty() {
            let groups = usage::look(pids).await;
            self.usage.take(groups, Instant::now());
        }
    }

    /// Writes the changes of servers since the feed was last told. Called once a second.
    async fn look(&mut self) {
        if self.wanted.has(Part::Calls) {
            self.watcher.settle(SystemTime::now());
            self.router.clients().tell_of_running(LONG, SECOND).await;
        }
        if !self.wanted.has(Part::Servers) {
            return;
        }
        let known = &mut self.known;
        let now = watched::each(&self.router, &self.wanted, &self.usage, |ServerStatus { name, .. }, members| {
            let change = members.and_then(|members| known.change(&name, &members));
            (name, change)
        });
        let now = now.await;
        let names: BTreeSet<&str> = now.iter().map(|(name, _)| &**name).collect();
        let gone = self.known.keep(|name| names.contains(name));
        let changed: Vec<&RawValue> = now.iter().filter_map(|(_, change)| Some(&*change.as_ref()?.members)).collect();
        if !changed.is_empty() || !gone.is_empty() {
            write_own(&mut self.out, ("servers", self.seq), Servers { changed, gone });
        }
        for (name, change) in now {
            change.into_iter().for_each(|change| self.known.told(name.clone(), change));
        }
    }

    /// Returns the current status of the servers that the feed covers.
    async fn look_at_all(&self) -> Vec<(ServerStatus, Option<Box<RawValue>>)> {
        watched::each(&self.router, &self.wanted, &self.usage, |status, members| (status, members)).await
    }

    /// Writes the current state of everything that the feed covers.
    fn snapshot(&mut self, now: &[(ServerStatus, Option<Box<RawValue>>)]) {
        let (_, running) = self.watcher.now();
        self.name_servers();
        let has = |part: Part| self.wanted.has(part);
        let of = || now.iter().map(|(status, _)| status);
        let approvals = of().filter(|server| has(Part::Approvals) && !server.changed.is_empty()).map(|server| {
            Approval { server: server.name.clone(), changed: server.changed.clone(), withheld: server.withheld }
        });
        let [results, errors, failures, cancelled] = self.router.observer().counts();
        let running = running.iter().filter(|call| has(Part::Calls) && self.wanted.is_of(call.server()));
        let running = running.map(|call| call.running(|alias| named(&self.names, alias)));
        let asks = if has(Part::Asks) { self.router.clients().asks().list() } else { Vec::new() };
        let snapshot = Snapshot {
            config: self.router.manager().config_status().borrow().clone(),
            running: running.collect(),
            approvals: approvals.collect(),
            asks: asks.into_iter().map(Ask::from).collect(),
            logins: of()
                .filter(|server| server.state == StateName::Unauthorized)
                .map(|server| server.name.clone())
                .collect(),
            totals: Totals { results, errors, failures, cancelled },
            servers: now.iter().filter_map(|(_, members)| members.as_deref()).collect(),
        };
        write_own(&mut self.out, ("snapshot", self.seq), &snapshot);
        self.known.begin(now.iter().filter_map(|(status, members)| Some((&*status.name, members.as_deref()?))));
    }

    /// Notes the servers whose names differ from their aliases.
    fn name_servers(&mut self) {
        let servers = self.router.manager().servers();
        if Arc::ptr_eq(&servers, &self.named) {
            return;
        }
        let other = servers.iter().filter(|server| server.config.name != server.config.alias.as_str());
        self.names = other.map(|server| (server.config.alias.to_string(), server.config.name.clone())).collect();
        self.named = servers;
    }
}

/// Writes an event that only one feed gets.
fn write_own(out: &mut Vec<u8>, (kind, seq): (&'static str, u64), members: impl Serialize) {
    // Writing to a vector never fails, and every key is a string.
    let _ = serde_json::to_writer(&mut *out, &Own { kind, seq, at: unix_ms(SystemTime::now()), members });
    out.push(b'\n');
}

fn named(names: &BTreeMap<String, String>, alias: &str) -> String {
    names.get(alias).map_or(alias, String::as_str).to_owned()
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
