//! `add -`: servers that somebody else wrote, as JSON or as an install link.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use super::works;
use crate::daemon::steady;
use crate::reload::program::mcp_host;

fn add(home: &Path, more: &[&str], text: &str) -> String {
    let mut command = mcp_host(home, &[&["add", "-"], more].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may refuse before it has read all.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    let said = format!("exit {}\n{said}", output.status.code().unwrap());
    steady(&said).replace(home.to_str().unwrap(), "~").replace(env!("CARGO_BIN_EXE_mcp-host"), "PROGRAM")
}

fn written(home: &Path) -> Option<String> {
    std::fs::read_to_string(home.join("mcp-host/config.json")).ok()
}

#[test]
fn nothing_is_added_before_somebody_has_seen_it() {
    let home = tempfile::tempdir().unwrap();
    let text = json!({ "mcpServers": { "files": works() } }).to_string();
    let said = add(home.path(), &[], &text);
    assert!(said.starts_with("exit 6\nfiles\n"), "{said}");
    assert!(said.contains("command: \"PROGRAM\"") && said.contains("there is no terminal to ask on"), "{said}");
    assert_eq!(written(home.path()), None);
    let said = add(home.path(), &["--yes"], &text);
    assert!(said.starts_with("exit 0\nadded files: 3 tools, "), "{said}");
    assert!(written(home.path()).unwrap().contains("\"files\""));
}

#[test]
fn a_link_is_shown_and_added() {
    let home = tempfile::tempdir().unwrap();
    let entry = works().to_string();
    let config: String = entry.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let link = format!("https://insiders.vscode.dev/redirect/mcp/install?name=files&config={config}");
    let said = add(home.path(), &["--yes"], &link);
    assert!(said.contains("added files: 3 tools, "), "{said}");
}

#[test]
fn what_does_not_start_is_not_added_and_neither_is_what_stands_beside_it() {
    let home = tempfile::tempdir().unwrap();
    let broken = json!({ "command": "sh", "args": ["-c", "exit 3"] });
    let text = json!({ "mcpServers": { "broken": broken, "works": works() } }).to_string();
    assert!(add(home.path(), &["--yes"], &text).starts_with("exit 4\n"));
    assert_eq!(written(home.path()), None);
    assert!(add(home.path(), &["--yes", "--no-check"], &text).starts_with("exit 0\n"));
    assert!(written(home.path()).unwrap().contains("broken"));
}

#[test]
fn options_of_one_server_and_other_texts_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let said = add(home.path(), &["--lazy"], "{}");
    assert!(said.contains("exit 2\nerror: `add -` takes the whole server from standard input"), "{said}");
    let said = add(home.path(), &[], "hello");
    assert!(said.contains("exit 2\nerror: the input has neither JSON nor a link"), "{said}");
    assert_eq!(written(home.path()), None);
}
