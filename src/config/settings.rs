//! Reads the settings of a server entry, apart from its transport.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fields::{Field, Fields};
use super::habits;
use super::keys::Words;
use super::report::{Place, Report};
use super::shape::Flavor;
use super::syntax::Value;
use super::tools::ToolRules;
use super::{Roots, Server, Sharing, Start, transport};
use crate::protocol::Pointer;

/// Keys of other clients that are suggested, like our own keys, for a misspelled key.
const THEIRS: [&str; 5] = ["autoReconnect", "enabled", "retryAttempts", "timeout", "transport"];

/// Keys of other clients that ask nothing of this host, such as approvals, appearance, and a client's own bookkeeping.
const FOREIGN: [&str; 41] = [
    "alwaysAllow",
    "alwaysLoad",
    "autoApprove",
    "bundled",
    "chatMenu",
    "default_tools_approval_mode",
    "deferTools",
    "dev",
    "disableToolCache",
    "disabledAutoApproveTools",
    "displayName",
    "display_name",
    "experimental_environment",
    "faviconUrl",
    "filterMapping",
    "gallery",
    "icon",
    "iconPath",
    "id",
    "isDefaultServer",
    "logoUrl",
    "longRunning",
    "metadata",
    "name",
    "provider",
    "providerUrl",
    "registryUrl",
    "remote",
    "remoteConfigured",
    "requiresOAuth",
    "serverInstructions",
    "serverName",
    "slowConnectionThresholdMs",
    "source",
    "sseReadTimeout",
    "stderr",
    "supports_parallel_tool_calls",
    "title",
    "trust",
    "version",
    "versionNegotiation",
];

/// Reads the settings of a server, and replaces its defaults by them.
pub(super) fn fill(server: &mut Server, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    fields.refuse(&["sanitizeResults"], report);
    let given = SetKeys::of(fields);
    theirs(server, fields, flavor, report);
    // As a list, this key says which tools are included.
    if fields.peek("tools").is_some_and(|member| member.node.members().is_some())
        && let Some(field) = fields.take(&["tools"], report)
    {
        server.tools = ToolRules::read(&field, report);
    }
    server.fill(fields, report);
    delays(server, &given, report);
    pool(server, &given, report);
    if flavor == Flavor::Gemini {
        // A tool filter may also name arguments, as in `run(git status)`; only the tool's name counts here.
        for tool in server.include_tools.iter_mut().chain(&mut server.exclude_tools) {
            tool.truncate(tool.find('(').unwrap_or(tool.len()));
        }
    }
    times(server, &given, fields, flavor, report);
    habits::read(server, fields, report);
    let enabled = fields.take(&["enabled", "isActive"], report).and_then(|field| field.flag(report));
    if enabled == Some(false) {
        server.disabled = Some(DISABLED.to_owned());
    }
}

/// Notes the keys that nothing has read: features that this host lacks, and unknown keys.
pub(super) fn finish(mut fields: Fields<'_>, report: &mut Report) {
    habits::lacking(&mut fields, report);
    fields.skip(&FOREIGN);
    let keys = Server::keys();
    let mut known: Vec<&str> = keys.iter().map(String::as_str).chain(transport::KEYS).chain(THEIRS).collect();
    // Of two keys that are equally similar to the misspelled one, the first is suggested.
    known.sort_unstable();
    fields.finish(&known, report);
}

const DISABLED: &str = "disabled in the config";

/// Which of our own keys an entry sets, as far as the reading of other keys depends on it.
struct SetKeys {
    start_timeout: bool,
    call_timeout: bool,
    max_call_time: Option<Place>,
    restart: Option<Place>,
    max_delay: bool,
    pool: Option<Place>,
}

impl SetKeys {
    fn of(fields: &Fields<'_>) -> Self {
        let at = |key: &str| fields.peek(key).map(|member| member.at);
        let longest = fields.peek("restart").and_then(|member| member.node.get("maxDelay"));
        Self {
            start_timeout: at("startTimeout").is_some(),
            call_timeout: at("callTimeout").is_some(),
            max_call_time: at("maxCallTime"),
            restart: at("restart"),
            pool: at("pool"),
            max_delay: longest.is_some_and(|delay| delay.value != Value::Null),
        }
    }
}

/// Reads settings for which other clients have keys of their own. Our keys win over these.
fn theirs(server: &mut Server, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    let mut launch = flag(fields, "start_on_launch", report);
    // LibreChat uses this key with a boolean; with another value it is more likely a misspelled key of ours.
    if fields.peek("startup").is_some_and(|member| matches!(member.node.value, Value::Flag(_))) {
        launch = flag(fields, "startup", report);
    }
    if launch == Some(false) {
        server.start = Start::Lazy;
    }
    if let Some(retries) = fields.take(&["retryAttempts"], report).and_then(|field| field.count(report)) {
        server.restart.max_retries = retries;
    }
    if flag(fields, "autoReconnect", report) == Some(false) {
        server.restart.max_retries = 0;
    }
    if flavor == Flavor::Codex {
        // In Codex this key holds an object of approvals.
        fields.skip(&["tools"]);
    }
    // In Goose an empty list means that no choice was made.
    let goose = fields.take(&["available_tools"], report).map(|field| field.texts(report));
    if let Some(tools) = goose.filter(|tools| !tools.is_empty()) {
        server.include_tools = tools;
    }
}

/// Makes sure that the longest delay before a restart is not shorter than the first delay.
fn delays(server: &mut Server, given: &SetKeys, report: &mut Report) {
    let restart = &mut server.restart;
    if !given.max_delay {
        restart.max_delay = restart.max_delay.max(restart.min_delay);
    }
    if let Some(at) = given.restart
        && restart.max_delay < restart.min_delay
    {
        report.problem(at, "restart", "maxDelay is shorter than minDelay");
    }
}

