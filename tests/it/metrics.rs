//! Metrics of a running daemon: the command, the token, and the key of the config.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::daemon::{daemon, run};
use crate::reload::program::mcp_host;

fn config(metrics: &Value) -> Value {
    let program = env!("CARGO_BIN_EXE_mcp-host");
    json!({
        "mcpServers": { "echo": { "command": program, "args": ["__demo-server"] } },
        "host": { "metrics": metrics, "auth": { "type": "bearer", "clients": { "ann": HASH_OF_ANN } } },
    })
}

/// The hash of another token than any here.
const HASH_OF_ANN: &str = "sha256:3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0";

/// Returns the status line and the text of `/metrics`.
fn scrape(port: &str, token: &str) -> (String, String) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let host = format!("Host: 127.0.0.1:{port}\r\nConnection: close\r\n");
    write!(stream, "GET /metrics HTTP/1.1\r\n{host}Authorization: Bearer {token}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), text.to_owned())
}

/// Makes a token by the command: the token, and the line for the config.
fn minted(home: &Path) -> (String, String) {
    let output = mcp_host(home, &["token", "--metrics", "--json"]).output().unwrap();
    let minted: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&minted["into"], &minted["name"]), (&json!("host.metrics"), &Value::Null));
    let text = |member: &str| minted[member].as_str().unwrap().to_owned();
    assert!(text("line").contains(&text("hash")), "{minted}");
    (text("token"), text("hash"))
}

#[test]
fn the_command_prints_what_the_token_opens() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (token, hash) = minted(home);
    let daemon = daemon(home, &config(&json!({ "token": hash, "tools": ["echo__*"] })));
    daemon.hears("✓ echo");
    assert!(run(home, &["call", "echo__echo", "text=hello", "--config", "mcp.json"]).starts_with("exit 0\n"));
    assert_eq!(scrape(&daemon.port, "another token").0, "HTTP/1.1 401 Unauthorized");
    let (status, text) = scrape(&daemon.port, &token);
    assert_eq!(status, "HTTP/1.1 200 OK");
    let mine = |text: &str| -> String {
        let wanted = ["mcp_host_servers{", "mcp_host_server_up", "mcp_host_server_starts", "mcp_host_build"];
        let lines = text.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(mine(&text), @r#"
    mcp_host_build_info{version="0.1.0"} 1
    mcp_host_servers{state="idle"} 0
    mcp_host_servers{state="connecting"} 0
    mcp_host_servers{state="initializing"} 0
    mcp_host_servers{state="connected"} 1
    mcp_host_servers{state="reconnecting"} 0
    mcp_host_servers{state="unauthorized"} 0
    mcp_host_servers{state="disconnecting"} 0
    mcp_host_servers{state="disconnected"} 0
    mcp_host_servers{state="failed"} 0
    mcp_host_servers{state="disabled"} 0
    mcp_host_server_up{server="echo"} 1
    mcp_host_server_starts_total{server="echo"} 1
    "#);
    let printed = run(home, &["metrics"]);
    assert!(printed.starts_with("exit 0\n# HELP") && printed.ends_with("\n# EOF\n"), "{printed}");
    assert_eq!(mine(&printed), mine(&text));
    let printed = mcp_host(home, &["metrics", "--json"]).output().unwrap().stdout;
    let printed: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(mine(printed["metrics"].as_str().unwrap()), mine(&text));
}

#[test]
fn a_config_without_metrics_has_none_for_the_command_either() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    assert_snapshot!(run(home, &["metrics"]), @"
    exit 4
    error: no mcp-host is running
    help: mcp-host serve
    ");
    let daemon = daemon(home, &config(&json!({ "enabled": false })));
    daemon.hears("✓ echo");
    assert_snapshot!(run(home, &["metrics"]), @r#"
    exit 1
    error: there are no metrics (host.metrics.enabled is false)
    help: set "enabled" in host.metrics to true, or remove it
    "#);
    assert_snapshot!(run(home, &["token", "ann", "--metrics"]), @"
    exit 2
    error: the argument '[NAME]' cannot be used with '--metrics'
    help: mcp-host token <NAME>
    ");
    assert_snapshot!(run(home, &["token"]), @"
    exit 2
    error: the following required arguments were not provided: <NAME>
    help: mcp-host token <NAME>
    ");
}

#[test]
fn a_scrape_starts_no_server_waits_for_none_and_has_no_series_of_those_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let mut config = config(&json!({}));
    // It reads what it is told, and never answers.
    config["mcpServers"]["silent"] = json!({ "command": "/bin/sh", "args": ["-c", "while read -r _; do :; done"] });
    config["mcpServers"]["lazy"] =
        json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"], "start": "lazy" });
    let daemon = daemon(home, &config);
    daemon.hears("✓ echo");
    let states = || {
        let text = run(home, &["metrics"]);
        let lines = text.lines().filter(|line| line.starts_with("mcp_host_server_state{") && line.ends_with(" 1"));
        let mut lines: Vec<&str> = lines.map(|line| line.trim_start_matches("mcp_host_server_state")).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let all = r#"{server="echo",state="connected"} 1
{server="lazy",state="idle"} 1
{server="silent",state="initializing"} 1"#;
    assert_eq!((states().as_str(), states().as_str()), (all, all));
    config["mcpServers"].as_object_mut().unwrap().remove("silent");
    std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
    let begun = Instant::now();
    while run(home, &["metrics"]).contains("server=\"silent\"") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", run(home, &["metrics"]));
    }
    assert_eq!(states(), "{server=\"echo\",state=\"connected\"} 1\n{server=\"lazy\",state=\"idle\"} 1");
}
