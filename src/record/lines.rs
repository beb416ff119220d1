//! The last lines of each server: what it writes to standard error, its log messages, and the changes of its state; and
//! lines of mcp-host itself.
//!
//! **Invariant:** a line is kept as it was written, since a server may write faster than secrets can be searched for.
//! It is shown without the secrets that are known by then. The lines of one server take `limits.lines` bytes at most,
//! those of all servers [`ALL`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use crate::plain::{excerpt, plain};
use crate::redact::Scrubber;

/// The bytes of one line that are kept.
const LINE: usize = 1024;
/// What a line costs besides its bytes.
const OVERHEAD: usize = 160;
/// The bytes of the lines of all servers.
const ALL: usize = 16 << 20;
/// The bytes of the lines of one server unless a limit is set.
const USUAL: usize = 256 << 10;
/// How many lines of one server have events in one second.
const LINES_PER_SECOND: u32 = 100;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The standard error of a server's process.
    Stderr,
    /// A log message of a server.
    Log,
    /// A change of a server's state.
    State,
    /// mcp-host itself.
    Host,
}

/// How severe a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    /// Reads the level of a log message. A level that the protocol does not have counts as `info`.
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "debug" => Self::Debug,
            "notice" => Self::Notice,
            "warning" => Self::Warning,
            "error" => Self::Error,
            "critical" => Self::Critical,
            "alert" => Self::Alert,
            "emergency" => Self::Emergency,
            _ => Self::Info,
        }
    }
}

/// A line as it comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    /// The server's name in the config; `None` for a line of mcp-host.
    pub(crate) server: Option<&'a Arc<str>>,
    pub(crate) source: Source,
    pub(crate) level: Level,
    pub(crate) text: &'a Arc<[u8]>,
    /// Removes the server's secrets; `None` if the text has none.
    pub(crate) scrubber: Option<&'a Arc<Scrubber>>,
}

/// A line that is kept.
pub(crate) struct Line {
    /// The number of its event; if it has none, that of the last one before it.
    pub(super) seq: u64,
    pub(super) at: u64,
    pub(super) server: Option<Arc<str>>,
    source: Source,
    level: Level,
    text: Arc<[u8]>,
    is_cut: bool,
    scrubber: Option<Arc<Scrubber>>,
}

/// A line as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    seq: u64,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    source: Source,
    level: Level,
    text: String,
}

impl Line {
    /// Returns its text: one line without escape sequences and secrets.
    pub(super) fn text(&self) -> String {
        let text = excerpt(&plain(&self.text), LINE);
        let mut text = self.scrubber.as_ref().map_or_else(|| text.clone(), |known| known.scrub(&text).into_owned());
        if self.is_cut {
            text.push('…');
        }
        text
    }

    /// Writes its event as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Self { seq, at, source, level, .. } = *self;
        let shown = Shown { kind: "line", seq, at, server: self.server.as_deref(), source, level, text: self.text() };
        // Writing to a vector never fails, and every key is a string.
        let _ = serde_json::to_writer(out, &shown);
    }

    pub(super) fn cost(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// The lines of one server.
#[derive(Default)]
struct Ring {
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
    /// The current second, the lines in it, and how many lines had no event so far.
    second: (u64, u32),
    left_out: u64,
}

impl Ring {
    /// Drops the oldest line, and returns what it cost.
    fn pop(&mut self) -> usize {
        let cost = self.lines.pop_front().map_or(0, |line| line.cost());
        self.bytes -= cost;
        cost
    }
}

/// The lines of all servers by their names; those of mcp-host have no name.
pub(super) struct Lines {
    rings: BTreeMap<Arc<str>, Ring>,
    bytes: usize,
    most: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self { rings: BTreeMap::new(), bytes: 0, most: USUAL }
    }
}

impl Lines {
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
        for ring in self.rings.values_mut() {
            while ring.bytes > most {
                self.bytes -= ring.pop();
            }
        }
    }

    /// Keeps a line. Returns the lines that have events, which get the numbers after `last`: none if the server says
    /// too much, else this one, and before it one that says how many had none.
    pub(super) fn keep(&mut self, said: &Said<'_>, at: u64, last: u64) -> Vec<Arc<Line>> {
        let ring = self.rings.entry(said.server.cloned().unwrap_or_else(|| "".into())).or_default();
        if ring.second.0 != at / 1000 {
            ring.second = (at / 1000, 0);
        }
        ring.second.1 = ring.second.1.saturating_add(1);
        let has_event = ring.second.1 <= LINES_PER_SECOND;
        let mut events = Vec::new();
        if !has_event {
            ring.left_out += 1;
        } else if ring.left_out > 0 {
            let text = format!("{} lines are left out here; `mcp-host logs` has the last ones", ring.left_out);
            ring.left_out = 0;
            events.push(Line {
                seq: last + 1,
                at,
                server: said.server.cloned(),
                source: Source::Host,
                level: Level::Notice,
                text: text.into_bytes().into(),
                is_cut: false,
                scrubber: None,
            });
        }
        let is_cut = said.text.trim_ascii_end().len() > LINE;
        let line = Arc::new(Line {
            seq: last + events.len() as u64 + u64::from(has_event),
            at,
            server: said.server.cloned(),
            source: said.source,
            level: said.level,
            text: if is_cut { said.text[..LINE].into() } else { said.text.clone() },
            is_cut,
            scrubber: said.scrubber.cloned(),
        });
        let (cost, mut freed) = (line.cost(), 0);
        while ring.bytes + cost > self.most && !ring.lines.is_empty() {
            freed += ring.pop();
        }
        ring.bytes += cost;
        ring.lines.push_back(line.clone());
        self.bytes = self.bytes + cost - freed;
        self.make_room();
        events.into_iter().map(Arc::new).chain(has_event.then_some(line)).collect()
    }

    /// While the lines of all servers are too many, drops a part of the largest ring.
    fn make_room(&mut self) {
        while self.bytes > ALL {
            let Some(largest) = self.rings.values_mut().max_by_key(|ring| ring.bytes) else { return };
            let goal = largest.bytes - largest.bytes / 4;
            while largest.bytes > goal && !largest.lines.is_empty() {
                self.bytes -= largest.pop();
            }
            if largest.lines.is_empty() {
                self.rings.retain(|_, ring| !ring.lines.is_empty());
            }
        }
    }

    pub(super) fn forget(&mut self, server: &str) {
        if let Some(gone) = self.rings.remove(server) {
            self.bytes -= gone.bytes;
        }
    }

    /// Returns the last lines of one server, or of all and of mcp-host, the oldest first.
    pub(super) fn last(&self, most: usize, server: Option<&str>) -> Vec<Arc<Line>> {
        let of = |name: &str| server.is_none_or(|server| server == name);
        let rings = self.rings.iter().filter(|(name, _)| of(name));
        let mut last: Vec<_> = rings.flat_map(|(_, ring)| ring.lines.iter().rev().take(most)).cloned().collect();
        // The lines of one ring are in order already; a stable sort keeps those of one moment so.
        last.reverse();
        last.sort_by_key(|line| (line.at, line.seq));
        last.drain(..last.len().saturating_sub(most));
        last
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
