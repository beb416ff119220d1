//! The events of feeds, and how one feed reads them.
//!
//! **Invariant:** events have numbers without gaps. All feeds read the same ones, so a feed that reads slowly keeps nothing
//! for itself. A feed reads the events after the last one that it read. If these are dropped already, or take more than
//! [`QUEUE`], it learns how many it missed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::calls::{Call, Phase, Progress};
use super::lines::Line;
use super::passed::Counted;
use super::{At, EVENTS, Record, unix_ms};

/// How many bytes of events a feed may have unread.
const QUEUE: u64 = 1 << 20;
/// About how many bytes a short event has.
const SHORT: usize = 128;

/// What a feed is about.
///
/// ```
/// # #[cfg(feature = "server")] {
/// use mcp_host::admin::Part;
///
/// assert!(matches!(serde_json::from_str(r#""calls""#), Ok(Part::Calls)));
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Part {
    /// States of servers, and other changes of them.
    Servers,
    /// Calls, as they begin and end.
    Calls,
    /// Lines of servers and of mcp-host.
    Lines,
    /// Reloads of the config.
    Config,
    /// Definitions that differ from what was approved.
    Approvals,
    /// Calls that wait for a person's permission.
    Asks,
    /// Logins that begin, end, or fail, and servers that want one.
    Logins,
}

/// What happened.
#[derive(Clone)]
pub(super) enum What {
    Begun(Arc<Call>),
    Progress(Arc<Call>, Arc<Progress>),
    Ended(Arc<Call>),
    Counts(Arc<[Counted]>),
    Line(Arc<Line>),
    State(Arc<State>),
    /// An event of another part, as JSON.
    Other(Part, Arc<str>),
}

/// A change of a server's state.
pub(super) struct State {
    pub(super) server: Arc<str>,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) cause: Option<Arc<str>>,
}

impl What {
    /// Returns about how many bytes its line of JSON has.
    fn cost(&self) -> u64 {
        let bytes = match self {
            Self::Begun(call) | Self::Ended(call) => call.cost(),
            Self::Progress(call, progress) => call.cost() + progress.cost(),
            Self::Counts(counts) => counts.len() * SHORT,
            Self::Line(line) => line.cost(),
            Self::State(state) => SHORT + state.cause.as_ref().map_or(0, |cause| cause.len()),
            Self::Other(_, members) => SHORT + members.len(),
        };
        bytes as u64
    }
}

/// Something that happened, and its number.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    at: u64,
    /// The bytes of all events before it.
    begins: u64,
    what: What,
}

/// The last events.
#[derive(Default)]
pub(super) struct Events {
    /// The number of the newest event.
    last: u64,
    /// The bytes of all events so far.
    bytes: u64,
    ring: VecDeque<Event>,
}

impl Events {
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn push(&mut self, at: u64, what: What) {
        self.last += 1;
        let (cost, begins) = (what.cost(), self.bytes);
        self.bytes += cost;
        self.ring.push_back(Event { seq: self.last, at, begins, what });
        // A feed may have read none of a mebibyte of small events.
        while self.ring.len() > EVENTS && self.bytes_after(self.before() + 1) >= QUEUE {
            self.ring.pop_front();
        }
    }

    /// Returns the bytes of the events after the one with that number.
    fn bytes_after(&self, seq: u64) -> u64 {
        let skipped = usize::try_from(seq.saturating_sub(self.before())).unwrap_or(usize::MAX);
        self.ring.get(skipped).map_or(0, |next| self.bytes - next.begins)
    }

    /// Forgets the arguments and results of the calls among them.
    fn forget_told(&self) {
        for event in &self.ring {
            if let What::Begun(call) | What::Progress(call, _) | What::Ended(call) = &event.what {
                call.forget_told();
            }
        }
    }

    /// Returns the number of the event before the oldest one that is kept.
    fn before(&self) -> u64 {
        self.last - self.ring.len() as u64
    }
}

/// Which events a feed wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// `None` for all.
    pub(crate) parts: Option<Vec<Part>>,
    /// The name of one server in the config, and its alias.
    pub(crate) server: Option<(String, String)>,
    /// How much is told of arguments and results.
    pub(crate) arguments: Arguments,
}

