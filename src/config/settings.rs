//! What an entry says beside how the server is reached.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fields::{Field, Fields};
use super::habits;
use super::report::Report;
use super::shape::Flavor;
use super::syntax::Value;
use super::{Era, Manifest, Prefix, Restart, Roots, Server, Sharing, Start};

/// Every key of ours in an entry, for finding what a misspelt one was meant to be.
const KEYS: [&str; 38] = [
    "args",
    "auth",
    "autoReconnect",
    "callTimeout",
    "command",
    "cwd",
    "description",
    "disabled",
    "enabled",
    "env",
    "envFile",
    "era",
    "excludeTools",
    "headers",
    "idleStop",
    "includeTools",
    "inheritEnv",
    "insecureHttp",
    "manifest",
    "maxCallTime",
    "maxConcurrent",
    "prefix",
    "queueTimeout",
    "rename",
    "repeatable",
    "required",
    "restart",
    "retryAttempts",
    "roots",
    "sharing",
    "start",
    "startTimeout",
    "timeout",
    "tls",
    "transport",
    "trustAnnotations",
    "type",
    "url",
];

/// Keys of other clients that ask nothing of a host: approvals, looks, their own bookkeeping.
const FOREIGN: [&str; 42] = [
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
    "tags",
    "title",
    "trust",
    "version",
    "versionNegotiation",
];

/// Takes the settings of a server over the defaults that it has.
pub(super) fn fill(server: &mut Server, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    fields.refuse(&["sanitizeResults"], report);
    let sharing = [
        ("auto", Sharing::Auto),
        ("profile", Sharing::Profile),
        ("session", Sharing::Session),
        ("host", Sharing::Host),
    ];
    let prefix = [("always", Prefix::Always), ("never", Prefix::Never), ("auto", Prefix::Auto)];
    let eras = [("auto", Era::Auto), ("modern", Era::Modern), ("legacy", Era::Legacy)];
    server.sharing = choice(fields, "sharing", &sharing, report);
    server.prefix = choice(fields, "prefix", &prefix, report);
    server.start = start(fields, report);
    server.era = choice(fields, "era", &eras, report);
    server.manifest = choice(fields, "manifest", &[("on", Manifest::On), ("off", Manifest::Off)], report);
    if let Some(field) = fields.take(&["idleStop"], report) {
        server.idle_stop = field.time(report).unwrap_or_default();
    }
    server.required = flag(fields, "required", report).unwrap_or(false);
    server.trust_annotations = flag(fields, "trustAnnotations", report).unwrap_or(false);
    server.max_concurrent = count(fields, "maxConcurrent", report).unwrap_or(0);
    if let Some(field) = fields.take(&["queueTimeout"], report) {
        server.queue_timeout = field.time(report).unwrap_or_default();
    }
    server.repeatable = texts(fields, &["repeatable"], report).unwrap_or_default();
    server.description = fields.take(&["description"], report).and_then(|field| field.text(report)).map(str::to_owned);
    server.rename = rename(fields, report);
    server.roots = roots(fields, report);
    restart(&mut server.restart, fields, report);
    tools(server, fields, flavor, report);
    times(server, fields, flavor, report);
    habits::read(server, fields, report);
    // A setting outside the entry may have turned it off already.
    let disabled = flag(fields, "disabled", report).unwrap_or(false);
    let enabled = fields.take(&["enabled", "isActive"], report).and_then(|field| field.flag(report)).unwrap_or(true);
    if disabled || !enabled {
        server.disabled = Some("disabled in the config".to_owned());
    }
}

/// Names what nobody took.
pub(super) fn finish(mut fields: Fields<'_>, report: &mut Report) {
    habits::lacking(&mut fields, report);
    fields.skip(&FOREIGN);
    fields.finish(&KEYS, report);
}

fn start(fields: &mut Fields<'_>, report: &mut Report) -> Start {
    let mut launch = flag(fields, "start_on_launch", report).unwrap_or(true);
    // LibreChat's; with another value it is more likely a misspelt key of ours.
    if fields.peek("startup").is_some_and(|member| matches!(member.node.value, Value::Flag(_))) {
        launch = flag(fields, "startup", report).unwrap_or(launch);
    }
    let start = fields.take(&["start"], report);
    let start = start.and_then(|field| field.choice(&[("eager", Start::Eager), ("lazy", Start::Lazy)], report));
    start.unwrap_or(if launch { Start::Eager } else { Start::Lazy })
}

