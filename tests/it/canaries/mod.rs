//! Secrets of every kind that the host knows or passes on: none is in a metric, a span, a line of its log, a feed, the
//! status, or what the page reads, at the default settings. `world.rs` has the servers and the client, `otel/mod.rs` the spans.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub(crate) mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use self::world::World;
use crate::console::Page;
use crate::daemon::run;
use crate::reload::program::{Daemon, mcp_host};

/// Where a secret is given to the host, or goes through it. Each has a canary of its own.
const KINDS: [&str; 39] = [
    // In the config, and on the way to servers.
    "env",
    "env-file",
    "env-of-variable",
    "env-inherited",
    "argument",
    "argument-next",
    "argument-of-file",
    "url-password",
    "url-query",
    "header",
    "header-helper",
    "input",
    "bearer",
    "api-key",
    "basic",
    "client-secret",
    "access-token",
    "upstream-session",
    // At the doors.
    "client-token",
    "wrong-token",
    "client-cookie",
    "client-header",
    "client-baggage",
    "client-query",
    "metrics-token",
    "wrong-code",
    // In calls.
    "tool-argument",
    "argument-name",
    "tool-result",
    "tool-failure",
    "server-error",
    "prompt-argument",
    "prompt-result",
    "resource-query",
    "resource-content",
    "completion-value",
    "completion-result",
    "meta",
    "elicitation-answer",
];

/// A canary has the shape of no known key: it is found by where it is, not by how it looks.
pub(crate) fn canary(kind: &str) -> String {
    assert!(KINDS.contains(&kind), "{kind}");
    format!("plover-{kind}-canary")
}

