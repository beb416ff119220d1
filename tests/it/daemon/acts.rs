//! What the page can do, asked for at the socket: the same requests, with the same members, by programs of the same user.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::approvals::{ask, ask_below};
use super::{daemon, run, status};
use crate::reload::program::Daemon;

fn config(host: &Value) -> Value {
    json!({ "host": host, "mcpServers": { "echo": { "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] } } })
}

fn begun(home: &Path, host: &Value) -> (Daemon, PathBuf) {
    let daemon = daemon(home, &config(host));
    daemon.hears("✓ echo");
    let socket = home.join(format!("mcp-host/{}.sock", daemon.port));
    (daemon, socket)
}

/// A request whose answer is lines.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn of(socket: &Path, request: &Value) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        writeln!(stream, "{request}").unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next line; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")))
    }

    fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next().unwrap_or_else(|| panic!("it ended"));
            if is_last(&line) {
                return line;
            }
        }
    }
}

fn call(socket: &Path, tool: &str, arguments: &Value) -> (Lines, Value) {
    let mut lines = Lines::of(socket, &json!({ "call": { "tool": tool, "arguments": arguments } }));
    let number = lines.next().unwrap_or_else(|| panic!("it ended"))["call"].clone();
    (lines, number)
}

#[test]
fn a_call_is_made_its_question_answered_and_another_one_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, socket) = begun(folder.path(), &json!({}));
    let mut feed = Lines::of(&socket, &json!({ "feed": { "parts": ["calls"] } }));
    feed.until(|event| event["type"] == "snapshot");

    // Another connection answers: they are the same user's. This is the first call, since no question is guessed to be of one of
    // several clients, and each call that runs alone is one of its own.
    let (mut lines, number) = call(&socket, "echo__ask", &json!({}));
    let question = lines.next().unwrap();
    assert_eq!((&question["type"], &question["from"]), (&json!("question"), &json!("server")), "{question}");
    let answer = |content: Value| {
        let answer =
            json!({ "call": number, "question": question["question"], "action": "accept", "content": content });
        ask(&socket, &json!({ "answer": answer }).to_string())
    };
    assert_eq!(answer(json!({ "name": "Ada" })), json!({ "answered": true }));
    assert_eq!(answer(json!({ "name": "Eve" }))["usage"], true, "it is answered once");
    assert_eq!(lines.next().unwrap()["result"]["content"][0]["text"], "Hello Ada.");

    let (mut lines, number) = call(&socket, "echo__echo", &json!({ "text": "hello" }));
    let end = lines.next().unwrap();
    assert_eq!(
        (&end["outcome"], &end["result"]["content"][0]["text"]),
        (&json!("ok"), &json!("hello")),
        "{number} {end}"
    );
    assert!(lines.next().is_none());
    let told = feed.until(|event| event["phase"] == "end" && event["tool"] == "echo");
    assert_eq!((&told["door"], &told["client"]), (&json!("socket"), &json!("mcp-host socket")), "{told}");

    let (mut lines, number) = call(&socket, "echo__countdown", &json!({ "from": 60 }));
    lines.until(|line| line["type"] == "progress");
    let cancel = json!({ "cancel": { "call": number } }).to_string();
    assert_eq!(ask(&socket, &cancel), json!({ "cancelled": true }));
    assert_eq!(lines.until(|line| line["type"] == "end")["outcome"], "cancelled");
    assert!(lines.next().is_none());
    let unknown = ask(&socket, &cancel);
    assert_eq!(unknown["error"], format!("no call of this session with the number {number} runs"));

    // A reader that goes away cancels its call.
    let (mut lines, _) = call(&socket, "echo__countdown", &json!({ "from": 60 }));
    lines.until(|line| line["type"] == "progress");
    drop(lines);
    feed.until(|event| event["phase"] == "end" && event["outcome"] == "cancelled" && event["tool"] == "countdown");
}

