//! `mcp-host list` and `mcp-host get`: show the content of the config. They start nothing.

use mcp_host::config::edit;
use mcp_host::config::{NOT_APPROVED, Server};
use serde::Serialize;

use super::failures::failed;
use super::target::{self, Target};
use super::write::shown;
use crate::args::{Common, HERE};
use crate::joined;
use crate::mask;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Plan};
use crate::table::{Cell, Column, Table};

/// A server, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    alias: String,
    transport: &'static str,
    target: String,
    file: String,
    line: Option<usize>,
    disabled: Option<String>,
    /// Its state, if a daemon that serves this config runs.
    state: Option<String>,
}

/// An entry, as `--json` prints it.
#[derive(Serialize)]
struct Entry<'a> {
    server: &'a str,
    file: String,
    line: Option<usize>,
    entry: Vec<String>,
}

pub(super) async fn list(common: &Common, is_of_user: bool, output: &Output) -> Result<Exit, Failure> {
    let plan = plan(common, is_of_user)?;
    let running = joined::now(&plan).await;
    let row = |server: &Server| {
        let now = running.iter().find(|status| status.name == server.name);
        Row {
            name: server.name.clone(),
            alias: server.alias.as_str().to_owned(),
            transport: mask::kind(&server.transport),
            target: server.transport.shown(),
            file: server.source.file.display().to_string(),
            line: server.source.line,
            disabled: server.disabled.clone(),
            state: now.map(|status| status.state.to_string()),
        }
    };
    let rows: Vec<Row> = plan.config.servers.iter().map(row).collect();
    if output.json {
        output.value(&rows)?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        output.remark("no servers; mcp-host add NAME -- COMMAND adds one");
        return Ok(Exit::Ok);
    }
    let columns = [
        Column::stays("SERVER"),
        Column::stays("TRANSPORT"),
        Column::wraps("STATE"),
        Column::wraps("FILE"),
        Column::cuts("TARGET"),
    ];
    let mut table = Table::new(&columns);
    rows.iter().for_each(|row| table.row(cells(row)));
    output.table(table)?;
    Ok(Exit::Ok)
}

/// Loads the config: the one that all commands use, unless `--user` or `--project` names another.
fn plan(common: &Common, is_of_user: bool) -> Result<Plan, Failure> {
    let names_here = common.config.is_empty() && common.project.is_some();
    if !is_of_user && !names_here {
        return Plan::load(common, false, None);
    }
    let request = target::request(common, is_of_user)?;
    Ok(Plan::of(servers::load(&request)?, request))
}

fn cells(row: &Row) -> [Cell; 5] {
    let state = match (&row.state, row.disabled.as_deref()) {
        (Some(state), None) => state.clone(),
        (_, Some(NOT_APPROVED)) => NOT_APPROVED.to_owned(),
        (_, Some(_)) => "disabled".to_owned(),
        (None, None) => "-".to_owned(),
    };
    let line = row.line.map_or(String::new(), |line| format!(":{line}"));
    let target = if row.target.is_empty() { "-" } else { &row.target };
    [
        row.name.as_str().into(),
        row.transport.into(),
        Cell::state(&state),
        format!("{}{line}", row.file).into(),
        target.to_owned().into(),
    ]
}

pub(super) fn get(name: &str, common: &Common, is_of_user: bool, output: &Output) -> Result<Exit, Failure> {
    let target = match plan(common, is_of_user) {
        // The file that contains the entry.
        Ok(plan) => {
            let file = plan.server(name)?.source.file.clone();
            let project =
                common.project.clone().filter(|project| project.as_os_str() != HERE || !common.config.is_empty());
            let request =
                mcp_host::config::LoadRequest { project_directory: project, ..servers::request(common, None) };
            Target { file, request }
        }
        Err(failure) => match Target::of_entry(common, is_of_user, name) {
            Ok(target) => target,
            Err(_) => return Err(failure),
        },
    };
    let text = target.text()?.unwrap_or_default();
    let (lines, line) = edit::shown(&text, &target.file, &target.request, name)
        .map_err(|refused| failed(refused.into(), &target.file))?;
    let scrub = |line: &String| crate::hidden::all(line).into_owned();
    let lines: Vec<String> = lines.iter().map(scrub).collect();
    if output.json {
        let file = target.file.display().to_string();
        output.value(&Entry { server: name, file, line, entry: lines })?;
        return Ok(Exit::Ok);
    }
    let place = line.map_or(String::new(), |line| format!(":{line}"));
    let head = format!("{}{place}", shown(&target.file));
    let body = lines.iter().map(|line| format!("  {}", crate::text::line(line)));
    output.lines(std::iter::once(head).chain(body))?;
    Ok(Exit::Ok)
}
