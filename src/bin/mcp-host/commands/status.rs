//! `mcp-host status`: what a running daemon says about its servers.

use std::net::SocketAddr;

use mcp_host::admin::{self, AskError};
use serde::Deserialize;

use crate::args::Status;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// The answer of the daemon, as far as the table needs it. Written to be read by an older or newer program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    config: Config,
    servers: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    problems: Vec<String>,
    pending: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Row {
    name: String,
    state: String,
    since_ms: u64,
    revision: Option<String>,
    transport: String,
    leases: u64,
    calls: u64,
    last_error: Option<String>,
}

pub(crate) async fn run(args: &Status, output: &Output) -> Result<Exit, Failure> {
    let line =
        admin::ask(args.listen.map(|listen| listen.port())).await.map_err(|error| failed(args.listen, &error))?;
    if output.json {
        output.line(&text::json(line.trim()))?;
        return Ok(Exit::Ok);
    }
    let answer: Answer = serde_json::from_str(&line)
        .map_err(|error| Failure::new(Exit::Failed, format!("the daemon answered something else: {error}")))?;
    let head = ["SERVER", "STATE", "SINCE", "REVISION", "TRANSPORT", "LEASES", "CALLS", "LAST ERROR"];
    let table = text::table(&head, &answer.servers.iter().map(cells).collect::<Vec<_>>());
    output.lines(config(&answer.config).into_iter().chain(table))?;
    Ok(Exit::Ok)
}

pub(super) fn failed(listen: Option<SocketAddr>, error: &AskError) -> Failure {
    let flag = listen.map(|listen| format!(" --listen {listen}")).unwrap_or_default();
    let help = match error {
        AskError::NotRunning { .. } => format!("mcp-host serve{flag}"),
        _ => "mcp-host status --listen ADDR:PORT asks one of several".to_owned(),
    };
    Failure::new(Exit::Unreachable, error.to_string()).help(help)
}

/// Where the daemon does not go by what the files say now.
fn config(config: &Config) -> Vec<String> {
    let problems = config.problems.iter().map(|problem| format!("config: not reloaded: {problem}"));
    let pending = config.pending.iter().map(|key| format!("config: {key} counts from the next start on"));
    let mut lines: Vec<String> = problems.chain(pending).map(|line| text::line(&line).into_owned()).collect();
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

fn cells(row: &Row) -> Vec<String> {
    let text = |text: &str| text::line(text).into_owned();
    vec![
        text(&row.name),
        text(&row.state),
        text::duration(row.since_ms),
        row.revision.as_deref().map_or_else(|| "-".to_owned(), text),
        text(&row.transport),
        row.leases.to_string(),
        row.calls.to_string(),
        row.last_error.as_deref().map(|error| text::headline(error, WIDTH)).unwrap_or_default(),
    ]
}

const WIDTH: usize = 80;
