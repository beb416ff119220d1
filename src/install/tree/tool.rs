//! Runs npm, uv, pip and Python: with a time limit, without input, and with the line that says why a run failed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::install::Error;
use crate::plain::excerpt;

/// How long a tool may take to print its version.
const ASKED: Duration = Duration::from_secs(20);
/// How long a tool may take to fetch a tree.
const FETCH: Duration = Duration::from_secs(15 * 60);
/// The longest message of a tool that is passed on.
const LINE: usize = 400;

/// Runs a short command. Returns what it printed; `None` if there is no such tool, or it failed.
///
/// # Cancel safety
/// A dropped future ends the tool.
pub(super) async fn answers(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ASKED, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What a tool has to do, and for which package.
pub(super) struct Task<'a> {
    pub(super) program: &'a str,
    pub(super) args: &'a [&'a str],
    pub(super) folder: &'a Path,
    /// The tool's name, for people.
    pub(super) tool: &'static str,
    /// What the tool does, for people: "lock NAME".
    pub(super) what: String,
}

impl Task<'_> {
    /// Runs the tool until it exits. Returns what it printed.
    ///
    /// # Cancel safety
    /// A dropped future ends the tool.
    pub(super) async fn run(self) -> Result<String, Error> {
        let failed = |why: String| Error::Tool { tool: self.tool, what: self.what.clone(), why };
        let mut command = Command::new(self.program);
        command.args(self.args).current_dir(self.folder).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(FETCH, command.output()).await;
        let output = output.map_err(|_| failed(format!("it took longer than {} minutes", FETCH.as_secs() / 60)))?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [output.stderr, output.stdout].concat();
        Err(failed(excerpt(cause(&String::from_utf8_lossy(&said), &output.status.to_string()).as_bytes(), LINE)))
    }
}

/// Finds the lines that state the cause: those that the tool marks as errors, else the last one.
fn cause(text: &str, status: &str) -> String {
    let marked = |line: &str| {
        let marks = ["npm error ", "npm ERR! ", "ERROR: ", "error: ", "cause: "];
        let rest = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark))?;
        // These lines only name a log file or an error code, or are empty.
        let is_empty = ["code ", "errno ", "A complete log", "Log files"].iter().any(|begin| rest.starts_with(begin));
        (!is_empty && !rest.trim().is_empty()).then(|| rest.trim().to_owned())
    };
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let mut causes: Vec<String> = lines.iter().filter_map(|line| marked(line)).take(2).collect();
    if causes.is_empty() {
        causes.extend(lines.last().map(|line| line.trim().to_owned()));
    }
    if causes.is_empty() { status.to_owned() } else { causes.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn the_cause_is_found_among_what_tools_print() {
        let npm = "npm error code EINTEGRITY\nnpm error sha512-a integrity checksum failed\nnpm error A complete log of this run";
        let pip = "Collecting x\nERROR: Could not find a version that satisfies the requirement x==9\n";
        for (text, expected) in [
            (npm, "sha512-a integrity checksum failed"),
            (pip, "Could not find a version that satisfies the requirement x==9"),
            ("error: Failed to download `x`\n  cause: Hash mismatch\n", "Failed to download `x`; Hash mismatch"),
            ("one\ntwo\n\n", "two"),
            ("", "exit status: 1"),
        ] {
            assert_eq!(cause(text, "exit status: 1"), expected);
        }
    }
}
