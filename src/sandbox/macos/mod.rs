//! The sandbox on macOS: `sandbox-exec` of the system, with a profile of ours. **It was compiled and compared with what it should
//! say, and never run on macOS.**
//!
//! In: a command with its sandbox. Out: the command of `sandbox-exec`, which takes the profile on and becomes a shell, which
//! makes links and becomes the server: so the process id, the group and the pipes stay. `profile.rs` has the profile, `door.rs`
//! the proxy of a list of hosts. npx and uvx have no phase of their own here, so the hosts of packages have to be in `network`.
//! **Invariant:** what an entry limits and macOS cannot is a lack.

mod door;
mod profile;

use std::path::Path;
use std::sync::Arc;

pub(crate) use self::door::Door;
use self::profile::{Network, Profile};
use super::grants::{Grants, program};
use super::places::{Own, Places};
use super::withheld::{is_of_proxy, leads_out, proxies};
use super::{Error, Learned, NO_STATE, Ready, Touched};
use crate::config::{Sandbox, SandboxHome, SandboxNetwork, Secret, Stdio};

const PROGRAM: &str = "/usr/bin/sandbox-exec";
const ABSENT: &str = "there is no /usr/bin/sandbox-exec, which is a part of macOS";
const UNWATCHED: &str = "a server can be watched on Linux only";
const CONTAINER: &str = "this version starts containers on Linux only; remove `container`";
/// Takes away variables, makes links in the server's own HOME, sets the limit of open files, and becomes the server. It runs
/// inside, so a link that the server planted leads nowhere that it could not reach itself.
const SHELL: &str = r#"ulimit -c 0 || exit 126
[ -z "$1" ] || ulimit -n "$1" || exit 126
shift
while [ "$1" != -- ]; do unset "$1"; shift; done
shift
while [ "$1" != -- ]; do
  [ -e "$1" ] || [ -L "$1" ] || { mkdir -p "$(dirname "$1")" && ln -s "$2" "$1"; } || exit 126
  shift 2
done
shift
exec "$@""#;

/// Nothing here is a launcher.
pub(super) fn become_server(_: impl Iterator<Item = std::ffi::OsString>) {}

/// Nothing here can refuse system calls.
#[cfg(feature = "script")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
pub(super) fn confine_script() -> std::io::Result<()> {
    Ok(())
}

/// Returns what the sandbox needs and is not there.
pub(super) fn lacks(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    if sandbox.container.is_some() {
        return vec![CONTAINER.to_owned()];
    }
    let mut lacks: Vec<String> = Vec::new();
    lacks.extend((!Path::new(PROGRAM).exists()).then(|| ABSENT.to_owned()));
    lacks.extend((!has_state).then(|| NO_STATE.to_owned()));
    let limits = [
        ("memory", sandbox.memory.is_some()),
        ("cpu", sandbox.cpu.is_some()),
        ("processes", sandbox.processes.is_some()),
    ];
    let limits = limits.into_iter().filter(|(_, is_set)| *is_set);
    lacks.extend(limits.map(|(key, _)| format!("macOS has nothing that limits `{key}`; remove it")));
    lacks
}

pub(super) fn known_lacks(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    lacks(sandbox, has_state)
}

/// Reports whether nothing can be kept.
pub(super) fn cannot_start(has_state: bool) -> bool {
    !has_state || !Path::new(PROGRAM).exists()
}

/// Returns what the sandbox does not keep on macOS.
pub(super) fn gaps(_: &Sandbox) -> Vec<String> {
    vec!["on macOS the names of files are seen, and command lines of other processes may be".to_owned()]
}

pub(super) fn watched(ready: Ready, sandbox: &Sandbox) -> Result<Ready, Error> {
    if sandbox.trace().is_some() { Err(Error::Unwatched) } else { Ok(ready) }
}

pub(super) fn unconfined(_: Stdio, _: &Sandbox, _: Option<&Path>) -> Result<Ready, Error> {
    Err(Error::Unwatched)
}

pub(super) fn learned(_: &Sandbox, _: impl IntoIterator<Item = Touched>) -> Result<Learned, String> {
    Err(UNWATCHED.to_owned())
}