/// Makes sure that only connections that clients share are pooled.
fn pool(server: &Server, given: &SetKeys, report: &mut Report) {
    if server.pool > 1
        && server.sharing == Sharing::Session
        && let Some(at) = given.pool
    {
        let message = "with `sharing: \"session\"` each client has a connection of its own";
        report.problem(at, "pool", message).help("remove `pool`, or share connections: \"auto\"");
    }
}

/// Reads the keys of other clients for the timeouts of starts and calls, each in its own unit. Our own keys win. Checks
/// that a whole call may take at least as long as a call without progress.
fn times(server: &mut Server, given: &SetKeys, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    let (mut start, mut call) = (None, None);
    for (name, unit) in [
        ("startup_timeout_sec", 1.0),
        ("startup_timeout_ms", 0.001),
        ("connectionTimeout", 0.001),
        ("discoveryTimeoutMs", 0.001),
        ("initTimeout", 0.001),
    ] {
        let foreign = fields.take(&[name], report).and_then(|field| field.foreign_time(unit, report));
        start = start.or(foreign);
    }
    let foreign = fields.take(&["tool_timeout_sec"], report).and_then(|field| field.foreign_time(1.0, report));
    call = call.or(foreign);
    if let Some(field) = fields.take(&["timeout"], report) {
        let unit = flavor.timeout_unit();
        let time = field.foreign_time(unit, report);
        if let (Value::Number(number), Some(time)) = (&field.node.value, time)
            && unit < 1.0
            && time < Duration::from_secs(1)
        {
            let note = report.note(field.at, &field.path, format!("{number} ms; were seconds meant?"));
            note.help = Some(format!("write {} for {number} seconds", time.as_micros()));
        }
        // opencode and Crush limit the start with this key, and the other clients a call.
        if matches!(flavor, Flavor::OpenCode | Flavor::Crush) { start = start.or(time) } else { call = call.or(time) }
    }
    if let Some(start) = start.filter(|_| !given.start_timeout) {
        server.start_timeout = start;
    }
    if let Some(call) = call.filter(|_| !given.call_timeout) {
        server.call_timeout = call;
    }
    match given.max_call_time {
        None => server.max_call_time = server.max_call_time.max(server.call_timeout),
        Some(at) if server.max_call_time < server.call_timeout => {
            let message = format!("shorter than the {:?} that a call may stay silent", server.call_timeout);
            report.problem(at, "maxCallTime", message);
        }
        Some(_) => {}
    }
}

fn flag(fields: &mut Fields<'_>, name: &str, report: &mut Report) -> Option<bool> {
    fields.take(&[name], report).and_then(|field| field.flag(report))
}

/// Readers for the table in [`Server`].
impl Field<'_> {
    /// Reads one of the words of a setting.
    pub(super) fn word<T: Words>(&self, report: &mut Report) -> Option<T> {
        self.choice(T::WORDS, report)
    }

    /// Reads a list of texts.
    pub(super) fn list(&self, report: &mut Report) -> Option<Vec<String>> {
        Some(self.texts(report))
    }

    /// Reads JSON pointers.
    pub(super) fn pointers(&self, report: &mut Report) -> Option<Vec<String>> {
        for item in self.items(report) {
            if let Some(Err(wrong)) = item.node.text().map(Pointer::parse) {
                report.problem(item.at, &item.path, wrong);
            }
        }
        Some(self.texts(report))
    }

    /// Reads the tags of a server. Other clients have a key of this name, too, so another value is noted, not refused.
    pub(super) fn tags(&self, report: &mut Report) -> Option<Vec<String>> {
        let Value::List(items) = &self.node.value else {
            report.note(self.at, &self.path, "ignored: tags are a list of words");
            return None;
        };
        Some(items.iter().filter_map(|item| item.text().map(str::to_owned)).collect())
    }

    /// Reads the user's description.
    pub(super) fn note(&self, report: &mut Report) -> Option<Option<String>> {
        self.text(report).map(|text| Some(text.to_owned()))
    }

    /// Reads `disabled`. `false` returns no value, so that a setting outside of the entry that disables the server
    /// stays in effect.
    pub(super) fn off(&self, report: &mut Report) -> Option<Option<String>> {
        self.flag(report)?.then(|| Some(DISABLED.to_owned()))
    }

    /// Reads an object of new names for tools, by the server's own names.
    pub(super) fn rename(&self, report: &mut Report) -> Option<BTreeMap<String, String>> {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for (from, field) in self.entries(report) {
            let Some(to) = field.text(report) else { continue };
            if to.is_empty() || !to.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
                report.problem(
                    field.at,
                    &field.path,
                    format!("{} contains characters other than letters, digits, _ and -", field.quote(to)),
                );
            } else if names.values().any(|name| name == to) {
                report.problem(field.at, &field.path, format!("two tools cannot both be {}", field.quote(to)));
            }
            names.insert(from.to_owned(), to.to_owned());
        }
        Some(names)
    }

    /// Reads `roots`: one of two words, or a list of file URIs.
    pub(super) fn roots(&self, report: &mut Report) -> Option<Roots> {
        if self.node.text().is_some() {
            let none = self.choice(&[("client", false), ("none", true)], report)?;
            return Some(if none { Roots::None } else { Roots::Client });
        }
        for item in self.items(report) {
            if item.node.text().is_some_and(|uri| !uri.starts_with("file://")) {
                report.problem(item.at, &item.path, "a root is a file:// URI");
            }
        }
        Some(Roots::Fixed(self.texts(report)))
    }
}
