//! The sandbox on Linux. Landlock restricts files and signals, seccomp system calls, and rlimits open files and memory.
//! Namespaces (bubblewrap) isolate the network, other processes, and the names of files.
//!
//! In: a command with its sandbox. Out: the command of the launcher, with its [`Plan`](plan::Plan), and the [`Door`] to
//! the hosts that the server may reach. `container/mod.rs` starts containers. **Invariant:** all decisions that depend on
//! the file system are made here, before the start; the launcher decides nothing.

mod bubble;
#[cfg(feature = "script")]
mod calls;
mod container;
mod door;
mod filter;
mod launch;
mod learn;
mod machine;
mod namespaces;
mod phases;
mod plan;
mod rights;
mod rules;
mod scope;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::door::Door;
pub(super) use self::filter::refused as refused_calls;
pub(super) use self::launch::become_server;
pub(super) use self::learn::{learned, unconfined};
use self::machine::Kernel;
use self::phases::Offline;
use self::plan::{Bubble, Plan};
pub(super) use self::trace::watched;
use super::grants::{Grants, program};
use super::places::{Own, Places};
use super::{ARGUMENT, Error, First, NO_STATE, Ready, can_launch};
use crate::config::{Sandbox, SandboxHome, SandboxHost, SandboxLevel, SandboxNetwork, Stdio};

/// This program, even if its file has been replaced.
const OURSELVES: &str = "/proc/self/exe";
const NO_LAUNCHER: &str = "the embedding program does not begin with mcp_host::guard()";
const ROOT: &str =
    "the kernel does not count the processes of root, so `processes` limits nothing: run mcp-host as another account";

/// Returns what the sandbox needs but this machine lacks. Blocks for some milliseconds if it needs namespaces.
pub(super) fn lacks(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    if sandbox.container.is_some() {
        return for_container(has_state);
    }
    let mut lacks = without_namespaces(sandbox, has_state);
    lacks.extend(needs_namespaces(sandbox).then(namespaces::here).and_then(|found| found.clone().err()));
    lacks
}

/// Returns what the sandbox needs but this machine lacks, as far as that is already known. Does not block.
pub(super) fn known_lacks(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    if sandbox.container.is_some() {
        return for_container(has_state);
    }
    let mut lacks = without_namespaces(sandbox, has_state);
    lacks.extend(needs_namespaces(sandbox).then(namespaces::known).flatten().map(str::to_owned));
    lacks
}

/// Returns what a container needs and is not there. What its engine can do is known when it starts.
fn for_container(has_state: bool) -> Vec<String> {
    let mut lacks: Vec<&str> = (!can_launch()).then_some(NO_LAUNCHER).into_iter().collect();
    lacks.extend((!has_state).then_some(NO_STATE));
    lacks.extend(container::find().is_none().then_some(container::ABSENT));
    lacks.into_iter().map(str::to_owned).collect()
}

fn without_namespaces(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    let mut lacks: Vec<&str> = Kernel::here().lacks().collect();
    lacks.extend((counts_by_account(sandbox) && rustix::process::geteuid().is_root()).then_some(ROOT));
    lacks.extend((!can_launch()).then_some(NO_LAUNCHER));
    lacks.extend((!has_state).then_some(NO_STATE));
    let mut lacks: Vec<String> = lacks.into_iter().map(str::to_owned).collect();
    let cpu = sandbox.cpu.and_then(|_| scope::lacks("cpu"));
    lacks.extend(cpu.map(|why| format!("{why}, so `cpu` limits nothing")));
    lacks
}

/// Reports whether the processes of the server are counted by their account, since no group of the kernel counts them.
fn counts_by_account(sandbox: &Sandbox) -> bool {
    sandbox.processes.is_some() && scope::lacks("pids").is_some()
}

