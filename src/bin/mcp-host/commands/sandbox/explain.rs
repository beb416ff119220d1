//! `mcp-host sandbox explain SERVER`: starts the server in its sandbox once, under strace, and shows what was refused.
//!
//! Under `strict`, the system reports a file that was not granted as missing, not as refused. If the user has that
//! file, it is shown as `hidden`. **Invariant:** names come from the server, and are escaped; nothing is written into
//! the config.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use mcp_host::ServerStatus;
use mcp_host::config::{BEGINS, Sandbox, Transport};
use serde::Serialize;

use super::trace::{self, Failed, What};
use super::{Folder, SLOWER};
use crate::args::{Common, SandboxExplain};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::session::{Session, failure};
use crate::table::{Column, Table};
use crate::text::{self, quoted};

/// The most lines that are shown.
const MOST: usize = 100;
/// The errors with which a sandbox refuses.
const REFUSED: [&str; 2] = ["EACCES", "EPERM"];
/// The errors in a network that contains nothing.
const UNREACHED: [&str; 2] = ["ECONNREFUSED", "ENETUNREACH"];
const NO_SUCH: &str = "ENOENT";

/// Something that was refused.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: &'static str,
    what: String,
    call: String,
    times: u64,
}

pub(super) async fn run(args: &SandboxExplain, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = Plan::load(common, false, None)?;
    let mut server = plan.server(&args.server)?.clone();
    let name = server.name.clone();
    let sandbox = server.sandbox(plan.config.host.sandbox.as_ref()).filter(Sandbox::is_on);
    let Some(sandbox) = sandbox else {
        let error = format!("server `{}` has no sandbox", text::line(&name));
        return Err(
            Failure::new(Exit::Usage, error).help("write \"sandbox\": \"default\" or \"strict\" into its entry")
        );
    };
    if sandbox.container.is_some() {
        return Err(super::contained(&name));
    }
    let lacks = sandbox.lacks(state_directory().is_some());
    if !lacks.is_empty() && !sandbox.weak {
        let error = format!("server `{}` cannot have its sandbox: {}", text::line(&name), lacks.join(", "));
        return Err(Failure::new(Exit::Usage, error));
    }
    let folder = Folder::make()?;
    let file = folder.trace();
    if let Transport::Stdio(stdio) = &mut server.transport {
        stdio.sandbox = Some(sandbox.traced(&file));
    }
    // Under strace everything takes longer.
    server.start_timeout *= SLOWER;
    plan.config.servers = vec![server];
    let again = common.again(false);
    let session = Box::pin(Session::look_alone(plan, again.clone(), output)).await?;
    let status = session.status();
    session.close().await;
    let failed = status.iter().find_map(|server| failure(server, &again));
    // A server whose package could not be fetched, for example, did not come to its start.
    let began = failed.is_none() || file.exists();
    let mut rows = if began { by_strace(&file)? } else { Vec::new() };
    rows.extend(by_proxy(&status));
    if began || !rows.is_empty() {
        tell(&rows, &name, output)?;
    }
    failed.map_or(Ok(Exit::Ok), Err)
}

/// Returns what was refused, from strace's file.
fn by_strace(file: &Path) -> Result<Vec<Row>, Failure> {
    let wrong =
        |error: std::io::Error| Failure::new(Exit::Failed, format!("what strace wrote cannot be read: {error}"));
    let lines = BufReader::new(File::open(file).map_err(wrong)?).split(b'\n').map_while(Result::ok);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    // The lines before that are from the launcher, which examines what it will give up.
    let of_server = lines.skip_while(|line| !line.contains(BEGINS)).skip(1);
    Ok(counted(of_server.filter_map(|line| trace::read(&line)), |path| path.exists()))
}

/// Returns the hosts that the proxy refused.
fn by_proxy(status: &[ServerStatus]) -> Vec<Row> {
    let hosts = status.iter().flat_map(|server| &server.refused_hosts);
    let row = |(host, count): (&String, &u64)| Row {
        kind: "host",
        what: host.clone(),
        call: "proxy".to_owned(),
        times: *count,
    };
    hosts.map(row).collect()
}

/// Counts what was refused, sorted by kind and name. `exists` reports whether a path exists for the user.
fn counted(failed: impl Iterator<Item = Failed>, exists: impl Fn(&Path) -> bool) -> Vec<Row> {
    let mut counts: BTreeMap<(What, &'static str, String), u64> = BTreeMap::new();
    for Failed { what, call, error } in failed {
        let is_path = matches!(what, What::Read(_) | What::Write(_));
        let kind = match error.as_str() {
            error if REFUSED.contains(&error) => what.word(),
            NO_SUCH if is_path && exists(Path::new(what.text())) => "hidden",
            error if UNREACHED.contains(&error) && matches!(what, What::Host(_)) => "host",
            _ => continue,
        };
        *counts.entry((what, kind, call)).or_default() += 1;
    }
    let row = |((what, kind, call), times): ((What, &'static str, String), u64)| Row {
        kind,
        what: what.text().to_owned(),
        call,
        times,
    };
    counts.into_iter().map(row).collect()
}

fn tell(rows: &[Row], name: &str, output: &Output) -> Result<(), Failure> {
    if output.json {
        return Ok(output.value(rows)?);
    }
    if rows.is_empty() {
        return Ok(output.line(&format!("nothing was refused to {} in its start", text::line(name)))?);
    }
    let mut table = Table::new(&["REFUSED", "WHAT", "CALL", "TIMES"].map(Column::stays));
    for row in rows.iter().take(MOST) {
        table.row([row.kind.to_owned(), text::line(&row.what).into_owned(), row.call.clone(), row.times.to_string()]);
    }
    output.table(table)?;
    if rows.len() > MOST {
        output.talk(&format!("and {} more; --json shows all", rows.len() - MOST));
    }
    output.talk(&format!(
        "what {} is to have, list in its entry: \"sandbox\": {{ \"read\": [\"…\"], \"write\": [\"…\"], \"network\": [\"…\"] }}",
        quoted(name)
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_in_namespaces_is_told_if_it_is_there_for_the_user() {
        let read = |path: &str, error: &str| {
            let line = format!("1 openat(AT_FDCWD</>, \"{path}\", O_RDONLY) = -1 {error} (x)");
            trace::read(&line)
        };
        let failed = [
            read("/home/ada/.ssh/id", "EACCES"),
            read("/home/ada/.ssh/id", "EACCES"),
            read("/home/ada/.gitconfig", "ENOENT"),
            read("/home/ada/nowhere", "ENOENT"),
            trace::read("1 keyctl(0) = -1 EPERM (x)"),
            trace::read("1 keyctl(0) = -1 EINVAL (x)"),
        ];
        let rows = counted(failed.into_iter().flatten(), |path| path.ends_with(".gitconfig"));
        let rows: Vec<_> = rows.iter().map(|row| (row.kind, row.what.as_str(), row.call.as_str(), row.times)).collect();
        let expected = [
            ("hidden", "/home/ada/.gitconfig", "openat", 1),
            ("read", "/home/ada/.ssh/id", "openat", 2),
            ("call", "keyctl", "keyctl", 1),
        ];
        assert_eq!(rows, expected);
    }
}
