//! The launcher of a container: it becomes the client of the engine, which passes the server's input and output.
//!
//! When a client is killed, its container stays, since the engine started that. So a keeper waits for the client's end, and then
//! ends the container. It is a process of its own that no server knows of: not of the group, without the mark, and no child
//! of the launcher. **Invariant:** the name of a container is used once.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, getegid, geteuid, getpid, pidfd_open};

use super::super::OURSELVES;
use super::super::plan::{Container, Keeper, Plan};
use super::engine::{self, Facts};
use super::{STEER, STEERS};
use crate::hex;
use crate::sandbox::{ARGUMENT, MARK};

/// How long after the first the keeper tries again: a client may have been killed while its container was made.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known only when a container starts.
#[derive(Clone, Debug)]
pub(super) struct Now<'a> {
    pub(super) facts: &'a Facts,
    /// The image that never changes.
    pub(super) image: &'a str,
    pub(super) name: &'a str,
    /// The mark of the host.
    pub(super) mark: &'a str,
    /// The account of the host: user and group.
    pub(super) account: (u32, u32),
}

/// Becomes the client of the engine.
pub(in super::super) fn enter(
    container: &Container,
    program: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> Result<Infallible, String> {
    let facts = Facts::of(container)?;
    let image = engine::image(container)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    let name = format!("mcp-host-{}", hex::encode(&random));
    let mark = std::env::var(MARK).unwrap_or_default();
    let account = (geteuid().as_raw(), getegid().as_raw());
    let now = Now { facts: &facts, image: &image, name: &name, mark: &mark, account };
    watch(Keeper { engine: container.engine.clone(), name: name.clone(), is_it: false })?;
    let mut command = Command::new(&container.engine);
    command.args(words(container, &now, program)).args(arguments);
    Err(format!("{}: {}", container.engine.display(), command.exec()))
}

/// Returns the arguments of the engine, up to those of the program.
pub(super) fn words(container: &Container, now: &Now<'_>, program: &OsStr) -> Vec<OsString> {
    let (user, group) = now.account;
    let account = match (container.is_podman, now.facts.is_rootless) {
        // The user of the host is the same in there.
        (true, true) => "--userns=keep-id".to_owned(),
        // Root in there is the user of the host.
        (false, true) => "--user=0:0".to_owned(),
        (_, false) => format!("--user={user}:{group}"),
    };
    let mut words: Vec<OsString> = [
        "run",
        "--rm",
        "--interactive",
        "--init",
        // Nothing is fetched that was not looked at, and what server and client say is for no log.
        "--pull=never",
        "--log-driver=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--ulimit=core=0:0",
    ]
    .map(OsString::from)
    .into();
    words.push(account.into());
    words.push(format!("--name={}", now.name).into());
    // Of the hosts in a chain, the last one started it.
    words.push(format!("--label=mcp-host={}", now.mark.rsplit(' ').next().unwrap_or_default()).into());
    words.extend(container.options.iter().map(OsString::from));
    let mut entrypoint = OsString::from("--entrypoint=");
    entrypoint.push(program);
    words.extend([entrypoint, now.image.into()]);
    words
}

/// Starts the keeper of the container that this process becomes the client of. A process between the two ends at once, so
/// that the keeper is nobody's child.
fn watch(keeper: Keeper) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("what ends the container cannot be started: {error}");
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| wrong(error.into()))?;
    let status = again(keeper, Stdio::from(ourselves)).status().map_err(wrong)?;
    if status.success() { Ok(()) } else { Err(format!("what ends the container cannot be started: {status}")) }
}

/// Returns the command of this program as a keeper. It has the variables by which a client finds its engine, and no others.
fn again(keeper: Keeper, watched: Stdio) -> Command {
    let plan = Plan { keeper: Some(keeper), ..Plan::default() };
    // An object of texts can always be written.
    let plan = serde_json::to_string(&plan).unwrap_or_default();
    let mut command = Command::new(OURSELVES);
    command.arg0("mcp-host").args([ARGUMENT, &plan]).process_group(0).env_clear().current_dir("/");
    let is_for_it = |name: &str| STEERS.contains(&name) || STEER.iter().any(|prefix| name.starts_with(prefix));
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_for_it)));
    command.stdin(watched).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts the keeper, or is it: waits for the end of the client, which is its input, and ends the container.
pub(in super::super) fn keep(keeper: Keeper) -> Result<Infallible, String> {
    let wrong = |error: std::io::Error| error.to_string();
    if keeper.is_it {
        wait(&std::io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?);
        end(&keeper);
        #[expect(clippy::disallowed_methods, reason = "this process has one thread and nothing else to do")]
        std::thread::sleep(AGAIN);
        end(&keeper);
    } else {
        again(Keeper { is_it: true, ..keeper }, Stdio::inherit()).spawn().map_err(wrong)?;
    }
    #[expect(clippy::disallowed_methods, clippy::exit, reason = "this process ended a container; no `main` follows")]
    std::process::exit(0);
}

/// Waits for the end of a process.
fn wait(process: &OwnedFd) {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    while poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
}

/// Kills a container, and removes it if it was made and did not start. Most have ended before.
fn end(keeper: &Keeper) {
    for words in [&["kill", &keeper.name][..], &["rm", "--force", &keeper.name]] {
        let mut command = Command::new(&keeper.engine);
        let _ = command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