#[test]
fn views_and_rules_hold_as_they_do_for_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let rules = json!([{ "name": "careful", "tools": ["echo__echo"], "verdict": "ask" }]);
    let host =
        json!({ "policy": { "rules": rules }, "view": "small", "views": { "small": { "include": ["echo__echo"] } } });
    let (_daemon, socket) = begun(folder.path(), &host);
    let tools = ask(&socket, r#"{"tools":{"server":"echo"}}"#);
    let names: Vec<&Value> = tools["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["echo__echo"]);
    let (mut lines, _) = call(&socket, "echo__countdown", &json!({}));
    assert_eq!(lines.next().unwrap()["outcome"], "error", "the view does not show it");
    let (mut lines, number) = call(&socket, "echo__echo", &json!({ "text": "x" }));
    let question = lines.next().unwrap();
    assert_eq!(question["from"], "host", "{question}");
    let answer = json!({ "answer": { "call": number, "question": question["question"], "action": "decline" } });
    assert_eq!(ask(&socket, &answer.to_string()), json!({ "answered": true }));
    let end = lines.next().unwrap();
    assert_eq!((&end["kind"], &end["rule"]), (&json!("denied"), &json!("careful")), "{end}");
}

#[test]
fn servers_are_shown_switched_and_the_config_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (_daemon, socket) = begun(home, &json!({}));
    let shown = ask(&socket, r#"{"server":{"name":"echo"}}"#);
    assert_eq!((&shown["server"]["state"], &shown["editable"]), (&json!("connected"), &json!(true)), "{shown}");
    let done = ask(&socket, r#"{"disable":{"server":"echo"}}"#);
    assert!(done["undo"].as_str().unwrap_or_else(|| panic!("{done}")).starts_with("mcp-host undo "), "{done}");
    while status(home)["servers"][0]["state"] != "disabled" {}
    assert!(ask(&socket, r#"{"enable":{"server":"echo"}}"#)["undo"].is_string());
    while status(home)["servers"][0]["state"] != "connected" {}
    assert_eq!(ask(&socket, r#"{"reload":{}}"#)["reloaded"], true);
    assert_eq!(ask(&socket, r#"{"asks":{}}"#), json!({ "asks": [] }));
    assert_eq!(ask(&socket, r#"{"approvals":{}}"#), ask(&socket, "approvals"));
    let unknown = ask(&socket, r#"{"enable":{"server":"none"}}"#);
    assert_eq!(unknown, json!({ "error": "no server is called \"none\"", "usage": true }));
}

#[test]
fn h83_no_request_at_the_socket_carries_a_program_and_none_below_a_server_acts() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (_daemon, socket) = begun(home, &json!({}));
    let requests = [
        ("call", json!({ "tool": "echo__echo", "arguments": { "text": "x" } })),
        ("answer", json!({ "call": 1, "question": 1, "action": "cancel" })),
        ("cancel", json!({ "call": 1 })),
        ("enable", json!({ "server": "echo" })),
        ("disable", json!({ "server": "echo" })),
        ("login", json!({ "server": "echo" })),
        ("logout", json!({ "server": "echo" })),
        ("reload", json!({})),
    ];
    for (name, members) in requests {
        for more in ["command", "args", "env", "path", "url", "cwd"] {
            let mut members = members.clone();
            members[more] = json!("x");
            let refused = ask(&socket, &json!({ name: members }).to_string());
            let error = refused["error"].as_str().unwrap_or_else(|| panic!("{name}: {refused}"));
            assert!(error.contains("the body is not what this takes"), "{name}: {error}");
        }
        let refused = ask_below(&socket, &json!({ name: members }).to_string());
        let error = refused["error"].as_str().unwrap_or_else(|| panic!("{name}: {refused}"));
        assert!(error.ends_with("no server may act as the user"), "{name}: {error}");
    }
    assert_eq!(ask_below(&socket, r#"{"tools":{}}"#)["tools"].as_array().map(Vec::len), Some(3), "it may look");
    for unknown in [r#"{"session":{"code":"x"}}"#, r#"{"run":{}}"#, r#"{"call":{},"enable":{}}"#, r#"{"call""#] {
        let refused = ask(&socket, unknown);
        assert!(refused["error"].as_str().is_some_and(|error| error.starts_with("unknown request; expected status")));
    }
    insta::assert_snapshot!(ask(&socket, "what")["error"].as_str().unwrap(), @"unknown request; expected status, metrics, owners, asks, approvals, reload, forget SERVER, needs JSON, tokens JSON, definitions JSON, a feed, a decision, an approval, a restart, a link to the page, a sign-in request, or what the page can do (call, answer, cancel, enable, disable, login, logout, tools, server)");
    assert!(run(home, &["status"]).contains("connected"), "nothing was switched");
}