/// Opens a feed.
fn feed(home: &Path, daemon: &Daemon, request: &Value) -> BufReader<UnixStream> {
    let mut socket = UnixStream::connect(home.join(format!("mcp-host/{}.sock", daemon.port))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    writeln!(socket, "{}", json!({ "feed": request })).unwrap();
    BufReader::new(socket)
}

fn until(feed: &mut BufReader<UnixStream>, is_last: impl Fn(&Value) -> bool) -> String {
    let (mut all, begun) = (String::new(), Instant::now());
    loop {
        // A feed never ends by itself: what does not come in time never comes.
        assert!(begun.elapsed() < Duration::from_secs(60), "{all}");
        let from = all.len();
        assert!(feed.read_line(&mut all).unwrap() > 0, "{all}");
        if is_last(&serde_json::from_str(&all[from..]).unwrap()) {
            return all;
        }
    }
}

pub(crate) fn assert_none(place: &str, text: &str) {
    assert!(text.len() > 30, "{place} says next to nothing: {text}");
    let of_basic = STANDARD.encode(format!("ada:{}", canary("basic")));
    for (kind, canary) in KINDS.map(|kind| (kind, canary(kind))).into_iter().chain([("basic, encoded", of_basic)]) {
        let found = text.lines().find(|line| line.contains(&canary));
        assert!(found.is_none(), "{place}: {kind}: {}", found.unwrap_or_default());
    }
}

/// Checks that the canaries were where they should be: a server got each that goes to one, and the client what is its own.
fn assert_arrived(world: &World, answered: &str) {
    let of_servers = [
        "url-query",
        "header",
        "header-helper",
        "input",
        "bearer",
        "api-key",
        "client-secret",
        "access-token",
        "upstream-session",
        "tool-argument",
        "prompt-argument",
        "completion-value",
        "meta",
    ];
    let got = world.got();
    for kind in of_servers {
        assert!(got.contains(&canary(kind)), "no server got {kind}: {got}");
    }
    let of_clients = [
        "tool-argument",
        "tool-result",
        "tool-failure",
        "server-error",
        "prompt-result",
        "resource-content",
        "completion-result",
    ];
    for kind in of_clients {
        assert!(answered.contains(&canary(kind)), "the client did not get {kind}: {answered}");
    }
}

/// Returns what the page reads of the daemon, and what its feed tells while it calls tools with secrets.
fn page(home: &Path, daemon: &Daemon, servers: &[&str]) -> String {
    let page = Page::open(home, daemon);
    let paths = servers.iter().map(|server| format!("server?name={server}"));
    let paths = paths.chain(["tools", "tools?server=echo", "approvals"].map(str::to_owned));
    let mut all: Vec<String> = paths.map(|path| page.get(&path).to_string()).collect();
    assert!(all.iter().any(|said| said.contains("echo__countdown")), "{all:?}");
    let mut feed = page.feed("?past=100");
    let said = page.call("echo__echo", &json!({ "text": canary("tool-argument") })).all();
    assert!(said.last().is_some_and(|end| end.to_string().contains(&canary("tool-argument"))), "{said:?}");
    let mut call = page.call("echo__ask", &json!({}));
    let (begin, question) = (call.next().unwrap(), call.next().unwrap());
    let content = json!({ "name": canary("elicitation-answer") });
    let answer =
        json!({ "call": begin["call"], "question": question["question"], "action": "accept", "content": content });
    assert_eq!(page.post("answer", &answer), json!({ "answered": true }));
    assert!(call.all().iter().any(|end| end.to_string().contains(&canary("elicitation-answer"))));
    loop {
        let event = feed.next().unwrap();
        all.push(event.to_string());
        let asked = |said: &String| said.contains("\"door\":\"console\"") && said.contains("\"tool\":\"ask\"");
        // The servers are told once a second, the calls before that.
        if event["type"] == "servers" && all.iter().any(asked) {
            return all.join("\n");
        }
    }
}

#[test]
fn no_canary_of_any_kind_is_anywhere_at_the_default_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (home, world) = (folder.path(), World::start());
    let config = world.config(home);
    let servers: Vec<&str> = config["mcpServers"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut daemon = World::daemon(home, &config);
    let mut watching = feed(home, &daemon, &json!({ "past": 100 }));
    let begun = until(&mut watching, |event| event["type"] == "snapshot");
    let answered = world::visit(&daemon);
    // The last call of the client is a completion.
    let told = until(&mut watching, |event| event["phase"] == "end" && event["method"] == "completion/complete");
    assert!(told.contains("\"tool\":\"tell\""), "{told}");
    assert_none("the feed", &(begun + &told));
    // Servers are told once a second, with their targets and their last errors.
    assert_none("the servers of the feed", &until(&mut watching, |event| event["type"] == "servers"));
    let shown = |args: &[&str]| run(home, args);
    assert_none("status --json", &shown(&["status", "--json"]));
    assert_none("status", &shown(&["status"]));
    for server in &servers {
        assert_none(&format!("status {server}"), &shown(&["status", server]));
        assert_none(&format!("get {server}"), &shown(&["get", server, "--config", "mcp.json"]));
    }
    assert_none("metrics", &shown(&["metrics"]));
    let scraped = world::scrape(&daemon);
    assert!(scraped.contains("mcp_host_calls_total{server=\"works\""), "{scraped}");
    assert_none("/metrics", &scraped);
    assert_none("logs", &shown(&["logs"]));
    assert_none("calls", &shown(&["calls"]));
    assert_none("calls --json", &shown(&["calls", "--json"]));
    assert_none("the page", &page(home, &daemon, &servers));
    // Whoever asks for arguments later gets none of the calls from before.
    assert_none("calls --args", &shown(&["calls", "--args", "masked", "--json"]));
    assert_none("the log", &daemon.end().join("\n"));
    assert_arrived(&world, &answered);
}

#[test]
fn a_feed_that_asks_gets_arguments_without_what_is_known_as_secret() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let server = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"], "env": { "SECRET": canary("env") } });
    std::fs::write(home.join("mcp.json"), json!({ "mcpServers": { "echo": server } }).to_string()).unwrap();
    let daemon = Daemon::start(mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ echo");
    let mut masked = feed(home, &daemon, &json!({ "parts": ["calls"], "arguments": "masked" }));
    let mut shape = feed(home, &daemon, &json!({ "parts": ["calls"], "arguments": "shape" }));
    let is_open = |event: &Value| event["type"] == "snapshot";
    until(&mut masked, is_open);
    until(&mut shape, is_open);
    let text = format!("plain words and {}", canary("env"));
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