/// No system calls are refused by name.
pub(super) fn refused_calls() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

/// Returns the command of `sandbox-exec`. With `weak`, keeps what can be kept.
#[cfg(target_os = "macos")]
pub(super) fn start(stdio: Stdio, sandbox: &Sandbox, state: Option<&Path>) -> Result<Ready, Error> {
    let Some(state) = state.filter(|_| Path::new(PROGRAM).exists()) else {
        return Ok(Ready::plain(Stdio { sandbox: None, ..stdio }));
    };
    let own = Own::make(state, sandbox.whose())?;
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let (stdio, door) = confined(stdio, sandbox, &Places::here(&state), &own)?;
    Ok(Ready { stdio, door, first: None })
}

/// Returns the command of `sandbox-exec`, and the way out to the hosts that the entry lists.
fn confined(stdio: Stdio, sandbox: &Sandbox, places: &Places, own: &Own) -> Result<(Stdio, Option<Arc<Door>>), Error> {
    let file = program(&stdio, places);
    let grants = Grants::of(&stdio, sandbox, places, own, file.as_deref())?;
    let wrong =
        |error: std::io::Error| Error::Door { path: "this machine's loopback".to_owned(), why: error.to_string() };
    let door = match &sandbox.network {
        SandboxNetwork::Hosts(hosts) => Some(Door::open(hosts).map_err(wrong)?),
        SandboxNetwork::Open | SandboxNetwork::None => None,
    };
    let (door, way) = door.map(|(door, port, url)| (Arc::new(door), (port, url))).unzip();
    Ok((command(stdio, sandbox, own, &grants, way), door))
}

/// Returns the command line, and the variables of the server. `way` is the port and the URL of its proxy.
fn command(stdio: Stdio, sandbox: &Sandbox, own: &Own, grants: &Grants, way: Option<(u16, String)>) -> Stdio {
    let network = match (&sandbox.network, &way) {
        (SandboxNetwork::Open, _) => Network::Open,
        (SandboxNetwork::Hosts(_), Some((port, _))) => Network::Proxy(*port),
        (SandboxNetwork::Hosts(_) | SandboxNetwork::None, _) => Network::None,
    };
    let Profile { text, parameters } = Profile::of(&grants.read, &grants.write, network, sandbox.unix);
    let mut args = vec!["-p".to_owned(), text];
    args.extend(parameters.into_iter().flat_map(|parameter| ["-D".to_owned(), parameter]));
    args.extend(["/bin/sh", "-c", SHELL, "sh"].map(str::to_owned));
    args.push(sandbox.files.map(|files| files.to_string()).unwrap_or_default());
    let cwd = grants.cwd(&stdio, sandbox, own).or(stdio.cwd.clone());
    let mut env = stdio.env;
    let set: Vec<String> = env.iter().map(|(name, _)| name.clone()).collect();
    let has = |name: &str| set.iter().any(|own| own == name);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    // A shell takes no other names.
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    args.extend(names.filter(|name| leads_out(name) && !has(name) && is_name(name)));
    args.push("--".to_owned());
    let texts = |path: &Path| path.display().to_string();
    args.extend(grants.links.iter().flat_map(|(from, to)| [texts(from), texts(to)]));
    args.extend(["--".to_owned(), stdio.command]);
    args.extend(stdio.args);
    let mut own_variables = Vec::from(own.variables());
    if sandbox.home == SandboxHome::Own {
        own_variables.push(("HOME", own.home.clone()));
    }
    let own_variables = own_variables.into_iter().filter(|(name, _)| !has(name));
    env.extend(own_variables.map(|(name, path)| (name.to_owned(), Secret::new(texts(&path)))));
    if let Some((_, url)) = way {
        env.retain(|(name, _)| !is_of_proxy(name));
        env.extend(proxies(&url).map(|(name, value)| (name, Secret::new(value))));
        // What is reached is said by the list alone.
        env.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), Secret::new(String::new()))));
    }
    let command = PROGRAM.to_owned();
    Stdio { command, args, env, forward_env: stdio.forward_env, cwd, package: None, sandbox: None }
}

#[cfg(test)]
mod tests;
