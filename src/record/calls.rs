//! The last calls: who called what, when, and how it ended. Arguments and results are here only while a feed asks for
//! them (`arguments.rs`).
//! **Invariant:** one allocation keeps a call, and its end is written into it. A call that runs longer than its slot in
//! the ring lasts is kept until it ends. Calls without events are kept elsewhere (`passed.rs`). Those that have ended
//! are added here when a feed asks for the past, those that still run when a feed begins to watch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::arguments::{Arguments, Told};
use super::passed::{Brief, USUAL};
use crate::answered::Kind;
use crate::counts::Waits;
use crate::lock::lock;
#[cfg(feature = "server")]
use crate::observe::Noted;
use crate::observe::{At, Begun, End, Ended, Passed, Subject};
use crate::plain::{excerpt, plain};
use crate::protocol::{Method, Raw, trace_of};
use crate::redact::without_query;

/// How many bytes of a name are shown.
const NAME: usize = 1024;
/// How many bytes of the message of a progress notification are shown.
const MESSAGE: usize = 120;
/// About how many bytes an event of a call has, without its arguments and its result.
const COST: usize = 360;
/// How many milliseconds are between two progress events of one call.
const PROGRESS: u64 = 250;

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its number, from 1.
    id: u64,
    /// Milliseconds since 1970.
    at: u64,
    method: Method,
    client: Option<Arc<str>>,
    door: Option<&'static str>,
    via: Option<&'static str>,
    bytes_in: usize,
    /// Has its server and target once it is routed.
    subject: Arc<Subject>,
    /// The id of the trace that the client sent with it.
    trace: Option<Box<str>>,
    /// What feeds show of its arguments and its result; `None` if no feed asks for them.
    told: Mutex<Option<Box<[Told; 2]>>>,
    /// When its last progress event was.
    progressed: AtomicU64,
    end: OnceLock<Ending>,
}

/// Progress of a call, as a server tells it.
#[derive(Debug, Serialize)]
pub(super) struct Progress {
    progress: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Progress {
    /// Returns about how many bytes it adds to an event.
    pub(super) fn cost(&self) -> usize {
        self.message.as_ref().map_or(0, String::len)
    }
}

/// How a call ended.
#[derive(Debug)]
struct Ending {
    took: Duration,
    /// For how much of that time it waited for others; `None` if it went to no server.
    waits: Option<Waits>,
    outcome: End,
    kind: Option<Kind>,
    rule: Option<Arc<str>>,
    bytes_out: usize,
    is_cached: bool,
}

/// A call as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind_of_event: &'static str,
    seq: u64,
    at: u64,
    id: u64,
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    door: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'static str>,
    bytes_in: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a RawValue>,
    #[serde(flatten)]
    progress: Option<&'a Progress>,
    #[serde(flatten)]
    end: Option<ShownEnd<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownEnd<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    person_ms: Option<f64>,
    bytes_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "is_false")]
    cached: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A call that has not ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Running {
    id: u64,
    /// When it began, in milliseconds since 1970.
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    door: Option<&'static str>,
}

impl Call {
    /// Makes a call that has ended.
    fn ended(id: u64, brief: Brief) -> Self {
        let ((took, waits), (bytes_in, bytes_out)) = (brief.times(), brief.bytes());
        let (via, rule) = (brief.via(), brief.rule());
        let Brief { at, method, client, door, aim, end: outcome, kind, is_cached, .. } = brief;
        let waits = aim.is_some().then_some(waits);
        let subject = Arc::<Subject>::default();
        if let Some((whose, target)) = &aim {
            subject.is(&whose.server, target, &whose.scrubber);
        }
        Self {
            id,
            at,
            method,
            client,
            door,
            via,
            bytes_in,
            subject,
            trace: None,
            told: Mutex::new(None),
            progressed: AtomicU64::new(0),
            end: Ending { took, waits, outcome, kind, rule, bytes_out, is_cached }.into(),
        }
    }

    /// Notes how it ended.
    pub(super) fn end(&self, ended: &Ended<'_>) {
        if let Some(told) = &mut *lock(&self.told) {
            told[1] = ended.result.cloned().map_or(Told::Nothing, Told::Whole);
            // The bytes of the call are freed soon, so its values are read now.
            let known = self.subject.at().map(|at| at.scrubber.clone()).unwrap_or_default();
            told.iter_mut().for_each(|told| told.read(&known));
        }
        let _ = self.end.set(Ending {
            took: ended.took,
            waits: ended.at.map(|_| ended.waits),
            outcome: ended.end,
            kind: ended.kind,
            rule: ended.judged.and_then(|judged| judged.rule.clone()),
            bytes_out: ended.bytes_out,
            is_cached: ended.cached,
        });
    }

