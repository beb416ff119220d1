//! `mcp-host check --connect`: starts each server once and tells what came of it.

use mcp_host::{ServerStatus, StateName};

use super::check::{not_approved, unusable};
use crate::args::{Check, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::session::{Session, failure};
use crate::text;

pub(crate) async fn run(args: &Check, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = Plan::load(common, args.demo.demo, None)?;
    if let Some(name) = &args.server {
        let server = plan.server(name)?.clone();
        plan.config.servers = vec![server];
    }
    plan.tell_notes(output);
    let unusable = unusable(&plan.config).or_else(|| not_approved(&plan.config));
    let again = common.again(args.demo.demo);
    let session = Session::look(plan, again.clone(), output).await?;
    let status = session.host.status();
    session.close().await;
    if output.json {
        output.value(&status)?;
    } else {
        output.lines(lines(&status))?;
    }
    if let Some(unusable) = unusable {
        return Err(unusable);
    }
    let failures: Vec<Failure> = status.iter().filter_map(|server| failure(server, &again)).collect();
    let worst =
        [Exit::Unreachable, Exit::Unauthorized].into_iter().find(|exit| failures.iter().any(|f| f.exit == *exit));
    Ok(worst.unwrap_or(Exit::Ok))
}

/// A table, and under it what is wrong.
fn lines(status: &[ServerStatus]) -> Vec<String> {
    let head = ["SERVER", "STATE", "REVISION", "TOOLS", "RESOURCES", "PROMPTS", "TIME"];
    let mut lines = text::table(&head, &status.iter().map(row).collect::<Vec<_>>());
    for server in status {
        let trouble = server.last_error.iter().filter(|_| server.state != StateName::Connected);
        for problem in trouble.chain(&server.problems) {
            lines.push(format!("{}: {}", text::line(&server.name), text::line(problem)));
        }
    }
    lines
}

fn row(server: &ServerStatus) -> Vec<String> {
    let connected = server.state == StateName::Connected;
    let number = |number: usize| if connected { number.to_string() } else { "-".to_owned() };
    vec![
        text::line(&server.name).into_owned(),
        server.state.to_string(),
        server.revision.as_deref().map_or("-".into(), text::line).into_owned(),
        number(server.tools),
        number(server.resources + server.resource_templates),
        number(server.prompts),
        server.ready_after_ms.map_or_else(|| "-".to_owned(), text::duration),
    ]
}
