//! Turns one server entry of a file into a checked [`Server`], or into the problems with it.

use std::borrow::Cow;

use super::dialect::Dialect;
use super::expand::{Outcome, Scope};
use super::fields::Fields;
use super::report::{Place, Problem, Report};
use super::shape::{Entry, Flavor};
use super::syntax::{Member, Node, Value};
use super::transport::Reader;
use super::vars::Vars;
use super::{Server, Stdio, Transport, helper, keyring, settings};

/// The note about a secret that is written in the config file itself.
pub(super) const WRITTEN_SECRET: &str = "a secret is written in this file";

const NAME_IT: &str = "tool names start with it: write \"files\", for example";

/// An entry that was read.
pub(super) struct Read {
    pub(super) server: Server,
    /// Mistakes that only affect this server. Mistakes for which the whole file is refused are in the report.
    pub(super) wrong: Vec<Problem>,
    /// Values that the entry needs and that are missing, such as unset variables.
    pub(super) missing: Vec<Problem>,
}

/// Reads an entry. Returns `None` if it is not a server.
pub(super) fn read(entry: &Entry<'_>, scope: Scope<'_>, report: &mut Report) -> Option<Read> {
    let before = report.problems();
    let node = helper::split(flatten(entry.node), scope.dialect, report);
    if is_foreign(entry, &node, report) {
        return None;
    }
    let mut outcome = Outcome::default();
    let node = expand(&node, entry.flavor, scope, &mut outcome, report);
    filled(entry, &node, scope, outcome, before, report)
}

/// Reads an entry without expanding variables: `node` has its references. Returns `None` if it is not a server.
pub(super) fn read_as_written(entry: &Entry<'_>, node: &Node, scope: Scope<'_>, report: &mut Report) -> Option<Read> {
    let before = report.problems();
    if is_foreign(entry, node, report) {
        return None;
    }
    filled(entry, node, scope, Outcome::default(), before, report)
}

/// Reads the members of an entry. The problems in the report from index `before` on belong to this entry.
fn filled(
    entry: &Entry<'_>,
    node: &Node,
    scope: Scope<'_>,
    mut outcome: Outcome,
    before: usize,
    report: &mut Report,
) -> Option<Read> {
    let mut server = match Server::new(&entry.name, Transport::Stdio(Stdio::default())) {
        Ok(server) => server,
        Err(error) => {
            report.problem(entry.at, "", error.to_string());
            return None;
        }
    };
    if entry.nameless {
        report.problem(entry.at, "name", "a server needs a name").help(NAME_IT);
    }
    server.source.file = report.file(entry.at.file).to_owned();
    server.source.line = (entry.at.line > 0).then_some(entry.at.line);
    server.disabled = entry.disabled.clone();
    server.call_timeout = entry.call_timeout.unwrap_or(server.call_timeout);
    if let Some(mut fields) = Fields::open(node, "", report) {
        let (flavor, scope) = (entry.flavor, &scope);
        let mut reader = Reader { flavor, scope, outcome: &mut outcome, report, written_secrets: Vec::new() };
        // Without a transport, the rest of the entry is still checked.
        if let Some(transport) = reader.read(&mut fields, entry.at) {
            server.transport = transport;
        }
        if let (Transport::Stdio(stdio), Some(base)) = (&mut server.transport, &entry.base) {
            stdio.cwd.get_or_insert_with(|| base.clone());
        }
        let written = reader.written_secrets;
        written_secrets(&written, report);
        settings::fill(&mut server, &mut fields, entry.flavor, report);
        settings::finish(fields, report);
    }
    server.secrets = outcome.secrets;
    let missing = outcome.missing.into_iter().map(|lack| report.lack(lack)).collect();
    Some(Read { server, wrong: report.take_local(before), missing })
}

/// Returns what an entry takes from a keyring: for each reference, its path in the entry and the keyring entry's name.
pub(super) fn keyring_names(entry: &Entry<'_>) -> Vec<(String, String)> {
    let node = helper::split(flatten(entry.node), entry.flavor.dialect(), &mut Report::default());
    let mut names = Vec::new();
    match node.members() {
        Some(members) => members.iter().for_each(|Member { key, node, .. }| {
            keyring::named(node, key, dialect(entry.flavor, key), &mut names);
        }),
        None => keyring::named(&node, "", entry.flavor.dialect(), &mut names),
    }
    names
}

