//! `mcp-host approve`: shows what a project's config would start, which certificates have changed, and which definitions
//! servers have changed, and records the user's approval of exactly that (`docs/hazards.md` H93, H33, H85).

mod certificates;
mod definitions;

use std::path::Path;

use mcp_host::Certificates;
use mcp_host::approvals::Approvals;
use mcp_host::config::{Project, Server};
use mcp_host::pins;
use serde::Serialize;

pub(super) use self::definitions::differing;
use super::agreed;
use crate::args::{Approve, Common};
use crate::compare::{Step, steps};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::text;

/// One server, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    server: &'a str,
    file: String,
    hash: &'a str,
    approved: bool,
    shown: &'a [String],
    /// The lines that were last approved.
    before: Option<Vec<String>>,
}

/// A server or a certificate, as `--json` prints it.
#[derive(Serialize)]
#[serde(untagged)]
enum All<'a> {
    Project(&'a Item<'a>),
    Certificate(&'a certificates::Item<'a>),
    Definition(&'a definitions::Item<'a>),
}

pub(crate) async fn run(args: &Approve, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let plan = Plan::load(common, false, None)?;
    if let Some(name) = &args.server {
        plan.server(name)?;
    }
    let wanted = |server: &&Server| args.server.as_ref().is_none_or(|name| server.is_called(name));
    if pins::is_below_a_host() {
        let error = "a server of a running mcp-host has started this, and no server may approve anything";
        return Err(Failure::new(Exit::Denied, error).help("run it in a terminal of your own"));
    }
    if args.revoke {
        return revoke(args, plan.config.servers.iter().filter(wanted), output).await;
    }
    let waiting: Vec<(&Server, &Project)> = plan
        .config
        .servers
        .iter()
        .filter(wanted)
        .filter_map(|server| Some((server, server.project.as_ref().filter(|project| !project.approved)?)))
        .collect();
    let directory = directory()?;
    let kept = Certificates::new(Some(&directory));
    let mut certificates = certificates::of(plan.config.servers.iter().filter(wanted), &kept)?;
    let glob = args.tool.as_deref();
    let (mut definitions, notes) =
        definitions::of(&plan.config, plan.config.servers.iter().filter(wanted), &directory, glob).await?;
    notes.iter().for_each(|note| output.remark(note));
    if waiting.is_empty() && certificates.is_empty() && definitions.is_empty() {
        if !notes.is_empty() {
            let error = "nothing was approved: a lock says what is approved";
            return Err(Failure::new(Exit::Denied, error).help("mcp-host lock accepts what the servers list now"));
        }
        return nothing(&plan, output);
    }
    let approvals = Approvals::of(&directory);
    let mut items = Vec::new();
    for (server, project) in &waiting {
        let before = approvals.before(&server.source.file, &server.name).map_err(failed)?;
        items.push(Item {
            server: &server.name,
            file: server.source.file.display().to_string(),
            hash: &project.hash,
            approved: false,
            shown: &project.shown,
            before,
        });
    }
    if !output.json {
        let lines = items.iter().flat_map(lines).chain(certificates.iter().flat_map(certificates::lines));
        let lines = lines.chain(definitions.iter().flat_map(definitions::lines));
        output.lines(lines.collect::<Vec<String>>())?;
    }
    let agreed = args.yes
        || (output.interactive()
            && agreed(&questions(items.len(), certificates.len(), definitions.len()), output).await);
    if agreed {
        certificates::accept(&mut certificates, &kept, output).await?;
        definitions::accept(&mut definitions, &directory).await?;
    }
    if agreed && !items.is_empty() {
        let servers = waiting.iter().map(|(server, project)| (server.name.as_str(), *project));
        let file = waiting.first().map_or(Path::new(""), |(server, _)| server.source.file.as_path());
        approvals.approve(file, servers).await.map_err(failed)?;
        items.iter_mut().for_each(|item| item.approved = true);
    }
    if output.json {
        let all = items.iter().map(All::Project).chain(certificates.iter().map(All::Certificate));
        output.value(&all.chain(definitions.iter().map(All::Definition)).collect::<Vec<_>>())?;
    }
    if agreed {
        let names = items.iter().map(|item| item.server).chain(certificates.iter().map(certificates::Item::server));
        let names = names.map(str::to_owned).chain(definitions.iter().map(definitions::Item::name));
        let names: Vec<String> = names.collect();
        output.remark(&format!("approved: {}", names.join(", ")));
        return Ok(Exit::Ok);
    }
    let server = args.server.as_ref().map(|name| format!(" {}", text::quoted(name))).unwrap_or_default();
    let help = format!("mcp-host approve{server} --yes approves what is shown, without being asked");
    Err(Failure::new(Exit::Denied, "nothing was approved").help(help))
}

