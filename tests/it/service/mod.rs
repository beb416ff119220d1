//! The program on its machine: completions, the service, the manager that starts it, `doctor`, `restart`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod completions;
mod doctor;
mod install;
mod manager;
mod pasted;

use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{daemon, run};

/// A server that works.
fn works() -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] })
}

/// Writes the user's own config.
fn own(home: &Path, config: &Value) {
    std::fs::create_dir_all(home.join("mcp-host")).unwrap();
    std::fs::write(home.join("mcp-host/config.json"), format!("{config:#}\n")).unwrap();
}

#[test]
fn restart_starts_a_server_anew() {
    let home = tempfile::tempdir().unwrap();
    let daemon = daemon(home.path(), &json!({ "mcpServers": { "files": works() } }));
    let pid = || {
        let status: Value =
            serde_json::from_str(run(home.path(), &["status", "--json"]).split_once('\n').unwrap().1).unwrap();
        status["servers"][0]["pids"][0].as_u64()
    };
    daemon.hears("connected");
    let before = pid().unwrap();
    let said = run(home.path(), &["restart", "files"]);
    assert_eq!(said, "exit 0\nrestarted files\nmcp-host status shows how it is\n");
    // The new process is there as soon as a call can be answered.
    let called = run(home.path(), &["call", "files__echo", "text=hello", "--config", "mcp.json"]);
    assert!(called.starts_with("exit 0\nhello"), "{called}");
    let after = pid();
    assert!(after.is_some() && after != Some(before), "{before} {after:?}");
    let said = run(home.path(), &["restart", "fils"]);
    assert_eq!(said, "exit 2\nerror: no server is called `fils`\nhelp: did you mean `files`?\n");
    drop(daemon);
    let said = run(home.path(), &["restart", "files"]);
    assert!(said.starts_with("exit 4\nerror: "), "{said}");
}
