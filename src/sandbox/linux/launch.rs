//! The launcher: this program in a hidden mode. It gives up everything that its plan does not name, and becomes the
//! server.
//!
//! It is the server's process from the start: its id, its group, its pipes, and its mark stay the same. **Invariant:**
//! if any part of the plan cannot be done, the launcher exits, and the server does not start.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::plan::Plan;
use super::{bubble, container, door, filter, rights, rules, scope, trace};
use crate::sandbox::withheld::proxies;

/// The exit code of a launcher that did not become the server.
const FAILED: i32 = 126;

/// Becomes the server: `PLAN -- PROGRAM ARGUMENTS..`.
pub(in crate::sandbox) fn become_server(arguments: impl Iterator<Item = OsString>) {
    let Err(why) = run(arguments);
    // If this fails, nobody reads stderr.
    let _ = writeln!(std::io::stderr(), "mcp-host: the server was not started, since it cannot be confined: {why}");
    #[expect(clippy::disallowed_methods, clippy::exit, reason = "this process is the launcher; no `main` follows")]
    std::process::exit(FAILED);
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<Infallible, String> {
    let plan = arguments.next().and_then(|plan| plan.into_string().ok()).ok_or("there is no plan")?;
    let mut plan: Plan = serde_json::from_str(&plan).map_err(|error| format!("the plan is not valid: {error}"))?;
    if let Some(keeper) = plan.keeper.take() {
        return container::keep(keeper);
    }
    let program = arguments.nth(1).ok_or("there is no program")?;
    if let Some(container) = plan.container.take() {
        return container::enter(&container, &program, arguments);
    }
    if let Some(scope) = plan.scope.take() {
        return scope::enter(&scope, &plan, &program, arguments);
    }
    limit(Resource::Core, 0)?;
    if let Some(bubble) = plan.bubble.take() {
        return bubble::enter(&bubble, plan, &program, arguments);
    }
    if plan.is_inside {
        // The launcher's own open files are not passed to the server.
        close_fds::set_fds_cloexec(3, &[]);
    }
    let port = plan.door.map(door::hand_over).transpose();
    let port = port.map_err(|error| format!("the connection to its network proxy: {error}"))?;
    if plan.keeps_files {
        rules::enforce(&plan).map_err(|error| error.to_string())?;
    }
    // From here on, a link planted by the server leads only to what the server itself may reach.
    for (from, to) in &plan.links {
        link(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    rights::give_up().map_err(|error| format!("the rights of root: {error}"))?;
    if plan.keeps_calls {
        filter::enforce(&plan).map_err(|error| error.to_string())?;
    }
    let mut command = Command::new(&program);
    command.args(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| plan.withholds(name)) {
        command.env_remove(name);
    }
    command.envs(plan.set.iter().map(|(name, path)| (name, path)));
    let url = port.map(|port| format!("http://127.0.0.1:{port}"));
    command.envs(url.iter().flat_map(|url| proxies(url)));
    if let Some(cwd) = &plan.cwd {
        command.current_dir(cwd);
    }
    if let Some(files) = plan.files {
        limit(Resource::Nofile, files)?;
    }
    if let Some(memory) = plan.memory {
        limit(Resource::Data, memory)?;
    }
    if let Some(processes) = plan.processes {
        limit(Resource::Nproc, processes)?;
    }
    if plan.is_watched {
        trace::mark();
    }
    Err(format!("{}: {}", Path::new(&program).display(), command.exec()))
}

/// Sets a limit that the process cannot raise.
fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(|error| format!("the limit of {resource:?} cannot be {most}: {error}"))
}

/// Links a listed path into the server's HOME. An existing file there stays.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(folder) = from.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::os::unix::fs::symlink(to, from) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}
