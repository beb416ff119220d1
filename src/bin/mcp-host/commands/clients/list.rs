//! `mcp-host clients`: the clients on this machine, which of them are linked, and which servers are started more than
//! once. Starts nothing.

use serde::Serialize;

use super::here::{self, Here, Known, State};
use super::own::Own;
use super::same::{Endpoint, same};
use crate::args::Common;
use crate::commands::edits::write::shown;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::table::{Cell, Column, Table};
use crate::text;

/// The report about the clients, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    clients: Vec<Row>,
    twice: Vec<Twice>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    client: &'static str,
    name: &'static str,
    file: String,
    /// `linked`, `not linked`, `no file`, `broken`.
    state: &'static str,
    /// The number of servers besides mcp-host.
    servers: Option<usize>,
    /// The most tools that the client accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    most_tools: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A server that several programs start.
#[derive(Serialize)]
struct Twice {
    server: String,
    by: Vec<String>,
}

pub(super) fn run(common: &Common, is_of_user: bool, output: &Output) -> Result<Exit, Failure> {
    let own = Own::find(common, is_of_user)?;
    let clients = here::all(&own);
    let rows: Vec<Row> = clients.iter().map(row).collect();
    let twice = twice(&clients, &own);
    if output.json {
        output.value(&Report { clients: rows, twice })?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        output.remark("none of the clients that are known here is on this machine");
        return Ok(Exit::Ok);
    }
    let columns = [Column::stays("CLIENT"), Column::stays("STATE"), Column::stays("SERVERS"), Column::cuts("FILE")];
    let mut table = Table::new(&columns);
    for row in &rows {
        let servers = row.servers.map_or("-".to_owned(), |count| count.to_string());
        let file = text::line(&row.file).into_owned();
        table.row([row.client.into(), state(row.state), Cell::from(servers), Cell::from(file)]);
    }
    output.table(table)?;
    for twice in &twice {
        output.line(&format!("`{}` is started by {}", text::line(&twice.server), twice.by.join(", ")))?;
    }
    for row in &rows {
        if let Some(problem) = &row.problem {
            output.talk(&format!("warning: {}: {problem}", row.name));
        }
    }
    let projects = projects(&own);
    if !projects.is_empty() {
        output.remark(&format!("note: files of this project, which stay with it: {}", projects.join(", ")));
    }
    if !twice.is_empty() {
        output.remark("mcp-host migrate --all moves them here and starts each once");
    }
    Ok(Exit::Ok)
}

/// A client that is linked with mcp-host.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Linked {
    pub(in crate::commands) name: &'static str,
    pub(in crate::commands) most_tools: Option<usize>,
}

/// What other commands need to know about the clients.
#[derive(Debug)]
pub(in crate::commands) struct Seen {
    pub(in crate::commands) linked: Vec<Linked>,
    /// Servers that several programs start, each with these programs.
    pub(in crate::commands) twice: Vec<(String, Vec<String>)>,
}

/// Examines the clients on this machine; `None` if the user's own config cannot be read.
pub(in crate::commands) fn seen(common: &Common) -> Option<Seen> {
    let common = Common { project: None, ..common.clone() };
    let own = Own::find(&common, common.config.is_empty()).ok()?;
    let clients = here::all(&own);
    let linked = clients.iter().filter(|here| here.is_linked());
    let linked = linked.map(|here| Linked { name: here.client.name, most_tools: here.client.tools }).collect();
    let twice = twice(&clients, &own).into_iter().map(|twice| (twice.server, twice.by)).collect();
    Some(Seen { linked, twice })
}

fn state(state: &str) -> Cell {
    match state {
        "linked" => Cell::new(state).tone(crate::paint::Tone::of_state("connected")),
        "broken" => Cell::new(state).tone(crate::paint::Tone::of_state("failed")),
        _ => Cell::new(state),
    }
}

fn row(here: &Here) -> Row {
    let (state, problem) = match &here.state {
        State::Read(..) if here.is_linked() => ("linked", None),
        State::Read(..) => ("not linked", None),
        State::Broken(failure) => ("broken", Some(failure.first())),
        State::Empty | State::Absent => ("no file", None),
    };
    let servers = here.text().map(|_| here.servers().iter().filter(|known| !known.is_host).count());
    Row {
        client: here.client.id,
        name: here.client.name,
        file: here.file.display().to_string(),
        state,
        servers,
        most_tools: here.client.tools,
        problem,
    }
}

/// Finds the servers that several clients start, or that both a client and mcp-host start.
fn twice(clients: &[Here], own: &Own) -> Vec<Twice> {
    let mut groups: Vec<(Endpoint<'_>, Twice)> = Vec::new();
    for server in own.config.servers.iter().filter(|server| server.disabled.is_none()) {
        let twice = Twice { server: server.name.clone(), by: vec!["mcp-host".to_owned()] };
        groups.push((Endpoint { entry: None, server }, twice));
    }
    for here in clients {
        for known in here.servers().iter().filter(|known| is_started(known)) {
            let Some(endpoint) = known.endpoint() else { continue };
            let by = here.client.name.to_owned();
            match groups.iter_mut().find(|(other, _)| same(endpoint, *other)) {
                Some((_, twice)) if twice.by.contains(&by) => {}
                Some((_, twice)) => twice.by.push(by),
                None => groups.push((endpoint, Twice { server: known.name.clone(), by: vec![by] })),
            }
        }
    }
    groups.into_iter().map(|(_, twice)| twice).filter(|twice| twice.by.len() > 1).collect()
}

fn is_started(known: &Known) -> bool {
    !known.is_off && !known.is_host
}

/// Returns the files of clients in the working directory.
fn projects(own: &Own) -> Vec<String> {
    let Some(folder) = &own.request.working_directory else { return Vec::new() };
    let is_home = own.request.home.as_ref() == Some(folder);
    let files = mcp_host::config::clients::ALL.iter().flat_map(|client| client.projects);
    let found = files.map(|file| folder.join(file)).filter(|file| !is_home && file.is_file());
    found.map(|file| shown(&file)).collect()
}
