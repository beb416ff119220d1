//! The daemon as users see it: its clients, one server in full, and the end of its terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod acts;
mod approvals;
mod asks;
mod clients;
mod needs;
mod report;
mod status;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod threads;
mod tokens;

use std::path::Path;

use serde_json::Value;

use crate::reload::program::{Daemon, mcp_host};

/// A daemon over these servers, with its own home.
pub(crate) fn daemon(home: &Path, config: &Value) -> Daemon {
    std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
    Daemon::start(mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]))
}

/// Returns the output of a command, and its exit code.
pub(crate) fn run(home: &Path, args: &[&str]) -> String {
    let output = mcp_host(home, args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Returns the status as a daemon reports it to programs.
fn status(home: &Path) -> Value {
    let output = mcp_host(home, &["status", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Removes what differs from run to run: times, processes, and the widths of columns.
pub(crate) fn steady(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let unit = word.trim_end_matches([',', ')', ';']);
            let number = words.last().is_some_and(|last| last.trim_start_matches('(').parse::<f64>().is_ok());
            match words.last_mut() {
                Some(last) if number && matches!(unit, "ms" | "s" | "min") => {
                    let open = if last.starts_with('(') { "(" } else { "" };
                    *last = format!("{open}TIME{}", &word[unit.len()..]);
                }
                Some(last) if last == "(process" => words.push("PID)".to_owned()),
                Some(last) if last == "process" && word.ends_with(':') => words.push("PID:".to_owned()),
                _ => words.push(word.to_owned()),
            }
        }
        words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
