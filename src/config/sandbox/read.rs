//! Reads `sandbox` from a config file: a level, or an object.
//!
//! **Invariant:** a level, host or key that this version does not know is refused. A sandbox is never silently
//! weakened.

use std::path::{Path, PathBuf};

use super::{Sandbox, SandboxHost, SandboxLevel, SandboxNetwork};
use crate::config::fields::{Field, Fields, refuse_rest};
use crate::config::keys::Words as _;
use crate::config::report::Report;
use crate::config::syntax::{Origin, Value};

/// The members of `sandbox`.
const KEYS: [&str; 11] =
    ["files", "home", "install", "level", "memory", "network", "processes", "read", "unix", "weak", "write"];
/// Members that later versions may support.
const LATER: [(&str, &str); 2] = [
    ("cpu", "this version cannot limit processor time"),
    ("container", "this version starts no containers; write the command of docker or podman as `command`"),
];
const LEVELS: &str = "the levels are \"off\", \"default\", and \"strict\"";
const HOST: &str = "write \"api.example.com\", \"*.example.com\", or \"db.example.com:5432\"";

/// Reads `sandbox`: a level, or an object.
pub(in crate::config) fn read(field: &Field<'_>, report: &mut Report) -> Option<Sandbox> {
    if field.node.members().is_none() {
        return Some(Sandbox::at(level(field, report)?));
    }
    let mut fields = field.fields(report)?;
    let mut sandbox = Sandbox::on();
    if let Some(field) = fields.take(&["level"], report) {
        sandbox.level = level(&field, report)?;
    }
    for (key, message) in LATER {
        if let Some(field) = fields.take(&[key], report) {
            report.problem(field.at, &field.path, message).help("remove the key");
        }
    }
    if sandbox.level == SandboxLevel::Strict {
        sandbox.network = SandboxNetwork::None;
    }
    sandbox.read = paths(&mut fields, "read", report);
    sandbox.write = paths(&mut fields, "write", report);
    if let Some(field) = fields.take(&["network"], report) {
        sandbox.network = network(&field, report)?;
    }
    sandbox.install = fields.take(&["install"], report).and_then(|field| install(&field, report));
    if let Some(home) = fields.take(&["home"], report).and_then(|field| field.word(report)) {
        sandbox.home = home;
    }
    for (key, flag) in [("unix", &mut sandbox.unix), ("weak", &mut sandbox.weak)] {
        if let Some(given) = fields.take(&[key], report).and_then(|field| field.flag(report)) {
            *flag = given;
        }
    }
    sandbox.files =
        fields.take(&["files"], report).and_then(|field| at_least(FEWEST_FILES, "open files", &field, report));
    let processes = fields.take(&["processes"], report);
    sandbox.processes = processes.and_then(|field| at_least(FEWEST_PROCESSES, "processes and threads", &field, report));
    sandbox.memory = fields.take(&["memory"], report).and_then(|field| field.positive_size(report));
    refuse_rest(fields, &KEYS, report);
    Some(sandbox)
}

fn level(field: &Field<'_>, report: &mut Report) -> Option<SandboxLevel> {
    let text = field.text(report)?;
    let found = SandboxLevel::WORDS.iter().find(|(word, _)| *word == text).map(|(_, level)| *level);
    if found.is_none() && field.node.origin != Origin::Missing {
        let message = format!("{} is no level of this version", field.quote(text));
        report.problem(field.at, &field.path, message).help(LEVELS);
    }
    found
}

/// Reads `network`: a word, or the hosts that the server may reach.
fn network(field: &Field<'_>, report: &mut Report) -> Option<SandboxNetwork> {
    let Value::List(_) = &field.node.value else {
        return field.choice(&[("open", false), ("none", true)], report).map(|is_none| match is_none {
            true => SandboxNetwork::None,
            false => SandboxNetwork::Open,
        });
    };
    Some(SandboxNetwork::Hosts(hosts(field, report)?))
}

/// Reads `install`: `auto`, or the hosts of package registries.
fn install(field: &Field<'_>, report: &mut Report) -> Option<Vec<SandboxHost>> {
    match &field.node.value {
        Value::List(_) => hosts(field, report),
        _ => field.choice(&[("auto", ())], report).and(None),
    }
}

/// Reads a list of hosts.
fn hosts(field: &Field<'_>, report: &mut Report) -> Option<Vec<SandboxHost>> {
    let (items, mut hosts) = (field.items(report), Vec::new());
    for item in &items {
        let Some(text) = item.text(report).filter(|_| item.node.origin != Origin::Missing) else { continue };
        match text.parse() {
            Ok(host) => hosts.push(host),
            Err(wrong) => {
                let message = format!("{} {wrong}", item.quote(text));
                report.problem(item.at, &item.path, message).help(HOST);
            }
        }
    }
    if items.is_empty() {
        report.problem(field.at, &field.path, "the list names no host").help("name at least one");
    }
    (!hosts.is_empty()).then_some(hosts)
}

/// The fewest open files with which a runtime can start.
const FEWEST_FILES: usize = 16;
/// The fewest processes and threads with which a runtime can start, besides those that create its namespaces.
const FEWEST_PROCESSES: usize = 8;

fn at_least(fewest: usize, what: &str, field: &Field<'_>, report: &mut Report) -> Option<usize> {
    let count = field.count(report)?;
    if count < fewest {
        report.problem(field.at, &field.path, format!("no program starts with less than {fewest} {what}"));
        return None;
    }
    Some(count)
}

/// Reads a list of paths. Relative paths are refused: their meaning would depend on where the host is started.
fn paths(fields: &mut Fields<'_>, key: &str, report: &mut Report) -> Vec<PathBuf> {
    let Some(field) = fields.take(&[key], report) else { return Vec::new() };
    let mut paths = Vec::new();
    for item in field.items(report) {
        let Some(text) = item.text(report).filter(|_| item.node.origin != Origin::Missing) else { continue };
        let is_whole = Path::new(text).is_absolute() || text == "~" || text.starts_with("~/");
        if !is_whole || text.contains('\0') {
            let message = format!("{} is not a whole path", item.quote(text));
            report.problem(item.at, &item.path, message).help("write a path that begins with / or ~/");
            continue;
        }
        paths.push(PathBuf::from(text));
    }
    paths
}
