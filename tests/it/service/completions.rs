//! Completions, as bash asks for them. `tests/shells/run` asks with zsh and fish as well.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{own, works};
use crate::daemon::{daemon, run};

/// Completes a line in bash, with the script that the program prints. The last word is the one being typed.
fn complete(home: &Path, words: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_mcp-host")).parent().unwrap();
    let script = "set -e; eval \"$(mcp-host completions bash)\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9\n\
                  _clap_complete_mcp_host mcp-host \"${COMP_WORDS[$COMP_CWORD]}\" \"\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    let mut bash = Command::new("bash");
    bash.env_clear().envs(places.map(|place| (place, home))).current_dir(home);
    bash.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
    let output = bash.args(["--norc", "-c", script, "bash"]).args(words).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn commands_servers_and_clients_are_completed() {
    let home = tempfile::tempdir().unwrap();
    own(
        home.path(),
        &json!({ "mcpServers": { "files": works(), "fetch": works(), "git": works(), "$(id)": works() } }),
    );
    assert_eq!(complete(home.path(), &["mcp-host", "restar"]), ["restart"]);
    assert_eq!(complete(home.path(), &["mcp-host", "get", "f"]), ["fetch", "files"]);
    assert_eq!(complete(home.path(), &["mcp-host", "restart", "gi"]), ["git"]);
    assert!(!complete(home.path(), &["mcp-host", "get", ""]).iter().any(|word| word.contains('(')));
    assert_eq!(complete(home.path(), &["mcp-host", "link", "curs"]), ["cursor"]);
    std::fs::write(home.path().join("other.json"), json!({ "mcpServers": { "search": works() } }).to_string()).unwrap();
    assert_eq!(complete(home.path(), &["mcp-host", "get", "--config", "other.json", "s"]), ["search"]);
}

/// Where the name of a server stands.
const SERVERS: [&[&str]; 18] = [
    &["check"],
    &["tools"],
    &["resources"],
    &["prompts"],
    &["get"],
    &["remove"],
    &["enable"],
    &["disable"],
    &["rename"],
    &["restart"],
    &["login"],
    &["logout"],
    &["approve"],
    &["status"],
    &["logs"],
    &["calls", "--server"],
    &["doctor"],
    &["update"],
];
/// Where the name of a tool stands.
const TOOLS: [&[&str]; 4] = [&["call"], &["tools"], &["check", "--needs"], &["policy", "explain"]];

#[test]
fn every_place_of_a_server_completes_its_name() {
    let home = tempfile::tempdir().unwrap();
    own(home.path(), &json!({ "mcpServers": { "planted": works(), "other": works() } }));
    for place in SERVERS {
        let line = [&["mcp-host"][..], place, &["plan"]].concat();
        assert_eq!(complete(home.path(), &line), ["planted"], "{place:?}");
    }
    assert_eq!(complete(home.path(), &["mcp-host", "install", "--locked", "plan"]), ["planted"]);
}

#[test]
fn every_place_of_a_tool_completes_its_name_from_the_daemon() {
    let home = tempfile::tempdir().unwrap();
    let daemon = daemon(home.path(), &json!({ "mcpServers": { "files": works() } }));
    daemon.hears("connected");
    for place in TOOLS {
        let line = [&["mcp-host"][..], place, &["files__co"]].concat();
        // A shell waits 50 ms, in which a busy machine may not answer.
        let found = (0..200).map(|_| complete(home.path(), &line)).find(|found| !found.is_empty());
        assert_eq!(found, Some(vec!["files__countdown".to_owned()]), "{place:?}");
    }
}

#[test]
fn a_completion_that_fails_says_nothing() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("mcp-host")).unwrap();
    std::fs::write(home.path().join("mcp-host/config.json"), "{ broken").unwrap();
    assert!(complete(home.path(), &["mcp-host", "get", "f"]).is_empty());
    assert!(complete(home.path(), &["mcp-host", "call", "files__"]).is_empty());
    let said = run(home.path(), &["completions", "tcsh"]);
    assert!(said.starts_with("exit 2\nerror: "), "{said}");
}

#[test]
fn every_shell_has_a_script() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(home.path(), &["completions", shell]);
        assert!(said.starts_with("exit 0\n") && said.contains("_MCP_HOST_COMPLETE"), "{shell}: {said}");
    }
}