impl Wanted {
    /// Reports whether it wants events of this part.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.as_ref().is_none_or(|parts| parts.contains(&part))
    }

    /// Reports whether it wants events of this server: its name in the config, or its alias.
    pub(crate) fn is_of(&self, server: Option<&str>) -> bool {
        self.server.as_ref().is_none_or(|(name, alias)| server.is_some_and(|server| server == name || server == alias))
    }
}

impl Event {
    fn part(&self) -> Part {
        match &self.what {
            What::Begun(_) | What::Progress(..) | What::Ended(_) | What::Counts(_) => Part::Calls,
            What::Line(_) => Part::Lines,
            What::State(_) => Part::Servers,
            What::Other(part, _) => *part,
        }
    }

    fn is_wanted(&self, wanted: &Wanted) -> bool {
        let is_of = || match &self.what {
            What::Begun(call) | What::Progress(call, _) | What::Ended(call) => wanted.is_of(call.server()),
            What::Counts(counts) => counts.iter().any(|counted| wanted.is_of(Some(counted.server()))),
            What::Line(line) => wanted.is_of(line.server.as_deref()),
            What::State(state) => wanted.is_of(Some(&state.server)),
            What::Other(..) => true,
        };
        wanted.has(self.part()) && is_of()
    }

    /// Writes it as a line of JSON, if it is wanted. `named` gives the name of a server in the config by its alias.
    pub(crate) fn write(&self, out: &mut Vec<u8>, wanted: &Wanted, named: impl Fn(&str) -> String) {
        if !self.is_wanted(wanted) {
            return;
        }
        let Self { seq, at, what, .. } = self;
        let call = |out: &mut Vec<u8>, call: &Call, phase: &Phase<'_>| {
            let server = call.server().map(&named);
            call.write(out, (*seq, *at), phase, (server.as_deref(), wanted.arguments));
        };
        match what {
            What::Begun(begun) => call(out, begun, &Phase::Begin),
            What::Progress(running, progress) => call(out, running, &Phase::Progress(progress)),
            What::Ended(ended) => call(out, ended, &Phase::End),
            What::Counts(counts) => {
                let of = counts.iter().filter(|counted| wanted.is_of(Some(counted.server())));
                let counts: Vec<_> = of
                    .map(|counted| {
                        let Counted { calls, failed, .. } = counted;
                        serde_json::json!({ "server": named(counted.server()), "calls": calls, "failed": failed })
                    })
                    .collect();
                let shown =
                    serde_json::json!({ "type": "call", "seq": seq, "at": at, "phase": "counts", "counts": counts });
                let _ = serde_json::to_writer(&mut *out, &shown);
            }
            What::Line(line) => line.write(out),
            What::State(state) => {
                let State { server, from, to, cause } = &**state;
                let (kind, cause) = ("server", cause.as_deref());
                let _ = serde_json::to_writer(&mut *out, &Shown { kind, seq: *seq, at: *at, server, from, to, cause });
            }
            What::Other(part, members) => {
                let word = match part {
                    Part::Approvals => "approval",
                    Part::Asks => "ask",
                    Part::Logins => "login",
                    _ => "config",
                };
                let text = format!(r#"{{"type":"{word}","seq":{seq},"at":{at},"{word}":{members}}}"#);
                out.extend_from_slice(text.as_bytes());
            }
        }
        out.push(b'\n');
    }
}

/// A change of a server's state as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    seq: u64,
    at: u64,
    server: &'a str,
    from: &'static str,
    to: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
}

/// What a feed reads.
pub(crate) enum Read {
    /// The next events, in order; none if there are none yet.
    Events(Vec<Event>),
    /// How many events the feed has not read and can no longer get.
    Missed(u64),
}

/// The last calls and lines from before a feed was opened, until the feed has read them. An entry that is dropped
/// elsewhere meanwhile is lost here, too.
#[derive(Default)]
pub(crate) struct Past(VecDeque<Before>);

struct Before {
    seq: u64,
    at: u64,
    what: BeforeWhat,
}

enum BeforeWhat {
    Ended(Weak<Call>),
    Line(Weak<Line>),
}

