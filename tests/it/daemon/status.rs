//! `status`: one server in full, and how an error is shown that is over.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{daemon, run, status, steady};

/// A server whose first starts fail: the second is part of the same attempt, with other first words.
fn config(home: &std::path::Path) -> Value {
    let script = format!(
        r#"if [ -e {0}2 ]; then exec "$1" __demo-server; fi; [ -e {0} ] && : >{0}2; : >{0}; echo "cannot start" >&2; exit 3"#,
        home.join("started").display()
    );
    json!({ "mcpServers": {
        "late": { "command": "/bin/sh", "args": ["-c", script, "sh", env!("CARGO_BIN_EXE_mcp-host")] },
        "My Echo": { "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] },
    } })
}

#[test]
fn first_hour_r1_an_error_that_is_over_says_so_and_one_server_is_shown_whole() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let daemon = daemon(home, &config(home));
    daemon.hears("✓ My Echo");
    daemon.hears("✓ late");

    let told = status(home);
    let late = told["servers"].as_array().unwrap().iter().find(|server| server["name"] == "late").unwrap();
    assert_eq!((&late["state"], &late["lastErrorCurrent"]), (&json!("connected"), &json!(false)), "{late}");
    assert!(late["lastErrorMs"].as_u64().unwrap() >= late["sinceMs"].as_u64().unwrap(), "{late}");
    let table = run(home, &["status"]);
    let row = table.lines().find(|line| line.starts_with("late ")).unwrap();
    assert!(row.contains("(") && row.ends_with(" ago)"), "{row}");

    assert_snapshot!(steady(&run(home, &["status", "my-echo"])), @"
    exit 0
    server My Echo, shown as my-echo
    state connected for TIME; ready TIME after its start
    transport stdio
    revision 2025-11-25
    says it is echo 0.1.0
    offers 3 tools, 0 prompts, 0 resources, 0 resource templates
    calls 0, 0 running
    leases 1 (process PID)
    sharing has asked clients nothing so far: they share one connection
    process PID: for lists, and all clients; nobody is on it now
    restarts 0
    ");
    let one = run(home, &["status", "late"]);
    assert!(one.contains("last error") && one.contains(" ago, over)"), "{one}");
    let json = run(home, &["status", "My Echo", "--json"]);
    let json: Value = serde_json::from_str(json.strip_prefix("exit 0\n").unwrap()).unwrap();
    assert_eq!((&json["name"], &json["tools"]), (&json!("My Echo"), &json!(3)));
    assert_snapshot!(run(home, &["status", "My Eco"]), @"
    exit 2
    error: no server is called `My Eco`
    help: did you mean `My Echo`?
    ");
    assert_snapshot!(run(home, &["status", "zzz"]), @"
    exit 2
    error: no server is called `zzz`
    help: the running mcp-host has: My Echo, late
    ");
}

#[test]
fn first_hour_r1_an_error_that_stands_leads_on() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let daemon = daemon(home, &json!({ "mcpServers": { "gone": { "command": "/no/such/program" } } }));
    daemon.hears("✗ gone");
    let told = status(home);
    assert_eq!(told["servers"][0]["lastErrorCurrent"], true);
    let shown = run(home, &["status", "gone"]);
    assert!(shown.contains("\nerror "), "{shown}");
    assert!(shown.trim_end().ends_with("mcp-host check --connect gone -v"), "{shown}");
}

#[test]
fn without_a_daemon_the_hint_keeps_the_config() {
    let home = tempfile::tempdir().unwrap();
    assert_snapshot!(run(home.path(), &["status", "a", "--config", "own.json"]), @"
    exit 4
    error: no mcp-host is running
    help: mcp-host serve --config own.json
    ");
}

#[test]
fn a_daemon_that_stops_leaves_no_files_of_its_port() {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = daemon(home.path(), &json!({ "mcpServers": {} }));
    let files = ["sock", "lock"].map(|kind| home.path().join(format!("mcp-host/{}.{kind}", daemon.port)));
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    daemon.end();
    assert!(!files.iter().any(|file| file.exists()), "{files:?}");
}
