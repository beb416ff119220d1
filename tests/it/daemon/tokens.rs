//! `mcp-host tokens`: what the tools of a running daemon cost, estimated and counted.

use serde_json::{Value, json};

use super::{daemon, run};

#[test]
fn what_tools_and_results_cost_is_told_by_the_running_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    let host = json!({ "views": { "one": { "include": ["echo__echo"], "catalog": { "mode": "search" } } } });
    let mut daemon = daemon(home, &json!({ "host": host, "mcpServers": { "echo": echo } }));
    daemon.hears("✓ echo");
    let tokens = |more: &[&str]| run(home, &[&["tokens"], more].concat());
    let ledger = || -> Value {
        let said = tokens(&["--json"]);
        serde_json::from_str(said.strip_prefix("exit 0\n").unwrap()).unwrap()
    };
    let before = ledger();
    let [all, server] = [&before, &before["servers"][0]];
    assert_eq!((&all["view"], &all["tools"], &all["results"]), (&json!("all"), &json!(3), &json!(0)));
    assert_eq!((&server["server"], &server["tools"]), (&json!("echo"), &json!(3)));
    assert!(server["definitions"].as_u64().unwrap() > 50, "{before}");
    run(home, &["call", "echo__echo", "text=hello"]);
    let after = ledger();
    assert!(after["results"].as_u64().unwrap() > 0 && after["results"] == after["servers"][0]["results"], "{after}");
    let shown = tokens(&[]);
    let results = after["results"].as_u64().unwrap();
    assert!(shown.contains("SERVER  TOOLS  TOKENS  OUTPUT SCHEMAS  RESULTS\n"), "{shown}");
    assert!(shown.ends_with(&format!("in each list; about {results} in results since the start\n")), "{shown}");
    let one = tokens(&["--view", "one"]);
    assert!(one.contains("view one: 1 tool, 2 of them listed (search); about ") && !one.contains("results"), "{one}");
    assert_eq!(tokens(&["--view", "two"]), "exit 2\nerror: no view \"two\"; there are: all, one\n");
    #[cfg(not(feature = "exact-tokens"))]
    assert_eq!(
        tokens(&["--exact"]),
        "exit 2\nerror: --exact: this build of mcp-host has no tokenizer\n\
         help: build it with one: cargo install --locked --path . --features exact-tokens\n"
    );
    #[cfg(feature = "exact-tokens")]
    {
        let exact = tokens(&["--exact"]);
        assert!(exact.contains("view all: 3 tools; ") && !exact.contains("; about 1"), "{exact}");
    }
    daemon.end();
}

/// The daemon lists only the tools that find and call the others. A command is no agent: it needs them all.
#[test]
fn a_command_lists_all_tools_of_a_daemon_that_searches() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    let host = json!({ "catalog": { "mode": "search" } });
    let mut daemon = daemon(home, &json!({ "host": host, "mcpServers": { "echo": echo } }));
    daemon.hears("✓ echo");
    let all = run(home, &["tools", "--json"]);
    let all: Vec<Value> = serde_json::from_str(all.strip_prefix("exit 0\n").unwrap()).unwrap();
    let names: Vec<&str> = all.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let one = run(home, &["tools", "echo__echo"]);
    assert!(one.starts_with("exit 0\n") && one.contains("text"), "{one}");
    daemon.end();
}
