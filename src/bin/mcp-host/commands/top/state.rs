//! The state of `top`: what is known of the servers, and the user's position on the screen.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::commands::feed::{Call, Event, Line};

/// How many calls and lines are remembered.
const KEPT: usize = 2000;
/// How many seconds the graph of a server covers.
const CURVE: usize = 60;
/// How many tools are counted.
const TOOLS: usize = 2000;

/// The pane below the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Servers,
    Timeline,
    Tools,
    Calls,
    Lines,
}

/// The sort order of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    State,
    Name,
    Rate,
    Slowest,
    Errors,
    Memory,
}

impl Sort {
    const ALL: [Self; 6] = [Self::State, Self::Name, Self::Rate, Self::Slowest, Self::Errors, Self::Memory];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Name => "name",
            Self::Rate => "rate",
            Self::Slowest => "p95",
            Self::Errors => "errors",
            Self::Memory => "memory",
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// One server: the members that the feed sent, and its graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    members: Map<String, Value>,
    /// The number of calls in each of the last seconds.
    pub(super) curve: VecDeque<u64>,
    calls_before: Option<u64>,
}

impl Server {
    pub(super) fn text(&self, key: &str) -> &str {
        self.members.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.members.get(key).and_then(Value::as_f64)
    }

    pub(super) fn whole(&self, key: &str) -> Option<u64> {
        self.members.get(key).and_then(Value::as_u64)
    }

    /// Returns how many calls failed in the last five minutes.
    pub(super) fn errors(&self) -> u64 {
        self.list("errors").iter().filter_map(Value::as_u64).sum()
    }

    pub(super) fn list(&self, key: &str) -> &[Value] {
        self.members.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

/// One tool: how often it was called, how often a call failed, and the milliseconds of all calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tool {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) ms: f64,
}

/// The data from the feed.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) servers: BTreeMap<String, Server>,
    pub(super) calls: VecDeque<Call>,
    pub(super) lines: VecDeque<Line>,
    /// The tools, by server and name.
    pub(super) tools: BTreeMap<(String, String), Tool>,
    pub(super) endpoint: String,
    pub(super) missed: u64,
    /// The number of calls without events of their own, because there are too many per second.
    pub(super) untold: u64,
}

/// The members of events that only `top` uses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    url: Option<String>,
    listen: Option<String>,
    servers: Vec<Map<String, Value>>,
    changed: Vec<Map<String, Value>>,
    gone: Vec<String>,
    server: String,
    at: u64,
    from: String,
    to: String,
    cause: Option<String>,
}

impl Model {
    fn take(&mut self, event: Event, raw: &str) {
        let told = || serde_json::from_str::<Told>(raw).unwrap_or_default();
        match event {
            Event::Hello => {
                let told = told();
                self.endpoint = told.url.or(told.listen).unwrap_or_default();
            }
            Event::Snapshot(_) => {
                let mut before = std::mem::take(&mut self.servers);
                for members in told().servers {
                    let Some(name) = members.get("name").and_then(Value::as_str).map(str::to_owned) else { continue };
                    let known = before.remove(&name).unwrap_or_default();
                    self.servers.insert(name, Server { members, ..known });
                }
            }
            Event::Server(_) => {
                let told = told();
                if let Some(server) = self.servers.get_mut(&told.server) {
                    server.members.insert("state".to_owned(), told.to.as_str().into());
                    let moment = serde_json::json!({
                        "at": told.at, "from": told.from, "to": told.to, "cause": told.cause,
                    });
                    if let Value::Array(timeline) =
                        server.members.entry("timeline").or_insert_with(|| Value::Array(Vec::new()))
                    {
                        timeline.push(moment);
                    }
                }
            }
            Event::Servers => {
                let told = told();
                for changed in told.changed {
                    let Some(name) = changed.get("name").and_then(Value::as_str).map(str::to_owned) else { continue };
                    let server = self.servers.entry(name).or_default();
                    for (key, value) in changed {
                        match value {
                            Value::Null => drop(server.members.remove(&key)),
                            value => drop(server.members.insert(key, value)),
                        }
                    }
                }
                told.gone.iter().for_each(|name| drop(self.servers.remove(name)));
            }
            Event::Call(call) if call.phase == "end" => self.ended(call),
            Event::Call(call) => self.untold += call.counts.iter().map(|counted| counted.calls).sum::<u64>(),
            Event::Line(line) => {
                self.lines.push_back(line);
                if self.lines.len() > KEPT {
                    self.lines.pop_front();
                }
            }
            Event::Gap(gap) => self.missed += gap.missed,
            Event::Beat | Event::Other => {}
        }
    }

    fn ended(&mut self, call: Call) {
        if let (Some(server), Some(tool)) = (&call.server, &call.tool) {
            let key = (server.clone(), tool.clone());
            if self.tools.len() < TOOLS || self.tools.contains_key(&key) {
                let tool = self.tools.entry(key).or_default();
                tool.calls += 1;
                tool.failed += u64::from(call.has_failed());
                tool.ms += call.ms;
            }
        }
        self.calls.push_back(call);
        if self.calls.len() > KEPT {
            self.calls.pop_front();
        }
    }

