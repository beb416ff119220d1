//! The status socket takes a person's approval, and nothing of the kind from what a server has started.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{daemon, run, status};

/// Sends a line to the socket at that path, and returns the answer.
pub(super) fn ask(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"))
}

/// Asks as a process that a server of a host has started. Runs this test in a process of its own.
pub(super) fn ask_below(socket: &Path, line: &str) -> Value {
    let mut below = Command::new(std::env::current_exe().unwrap());
    below.args(["--exact", "daemon::approvals::h85_the_socket_takes_approvals_of_what_was_shown_and_none_from_below"]);
    let answer = tempfile::NamedTempFile::new().unwrap();
    below.envs([(LINE, std::ffi::OsStr::new(line)), (SOCKET, socket.as_os_str()), (ANSWER, answer.path().as_os_str())]);
    let output = below.env("_MCP_HOST_CHAIN", "a".repeat(32)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(answer.path()).unwrap()).unwrap()
}

const LINE: &str = "MCP_HOST_TEST_LINE";
const SOCKET: &str = "MCP_HOST_TEST_SOCKET";
const ANSWER: &str = "MCP_HOST_TEST_ANSWER";

#[test]
fn h85_the_socket_takes_approvals_of_what_was_shown_and_none_from_below() {
    if let (Ok(line), Some(socket)) = (std::env::var(LINE), std::env::var_os(SOCKET)) {
        std::fs::write(std::env::var_os(ANSWER).unwrap(), ask(Path::new(&socket), &line).to_string()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    let daemon = daemon(home, &json!({ "host": { "approval": "ask" }, "mcpServers": { "echo": echo } }));
    while status(home)["servers"][0]["withheld"].as_u64().is_none_or(|withheld| withheld < 3) {}
    let socket = home.join(format!("mcp-host/{}.sock", daemon.port));
    let waiting = ask(&socket, "approvals");
    let one = &waiting["definitions"][0];
    assert_eq!((&one["server"], one["items"].as_array().unwrap().len()), (&json!("echo"), 3), "{waiting}");
    let approve =
        |hash: &Value| json!({ "approve": { "kind": "definitions", "server": "echo", "hash": hash } }).to_string();
    for line in [approve(&one["hash"]), json!({ "decide": { "ask": 1, "verdict": "once" } }).to_string()] {
        let refused = ask_below(&socket, &line);
        let error = refused["error"].as_str().unwrap_or_else(|| panic!("{refused}"));
        assert!(error.contains("no server may allow or approve anything"), "{error}");
    }
    let other = ask(&socket, &approve(&json!("0".repeat(64))));
    assert_eq!(other["error"], r#"what waits of "echo" is not what was shown: ask for `approvals` again"#);
    let unknown = ask(&socket, &approve(&one["hash"]).replace(r#""echo""#, r#""none""#));
    assert_eq!(unknown["error"], r#"no server is called "none""#);
    assert_eq!(status(home)["servers"][0]["withheld"], 3, "nothing is approved so far");
    assert_eq!(ask(&socket, &approve(&one["hash"])), json!({ "approved": 3 }));
    // Clients see it at once, and so does the command.
    assert!(run(home, &["tools"]).contains("echo__echo"));
    assert!(run(home, &["approve", "--config", "mcp.json"]).contains("nothing to approve"));
    assert_eq!(ask(&socket, "approvals"), json!({ "definitions": [], "certificates": [], "asks": [] }));
}