/// Start, silence and whole of a call: ours with a unit, those of other clients in their own.
fn times(server: &mut Server, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    let mut start = fields.take(&["startTimeout"], report).and_then(|field| field.positive_time(report));
    let mut call = fields.take(&["callTimeout"], report).and_then(|field| field.positive_time(report));
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
        // opencode and Crush limit the start with it, the others a call.
        if matches!(flavor, Flavor::OpenCode | Flavor::Crush) { start = start.or(time) } else { call = call.or(time) }
    }
    server.start_timeout = start.unwrap_or(server.start_timeout);
    server.call_timeout = call.unwrap_or(server.call_timeout);
    let Some(field) = fields.take(&["maxCallTime"], report) else {
        server.max_call_time = server.max_call_time.max(server.call_timeout);
        return;
    };
    server.max_call_time = field.positive_time(report).unwrap_or(server.max_call_time);
    if server.max_call_time < server.call_timeout {
        let message = format!("shorter than the {:?} that a call may be silent", server.call_timeout);
        report.problem(field.at, &field.path, message);
    }
}

fn restart(restart: &mut Restart, fields: &mut Fields<'_>, report: &mut Report) {
    restart.max_retries = count(fields, "retryAttempts", report).unwrap_or(restart.max_retries);
    if flag(fields, "autoReconnect", report) == Some(false) {
        restart.max_retries = 0;
    }
    let Some(field) = fields.take(&["restart"], report) else { return };
    let Some(mut inner) = field.fields(report) else { return };
    restart.max_retries = count(&mut inner, "maxRetries", report).unwrap_or(restart.max_retries);
    let mut time = |name| inner.take(&[name], report).and_then(|field| field.positive_time(report));
    restart.min_delay = time("minDelay").unwrap_or(restart.min_delay);
    restart.max_delay = time("maxDelay").unwrap_or(restart.max_delay.max(restart.min_delay));
    if restart.max_delay < restart.min_delay {
        report.problem(field.at, &field.path, "maxDelay is shorter than minDelay");
    }
    inner.finish(&["maxRetries", "minDelay", "maxDelay"], report);
}

fn tools(server: &mut Server, fields: &mut Fields<'_>, flavor: Flavor, report: &mut Report) {
    if flavor == Flavor::Codex {
        // There, an object of approvals.
        fields.skip(&["tools"]);
    }
    // To Goose an empty list means no choice was made.
    let goose = texts(fields, &["available_tools"], report).filter(|tools| !tools.is_empty());
    let include = texts(fields, &["includeTools", "enabled_tools", "tools"], report).or(goose);
    let exclude = texts(fields, &["excludeTools", "disabled_tools", "disabledTools"], report);
    server.include_tools = include.unwrap_or_else(|| vec!["*".to_owned()]);
    server.exclude_tools = exclude.unwrap_or_default();
    if flavor == Flavor::Gemini {
        // An entry may name arguments: `run(git status)`.
        for tool in server.include_tools.iter_mut().chain(&mut server.exclude_tools) {
            tool.truncate(tool.find('(').unwrap_or(tool.len()));
        }
    }
}

fn rename(fields: &mut Fields<'_>, report: &mut Report) -> BTreeMap<String, String> {
    let entries = fields.take(&["rename"], report).map(|field| field.entries(report)).unwrap_or_default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (from, field) in entries {
        let Some(to) = field.text(report) else { continue };
        if to.is_empty() || !to.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            report.problem(
                field.at,
                &field.path,
                format!("{} holds more than letters, digits, _ and -", field.quote(to)),
            );
        } else if names.values().any(|name| name == to) {
            report.problem(field.at, &field.path, format!("two tools cannot both be {}", field.quote(to)));
        }
        names.insert(from.to_owned(), to.to_owned());
    }
    names
}

fn roots(fields: &mut Fields<'_>, report: &mut Report) -> Roots {
    let Some(field) = fields.take(&["roots"], report) else { return Roots::default() };
    if field.node.text().is_some() {
        let fixed = field.choice(&[("client", false), ("none", true)], report);
        return if fixed == Some(true) { Roots::None } else { Roots::Client };
    }
    for item in field.items(report) {
        if item.node.text().is_some_and(|uri| !uri.starts_with("file://")) {
            report.problem(item.at, &item.path, "a root is a file:// URI");
        }
    }
    Roots::Fixed(field.texts(report))
}

fn choice<T: Copy + Default>(fields: &mut Fields<'_>, name: &str, choices: &[(&str, T)], report: &mut Report) -> T {
    fields.take(&[name], report).and_then(|field| field.choice(choices, report)).unwrap_or_default()
}

fn flag(fields: &mut Fields<'_>, name: &str, report: &mut Report) -> Option<bool> {
    fields.take(&[name], report).and_then(|field| field.flag(report))
}

fn count(fields: &mut Fields<'_>, name: &str, report: &mut Report) -> Option<usize> {
    fields.take(&[name], report).and_then(|field| field.count(report))
}

fn texts(fields: &mut Fields<'_>, names: &[&str], report: &mut Report) -> Option<Vec<String>> {
    fields.take(names, report).map(|field: Field<'_>| field.texts(report))
}