/// Returns the syntax of variables in the member of an entry that has this key.
fn dialect(flavor: Flavor, key: &str) -> Dialect {
    if flavor == Flavor::Goose && key == "headers" { Dialect::Shell } else { flavor.dialect() }
}

/// Returns whether an entry enables (true) or disables (false) a server that another file defines; `None` if it is a
/// server entry of its own. opencode writes such switches.
pub(super) fn switch(node: &Node) -> Option<bool> {
    match node.members()? {
        [Member { key, node: Node { value: Value::Flag(flag), .. }, .. }] if key == "enabled" => Some(*flag),
        [Member { key, node: Node { value: Value::Flag(flag), .. }, .. }] if key == "disabled" => Some(!flag),
        _ => None,
    }
}

/// Moves keys that some clients nest one level deeper up into the entry: those in Cline's `transport`, Goose's `config`
/// and Zed's old `command`.
pub(super) fn flatten(node: &Node) -> Cow<'_, Node> {
    let nested = |member: &&Member| {
        matches!(member.key.as_str(), "transport" | "config" | "command") && member.node.members().is_some()
    };
    let Some(members) = node.members().filter(|members| members.iter().any(|member| nested(&member))) else {
        return Cow::Borrowed(node);
    };
    let mut flat = Vec::new();
    for member in members {
        match member.node.members().filter(|_| nested(&member)) {
            Some(inner) => flat.extend(inner.iter().cloned().map(|mut inner| {
                if member.key == "command" && inner.key == "path" {
                    inner.key = "command".to_owned();
                }
                inner
            })),
            None => flat.push(member.clone()),
        }
    }
    Cow::Owned(Node::new(node.at, Value::Object(flat)))
}

/// Reports whether an entry is for something built into another client, which only that client can start. If so, adds a
/// note that it is left out.
fn is_foreign(entry: &Entry<'_>, node: &Node, report: &mut Report) -> bool {
    let kind = node.get("type").and_then(Node::text);
    let inside = match entry.flavor {
        Flavor::Goose => matches!(kind, Some("builtin" | "platform" | "frontend" | "inline_python")),
        Flavor::Zed => node.get("command").is_none() && node.get("url").is_none(),
        Flavor::CherryStudio => kind == Some("inMemory"),
        _ => false,
    };
    if inside {
        report.note(entry.at, "", "part of another program, not a server that can be started; left out");
    }
    inside
}

fn expand(node: &Node, flavor: Flavor, scope: Scope<'_>, outcome: &mut Outcome, report: &mut Report) -> Node {
    let Some(members) = node.members().filter(|_| flavor == Flavor::Goose) else {
        return scope.expand(node, "", outcome, report);
    };
    // Goose has variables only in headers, and they refer to variables that the entry itself lists.
    let mut vars: Vec<(String, String)> = Vec::new();
    for key in node.get("env_keys").into_iter().filter_map(|keys| match &keys.value {
        Value::List(items) => Some(items.iter().filter_map(Node::text)),
        _ => None,
    }) {
        vars.extend(key.filter_map(|key| Some((key.to_owned(), scope.vars.get(key)?.to_owned()))));
    }
    for member in node.get("envs").and_then(Node::members).unwrap_or_default() {
        vars.extend(member.node.text().map(|text| (member.key.clone(), text.to_owned())));
    }
    let vars = Vars::from_iter(vars);
    let expanded = members.iter().map(|member| {
        let scope = match member.key.as_str() {
            key @ "headers" => Scope { vars: &vars, dialect: dialect(flavor, key), ..scope },
            _ => scope,
        };
        Member { node: scope.expand(&member.node, &member.key, outcome, report), ..member.clone() }
    });
    Node::new(node.at, Value::Object(expanded.collect()))
}

fn written_secrets(written: &[(Place, String)], report: &mut Report) {
    if let Some((at, _)) = written.first() {
        let fields: Vec<_> = written.iter().map(|(_, field)| field.as_str()).collect();
        let note = report.note(*at, &fields.join(", "), WRITTEN_SECRET);
        note.help("keep it in a variable: \"${env:NAME}\"");
    }
}
