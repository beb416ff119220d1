//! The lines of `serve` while it runs: the endpoint, and one per server that becomes ready, fails or is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::pin;
use std::time::{Instant, SystemTime};

use futures_util::FutureExt as _;
use mcp_host::config::NOT_APPROVED;
use mcp_host::{ConfigStatus, Event, Events, Host, ServerStatus, StateChange, StateName};
use serde_json::json;
use tokio::sync::watch;

use super::callers::{self, Callers, unix_ms};
use crate::live;
use crate::output::Output;
use crate::paint::Tone;
use crate::session::look_closer;
use crate::text;

/// Follows the servers of a host. The reader of stdout may go away; the daemon stays.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    host: &'a Host,
    /// The options that make a suggested command use the same servers.
    again: String,
    output: &'a Output,
    events: Events,
    callers: Callers,
    /// The last printed state of each server, by alias.
    told: BTreeMap<String, StateName>,
    /// The aliases of all servers, and the width of the longest name.
    servers: (BTreeSet<String>, usize),
    config: watch::Receiver<ConfigStatus>,
    begun: Instant,
}

impl<'a> Watch<'a> {
    /// `begun` is when the host began to start, so that no server takes longer than all of them.
    pub(crate) fn new(host: &'a Host, begun: Instant, again: String, output: &'a Output) -> Self {
        Self {
            host,
            again,
            output,
            events: host.changes(),
            callers: Callers::new(host),
            told: BTreeMap::new(),
            servers: Default::default(),
            config: host.config_status(),
            begun,
        }
    }

    /// Prints events until every server is ready or has failed, then a summary.
    pub(crate) async fn start(&mut self) {
        let (host, output) = (self.host, self.output);
        // Events may have been missed before the subscription.
        self.sync();
        let first_round = async {
            let mut settled = pin!(host.settled());
            // A server that is retried may take long to settle, so one printed line per server is enough.
            while !self.is_all_told() {
                tokio::select! {
                    () = &mut settled => break,
                    Some(event) = self.events.next() => self.events(event),
                    Some(news) = self.callers.next() => callers::tell(&news, output),
                }
            }
        };
        live::until(output, host, first_round).await;
        self.sync();
        self.summary();
    }

    /// Prints events, forever.
    pub(crate) async fn follow(&mut self) -> Infallible {
        loop {
            tokio::select! {
                Some(event) = self.events.next() => self.events(event),
                Some(news) = self.callers.next() => callers::tell(&news, self.output),
                else => break,
            }
        }
        // The host is gone, and this future will be dropped soon.
        std::future::pending().await
    }

    /// Prints an event and all that are queued behind it. Only the servers that they are about are asked for their
    /// status: as many events come as there are servers.
    fn events(&mut self, first: Event) {
        let mut next = Some(first);
        let mut changes = Vec::new();
        while let Some(event) = next {
            if let Event::State(change) = event {
                changes.push(change);
            }
            next = self.events.next().now_or_never().flatten();
        }
        if changes.is_empty() || !self.output.json && changes.iter().all(|change| glyph(change.to).is_none()) {
            return;
        }
        if self.config.has_changed().unwrap_or_default() {
            self.config.mark_unchanged();
            self.note_servers(&self.host.status());
        }
        for change in changes.iter().filter(|change| self.output.json || glyph(change.to).is_some()) {
            let server = self.host.status_of(&change.server);
            self.change(change, server.as_ref());
        }
    }

    fn change(&mut self, change: &StateChange, server: Option<&ServerStatus>) {
        if self.output.json {
            let trouble = matches!(change.to, StateName::Failed | StateName::Unauthorized | StateName::Reconnecting);
            let known = server.filter(|_| trouble).and_then(|server| server.last_error.as_ref());
            let _ = self.output.value(&json!({
                "event": "server", "server": change.server, "from": change.from, "to": change.to,
                "cause": change.cause.as_ref().or(known),
                "at": unix_ms(change.at),
            }));
            if let Some(server) = server.filter(|_| glyph(change.to).is_some()) {
                self.told.insert(server.alias.clone(), change.to);
            }
        } else if let Some(server) = server {
            self.tell(server, change.to, change.cause.as_deref());
        }
    }

    fn note_servers(&mut self, status: &[ServerStatus]) {
        let width = status.iter().map(|server| text::width(&text::line(&server.name))).max().unwrap_or(0);
        self.servers = (status.iter().map(|server| server.alias.clone()).collect(), width);
    }

    /// Reports whether every server has a printed state.
    fn is_all_told(&self) -> bool {
        self.told.len() >= self.servers.0.len() && self.servers.0.iter().all(|alias| self.told.contains_key(alias))
    }

