//! Starts a server under strace, which writes down what it opens, connects to, and is refused.
//!
//! strace starts the launcher, so what the launcher does is written, too. It marks where the server begins by a look for a
//! file that cannot be there. **Invariant:** only `sandbox explain` and `sandbox learn` start a server so.

use std::path::{Path, PathBuf};

use super::{OURSELVES, filter};
use crate::config::{BEGINS, Sandbox, Stdio};
use crate::sandbox::{Error, Ready};

/// How strace writes: all processes in one file, each line with its process, paths as a whole, and what is behind a socket.
const HOW: [&str; 6] = ["-f", "-qq", "-yy", "-s", "64", "-o"];
/// Which calls it writes of a confined server: all that can be refused. Only what failed counts.
const OF_CONFINED: [&str; 3] = ["-e", "trace=all", "-Z"];
/// Which lines it writes of another server: those of calls that have ended, each in one piece.
const ENDED: &str = "status=successful,failed";

/// Returns the command that starts the server of `ready` watched, if its sandbox says so.
pub(in crate::sandbox) fn watched(ready: Ready, sandbox: &Sandbox) -> Result<Ready, Error> {
    let Some(file) = sandbox.trace() else { return Ok(ready) };
    if sandbox.container.is_some() {
        return Err(Error::Container("what happens in a container cannot be watched".to_owned()));
    }
    let strace = find().ok_or(Error::Unwatched)?;
    let Ready { stdio, door, first } = ready;
    // strace would start itself.
    let command = match stdio.command == OURSELVES {
        true => std::env::current_exe().ok().and_then(|file| file.to_str().map(str::to_owned)).unwrap_or_default(),
        false => stdio.command,
    };
    let mut args: Vec<String> = HOW.map(str::to_owned).into();
    args.push(file.display().to_string());
    if sandbox.is_on() {
        args.extend(OF_CONFINED.map(str::to_owned));
    } else {
        // What has a path, what makes a connection, and what a filter refuses; a question mark, since not every machine has
        // every call.
        let refused = filter::refused().chain(["clone", "clone3"]).map(|call| format!(",?{call}"));
        let calls = format!("trace=%file,%net{}", refused.collect::<String>());
        args.extend(["-e", &calls, "-e", ENDED].map(str::to_owned));
    }
    args.extend(["--".to_owned(), command]);
    args.extend(stdio.args);
    let stdio = Stdio { command: strace.display().to_string(), args, sandbox: None, package: None, ..stdio };
    Ok(Ready { stdio, door, first })
}

/// Marks in what strace writes that the server begins.
pub(super) fn mark() {
    // It is the question that is written down.
    let _ = Path::new(BEGINS).exists();
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join("strace")).find(|file| file.is_absolute() && file.is_file())
}