impl Past {
    /// Takes the next `most` entries at most. Returns the events that are still kept, and how many are not; `None` if
    /// no entry is left.
    pub(crate) fn take(&mut self, most: usize) -> Option<(Vec<Event>, u64)> {
        let (mut events, mut gone) = (Vec::new(), 0);
        if self.0.is_empty() {
            return None;
        }
        for Before { seq, at, what } in self.0.drain(..self.0.len().min(most)) {
            let what = match what {
                BeforeWhat::Ended(call) => call.upgrade().map(What::Ended),
                BeforeWhat::Line(line) => line.upgrade().map(What::Line),
            };
            match what {
                Some(what) => events.push(Event { seq, at, begins: 0, what }),
                None => gone += 1,
            }
        }
        Some((events, gone))
    }

    /// Returns those that are still kept.
    #[cfg(test)]
    pub(crate) fn kept(mut self) -> Vec<Event> {
        self.take(usize::MAX).map_or_else(Vec::new, |(events, _)| events)
    }
}

/// One feed. Dropping it makes room for another one.
pub(crate) struct Watcher(Record, At, bool);

impl Watcher {
    /// `tells` says whether it asks for arguments and results.
    pub(super) fn new(record: Record, at: At, tells: bool) -> Self {
        Self(record, at, tells)
    }

    /// Returns at most `most` events after the one with that number. A number that no event has yet comes from an
    /// earlier run. Events up to `replayed` happened before the feed was opened, and do not count toward [`QUEUE`].
    pub(crate) fn after(&self, seq: u64, most: usize, replayed: u64) -> Read {
        let kept = self.0.kept();
        let events = &kept.events;
        let before = events.before();
        if seq < before || seq > events.last || events.bytes_after(seq.max(replayed)) > QUEUE {
            return Read::Missed(events.last.saturating_sub(seq));
        }
        let skipped = usize::try_from(seq - before).unwrap_or(usize::MAX);
        Read::Events(events.ring.iter().skip(skipped).take(most).cloned().collect())
    }

    /// Returns the number of the last event that is no longer kept.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.0.kept().events.before()
    }

    /// Makes calls events for a while, because this feed watches them.
    #[cfg(feature = "server")]
    pub(crate) fn look(&self, now: SystemTime) {
        self.0.look(now);
    }

    /// Returns the number of the newest event, and the calls that run.
    pub(crate) fn now(&self) -> (u64, Vec<Arc<Call>>) {
        let kept = self.0.kept();
        (kept.events.last, kept.calls.running())
    }

    /// Returns the last calls and lines, at most `most` of each, as events that this feed would have got, and the
    /// number of the newest event.
    pub(crate) fn past(&self, most: usize, wanted: &Wanted) -> (u64, Past) {
        let mut kept = self.0.kept();
        let mut past = VecDeque::new();
        if wanted.has(Part::Calls) {
            // Calls that begin from now on are events.
            self.0.look(SystemTime::now());
            kept.calls.adopt(self.0.briefs().take());
            let mut calls = kept.calls.last(most, |call| wanted.is_of(call.server()));
            calls.sort_by_key(|call| call.ended_at());
            let seq = kept.events.last;
            let ended = |call: Arc<Call>| (call.ended_at(), BeforeWhat::Ended(Arc::downgrade(&call)));
            past.extend(calls.into_iter().map(ended).map(|(at, what)| Before { seq, at, what }));
        }
        if wanted.has(Part::Lines) {
            let lines = kept.lines.last(most, wanted.server.as_ref().map(|(name, _)| &**name));
            let said = |line: Arc<Line>| (line.seq, line.at, BeforeWhat::Line(Arc::downgrade(&line)));
            past.extend(lines.into_iter().map(said).map(|(seq, at, what)| Before { seq, at, what }));
        }
        (kept.events.last, Past(past))
    }

    /// Adds an event with the number of calls without events, if there were any in an earlier second. Calls go on being
    /// events.
    pub(crate) fn settle(&self, now: SystemTime) {
        self.0.look(now);
        self.0.settle(unix_ms(now));
    }

    /// Waits until there is an event after the one with that number.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub(crate) async fn changed(&self, seq: u64) {
        loop {
            let news = self.0.0.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if self.0.kept().events.last != seq {
                return;
            }
            news.await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.0.watchers[self.1 as usize].fetch_sub(1, Ordering::Relaxed);
        if self.2 && self.0.0.tellers.fetch_sub(1, Ordering::Relaxed) == 1 {
            let kept = self.0.kept();
            kept.calls.forget_told();
            kept.events.forget_told();
        }
    }
}
