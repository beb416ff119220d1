//! The sandbox on Linux: Landlock keeps files and signals, seccomp system calls, rlimits open files and memory.
//!
//! In: a command with its sandbox. Out: the command of the launcher, with its [`Plan`](plan::Plan). **Invariant:** what
//! reads the file system to decide is here and runs before the start; the launcher decides nothing.

#[cfg(feature = "script")]
mod calls;
mod filter;
mod grants;
mod launch;
mod machine;
mod places;
mod plan;
mod programs;
mod rights;
mod rules;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use self::grants::{Grants, variable};
pub(super) use self::launch::become_server;
use self::machine::Kernel;
use self::places::{Own, Places};
use self::plan::Plan;
use self::programs::Programs;
use super::{ARGUMENT, Error, can_launch};
use crate::config::{Sandbox, SandboxHome, SandboxNetwork, Stdio};

/// This program, even if its file has been replaced.
const OURSELVES: &str = "/proc/self/exe";
const NO_LAUNCHER: &str = "the embedding program does not begin with mcp_host::guard()";
const NO_STATE: &str = "there is no state directory for its own HOME";

/// Returns what the sandbox needs and is not there.
pub(super) fn lacks(_: &Sandbox, has_state: bool) -> Vec<&'static str> {
    let mut lacks: Vec<&str> = Kernel::here().lacks().collect();
    lacks.extend((!can_launch()).then_some(NO_LAUNCHER));
    lacks.extend((!has_state).then_some(NO_STATE));
    lacks
}

/// Reports whether there can be no launcher at all.
pub(super) fn cannot_start(has_state: bool) -> bool {
    !can_launch() || !has_state
}

/// Returns what the level does not keep on this machine.
pub(super) fn gaps() -> Vec<&'static str> {
    Kernel::here().gaps().into_iter().collect()
}

/// Leaves this process the system calls that a script needs, if the kernel can refuse the others.
#[cfg(feature = "script")]
pub(super) fn confine_script() -> std::io::Result<()> {
    if Kernel::here().calls { calls::keep().map_err(std::io::Error::other) } else { Ok(()) }
}

/// Returns the command of the launcher. With `weak`, keeps what can be kept.
pub(super) fn start(stdio: Stdio, sandbox: &Sandbox, state: Option<&Path>) -> Result<Stdio, Error> {
    let Some(state) = state.filter(|_| can_launch()) else { return Ok(Stdio { sandbox: None, ..stdio }) };
    let own = Own::make(state, sandbox.whose())?;
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let places = Places::here(&state);
    let file = program(&stdio, &places);
    let grants = Grants::of(&stdio, sandbox, &places, &own, file.as_deref())?;
    let plan = plan(&stdio, sandbox, &own, grants);
    // An object of texts and numbers can always be written.
    let plan = serde_json::to_string(&plan).unwrap_or_default();
    let program = file.and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_else(|| stdio.command.clone());
    let mut args = vec![ARGUMENT.to_owned(), plan, "--".to_owned(), program];
    args.extend(stdio.args);
    Ok(Stdio { command: OURSELVES.to_owned(), args, sandbox: None, package: None, ..stdio })
}

/// Returns the file that the command means, as a whole path.
fn program(stdio: &Stdio, places: &Places) -> Option<PathBuf> {
    let base = stdio.cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let path = variable(stdio, "PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let file = Programs::new(places, path.as_ref(), &base).find(&stdio.command)?;
    std::path::absolute(file).ok()
}

fn plan(stdio: &Stdio, sandbox: &Sandbox, own: &Own, grants: Grants) -> Plan {
    let kernel = Kernel::here();
    let mut set = vec![
        ("TMPDIR", own.tmp.clone()),
        ("XDG_CACHE_HOME", own.cache.clone()),
        ("npm_config_cache", own.cache.join("npm")),
        ("UV_CACHE_DIR", own.cache.join("uv")),
        ("PIP_CACHE_DIR", own.cache.join("pip")),
    ];
    if sandbox.home == SandboxHome::Own {
        set.push(("HOME", own.home.clone()));
    }
    let own_names: Vec<String> = stdio.env.iter().map(|(name, _)| name.clone()).collect();
    let set = set.into_iter().map(|(name, path)| (name.to_owned(), path));
    let count = |number: Option<usize>| number.map(|number| number as u64);
    Plan {
        keeps_files: kernel.files,
        keeps_calls: kernel.calls,
        network: sandbox.network == SandboxNetwork::Open,
        unix: sandbox.unix,
        files: count(sandbox.files),
        memory: count(sandbox.memory),
        set: set.filter(|(name, _)| !own_names.contains(name)).collect(),
        own: own_names,
        // A server that names no file from the host's working directory has nothing to do there.
        cwd: (stdio.cwd.is_none() && sandbox.folder().is_none() && !grants.is_relative).then(|| own.home.clone()),
        read: grants.read.into_iter().collect(),
        write: grants.write.into_iter().collect(),
        links: grants.links,
    }
}
