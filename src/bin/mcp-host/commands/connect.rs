//! `mcp-host check --connect`: starts each server once and reports the result. If a daemon serves the same config,
//! reports the state of its servers.

use mcp_host::config::{NOT_APPROVED, Server};
use mcp_host::pins::Suspicion;
use mcp_host::{Host, ServerStatus, StateName};

use super::check::{not_approved, unusable};
use super::suspects;
use crate::args::{Check, Common};
use crate::joined;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::session::{Session, failure};
use crate::table::{Cell, Column, Table};
use crate::text;

pub(crate) async fn run(args: &Check, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = Plan::load(common, args.demo.demo, None)?;
    if let Some(name) = &args.server {
        let server = plan.server(name)?.clone();
        plan.config.servers = vec![server];
    }
    plan.tell_notes(output);
    // Problems visible in the config alone are reported at the end.
    let told: Vec<String> =
        plan.config.servers.iter().filter(|server| is_told(server)).map(|server| server.name.clone()).collect();
    let unusable = unusable(&plan.config).or_else(|| not_approved(&plan.config));
    let again = common.again(args.demo.demo);
    let servers = plan.config.servers.clone();
    let (status, remarks) = match joined::state(&plan).await {
        Some((at, status)) => {
            output.remark(&format!("note: this is the state of {at}, which serves this config"));
            (status, Vec::new())
        }
        None => {
            let session = Box::pin(Session::look_alone(plan, again.clone(), output)).await?;
            let status = session.status();
            let remarks = if output.json { Vec::new() } else { remarks(&servers, &session.host).await };
            session.close().await;
            (status, remarks)
        }
    };
    if output.json {
        output.value(&status)?;
    } else {
        output.lines(lines(&status, output))?;
        remarks.iter().for_each(|line| output.talk(line));
    }
    let failures: Vec<Failure> = status
        .iter()
        .filter(|server| !told.contains(&server.name))
        .filter_map(|server| failure(server, &again))
        .collect();
    for failure in failures.iter().filter(|failure| !failure.is_wanted) {
        failure.tell(output);
    }
    if let Some(unusable) = unusable {
        return Err(unusable);
    }
    let worst =
        [Exit::Unreachable, Exit::Unauthorized].into_iter().find(|exit| failures.iter().any(|f| f.exit == *exit));
    Ok(worst.unwrap_or(Exit::Ok))
}

/// Returns what is odd about the tools that the servers list. None of it is a failure.
async fn remarks(servers: &[Server], host: &Host) -> Vec<String> {
    let mut lines = invalid_schemas(host).await;
    lines.extend(suspects::lines(servers, &host.catalog()));
    lines.extend(host.suspicions().await.iter().map(suspicious));
    let over = host.tokens(None).and_then(|ledger| ledger.over_budget());
    lines.extend(over.map(|line| text::line(&format!("note: {line}")).into_owned()));
    lines
}

fn suspicious(found: &Suspicion) -> String {
    let Suspicion { server, what, name, finding, .. } = found;
    let of = if name.is_empty() { format!("the {what}") } else { format!("{what} `{name}`") };
    let grade = if finding.hard { "suspicious" } else { "worth a look" };
    let line = format!("note: {server}: {of}: {grade}: {} at {}: {}", finding.what, finding.path, finding.shown);
    text::line(&line).into_owned()
}

#[cfg(feature = "schemas")]
async fn invalid_schemas(host: &Host) -> Vec<String> {
    host.invalid_schemas().await.into_iter().map(|schema| format!("note: {schema}")).collect()
}

/// Returns nothing: the compiler of schemas costs each host memory, so it is in the program only with the feature
/// `schemas`.
#[cfg(not(feature = "schemas"))]
async fn invalid_schemas(_: &Host) -> Vec<String> {
    Vec::new()
}

fn is_told(server: &Server) -> bool {
    server.unusable.is_some() || server.disabled.as_deref() == Some(NOT_APPROVED)
}

/// Returns a table, and below it the problems of connected servers.
fn lines(status: &[ServerStatus], output: &Output) -> Vec<String> {
    let mut table = Table::new(
        &["SERVER", "STATE", "REVISION", "TOOLS", "RESOURCES", "TEMPLATES", "PROMPTS", "TIME"].map(Column::stays),
    );
    status.iter().for_each(|server| table.row(row(server)));
    let mut lines = output.drawn(table);
    for server in status {
        if let Some(sandbox) = &server.sandbox {
            lines.push(format!("{}: sandbox: {}", text::line(&server.name), text::line(sandbox)));
        }
        for (host, count) in &server.refused_hosts {
            let times = text::count(usize::try_from(*count).unwrap_or(usize::MAX), "time");
            lines.push(format!("{}: its sandbox refused {} ({times})", text::line(&server.name), text::line(host)));
        }
        for problem in &server.problems {
            lines.push(format!("{}: {}", text::line(&server.name), text::line(problem)));
        }
        for changed in &server.changed {
            lines.push(format!("{}: not approved: {}", text::line(&server.name), text::line(changed)));
        }
        lines.extend(last_words(server));
    }
    lines
}

/// Returns a failed server's last lines on standard error, unless there is only one and the cause already quotes it.
pub(super) fn last_words(server: &ServerStatus) -> Vec<String> {
    let cause = server.last_error.as_deref().unwrap_or_default();
    let told = matches!(server.stderr.as_slice(), [line] if cause.contains(line.as_str()));
    if server.state == StateName::Connected || told || server.stderr.is_empty() {
        return Vec::new();
    }
    let from = server.stderr.len().saturating_sub(LINES);
    let said = server.stderr[from..].iter().map(|line| format!("  {}", text::line(line)));
    let heading = format!("{} wrote to standard error:", text::line(&server.name));
    std::iter::once(heading).chain(said).collect()
}

/// How many lines of standard error are shown under a server.
const LINES: usize = 10;

fn row(server: &ServerStatus) -> [Cell; 8] {
    let connected = server.state == StateName::Connected;
    let number = |number: usize| if connected { number.to_string().into() } else { "-".into() };
    [
        server.name.as_str().into(),
        Cell::state(&server.state.to_string()),
        server.revision.as_deref().unwrap_or("-").into(),
        number(server.tools),
        number(server.resources),
        number(server.resource_templates),
        number(server.prompts),
        server.ready_after_ms.map_or("-".into(), |took| text::duration(took).into()),
    ]
}
