//! Thirty secrets that the host knows or passes on: none is in a metric, a span, a line of its log, a feed, the status, or
//! what the page reads, at the default settings. `otel/mod.rs` has the spans.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::console::Page;
use crate::daemon::run;
use crate::reload::program::{Daemon, mcp_host};

/// How many there are.
pub(crate) const COUNT: usize = 30;

/// A canary has the shape of no known key: it is found by what it is, not by how it looks.
pub(crate) fn canary(number: usize) -> String {
    format!("canary-{number:02}-plover")
}

/// A server with secrets in its environment and its arguments, and one with secrets in its headers.
pub(crate) fn config() -> Value {
    let env: serde_json::Map<String, Value> =
        (0..8).map(|number| (format!("SECRET_{number}"), canary(number).into())).collect();
    let headers: serde_json::Map<String, Value> =
        (8..14).map(|number| (format!("x-secret-{number}"), canary(number).into())).collect();
    let script = "echo told: $SECRET_0 >&2; exec \"$0\" __demo-server";
    json!({ "mcpServers": {
        "echo": { "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-host")], "env": env },
        "remote": {
            "url": format!("http://user:{}@127.0.0.1:9/mcp?key={}", canary(14), canary(15)), "headers": headers,
        },
        "starts": { "command": "/bin/sh", "args": ["-c", "exit 1", "x", format!("--token={}", canary(16))] },
    } })
}

/// Calls a tool with secrets as arguments, which it gives back.
pub(crate) fn call(home: &Path) {
    let text: Vec<String> = (17..COUNT).map(canary).collect();
    let said = run(home, &["call", "echo__echo", &format!("text={}", text.join(" ")), "--config", "mcp.json"]);
    assert!(said.starts_with("exit 0\n") && said.contains(&canary(COUNT - 1)), "{said}");
    // A call that fails repeats what it was given in its error.
    let said = run(home, &["call", "echo__echo", &format!("tex={}", canary(20)), "--no-check", "--config", "mcp.json"]);
    assert!(!said.starts_with("exit 0\n"), "{said}");
}

/// Reads a feed up to the end of so many calls.
fn feed(home: &Path, daemon: &Daemon, request: &Value) -> BufReader<UnixStream> {
    let mut socket = UnixStream::connect(home.join(format!("mcp-host/{}.sock", daemon.port))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    writeln!(socket, "{}", json!({ "feed": request })).unwrap();
    BufReader::new(socket)
}

fn until(feed: &mut BufReader<UnixStream>, is_last: impl Fn(&Value) -> bool) -> String {
    let mut all = String::new();
    loop {
        let from = all.len();
        assert!(feed.read_line(&mut all).unwrap() > 0, "{all}");
        if is_last(&serde_json::from_str(&all[from..]).unwrap()) {
            return all;
        }
    }
}

pub(crate) fn assert_none(place: &str, text: &str) {
    assert!(text.len() > 100, "{place} says next to nothing: {text}");
    for number in 0..COUNT {
        assert!(!text.contains(&canary(number)), "{place}: {}: {text}", canary(number));
    }
}

/// Returns what the page reads of the daemon, and what its feed tells while it calls a tool with secrets.
fn page(home: &Path, daemon: &Daemon) -> String {
    let page = Page::open(home, daemon);
    let servers = ["echo", "remote", "starts"].map(|server| format!("server?name={server}"));
    let paths = servers.into_iter().chain(["tools".to_owned(), "tools?server=echo".to_owned(), "approvals".to_owned()]);
    let mut all: String = paths.map(|path| page.get(&path).to_string()).collect();
    assert!(all.contains("echo__countdown"), "{all}");
    let mut feed = page.feed("?past=100");
    let texts: Vec<String> = (17..COUNT).map(canary).collect();
    let said = page.call("echo__echo", &json!({ "text": texts.join(" ") })).all();
    assert!(said.last().is_some_and(|end| end.to_string().contains(&canary(COUNT - 1))), "{said:?}");
    loop {
        let event = feed.next().unwrap();
        all += &event.to_string();
        // The servers are told once a second, the call before that.
        if event["type"] == "servers" && all.contains("\"door\":\"console\"") {
            return all;
        }
    }
}

#[test]
fn thirty_canaries_are_nowhere_at_the_default_settings() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::write(home.join("mcp.json"), config().to_string()).unwrap();
    let mut command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0", "-vv"]);
    command.env("CANARY", canary(0));
    let mut daemon = Daemon::start(command);
    daemon.hears("✓ echo");
    let mut watching = feed(home, &daemon, &json!({ "past": 100 }));
    let begun = until(&mut watching, |event| event["type"] == "snapshot");
    call(home);
    let ends = |id: u64| move |event: &Value| event["phase"] == "end" && event["id"] == id;
    assert_none("the feed", &(begun + &until(&mut watching, ends(2))));
    // Servers are told once a second, with their targets and their last errors.
    assert_none("the servers of the feed", &until(&mut watching, |event| event["type"] == "servers"));
    let shown = |args: &[&str]| run(home, args);
    assert_none("status --json", &shown(&["status", "--json"]));
    assert_none("status", &shown(&["status"]));
    assert_none("status SERVER", &shown(&["status", "remote"]));
    assert_none("metrics", &shown(&["metrics"]));
    assert_none("logs", &shown(&["logs"]));
    assert_none("calls", &shown(&["calls", "--json"]));
    assert_none("the page", &page(home, &daemon));
    // Whoever asks for arguments later gets none of the calls from before.
    assert_none("calls --args", &shown(&["calls", "--args", "masked", "--json"]));
    assert_none("the log", &daemon.end().join("\n"));
}

#[test]
fn a_feed_that_asks_gets_arguments_without_what_is_known_as_secret() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::write(home.join("mcp.json"), config().to_string()).unwrap();
    let daemon = Daemon::start(mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ echo");
    let mut masked = feed(home, &daemon, &json!({ "parts": ["calls"], "arguments": "masked" }));
    let mut shape = feed(home, &daemon, &json!({ "parts": ["calls"], "arguments": "shape" }));
    let is_open = |event: &Value| event["type"] == "snapshot";
    until(&mut masked, is_open);
    until(&mut shape, is_open);
    let text = format!("plain words and {}", canary(3));
    assert!(
        run(home, &["call", "echo__echo", &format!("text={text}"), "--config", "mcp.json"]).starts_with("exit 0\n")
    );
    let ended = |feed: &mut BufReader<UnixStream>| {
        let all = until(feed, |event| event["phase"] == "end");
        crate::feed::event(all.lines().last().unwrap())
    };
    let (masked, shape) = (ended(&mut masked), ended(&mut shape));
    assert_eq!(masked["args"], json!({ "text": "plain words and ***" }));
    assert_eq!(shape["args"], json!({ "text": format!("string {}", text.len()) }));
    assert!(masked["result"].to_string().contains("plain words") && !masked.to_string().contains("plover"), "{masked}");
    assert!(!shape.to_string().contains("plain words"), "{shape}");
    assert!(masked["hostMs"].as_f64().unwrap() <= masked["ms"].as_f64().unwrap());
}
