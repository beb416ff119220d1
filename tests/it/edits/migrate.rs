//! The servers of several clients become those of one host, and all of that is taken back.

use serde_json::{Value, json};

use super::{Home, entry, locked};
use crate::daemon::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");

/// The files of five clients, each with servers of its own words.
fn files(url: &str) -> Vec<(&'static str, String)> {
    let bad = json!({ "command": "/bin/sh", "args": ["-c", "echo no such database >&2; exit 3"] });
    vec![
        (
            ".claude.json",
            format!(
                "{:#}",
                json!({ "numStartups": 3, "mcpServers": { "echo": entry(), "locked": { "type": "http", "url": url } } })
            ),
        ),
        (
            ".codex/config.toml",
            format!(
                "# mine\r\nmodel = \"x\"\r\n\r\n[mcp_servers.echo]\r\ncommand = \"{PROGRAM}\"\r\nargs = [\"__demo-server\"]\r\n"
            ),
        ),
        (
            ".cursor/mcp.json",
            format!(
                "\u{feff}{{\n\t// mine\n\t\"mcpServers\": {{\n\t\t\"bad\": {bad},\n\t\t\"echo\": {},\n\t}},\n}}\n",
                entry()
            ),
        ),
        (
            "goose/config.yaml",
            format!(
                "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  second: # mine\n    enabled: true\n    type: stdio\n    name: second\n    cmd: {PROGRAM}\n    args: [__demo-server]\n    envs:\n      LEVEL: debug\n    timeout: 300\n"
            ),
        ),
        (
            "zed/settings.json",
            format!(
                "// mine\n{{\n  \"theme\": \"One\",\n  \"context_servers\": {{\n    \"echo\": {{ \"command\": \"{PROGRAM}\", \"args\": [\"__demo-server\"] }},\n    \"off\": {{ \"command\": \"cat\", \"enabled\": false }},\n  }},\n}}"
            ),
        ),
    ]
}

#[test]
fn five_clients_become_one_host_and_back() {
    let home = Home::new();
    let files = files(&locked());
    files.iter().for_each(|(name, text)| home.write(name, text));
    let said = home.run(&["migrate", "--all"]);
    assert!(said.starts_with("exit 6\nerror: nothing was started or written"), "{said}");
    let said = home.run(&["migrate", "--all", "--dry-run"]);
    assert!(said.starts_with("exit 1\n") && !home.own().exists(), "{said}");
    let said = home.run(&["migrate", "--all", "--yes"]);
    assert!(said.starts_with("exit 1\n"), "{said}");
    for told in [
        "5 processes -> 2, 1 connection -> 1, 5 clients; mcp-host undo 1",
        "warning: Cursor: `bad`: stays there: server `bad` did not start: the process ended (exit code 3): no such database",
        "note: `off` of Zed is off, and stays there",
        "`locked` wants a login: mcp-host login locked",
        "start again, so that they notice: Claude Code, Codex, Cursor, Zed, Goose",
    ] {
        assert!(said.contains(told), "{told}\n{said}");
    }
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    let names: Vec<&String> = config["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["echo", "locked", "second"]);
    assert_eq!(config["host"]["join"], "start");
    let clients: Value =
        serde_json::from_str(run(home.path(), &["clients", "--json"]).lines().nth(1).unwrap()).unwrap();
    let left: Vec<(&str, i64)> = clients["clients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|client| (client["state"].as_str().unwrap(), client["servers"].as_i64().unwrap()))
        .collect();
    assert_eq!(left, [("linked", 0), ("linked", 0), ("linked", 1), ("linked", 1), ("linked", 0)]);
    assert_eq!(clients["twice"], json!([]));
    assert!(home.read(".cursor/mcp.json").starts_with("\u{feff}{\n\t// mine\n"));
    let said = home.must(&["undo"]);
    assert!(said.starts_with("exit 0\ntook back edit 1: migrate\n"), "{said}");
    for (name, text) in &files {
        assert_eq!(home.read(name), *text, "{name}");
    }
    assert!(!home.own().exists());
}

#[test]
fn a_client_that_wrote_since_keeps_what_it_wrote() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &json!({ "mcpServers": { "echo": entry() } }).to_string());
    home.write(".kiro/settings/mcp.json", &json!({ "mcpServers": { "echo": entry() } }).to_string());
    home.must(&["migrate", "cursor", "kiro", "--yes"]);
    // One client adds a server of its own, the other changes the entry that leads here.
    let mut cursor: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    cursor["mcpServers"]["new"] = json!({ "command": "cat" });
    home.write(".cursor/mcp.json", &cursor.to_string());
    home.write(".kiro/settings/mcp.json", &home.read(".kiro/settings/mcp.json").replace("--config", "-c"));
    let said = home.run(&["undo"]);
    assert!(said.starts_with("exit 1\ntook back edit 1: migrate\n"), "{said}");
    assert!(said.contains(".cursor/mcp.json was changed since, and only this edit is taken back"), "{said}");
    assert!(said.contains("warning: the entry of `mcp-host` has changed since"), "{said}");
    let cursor: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    assert_eq!(cursor, json!({ "mcpServers": { "echo": entry(), "new": { "command": "cat" } } }));
    // The rest can be taken back when it is possible again.
    home.write(".kiro/settings/mcp.json", &home.read(".kiro/settings/mcp.json").replace("-c", "--config"));
    assert!(home.must(&["undo", "1"]).contains(".kiro/settings/mcp.json is as before it"));
    let list = home.must(&["undo", "--list"]);
    assert!(list.contains("took back migrate"), "{list}");
}

#[test]
fn where_nothing_works_no_client_is_touched() {
    let home = Home::new();
    let text = json!({ "mcpServers": { "bad": { "command": "/bin/sh", "args": ["-c", "exit 3"] } } }).to_string();
    home.write(".cursor/mcp.json", &text);
    let said = home.run(&["migrate", "cursor", "--yes"]);
    assert!(said.starts_with("exit 1\n") && said.contains("nothing to write"), "{said}");
    assert_eq!(home.read(".cursor/mcp.json"), text);
    assert!(!home.own().exists());
}