    /// Prints states that no event reported.
    fn sync(&mut self) {
        let status = self.host.status();
        self.note_servers(&status);
        for server in &status {
            self.tell(server, server.state, server.last_error.as_deref());
        }
    }

    /// Prints a line for a server, unless its last line said the same.
    fn tell(&mut self, server: &ServerStatus, state: StateName, cause: Option<&str>) {
        let Some(glyph) = glyph(state) else { return };
        if self.told.insert(server.alias.clone(), state) == Some(state) {
            return;
        }
        if self.output.json {
            let _ = self.output.value(&json!({
                "event": "server", "server": server.alias, "from": null, "to": state, "cause": cause,
                "at": unix_ms(SystemTime::now()),
            }));
            return;
        }
        let name = text::line(&server.name);
        let detail = match state {
            StateName::Connected => offer(server),
            StateName::Idle => "starts when it is needed".to_owned(),
            _ => text::line(cause.or(server.last_error.as_deref()).unwrap_or_default()).into_owned(),
        };
        let (paint, state) = (self.output.paint(), state.to_string());
        let tone = Tone::of_state(&state);
        let (glyph, state) = (paint.tone(tone, glyph), text::pad(&paint.tone(tone, &state), STATE));
        let _ = self.output.line(format!("{glyph} {}  {state}  {detail}", text::pad(&name, self.servers.1)).trim_end());
    }

    fn summary(&self) {
        let status = self.host.status();
        let gone = |server: &ServerStatus| matches!(server.state, StateName::Disconnecting | StateName::Disconnected);
        if !status.is_empty() && status.iter().all(gone) {
            // Stopped before it was ready.
            return;
        }
        let took = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tools: usize = status.iter().map(|server| server.tools).sum();
        if self.output.json {
            let connected = status.iter().filter(|server| server.state == StateName::Connected).count();
            let _ = self.output.value(&json!({
                "event": "settled", "servers": status.len(), "connected": connected, "tools": tools, "tookMs": took,
            }));
            return;
        }
        self.output.remark(&summary(&status, tools, took));
        if status.iter().any(|server| server.last_error.as_deref() == Some(NOT_APPROVED)) {
            self.output.remark("help: mcp-host approve");
        }
        if let Some(failed) = status.iter().find(|server| server.state == StateName::Failed) {
            self.output.remark(&format!("help: {}", look_closer(&failed.name, &self.again)));
        }
    }
}

/// Prints the first line, once the endpoint is open.
pub(crate) fn listening(url: &str, output: &Output) {
    // The reader of stdout may be gone already; the daemon serves anyway.
    let _ = if output.json {
        output.value(&json!({ "event": "listening", "url": url, "at": unix_ms(SystemTime::now()) }))
    } else {
        output.line(&format!("listening on {url}"))
    };
}

/// Prints the last line, once everything has ended.
pub(crate) fn stopped(output: &Output) {
    if output.json {
        let _ = output.value(&json!({ "event": "stopped", "at": unix_ms(SystemTime::now()) }));
    } else {
        output.remark("stopped");
    }
}

/// Formats `7 servers: 6 connected, 1 failed · 84 tools · 1.2 s`.
fn summary(status: &[ServerStatus], tools: usize, took: u64) -> String {
    let mut states: Vec<(StateName, usize)> = Vec::new();
    for server in status {
        match states.iter_mut().find(|(state, _)| *state == server.state) {
            Some((_, count)) => *count += 1,
            None => states.push((server.state, 1)),
        }
    }
    states.sort_by_key(|(state, count)| (*state != StateName::Connected, std::cmp::Reverse(*count)));
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let servers = text::count(status.len(), "server");
    if states.is_empty() {
        return format!("{servers}; add some to the config");
    }
    format!("{servers}: {} · {} · {}", states.join(", "), text::count(tools, "tool"), text::duration(took))
}

/// Formats `12 tools, 3 resources, 1 prompt  640 ms`.
fn offer(server: &ServerStatus) -> String {
    let parts = [
        (server.tools, "tool"),
        (server.resources, "resource"),
        (server.resource_templates, "template"),
        (server.prompts, "prompt"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| text::count(*number, noun)).collect();
    let offer = if parts.is_empty() { "offers nothing".to_owned() } else { parts.join(", ") };
    match server.ready_after_ms {
        Some(took) => format!("{offer}  {}", text::duration(took)),
        None => offer,
    }
}

/// Returns the symbol of a state that is worth a line; `None` for any other state.
fn glyph(state: StateName) -> Option<&'static str> {
    match state {
        StateName::Connected => Some("✓"),
        StateName::Failed => Some("✗"),
        StateName::Unauthorized => Some("!"),
        StateName::Reconnecting => Some("↻"),
        StateName::Disabled | StateName::Idle => Some("○"),
        _ => None,
    }
}

/// The width of the longest state.
const STATE: usize = "unauthorized".len();
