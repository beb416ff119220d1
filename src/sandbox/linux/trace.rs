//! Starts a server under strace, which records what the server opens and connects to, and what it is refused.
//!
//! strace starts the launcher, so the launcher's own calls are recorded, too. The launcher marks where the server
//! begins by looking up a file that cannot exist. **Invariant:** only `sandbox explain` and `sandbox learn` start a
//! server this way.

use std::path::{Path, PathBuf};

use super::{OURSELVES, filter};
use crate::config::{BEGINS, Sandbox, Stdio};
use crate::sandbox::{Error, Ready};

/// The options of strace: all processes in one file, a process id on each line, whole paths, and the targets of
/// sockets.
const HOW: [&str; 6] = ["-f", "-qq", "-yy", "-s", "64", "-o"];
/// Which calls of a confined server are recorded: all that can be refused, and only if they failed.
const OF_CONFINED: [&str; 3] = ["-e", "trace=all", "-Z"];
/// Which lines are recorded for other servers: those of completed calls, each on one line.
const ENDED: &str = "status=successful,failed";

/// Returns the command that starts the server of `ready` watched, if its sandbox says so.
pub(in crate::sandbox) fn watched(ready: Ready, sandbox: &Sandbox) -> Result<Ready, Error> {
    let Some(file) = sandbox.trace() else { return Ok(ready) };
    if sandbox.container.is_some() {
        return Err(Error::Container("what happens in a container cannot be watched".to_owned()));
    }
    let strace = find().ok_or(Error::Unwatched)?;
    let Ready { stdio, door, first } = ready;
    // Otherwise strace would start itself.
    let command = match stdio.command == OURSELVES {
        true => std::env::current_exe().ok().and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_default(),
        false => stdio.command,
    };
    let mut args: Vec<String> = HOW.map(str::to_owned).into();
    args.push(file.display().to_string());
    if sandbox.is_on() {
        args.extend(OF_CONFINED.map(str::to_owned));
    } else {
        // Calls that take a path, that connect, or that a filter refuses. The question mark is there because not every
        // machine has every call.
        let refused = filter::refused().chain(["clone", "clone3"]).map(|call| format!(",?{call}"));
        let calls = format!("trace=%file,%net{}", refused.collect::<String>());
        args.extend(["-e", &calls, "-e", ENDED].map(str::to_owned));
    }
    args.extend(["--".to_owned(), command]);
    args.extend(stdio.args);
    let stdio = Stdio { command: strace.display().to_string(), args, sandbox: None, package: None, ..stdio };
    Ok(Ready { stdio, door, first })
}

/// Marks in strace's output that the server begins here.
pub(super) fn mark() {
    // Only the lookup itself matters, which strace records.
    let _ = Path::new(BEGINS).exists();
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join("strace")).find(|file| file.is_absolute() && file.is_file())
}
