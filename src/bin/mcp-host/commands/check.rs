//! `mcp-host check`: checks the config without starting anything.

use std::path::Path;

use mcp_host::config::{Config, ITSELF, NOT_APPROVED, Problem, Server, Transport};
use mcp_host::{Host, Unstartable};
use serde::Serialize;

use super::unsuited;
use crate::args::{Check, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::table::{Cell, Column, Table};
use crate::text;
use crate::{itself, mask};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    ok: bool,
    files: Vec<String>,
    problems: Vec<Finding<'a>>,
    notes: Vec<Finding<'a>>,
    servers: Vec<Row<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding<'a> {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    server: Option<&'a str>,
    field: Option<&'a str>,
    message: &'a str,
    help: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    name: &'a str,
    alias: &'a str,
    transport: &'static str,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_helper: Option<String>,
    disabled: Option<&'a str>,
    unusable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// A server that cannot be started as configured.
struct Broken<'a> {
    server: &'a Server,
    why: String,
    help: Option<String>,
    /// The problems of its config entry; empty if the entry is fine and the machine lacks something.
    found: Vec<Problem>,
}

pub(crate) fn run(args: &Check, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = match Plan::load(common, args.demo.demo, None) {
        Ok(plan) => plan,
        Err(failure) => {
            if output.json {
                let problems: Vec<Finding<'_>> = failure.findings().iter().map(finding).collect();
                output.value(&Report {
                    ok: false,
                    files: Vec::new(),
                    problems,
                    notes: Vec::new(),
                    servers: Vec::new(),
                })?;
            }
            return Err(failure);
        }
    };
    if let Some(name) = &args.server {
        let server = plan.server(name)?.clone();
        plan.config.servers = vec![server];
    }
    let broken = broken(&plan.config);
    let endpoint = Host::check_endpoint(&plan.config.host);
    if output.json {
        output.value(&report(&plan.config, &broken, endpoint.is_ok()))?;
    } else {
        print(&plan.config, &broken, endpoint.is_ok(), output)?;
        plan.tell_notes(output);
        unsuited::notes(&plan.config).iter().for_each(|line| output.remark(line));
        plan.config.idle_scripts().iter().for_each(|line| output.remark(&format!("note: {}", text::line(line))));
    }
    warn_of_itself(&plan.config, output);
    endpoint?;
    told(&broken).or_else(|| not_approved(&plan.config)).map_or(Ok(Exit::Ok), Err)
}

/// Returns one failure for all servers whose entries are incomplete; `None` if there are none.
pub(crate) fn unusable(config: &Config) -> Option<Failure> {
    let broken: Vec<Broken<'_>> = config.servers.iter().filter_map(incomplete).collect();
    told(&broken)
}

/// Returns all servers that would not start, without running anything.
fn broken(config: &Config) -> Vec<Broken<'_>> {
    config
        .servers
        .iter()
        .filter_map(|server| incomplete(server).or_else(|| unstartable(server)).or_else(|| unconfined(server, config)))
        .collect()
}

fn incomplete(server: &Server) -> Option<Broken<'_>> {
    let unusable = server.unusable.as_ref()?;
    Some(Broken { server, why: unusable.to_string(), help: None, found: unusable.problems().cloned().collect() })
}

fn unstartable(server: &Server) -> Option<Broken<'_>> {
    let Transport::Stdio(stdio) = &server.transport else { return None };
    let found = Unstartable::of(stdio).filter(|_| server.disabled.is_none())?;
    let why = format!("cannot start `{}`: {}", found.command, found.reason);
    Some(Broken { server, why, help: Some(found.help), found: Vec::new() })
}

/// Returns the server as broken if this machine cannot provide its sandbox.
fn unconfined<'a>(server: &'a Server, config: &Config) -> Option<Broken<'a>> {
    let sandbox = server.sandbox(config.host.sandbox.as_ref()).filter(|_| server.disabled.is_none())?;
    let lacks = sandbox.lacks(state_directory().is_some());
    let why = format!("cannot have its sandbox: {}", lacks.join(", "));
    let help = match sandbox.container {
        Some(_) => "remove `container` from its `sandbox`, if it can run on this machine",
        None => "write \"weak\": true in its `sandbox` to take what there is, or \"level\": \"off\"",
    };
    let help = help.to_owned();
    (!lacks.is_empty() && !sandbox.weak).then(|| Broken { server, why, help: Some(help), found: Vec::new() })
}