    /// Notes the end of a call of which feeds were told while it ran.
    pub(super) fn passed(&self, passed: Passed) {
        let Passed { at, rule, is_cached, took, waits, over, .. } = passed;
        if let Some((whose, target)) = &at {
            self.subject.is(&whose.server, target, &whose.scrubber);
        }
        self.subject.forget_answer();
        let _ = self.end.set(Ending {
            took,
            waits: at.is_some().then_some(waits),
            outcome: over.end,
            kind: over.kind,
            rule,
            bytes_out: over.bytes_out,
            is_cached,
        });
    }

    /// Returns when it ended; if it has not, when it began.
    pub(super) fn ended_at(&self) -> u64 {
        let took = self.end.get().map_or(0, |end| u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX));
        self.at.saturating_add(took)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// Returns its number.
    #[cfg(feature = "server")]
    pub(super) fn number(&self) -> u64 {
        self.id
    }

    /// Returns when it began.
    #[cfg(feature = "server")]
    pub(super) fn began_at(&self) -> u64 {
        self.at
    }

    /// Returns the alias of the server that it went to.
    pub(crate) fn server(&self) -> Option<&str> {
        self.subject.at().map(|at| &*at.server)
    }

    /// Returns the server's own name for what was called, without secrets and without the query of a URI.
    fn target(&self) -> Option<String> {
        let At { target, scrubber, .. } = self.subject.at()?;
        let shown = scrubber.without_known(&without_query(target)).into_owned();
        Some(shown.char_indices().take_while(|(at, _)| *at < NAME).map(|(_, c)| c).collect())
    }

    /// Returns about how many bytes one of its events has.
    pub(super) fn cost(&self) -> usize {
        COST + lock(&self.told).iter().flat_map(|told| told.iter()).map(Told::cost).sum::<usize>()
    }

    /// Forgets its arguments and its result.
    pub(super) fn forget_told(&self) {
        *lock(&self.told) = None;
    }

    /// Returns what feeds show of a progress notification; `None` if the last progress event was a moment ago.
    pub(super) fn progress(&self, params: &Raw, now: u64) -> Option<Progress> {
        let is_due = |last: u64| (now >= last.saturating_add(PROGRESS)).then_some(now);
        self.progressed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).ok()?;
        let At { scrubber, .. } = self.subject.at()?;
        let [progress, total, message] = params.members(["progress", "total", "message"]);
        let number = |value: Raw| serde_json::from_slice::<f64>(value.as_bytes()).ok().map(|_| value);
        let raw = |value: Raw| RawValue::from_string(value.as_str().to_owned()).ok();
        let shown = |message: Raw| {
            let text = plain(message.string()?.as_bytes());
            Some(excerpt(scrubber.scrub(&String::from_utf8_lossy(&text)).as_bytes(), MESSAGE))
        };
        Some(Progress {
            progress: progress.and_then(number).and_then(raw)?,
            total: total.and_then(number).and_then(raw),
            message: message.and_then(shown),
        })
    }

    /// Writes an event of it as JSON. `server` is the server's name in the config.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        (seq, at): (u64, u64),
        phase: &Phase<'_>,
        (server, arguments): (Option<&str>, Arguments),
    ) {
        let end = self.end.get().filter(|_| matches!(phase, Phase::End));
        let mut told = lock(&self.told);
        if let (Some(told), Some(at)) = (&mut *told, self.subject.at()) {
            told.iter_mut().for_each(|told| told.read(&at.scrubber));
        }
        let told = |which: usize| told.as_ref().and_then(|told| told[which].told(arguments));
        let shown = Shown {
            kind_of_event: "call",
            seq,
            at,
            id: self.id,
            phase: phase.word(),
            server,
            tool: self.target(),
            method: self.method(),
            client: self.client.as_deref(),
            door: self.door,
            via: self.via,
            bytes_in: self.bytes_in,
            trace: self.trace.as_deref(),
            args: told(0),
            progress: match phase {
                Phase::Progress(progress) => Some(progress),
                Phase::Begin | Phase::End => None,
            },
            end: end.map(|end| ShownEnd {
                outcome: end.outcome.word(),
                kind: end.kind.map(Kind::word),
                rule: end.rule.as_deref(),
                ms: milliseconds(end.took),
                host_ms: end.waits.map(|waits| milliseconds(end.took.saturating_sub(waits.all()))),
                queue_ms: end.waits.and_then(|waits| some(waits.turn)),
                person_ms: end.waits.and_then(|waits| some(waits.person)),
                bytes_out: end.bytes_out,
                result: told(1),
                cached: end.is_cached,
            }),
        };
        // Writing to a vector never fails, and every key is a string.
        let _ = serde_json::to_writer(out, &shown);
    }

    /// Describes it while it runs. `named` gives the name of a server in the config by its alias.
    pub(crate) fn running(&self, named: impl Fn(&str) -> String) -> Running {
        Running {
            id: self.id,
            at: self.at,
            server: self.server().map(named),
            tool: self.target(),
            method: self.method(),
            client: self.client.as_deref().map(str::to_owned),
            door: self.door,
        }
    }

    /// Returns its method. That of an extension is a client's text.
    fn method(&self) -> String {
        self.method.as_str().chars().take(NAME / 4).collect()
    }
}