fn directory() -> Result<std::path::PathBuf, Failure> {
    state_directory().ok_or_else(|| {
        Failure::new(Exit::Failed, "there is no directory to keep approvals in").help("set HOME or XDG_STATE_HOME")
    })
}

/// Revokes the approval of definitions.
async fn revoke<'a>(
    args: &Approve,
    servers: impl Iterator<Item = &'a Server>,
    output: &Output,
) -> Result<Exit, Failure> {
    let count = definitions::revoke(servers, &directory()?, args.tool.as_deref()).await?;
    let verb = if count == 1 { "waits" } else { "wait" };
    output.remark(&format!("{} {verb} for approval again", text::count(count, "definition")));
    Ok(Exit::Ok)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, error.to_string()).help("mcp-host approve shows it again, as it is now")
}

fn nothing(plan: &Plan, output: &Output) -> Result<Exit, Failure> {
    if output.json {
        output.value::<[Item<'_>]>(&[])?;
    } else if plan.config.project {
        output.remark("nothing to approve: everything is approved");
    } else {
        output.remark("nothing to approve: no definition has changed, and only configs found in the working directory need approval");
    }
    Ok(Exit::Ok)
}

/// Returns the question that asks the user to approve.
fn questions(servers: usize, certificates: usize, definitions: usize) -> String {
    let start = (servers > 0).then(|| format!("start {} like this", text::count(servers, "server")));
    let believe = (certificates > 0).then(|| format!("trust {}", text::count(certificates, "certificate")));
    let accept = (definitions > 0).then(|| format!("accept {}", text::count(definitions, "definition")));
    format!("{}? [y/N]", [start, believe, accept].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Formats a server to approve, as a diff if it was approved before.
fn lines(item: &Item<'_>) -> Vec<String> {
    let how = if item.before.is_some() { "has changed since it was approved" } else { "is not approved" };
    let head = format!("server `{}` of {} {how}:", item.server, item.file);
    let mut lines = vec![text::line(&head).into_owned()];
    let body: Vec<String> = match &item.before {
        Some(before) if before != item.shown => difference(before, item.shown),
        Some(_) => item.shown.iter().map(|line| format!("  {line}")).chain([HIDDEN.to_owned()]).collect(),
        None => item.shown.iter().map(|line| format!("  {line}")).collect(),
    };
    lines.extend(body.iter().map(|line| format!("  {}", text::line(line))));
    lines.push(String::new());
    lines
}

const HIDDEN: &str = "! a hidden value has changed";

/// Returns a line diff of two texts.
fn difference(before: &[String], now: &[String]) -> Vec<String> {
    let line = |step: Step| match step {
        Step::Same(at) => format!("  {}", now[at]),
        Step::Gone(at) => format!("- {}", before[at]),
        Step::New(at) => format!("+ {}", now[at]),
    };
    steps(before, now).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_difference_shows_every_line() {
        let before = texts(&["command: \"npx\"", "args: [\"a\"]", "env.X: \"1\""]);
        let now = texts(&["command: \"npx\"", "args: [\"b\"]", "env.X: \"1\"", "cwd: \"/\""]);
        let expected = ["  command: \"npx\"", "- args: [\"a\"]", "+ args: [\"b\"]", "  env.X: \"1\"", "+ cwd: \"/\""];
        assert_eq!(difference(&before, &now), expected);
        assert_eq!(difference(&[], &texts(&["a"])), ["+ a"]);
        assert_eq!(difference(&texts(&["a"]), &[]), ["- a"]);
    }
}