/// Reports whether the sandbox needs namespaces: Landlock cannot restrict hosts, and the kernel counts processes per
/// account and user namespace.
fn needs_namespaces(sandbox: &Sandbox) -> bool {
    let has_hosts = matches!(sandbox.network, SandboxNetwork::Hosts(_));
    sandbox.level == SandboxLevel::Strict || has_hosts || counts_by_account(sandbox)
}

/// Reports whether no launcher can be started at all.
pub(super) fn cannot_start(has_state: bool) -> bool {
    !can_launch() || !has_state
}

/// Returns what the sandbox leaves unprotected on this machine.
pub(super) fn gaps(sandbox: &Sandbox) -> Vec<String> {
    let memory = sandbox.memory.and_then(|_| scope::lacks("memory"));
    let memory = memory.map(|why| format!("`memory` is that of each process, since {why}"));
    Kernel::here().gaps().map(str::to_owned).into_iter().chain(memory).collect()
}

/// Restricts this process to the system calls that a script needs, if the kernel can do that.
#[cfg(feature = "script")]
pub(super) fn confine_script() -> std::io::Result<()> {
    if Kernel::here().calls { calls::keep().map_err(std::io::Error::other) } else { Ok(()) }
}

/// Returns the command of the launcher. With `weak`, protects as much as this machine can.
pub(super) fn start(stdio: Stdio, sandbox: &Sandbox, state: Option<&Path>) -> Result<Ready, Error> {
    let Some(state) = state.filter(|_| can_launch()) else {
        return Ok(Ready::plain(Stdio { sandbox: None, ..stdio }));
    };
    let own = Own::make(state, sandbox.whose())?;
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let places = Places::here(&state);
    if let Some(image) = &sandbox.container {
        return container::start(stdio, sandbox, image, &places, &own).map(Ready::plain);
    }
    let namespaces = needs_namespaces(sandbox).then(namespaces::here).and_then(|found| found.as_deref().ok());
    let machine = Machine { places, own, namespaces };
    let (offline, first) = machine.divided(&stdio, sandbox)?.unzip();
    let (stdio, door) = machine.launcher(stdio, sandbox, offline.as_slice())?;
    Ok(Ready { stdio, door, first: first.flatten() })
}

/// What this machine provides for one server.
struct Machine {
    places: Places,
    own: Own,
    /// The program that creates namespaces.
    namespaces: Option<&'static Path>,
}

impl Machine {
    /// Returns the variable that keeps a package runner offline, and the command that fetches the package if that was
    /// not done yet; `None` if the command does not run in two phases.
    fn divided(&self, stdio: &Stdio, sandbox: &Sandbox) -> Result<Option<(Offline, Option<First>)>, Error> {
        let Some(phases) = self.namespaces.and_then(|_| phases::of(stdio, sandbox, &self.places, &self.own)) else {
            return Ok(None);
        };
        if phases.mark.exists() {
            return Ok(Some((phases.offline, None)));
        }
        let own_env = stdio.env.iter().filter(|(name, _)| phases::of_runner(name)).cloned().collect();
        let forward_env = stdio.forward_env.iter().filter(|name| phases::of_runner(name)).cloned().collect();
        let fetch = Stdio { args: phases.fetch, env: own_env, forward_env, ..stdio.clone() };
        let hosts = sandbox.clone().hosts(phases.hosts);
        let (stdio, door) = self.launcher(fetch, &hosts, &[])?;
        Ok(Some((phases.offline, Some(First { stdio, door, mark: phases.mark }))))
    }

