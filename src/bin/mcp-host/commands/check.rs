//! `mcp-host check`: what the config says, with nothing started.

use mcp_host::Host;
use mcp_host::config::{Config, NOT_APPROVED, Problem, Server};
use serde::Serialize;

use crate::args::{Check, Common};
use crate::mask;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::text;

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
    unusable: Option<&'a str>,
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
    if output.json {
        output.value(&report(&plan.config))?;
    } else {
        print(&plan.config, output)?;
        plan.tell_notes(output);
    }
    Host::check_endpoint(&plan.config.host)?;
    unusable(&plan.config).or_else(|| not_approved(&plan.config)).map_or(Ok(Exit::Ok), Err)
}

/// The servers that cannot be started as they are configured, as one failure.
pub(crate) fn unusable(config: &Config) -> Option<Failure> {
    let broken = config.servers.iter().filter_map(|server| Some((server, server.unusable.as_deref()?)));
    let errors: Vec<String> =
        broken.map(|(server, why)| format!("{}server `{}`: {why}", place(server), server.name)).collect();
    (!errors.is_empty()).then(|| Failure::several(Exit::Usage, errors))
}

/// The servers that wait for the user's yes, as one failure.
pub(crate) fn not_approved(config: &Config) -> Option<Failure> {
    let waiting = config.servers.iter().filter(|server| server.disabled.as_deref() == Some(NOT_APPROVED));
    let names: Vec<String> = waiting.map(|server| format!("`{}`", server.name)).collect();
    let error = format!("not approved: {}; the config of a project names what would be started", names.join(", "));
    (!names.is_empty()).then(|| Failure::new(Exit::Denied, error).help("mcp-host approve"))
}

fn place(server: &Server) -> String {
    match server.source.line {
        Some(line) => format!("{}:{line}: ", server.source.file.display()),
        None => String::new(),
    }
}

fn report(config: &Config) -> Report<'_> {
    Report {
        ok: unusable(config).is_none() && not_approved(config).is_none(),
        files: config.files.iter().map(|file| file.display().to_string()).collect(),
        problems: Vec::new(),
        notes: config.notes.iter().map(finding).collect(),
        servers: config.servers.iter().map(row).collect(),
    }
}

fn print(config: &Config, output: &Output) -> Result<(), Failure> {
    let mut lines: Vec<String> =
        config.files.iter().map(|file| format!("{}: ok", text::line(&file.display().to_string()))).collect();
    let rows: Vec<Vec<String>> = config.servers.iter().map(|server| cells(&row(server))).collect();
    if rows.is_empty() {
        output.remark("no servers");
    } else {
        lines.push(String::new());
        lines.extend(text::table(&["SERVER", "TRANSPORT", "STATE", "TARGET"], &rows));
    }
    Ok(output.lines(lines)?)
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let name = if row.name == row.alias { row.name.to_owned() } else { format!("{} ({})", row.name, row.alias) };
    let state = match (row.unusable, row.disabled) {
        (Some(_), _) => "unusable".to_owned(),
        (None, Some(why)) if why.starts_with("disabled") || why == NOT_APPROVED => why.to_owned(),
        (None, Some(why)) => format!("disabled: {why}"),
        (None, None) => "ok".to_owned(),
    };
    let by = row.headers_helper.as_ref().map_or(String::new(), |program| format!(", headers by {program}"));
    [name, row.transport.to_owned(), state, format!("{}{by}", row.target)]
        .map(|cell| text::line(&cell).into_owned())
        .into()
}

fn row(server: &Server) -> Row<'_> {
    Row {
        name: &server.name,
        alias: server.alias.as_str(),
        transport: mask::kind(&server.transport),
        target: mask::target(&server.transport),
        headers_helper: mask::helper(&server.transport),
        disabled: server.disabled.as_deref(),
        unusable: server.unusable.as_deref(),
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
