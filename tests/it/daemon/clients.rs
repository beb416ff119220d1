//! Who is connected: lines of `serve`, and the table of `status`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{daemon, run, status, steady};

/// Returns the response to one request: its head and its body.
pub(super) fn send(port: &str, method: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let accept = "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";
    let length = body.len();
    write!(
        stream,
        "{method} /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{accept}{headers}content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Opens a session of a client with this name, and returns the header that identifies it.
pub(super) fn open(port: &str, name: &str, version: &str) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": name, "version": version },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let answer = send(port, "POST", "", &body);
    let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    format!("mcp-session-id: {}\r\n", session.unwrap_or_else(|| panic!("{answer}")))
}

/// Sends a request of a client without a session.
fn modern(port: &str, name: &str, method: &str, mut params: Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": name, "version": "3" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut headers = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n");
    if let Some(name) = params["name"].as_str() {
        headers += &format!("mcp-name: {name}\r\n");
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let answer = send(port, "POST", &headers, &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn first_hour_r12_clients_are_told_of_as_they_come_and_go_and_listed() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let daemon = daemon(
        home,
        &json!({ "mcpServers": { "e": { "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] } } }),
    );
    daemon.hears("✓ e");
    daemon.hears("1 server: 1 connected");
    let connect = daemon.hears("connect a client");
    assert!(
        connect.ends_with(&format!("claude mcp add --transport http mcp-host http://127.0.0.1:{}/mcp", daemon.port))
    );
    daemon.hears("any other client    { \"mcpServers\"");
    daemon.hears(&format!("mcp-host status --listen 127.0.0.1:{}", daemon.port));
    assert_eq!(status(home)["clients"], json!([]));

    let code = open(&daemon.port, "claude-code", "2.1");
    assert_eq!(daemon.hears("claude-code"), "claude-code 2.1 connected (2025-11-25), 1 client");
    open(&daemon.port, "error: \u{1b}[2Jdisk full\nhelp: run", "");
    let forged = daemon.hears("disk full");
    assert_eq!(forged, r#""error: \u{1b}[2Jdisk full\nhelp: run" connected (2025-11-25), 2 clients"#);
    let call = json!({ "name": "e__echo", "arguments": { "text": "x" } });
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }).to_string();
    send(&daemon.port, "POST", &code, &body);
    // Without a session it is one client, however many requests it sends; a client that only asks for our capabilities
    // does not count yet.
    modern(&daemon.port, "agent", "server/discover", json!({}));
    for _ in 0..3 {
        modern(&daemon.port, "agent", "tools/call", call.clone());
    }
    assert_eq!(daemon.hears("agent"), "agent 3 connected (2026-07-28), 3 clients");

    let told = status(home)["clients"].clone();
    let row = |name: &str| told.as_array().unwrap().iter().find(|client| client["name"] == name).unwrap().clone();
    assert_eq!((&row("agent")["calls"], &row("agent")["revision"]), (&json!(3), &json!("2026-07-28")));
    assert_eq!((&row("claude-code")["calls"], &row("claude-code")["transport"]), (&json!(1), &json!("http")));
    let shown = run(home, &["status"]);
    assert_snapshot!(steady(shown.split("\n\n").nth(1).unwrap()), @r#"
    CLIENT VERSION REVISION TRANSPORT SINCE LAST SEEN CALLS
    claude-code 2.1 2025-11-25 http TIME TIME ago 1
    "error: \u{1b}[2Jdisk full\nhelp: run" - 2025-11-25 http TIME TIME ago 0
    agent 3 2026-07-28 http TIME TIME ago 3
    "#);

    send(&daemon.port, "DELETE", &code, "");
    assert_eq!(daemon.hears("claude-code 2.1 left"), "claude-code 2.1 left, 2 clients");
}

#[test]
fn first_hour_r12_a_client_that_connects_without_end_does_not_fill_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let mut daemon = daemon(home, &json!({ "mcpServers": {} }));
    let begun = Instant::now();
    for _ in 0..200 {
        let session = open(&daemon.port, "flood", "1");
        send(&daemon.port, "DELETE", &session, "");
    }
    open(&daemon.port, "last", "1");
    assert_eq!(status(home)["clients"].as_array().unwrap().len(), 1);
    let told = |line: &String| line.contains(" connected") || line.contains(" left");
    let lines = daemon.end().iter().filter(|line| told(line)).count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((1..=8 + seconds + 1).contains(&lines), "{lines} lines in {seconds} s");
}

#[test]
fn first_hour_r12_quiet_and_json_say_it_in_their_own_way() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("mcp.json"), r#"{ "mcpServers": {} }"#).unwrap();
    let serve = |flag: &str| {
        let args = ["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0", flag];
        crate::reload::program::Daemon::start(crate::reload::program::mcp_host(home, &args))
    };
    let mut daemon = serve("--json");
    open(&daemon.port, "agent", "1");
    let line: Value = serde_json::from_str(&daemon.hears("\"client\"")).unwrap();
    assert_eq!((&line["event"], &line["change"], &line["clients"]), (&json!("client"), &json!("connected"), &json!(1)));
    assert_eq!(line["client"]["name"], "agent");
    assert!(!daemon.end().iter().any(|line| line.contains("claude mcp add")));
    let mut daemon = serve("--quiet");
    open(&daemon.port, "agent", "1");
    assert_eq!(daemon.end(), Vec::<String>::new());
}