    /// Returns the launcher of a command, and the door to the hosts of its sandbox. `set` are additional variables.
    fn launcher(
        &self,
        stdio: Stdio,
        sandbox: &Sandbox,
        set: &[(&str, &str)],
    ) -> Result<(Stdio, Option<Arc<Door>>), Error> {
        let Self { places, own, namespaces } = self;
        let file = program(&stdio, places);
        let grants = Grants::of(&stdio, sandbox, places, own, file.as_deref())?;
        let door = match (&sandbox.network, namespaces) {
            (SandboxNetwork::Hosts(hosts), Some(_)) => Some(door(own, hosts)?),
            _ => None,
        };
        let bubble = namespaces.map(|program| bubble(program, sandbox, own, &grants, door.as_deref()));
        let mut plan =
            Plan { bubble, scope: scope::of(sandbox), ..plan(&stdio, sandbox, own, grants, namespaces.is_some()) };
        let set = set.iter().filter(|(name, _)| !plan.own.iter().any(|own| own == name));
        let set: Vec<_> = set.map(|(name, value)| ((*name).to_owned(), PathBuf::from(value))).collect();
        plan.set.extend(set);
        // An object of texts and numbers can always be serialized.
        let plan = serde_json::to_string(&plan).unwrap_or_default();
        let program = file.and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_else(|| stdio.command.clone());
        let mut args = vec![ARGUMENT.to_owned(), plan, "--".to_owned(), program];
        args.extend(stdio.args);
        let stdio = Stdio { command: OURSELVES.to_owned(), args, sandbox: None, package: None, ..stdio };
        Ok((stdio, door))
    }
}

fn door(own: &Own, hosts: &[SandboxHost]) -> Result<Arc<Door>, Error> {
    let wrong = |error: std::io::Error| Error::Door { path: own.folder.display().to_string(), why: error.to_string() };
    Door::make(&own.folder, hosts).map(Arc::new).map_err(wrong)
}

/// Returns the namespaces of a server.
fn bubble(program: &Path, sandbox: &Sandbox, own: &Own, grants: &Grants, door: Option<&Door>) -> Bubble {
    let is_whole = sandbox.level == SandboxLevel::Strict;
    let mut links = BTreeMap::new();
    if is_whole {
        grants.named.iter().for_each(|path| bubble::links(path, &mut links));
        // A link may be in a folder that is visible as a whole.
        let granted = || grants.read.iter().chain(&grants.write);
        links.retain(|place, _| !granted().any(|path| place.starts_with(path)));
    }
    let is_used = |path: &PathBuf| path.starts_with("/tmp");
    let has_tmp = grants.read.iter().chain(&grants.write).chain(links.keys()).any(is_used);
    Bubble {
        program: program.to_owned(),
        is_whole,
        has_network: sandbox.network != SandboxNetwork::Open,
        door: door.and_then(Door::path).map(Path::to_owned),
        links: links.into_iter().collect(),
        // A granted path below `/tmp` would leave folders in the server's own one.
        tmp: (is_whole && !has_tmp).then(|| own.tmp.clone()),
    }
}

fn plan(stdio: &Stdio, sandbox: &Sandbox, own: &Own, grants: Grants, has_namespaces: bool) -> Plan {
    let kernel = Kernel::here();
    let cwd = grants.cwd(stdio, sandbox, own);
    let mut set = Vec::from(own.variables());
    if sandbox.home == SandboxHome::Own {
        set.push(("HOME", own.home.clone()));
    }
    let own_names: Vec<String> = stdio.env.iter().map(|(name, _)| name.clone()).collect();
    let set = set.into_iter().map(|(name, path)| (name.to_owned(), path));
    let count = |number: Option<usize>| number.map(|number| number as u64);
    Plan {
        keeps_files: kernel.files,
        keeps_calls: kernel.calls,
        network: sandbox.network != SandboxNetwork::None,
        unix: sandbox.unix,
        is_watched: sandbox.trace().is_some(),
        files: count(sandbox.files),
        memory: count(sandbox.memory).filter(|_| scope::lacks("memory").is_some()),
        // Outside of a namespace those of the whole account would count.
        processes: count(sandbox.processes).filter(|_| has_namespaces && counts_by_account(sandbox)),
        set: set.filter(|(name, _)| !own_names.contains(name)).collect(),
        own: own_names,
        cwd,
        read: grants.read.into_iter().collect(),
        write: grants.write.into_iter().collect(),
        links: grants.links,
        ..Plan::default()
    }
}
