//! `mcp-host lock`: starts the servers, and writes what they list into `mcp-host.lock`, which a team reviews and keeps
//! with its config.

mod check;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use mcp_host::approvals::Approvals;
use mcp_host::config::{Approval, Config, Server};
use mcp_host::pins::{self, Stated};
use mcp_host::{Host, ServerStatus};
use serde::Serialize;

pub(crate) use self::check::run as check;
use super::check::{not_approved, unusable};
use crate::args::{Common, Lock};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::session::{Session, failure};
use crate::text;

/// What was written, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    lock: &'a Path,
    servers: usize,
    definitions: usize,
}

pub(crate) async fn run(args: &Lock, common: &Common, output: &Output) -> Result<Exit, Failure> {
    if pins::is_below_a_host() {
        let error = "a server of a running mcp-host has started this, and no server may approve anything";
        return Err(Failure::new(Exit::Denied, error).help("run it in a terminal of your own"));
    }
    let mut plan = Plan::without_lock(common)?;
    plan.tell_notes(output);
    if let Some(failure) = unusable(&plan.config).or_else(|| not_approved(&plan.config)) {
        return Err(failure);
    }
    let file = plan.config.lock_file().ok_or_else(|| Failure::new(Exit::Usage, "there is no config file to lock"))?;
    let servers: Vec<Server> = enabled(&mut plan.config, output).to_vec();
    if servers.is_empty() {
        return Err(Failure::new(Exit::Usage, "the config has no server to lock"));
    }
    // The user's own approvals do not matter here, because the lock replaces them.
    plan.config.host.approval = Approval::Off;
    let stated = listed(plan, common, output).await?.map_err(|failure| failure.help("nothing was written"))?;
    let mut files = Vec::new();
    if let Some(directory) = &args.definitions {
        std::fs::create_dir_all(directory).map_err(|error| unwritten(directory, &error))?;
        files.extend(servers.iter().map(|server| (texts_of(directory, server), pins::texts(server, &stated))));
    }
    files.push((file.clone(), pins::lock(&servers, &stated)));
    write(files).await?;
    renew(common, &servers, &stated).await?;
    if output.json {
        output.value(&Written { lock: &file, servers: servers.len(), definitions: stated.len() })?;
    } else {
        let (what, of) = (text::count(stated.len(), "definition"), text::count(servers.len(), "server"));
        output.remark(&format!("locked {what} of {of} in {}", file.display()));
    }
    Ok(Exit::Ok)
}

/// Keeps only the servers that are not disabled, and prints the names of the others.
fn enabled<'a>(config: &'a mut Config, output: &Output) -> &'a [Server] {
    let is_off = |server: &Server| server.disabled.is_some();
    for server in config.servers.iter().filter(|server| is_off(server)) {
        output.remark(&format!("note: `{}` is disabled, so it is not compared", text::line(&server.name)));
    }
    config.servers.retain(|server| !is_off(server));
    &config.servers
}

/// Starts all servers of the plan, and returns what they list; the inner failure is for servers that did not start.
async fn listed(plan: Plan, common: &Common, output: &Output) -> Result<Result<Vec<Stated>, Failure>, Failure> {
    let again = common.again(false);
    let session = Box::pin(Session::look_alone(plan, again.clone(), output)).await?;
    let status = session.status();
    let stated = definitions(&session.host, &status, &again, output).await;
    session.close().await;
    Ok(stated)
}

/// Returns what all servers list, or a failure with each server that did not start.
async fn definitions(
    host: &Host,
    status: &[ServerStatus],
    again: &str,
    output: &Output,
) -> Result<Vec<Stated>, Failure> {
    let failures: Vec<Failure> = status.iter().filter_map(|server| failure(server, again)).collect();
    for failure in &failures {
        failure.tell(output);
    }
    if failures.is_empty() {
        return Ok(host.definitions().await);
    }
    let worst = if failures.iter().all(|failure| failure.exit == Exit::Unauthorized) {
        Exit::Unauthorized
    } else {
        Exit::Unreachable
    };
    Err(Failure::new(worst, format!("{} did not start, and cannot be compared", text::count(failures.len(), "server"))))
}

/// Renews the approval of a project's servers that were approved before its lock changed, because an approval covers
/// the lock. A server that the user has not approved, or that has changed meanwhile, stays unapproved.
async fn renew(common: &Common, before: &[Server], stated: &[Stated]) -> Result<(), Failure> {
    let (Ok(plan), Some(directory)) = (Plan::load(common, false, None), state_directory()) else { return Ok(()) };
    let is_same = |server: &&Server| {
        let known = before.iter().find(|known| known.name == server.name && known.entry == server.entry);
        let was_approved = known.and_then(|known| known.project.as_ref()).filter(|project| project.approved);
        let shown = server.project.as_ref().map(|project| project.without_lock());
        let is_locked = |locked| pins::compare(server, locked, stated, |_, _, _| None).is_empty();
        was_approved.is_some_and(|project| Some(project.without_lock()) == shown)
            && server.locked.as_ref().is_some_and(is_locked)
    };
    let same: Vec<&Server> = plan.config.servers.iter().filter(is_same).collect();
    let Some(first) = same.first() else { return Ok(()) };
    let all = same.iter().filter_map(|server| Some((server.name.as_str(), server.project.as_ref()?)));
    let failed = |error: mcp_host::approvals::Error| Failure::new(Exit::Failed, error.to_string());
    Approvals::of(&directory).approve(&first.source.file, all).await.map_err(failed)
}

/// Returns the path of the file with the texts of a server's definitions.
fn texts_of(directory: &Path, server: &Server) -> PathBuf {
    directory.join(format!("{}.json", server.alias.as_str()))
}

/// Writes each file whole or not at all, in order.
async fn write(files: Vec<(PathBuf, String)>) -> Result<(), Failure> {
    let put_all =
        move || files.iter().try_for_each(|(path, text)| put(path, text).map_err(|error| unwritten(path, &error)));
    let done = tokio::task::spawn_blocking(put_all).await;
    done.unwrap_or_else(|error| Err(Failure::new(Exit::Failed, error.to_string())))
}

/// Writes a file whole or not at all, even if the program is killed or the machine loses power. Blocks.
#[expect(clippy::disallowed_methods, reason = "it runs on a thread that may wait for the disk")]
fn put(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        // There may be no such file.
        let _ = std::fs::remove_file(&beside);
    })
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
}