/// What an event of a call is about.
pub(super) enum Phase<'a> {
    Begin,
    Progress(&'a Progress),
    End,
}

impl Phase<'_> {
    fn word(&self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Progress(_) => "progress",
            Self::End => "end",
        }
    }
}

/// Returns the time in milliseconds; `None` if it is zero.
fn some(time: Duration) -> Option<f64> {
    Some(milliseconds(time)).filter(|ms| *ms > 0.0)
}

/// Returns the time in milliseconds, with tenths.
fn milliseconds(time: Duration) -> f64 {
    let tenths = u32::try_from(time.as_micros() / 100).unwrap_or(u32::MAX);
    f64::from(tenths) / 10.0
}

/// The last calls.
#[derive(Debug)]
pub(super) struct Calls {
    most: usize,
    last: u64,
    /// The oldest first.
    ring: VecDeque<Arc<Call>>,
    /// Calls that still run, though newer ones have taken their slots in the ring.
    long: Vec<Arc<Call>>,
    /// Calls that still run and were added while they ran, by number.
    joined: BTreeMap<u64, Arc<Call>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { most: USUAL, last: 0, ring: VecDeque::new(), long: Vec::new(), joined: BTreeMap::new() }
    }
}

impl Calls {
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
        self.make_room(0);
    }

    /// Drops the oldest calls until there is room for this many more.
    fn make_room(&mut self, more: usize) {
        while self.ring.len() + more > self.most {
            let Some(oldest) = self.ring.pop_front() else { return };
            if !oldest.has_ended() {
                self.long.push(oldest);
            }
        }
    }

    /// Adds a call. Its arguments are kept if `tells`.
    pub(super) fn begin(&mut self, call: &Begun<'_>, at: u64, tells: bool) -> Arc<Call> {
        self.last += 1;
        let told = tells.then(|| Box::new([Told::arguments(call.method, call.params), Told::Nothing]));
        let call = Arc::new(Call {
            id: self.last,
            at,
            method: call.method.clone(),
            client: call.client.clone(),
            door: call.door,
            via: call.via,
            bytes_in: call.params.map_or(0, |params| params.as_bytes().len()),
            subject: call.subject.clone(),
            trace: call.params.and_then(trace_of).map(Into::into),
            told: Mutex::new(told),
            progressed: AtomicU64::new(0),
            end: OnceLock::new(),
        });
        self.add(&call);
        call
    }

    fn add(&mut self, call: &Arc<Call>) {
        self.make_room(1);
        self.ring.push_back(call.clone());
    }

    /// Adds a running call whose beginning was no event. No feed asked for its arguments, so they are not kept.
    #[cfg(feature = "server")]
    pub(super) fn join(&mut self, noted: &Noted, at: u64, bytes_in: usize, subject: Arc<Subject>) -> Arc<Call> {
        self.last += 1;
        let call = Arc::new(Call {
            id: self.last,
            at,
            method: noted.method.clone(),
            client: noted.client.clone(),
            door: noted.door,
            via: noted.via,
            bytes_in,
            subject,
            trace: None,
            told: Mutex::new(None),
            progressed: AtomicU64::new(0),
            end: OnceLock::new(),
        });
        self.joined.insert(call.id, call.clone());
        self.add(&call);
        call
    }

    /// Removes and returns a call that was added by `Calls::join` and has ended.
    pub(super) fn joined(&mut self, number: u64) -> Option<Arc<Call>> {
        self.joined.remove(&number)
    }

    /// Adds calls that have ended and had no events.
    pub(super) fn adopt(&mut self, briefs: VecDeque<Brief>) {
        if briefs.is_empty() {
            return;
        }
        for brief in briefs {
            self.last += 1;
            self.ring.push_back(Arc::new(Call::ended(self.last, brief)));
        }
        self.ring.make_contiguous().sort_by_key(|call| call.ended_at());
        self.make_room(0);
    }

    pub(super) fn end(&mut self, call: &Arc<Call>) {
        self.long.retain(|long| long.id != call.id);
    }

    /// Forgets the arguments and results of all calls.
    pub(super) fn forget_told(&self) {
        self.long.iter().chain(&self.ring).for_each(|call| call.forget_told());
    }

    /// Returns the calls that run, the oldest first.
    pub(super) fn running(&self) -> Vec<Arc<Call>> {
        self.long.iter().chain(&self.ring).filter(|call| !call.has_ended()).cloned().collect()
    }

    /// Returns the last calls that have ended, the oldest first.
    pub(super) fn last(&self, most: usize, of: impl Fn(&Call) -> bool) -> Vec<Arc<Call>> {
        let ended = self.ring.iter().rev().filter(|call| call.has_ended() && of(call));
        let mut last: Vec<_> = ended.take(most).cloned().collect();
        last.reverse();
        last
    }
}