    /// Adds a second to each graph.
    fn tick(&mut self) {
        for server in self.servers.values_mut() {
            let calls = server.whole("calls").unwrap_or_default();
            let more = server.calls_before.replace(calls).map_or(0, |before| calls.saturating_sub(before));
            server.curve.push_back(more);
            if server.curve.len() > CURVE {
                server.curve.pop_front();
            }
        }
    }
}

/// The state of `top`: the data, and the user's position.
#[derive(Debug)]
pub(super) struct App {
    model: Model,
    /// The data at the moment when the user pressed `p`.
    frozen: Option<Box<Model>>,
    pub(super) pane: Pane,
    /// The server that is shown alone.
    pub(super) opened: Option<String>,
    /// The server under the cursor.
    pub(super) chosen: Option<String>,
    /// The first visible row, and how many rows there were and fit at the last redraw.
    pub(super) scroll: usize,
    pub(super) rows: (usize, usize),
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) sort: Sort,
    /// The server for which `r` waits for a confirmation.
    pub(super) asks: Option<String>,
    pub(super) is_help: bool,
    pub(super) note: Option<String>,
    pub(super) has_colors: bool,
    /// Whether something has changed since the last redraw.
    pub(super) is_new: bool,
}

impl App {
    pub(super) fn new(has_colors: bool) -> Self {
        Self {
            model: Model::default(),
            frozen: None,
            pane: Pane::Servers,
            opened: None,
            chosen: None,
            scroll: 0,
            rows: (0, 0),
            filter: String::new(),
            is_typing: false,
            sort: Sort::State,
            asks: None,
            is_help: false,
            note: None,
            has_colors,
            is_new: true,
        }
    }

    pub(super) fn take(&mut self, event: Event, raw: &str) {
        self.is_new |= self.frozen.is_none() && self.is_on_screen(&event);
        self.model.take(event, raw);
    }

    /// Reports whether an event changes what is on the screen now.
    fn is_on_screen(&self, event: &Event) -> bool {
        match event {
            Event::Call(call) => matches!(self.pane, Pane::Calls | Pane::Tools) && call.phase != "begin",
            Event::Line(_) => self.pane == Pane::Lines,
            Event::Hello | Event::Snapshot(_) | Event::Server(_) | Event::Servers | Event::Gap(_) => true,
            Event::Beat | Event::Other => false,
        }
    }

    /// Records that a second has passed.
    pub(super) fn tick(&mut self) {
        self.model.tick();
    }

    pub(super) fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) fn pause(&mut self) {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => Some(Box::new(self.model.clone())),
        };
    }

    /// Returns the data to show.
    pub(super) fn shown(&self) -> &Model {
        self.frozen.as_deref().unwrap_or(&self.model)
    }

    /// Reports whether the filter matches any of these texts.
    pub(super) fn passes(&self, texts: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&wanted))
    }

    /// Returns the visible servers in their order.
    pub(super) fn servers(&self) -> Vec<(&str, &Server)> {
        let model = self.shown();
        let passing = |(name, server): &(&String, &Server)| self.passes(&[name, server.text("state")]);
        let mut servers: Vec<(&str, &Server)> =
            model.servers.iter().filter(passing).map(|(name, server)| (name.as_str(), server)).collect();
        let falling = |key: fn(&Server) -> f64| {
            move |one: &(&str, &Server), other: &(&str, &Server)| key(other.1).total_cmp(&key(one.1))
        };
        match self.sort {
            Sort::Name => {}
            Sort::State => servers.sort_by_key(|(_, server)| worst_first(server.text("state"))),
            Sort::Rate => servers.sort_by(falling(|server| server.number("rate").unwrap_or_default())),
            Sort::Slowest => servers.sort_by(falling(|server| server.number("p95").unwrap_or_default())),
            Sort::Errors => servers.sort_by_key(|(_, server)| std::cmp::Reverse(server.errors())),
            Sort::Memory => servers.sort_by_key(|(_, server)| std::cmp::Reverse(server.whole("rss"))),
        }
        servers
    }

    /// Returns the index of the server under the cursor among the visible ones. If it is gone, the cursor is at the
    /// first one.
    pub(super) fn place(&self, servers: &[(&str, &Server)]) -> usize {
        let chosen = self.chosen.as_deref();
        servers.iter().position(|(name, _)| Some(*name) == chosen).unwrap_or_default()
    }

    /// Returns the server to which a key applies.
    pub(super) fn subject(&self) -> Option<String> {
        if self.opened.is_some() {
            return self.opened.clone();
        }
        let servers = self.servers();
        let at = self.place(&servers);
        servers.get(at).map(|(name, _)| (*name).to_owned())
    }
}

/// Ranks a state: those that need a person come first.
fn worst_first(state: &str) -> u8 {
    match state {
        "failed" => 0,
        "unauthorized" => 1,
        "reconnecting" => 2,
        "connecting" | "initializing" => 3,
        "connected" => 4,
        "idle" | "disconnected" | "disconnecting" => 5,
        _ => 6,
    }
}
