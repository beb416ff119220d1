//! Checks D12 to D15: leftover processes, the state directory, the port, the service, and what clients start.

use std::fs;
use std::io;
use std::net::TcpListener;

use mcp_host::config::Config;
use mcp_host::edits::Edits;
use mcp_host::{admin, install};

use super::finding::{Finding, ORPHANS, PORT, STATE, TWICE};
use crate::commands::clients::Seen;
use crate::commands::service;
use crate::servers::state_directory;
use crate::text;

/// Checks that the folder with logins, approvals and backups can be written.
pub(super) fn state_folder() -> Vec<Finding> {
    let Some(folder) = state_directory() else {
        let what = "this user has no home directory, so logins and approvals are not kept";
        return vec![Finding::fail(STATE, what, "set HOME, or XDG_STATE_HOME")];
    };
    let probe = folder.join(format!(".doctor-{}", std::process::id()));
    let was_there = folder.exists();
    let written =
        fs::create_dir_all(&folder).and_then(|()| fs::write(&probe, b"")).and_then(|()| fs::remove_file(&probe));
    if !was_there {
        // The check leaves nothing behind.
        let _ = fs::remove_dir(&folder);
    }
    match written {
        Ok(()) => others_may_write(&folder).into_iter().collect(),
        Err(error) => {
            let what = format!("{} cannot be written: {error}", folder.display());
            vec![Finding::fail(STATE, what, format!("ls -ld {}", text::quoted(&folder.display().to_string())))]
        }
    }
}

#[cfg(unix)]
fn others_may_write(folder: &std::path::Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = folder.metadata().ok()?.permissions().mode();
    let help = format!("chmod 700 {}", text::quoted(&folder.display().to_string()));
    (mode & 0o022 != 0).then(|| Finding::fail(STATE, format!("others may write into {}", folder.display()), help))
}

#[cfg(not(unix))]
fn others_may_write(_: &std::path::Path) -> Option<Finding> {
    None
}

/// Finds locked trees that no config, lock or edit refers to. `update` and `remove` leave them if that is not certain.
pub(super) async fn trees() -> Vec<Finding> {
    let Some(folder) = state_directory() else { return Vec::new() };
    let unused = install::unused(Edits::of(&folder).folder().to_owned()).await;
    let Some(store) = unused.first().and_then(|tree| tree.parent()?.parent()) else { return Vec::new() };
    let trees: Vec<String> = unused.iter().map(|tree| text::quoted(&tree.display().to_string())).collect();
    let what = format!("no known config uses {} in {}", text::count(trees.len(), "locked tree"), store.display());
    vec![Finding::warn(STATE, what, format!("rm -r {}", trees.join(" ")))]
}

/// Checks whether `serve` could listen on the config's address.
pub(super) fn port(config: &Config) -> Vec<Finding> {
    let listen = config.host.listen;
    if listen.port() == 0 || admin::serving(listen).is_some() {
        return Vec::new();
    }
    match TcpListener::bind(listen) {
        Ok(_) => Vec::new(),
        Err(error) => {
            let what = match error.kind() {
                io::ErrorKind::AddrInUse => format!("{listen} is in use, and not by a mcp-host of yours"),
                _ => format!("nothing can listen on {listen}: {error}"),
            };
            vec![Finding::fail(PORT, what, "mcp-host serve --listen 127.0.0.1:0 takes a free port")]
        }
    }
}

/// Checks the service, if one is installed.
pub(super) async fn service() -> Vec<Finding> {
    let Some(state) = service::state().await.filter(|state| !state.files.is_empty()) else { return Vec::new() };
    if let Some(program) = state.missing {
        let what = format!("the service starts {program}, which is not there any more");
        return vec![Finding::fail(PORT, what, "mcp-host service install")];
    }
    if state.is_up() {
        return Vec::new();
    }
    vec![Finding::warn(PORT, format!("the service is {}", state.active), "mcp-host service status")]
}

/// Returns a finding for each server that several programs start.
pub(super) fn twice(seen: &Seen) -> Vec<Finding> {
    let tell = |(server, by): &(String, Vec<String>)| {
        let what = format!("`{server}` is started by {}", by.join(", "));
        Finding::warn(TWICE, what, "mcp-host migrate --all").of(server)
    };
    seen.twice.iter().map(tell).collect()
}

/// Finds processes with the mark of a host whose guard has ended: nothing will end these processes.
#[cfg(unix)]
pub(super) async fn orphans() -> Vec<Finding> {
    let found = tokio::task::spawn_blocking(mcp_host::orphans).await.unwrap_or_default();
    let tell = |process: mcp_host::Orphan| {
        let what = format!("process {} (`{}`) was left behind by a mcp-host", process.pid, process.name);
        Finding::warn(ORPHANS, what, format!("kill {}", process.pid))
    };
    found.into_iter().map(tell).collect()
}

/// Finds nothing: this system does not show the environment of other processes.
#[cfg(not(unix))]
pub(super) async fn orphans() -> Vec<Finding> {
    Vec::new()
}