fn told(broken: &[Broken<'_>]) -> Option<Failure> {
    let problems = broken.iter().flat_map(|Broken { server, why, help, found }| {
        let own = || (format!("{}server `{}`: {why}", place(server), server.name), help.clone());
        match &found[..] {
            [] => vec![own()],
            found => found.iter().map(|problem| (problem.to_string(), problem.help.clone())).collect(),
        }
    });
    (!broken.is_empty()).then(|| Failure::each(Exit::Usage, problems))
}

/// Returns one failure for all servers that need approval; `None` if there are none.
pub(crate) fn not_approved(config: &Config) -> Option<Failure> {
    let waiting = config.servers.iter().filter(|server| server.disabled.as_deref() == Some(NOT_APPROVED));
    let names: Vec<String> = waiting.map(|server| format!("`{}`", server.name)).collect();
    let error = format!("not approved: {}; the config of a project names what would be started", names.join(", "));
    (!names.is_empty()).then(|| Failure::new(Exit::Denied, error).help("mcp-host approve"))
}

/// Warns about entries that lead back to this host.
fn warn_of_itself(config: &Config, output: &Output) {
    let started = config.servers.iter().filter(|server| server.disabled.as_deref() == Some(ITSELF));
    let started = started.map(|server| (server, "starts this host again, so it is left out"));
    let dialed = itself::at_our_address(config).into_iter();
    let dialed = dialed.map(|server| (server, "is the address of `mcp-host serve` with this config"));
    for (server, what) in started.chain(dialed) {
        output.talk(&format!("warning: {}server `{}` {what}", place(server), server.name));
        output.talk(&format!(
            "help: remove `{}` from {}; a client's entry for mcp-host belongs in that client's own file",
            server.name,
            server.source.file.display()
        ));
    }
}

fn place(server: &Server) -> String {
    match server.source.line {
        Some(line) => format!("{}:{line}: ", server.source.file.display()),
        None => String::new(),
    }
}

fn report<'a>(config: &'a Config, broken: &'a [Broken<'_>], endpoint: bool) -> Report<'a> {
    Report {
        ok: endpoint && broken.is_empty() && not_approved(config).is_none(),
        files: config.files.iter().map(|file| file.display().to_string()).collect(),
        problems: broken.iter().flat_map(|broken| &broken.found).map(finding).collect(),
        notes: config.notes.iter().map(finding).collect(),
        servers: config.servers.iter().map(|server| row(server, broken)).collect(),
    }
}

fn print(config: &Config, broken: &[Broken<'_>], endpoint: bool, output: &Output) -> Result<(), Failure> {
    let mut lines: Vec<String> = config.files.iter().map(|file| verdict(file, config, broken, endpoint)).collect();
    if config.servers.is_empty() {
        output.remark("no servers");
    } else {
        lines.push(String::new());
        let mut table = Table::new(&COLUMNS);
        config.servers.iter().for_each(|server| table.row(cells(&row(server, broken))));
        lines.extend(output.drawn(table));
    }
    Ok(output.lines(lines)?)
}

const COLUMNS: [Column; 4] =
    [Column::stays("SERVER"), Column::stays("TRANSPORT"), Column::wraps("STATE"), Column::cuts("TARGET")];

/// Returns the verdict on a file: never `ok` if the command fails because of it.
fn verdict(file: &Path, config: &Config, broken: &[Broken<'_>], endpoint: bool) -> String {
    let name = file.display().to_string();
    let name = text::line(&name);
    let all = config.servers.iter().filter(|server| server.source.file == file).count();
    match broken.iter().filter(|broken| broken.server.source.file == file).count() {
        0 if endpoint => format!("{name}: ok"),
        0 => format!("{name}: read, but the endpoint cannot be opened"),
        bad => format!("{name}: {bad} of {} cannot start", text::count(all, "server")),
    }
}

fn cells(row: &Row<'_>) -> [Cell; 4] {
    let name = if row.name == row.alias { row.name.to_owned() } else { format!("{} ({})", row.name, row.alias) };
    let state = match (&row.unusable, row.disabled) {
        (Some(_), _) => "unusable".to_owned(),
        (None, Some(ITSELF)) => "disabled: this host itself".to_owned(),
        (None, Some(why)) if why.starts_with("disabled") || why == NOT_APPROVED => why.to_owned(),
        (None, Some(why)) => format!("disabled: {why}"),
        (None, None) => "ok".to_owned(),
    };
    let by = row.headers_helper.as_ref().map_or(String::new(), |program| format!(", headers by {program}"));
    // An unusable entry has no transport and no target to show.
    let (transport, target) = if row.target.is_empty() { ("-", "-") } else { (row.transport, row.target.as_str()) };
    [name.into(), transport.into(), Cell::state(&state), format!("{target}{by}").into()]
}

fn row<'a>(server: &'a Server, broken: &[Broken<'_>]) -> Row<'a> {
    let broken = broken.iter().find(|broken| broken.server.name == server.name);
    Row {
        name: &server.name,
        alias: server.alias.as_str(),
        transport: mask::kind(&server.transport),
        target: server.transport.shown(),
        headers_helper: server.transport.shown_helper(),
        disabled: server.disabled.as_deref(),
        unusable: broken.map(|broken| broken.why.clone()),
        help: broken.and_then(|broken| broken.help.clone()),
    }
}

fn finding(problem: &Problem) -> Finding<'_> {
    Finding {
        file: problem.file.display().to_string(),
        line: problem.line,
        column: problem.column,
        server: problem.server.as_deref(),
        field: problem.field.as_deref(),
        message: &problem.message,
        help: problem.help.as_deref(),
    }
}
