//! Determines whether this machine can create namespaces for a server: bubblewrap is installed, and the kernel permits
//! it.
//!
//! This is tested once, by one run of bubblewrap with everything that the level `strict` needs. The run takes some
//! milliseconds, so only a start, `check` and `doctor` do it; `status` reports what is already known.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The program.
const PROGRAM: &str = "bwrap";
const ABSENT: &str =
    "there is no bubblewrap (the program `bwrap`, in the package `bubblewrap`), so there are no namespaces";
/// What `strict` needs bubblewrap to do.
const TRIED: [&str; 14] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
];
/// The longest part of bubblewrap's error message that is repeated.
const SAID: usize = 160;

static HERE: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Returns the program that creates namespaces, or why it cannot. The first call blocks for some milliseconds.
pub(super) fn here() -> &'static Result<PathBuf, String> {
    HERE.get_or_init(|| {
        let Some(program) = find() else { return Err(ABSENT.to_owned()) };
        let mut command = Command::new(&program);
        command.args(TRIED).arg("--").arg(&program).arg("--version");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.output() {
            Ok(output) if output.status.success() => Ok(program),
            Ok(output) => Err(refused(&String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(refused(&error.to_string())),
        }
    })
}

/// Returns why namespaces cannot be created; `None` if they can, or if that is not known yet.
pub(super) fn known() -> Option<&'static str> {
    HERE.get()?.as_ref().err().map(String::as_str)
}

/// Finds the program on mcp-host's own PATH. The PATH in a server's entry does not count.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let runs = |file: &PathBuf| {
        file.is_absolute() && file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    };
    std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(runs)
}

fn refused(said: &str) -> String {
    let line = said.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(SAID).collect();
    format!("this machine lets bubblewrap make no namespaces ({line})")
}
