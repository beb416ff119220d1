//! `mcp-host sandbox explain`: a start under strace, and what was refused in it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::support::{Home, can_have_namespaces};

/// A server that looks for a key and for a host when it starts, and then serves.
const NOSY: &str = r#"
import ctypes, os, runpy, socket, sys
for path in ["/.ssh/id", "/.ssh/id", "/absent"]:
    try: open(os.environ["REAL"] + path)
    except OSError: pass
try: open(os.environ["REAL"] + "/planted", "w")
except OSError: pass
try: socket.socket(socket.AF_UNIX)
except OSError: pass
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
"#;

/// Returns what is shown of the keys and of calls, as kinds and names without the home.
fn explained(home: &Home, sandbox: &Value) -> Vec<(String, String, u64)> {
    std::fs::write(home.at("tools/nosy.py"), NOSY).unwrap();
    let mut entry = home.entry(sandbox);
    entry["args"] = json!([home.at("tools/nosy.py"), home.at("tools/server.py")]);
    home.write(&json!({ "box": entry }));
    let output = home.run(&["sandbox", "explain", "box", "--json"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_str(&said).unwrap();
    let own = home.at("").display().to_string();
    let told = rows.iter().map(|row| {
        let what = row["what"].as_str().unwrap().replace(&own, "~/");
        // Libraries ask for sockets, too.
        let times = if what == "socket" { 1 } else { row["times"].as_u64().unwrap() };
        (row["kind"].as_str().unwrap().to_owned(), what, times)
    });
    told.filter(|(_, what, _)| what.starts_with("~/.ssh") || what.starts_with("~/planted") || what == "socket")
        .collect()
}

pub(super) fn has_strace() -> bool {
    let has = std::process::Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success());
    assert!(has || std::env::var_os("CI").is_none(), "strace is not here");
    has
}

#[test]
fn h108_what_was_refused_in_a_start_is_shown() {
    if !has_strace() || !can_have_namespaces("h108: sandbox explain") {
        return;
    }
    let home = Home::new();
    let row = |kind: &str, what: &str, times| (kind.to_owned(), what.to_owned(), times);
    let told = explained(&home, &json!("default"));
    assert_eq!(told, [row("read", "~/.ssh/id", 2), row("write", "~/planted", 1), row("call", "socket", 1)]);
    let told = explained(&home, &json!("strict"));
    assert_eq!(told, [row("hidden", "~/.ssh/id", 2), row("write", "~/planted", 1), row("call", "socket", 1)]);
    let left = std::fs::read_dir(home.at(".local/state/mcp-host")).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("trace-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn h108_a_server_without_a_sandbox_has_nothing_to_explain() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!("off")) }));
    let output = home.run(&["sandbox", "explain", "box"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: server `box` has no sandbox\nhelp: "), "{said}");
}

/// Does not find the package that it is to fetch, as npx says it.
const NPX: &str = "#!/bin/sh\necho 'npm error 404 Not Found - GET https://registry.example/absent' >&2\nexit 1\n";

#[test]
fn h108_a_server_whose_package_is_not_there_is_explained_by_that() {
    if !has_strace() || !can_have_namespaces("h108: sandbox explain without a package") {
        return;
    }
    let home = Home::new();
    let npx = home.at("tools/npx");
    std::fs::write(&npx, NPX).unwrap();
    std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut entry = home.entry(&json!({ "level": "strict", "install": ["a.example"] }));
    (entry["command"], entry["args"]) = (json!(npx), json!(["-y", "absent@1"]));
    home.write(&json!({ "box": entry }));
    for more in [None, Some("--json")] {
        let arguments: Vec<&str> = ["sandbox", "explain", "box"].into_iter().chain(more).collect();
        let output = home.run(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty(), "it was not started, so nothing is known: {:?}", output.stdout);
        assert!(said.contains("error: server `box` did not start: the process ended (exit code 1, while its package was fetched): npm error 404 Not Found"), "{said}");
        assert!(said.contains("\nhelp: ") && !said.contains("strace"), "{said}");
    }
}
