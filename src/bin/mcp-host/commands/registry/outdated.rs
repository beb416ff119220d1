//! `mcp-host outdated`: which servers of a config have newer versions in the registry.

use mcp_host::config::{Config, Package, Server, Transport};
use mcp_host::install::{Index, Manifest};
use serde::Serialize;

use super::failures::failed;
use super::search::status;
use super::{open, tell_age};
use crate::args::{Common, Outdated};
use crate::commands::edits::target::Target;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::table::{Column, Table};
use crate::text;

/// A server, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    server: String,
    package: String,
    has: String,
    latest: Option<String>,
    status: Option<&'static str>,
    locked: bool,
    /// Why the latest version is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) async fn run(args: &Outdated, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let target = Target::of_new(common, args.user.user)?;
    let config = servers::load(&target.request)?;
    let index = open(&target.request)?;
    let mut rows = Vec::new();
    for (server, package) in packages(&config) {
        let mut row = Row {
            server: server.name.clone(),
            package: format!("{} {}", package.kind.word(), package.name),
            has: package.version.clone(),
            latest: None,
            status: None,
            locked: package.digest.is_some(),
            error: None,
        };
        match latest(&index, package, output).await {
            Ok((manifest, latest)) => {
                row.status = Some(status(manifest.status));
                row.latest = latest;
            }
            Err(failure) => row.error = Some(failure.first()),
        }
        rows.push(row);
    }
    if output.json {
        output.value(&rows)?;
        return Ok(Exit::Ok);
    }
    print(&rows, output)
}

fn print(rows: &[Row], output: &Output) -> Result<Exit, Failure> {
    if rows.is_empty() {
        output.remark("no server of this config came from the registry");
        return Ok(Exit::Ok);
    }
    for row in rows.iter().filter(|row| row.error.is_some()) {
        let error = row.error.as_deref().unwrap_or_default();
        output.talk(&format!("warning: {}: {}", text::line(&row.server), text::line(error)));
    }
    let old: Vec<&Row> =
        rows.iter().filter(|row| row.latest.as_ref().is_some_and(|latest| *latest != row.has)).collect();
    for row in rows.iter().filter(|row| matches!(row.status, Some("deprecated" | "deleted"))) {
        output.talk(&format!("warning: {} is {}", text::line(&row.server), row.status.unwrap_or_default()));
    }
    if old.is_empty() {
        if rows.iter().all(|row| row.error.is_none()) {
            output.remark("all servers from the registry have its latest versions");
        }
        return Ok(Exit::Ok);
    }
    let columns = ["SERVER", "PACKAGE", "HAS", "LATEST", "TREE"].map(Column::stays);
    let mut table = Table::new(&columns);
    for row in old {
        table.row([
            text::line(&row.server).into_owned(),
            text::line(&row.package).into_owned(),
            text::line(&row.has).into_owned(),
            text::line(row.latest.as_deref().unwrap_or("-")).into_owned(),
            if row.locked { "locked" } else { "not locked" }.to_owned(),
        ]);
    }
    output.table(table)?;
    output.remark("mcp-host update NAME installs the latest version");
    Ok(Exit::Ok)
}

/// Returns the servers that came from a registry, each with its package.
pub(super) fn packages(config: &Config) -> Vec<(&Server, &Package)> {
    config.servers.iter().filter_map(|server| Some((server, of_registry(server)?))).collect()
}

fn of_registry(server: &Server) -> Option<&Package> {
    match &server.transport {
        Transport::Stdio(stdio) => stdio.package.as_ref().filter(|package| package.registry.is_some()),
        _ => None,
    }
}

/// Asks the registry for the latest version of a package. The version is `None` if the latest entry has no such package.
pub(super) async fn latest(
    index: &Index,
    package: &Package,
    output: &Output,
) -> Result<(Manifest, Option<String>), Failure> {
    let name = package.registry.as_deref().unwrap_or_default();
    let (manifest, freshness) = index.server(name, None).await.map_err(|error| failed(&error))?;
    tell_age(freshness, index, output);
    let same =
        manifest.packages.iter().find(|other| other.kind == Ok(package.kind) && other.identifier == package.name);
    let version = same.and_then(|same| same.version.clone());
    Ok((manifest, version))
}
