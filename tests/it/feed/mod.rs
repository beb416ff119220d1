//! The feed of a daemon, and the commands that read it: `logs`, `calls`, and `status --watch`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod commands;
#[cfg(target_os = "linux")]
mod memory;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::daemon::{daemon, run};
use crate::reload::program::{Daemon, mcp_host};

/// What no feed and no command may show: it is in the arguments and results of calls.
const CANARY: &str = "canary-7731";

/// A daemon with a demo server that writes a line to standard error at its start.
fn host(home: &Path) -> Daemon {
    let daemon = daemon(home, &config());
    daemon.hears("✓ echo");
    daemon
}

fn config() -> Value {
    let script = r#"printf 'warming \033[31mup\033[0m\a\n' >&2; exec "$0" __demo-server"#;
    json!({ "mcpServers": {
        "echo": { "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-host")] },
    } })
}

fn call(home: &Path) {
    let said = run(home, &["call", "echo__echo", &format!("text={CANARY}")]);
    assert!(said.starts_with("exit 0\n"), "{said}");
}

/// An open feed.
struct Feed(BufReader<UnixStream>, Instant);

/// How long a feed may take to tell what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

impl Feed {
    fn open(home: &Path, daemon: &Daemon, request: &Value) -> Self {
        let mut socket = UnixStream::connect(home.join(format!("mcp-host/{}.sock", daemon.port))).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        writeln!(socket, "{}", json!({ "feed": request })).unwrap();
        Self(BufReader::new(socket), Instant::now())
    }

    /// Returns the next event, which holds against the schema.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        event(&line)
    }

    /// Returns the events up to the first one of which `is_last` holds.
    fn until(&mut self, mut is_last: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut events = vec![self.next()];
        while !events.last().is_some_and(&mut is_last) {
            // A feed never ends by itself: what does not come in time never comes.
            assert!(self.1.elapsed() < PATIENCE, "only {events:#?}");
            events.push(self.next());
        }
        events
    }

    /// Returns the events up to the end of the call with that number.
    fn until_end_of(&mut self, id: u64) -> Vec<Value> {
        self.until(|event| event["phase"] == "end" && event["id"] == id)
    }
}

/// Reads an event, which holds against the schema and has no members that the schema does not name.
pub(crate) fn event(line: &str) -> Value {
    assert!(!line.contains(CANARY), "{line}");
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let schema: Value = serde_json::from_str(include_str!("../../../src/record/feed.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&event).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{event}: {wrong:?}");
    let forms = schema["oneOf"].as_array().unwrap();
    let of_kind = forms.iter().filter(|form| form["properties"]["type"]["const"] == event["type"]);
    let known: Vec<&String> = of_kind.flat_map(|form| form["properties"].as_object().unwrap().keys()).collect();
    let named = |key: &String| ["seq", "at"].contains(&key.as_str()) || known.contains(&key);
    let unnamed: Vec<&String> = event.as_object().unwrap().keys().filter(|key| !named(key)).collect();
    assert!(unnamed.is_empty(), "{event}: {unnamed:?}");
    event
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn a_call_and_a_line_are_told_and_no_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    let mut feed = Feed::open(home, &daemon, &json!({}));
    let begun = feed.until(|event| event["type"] == "snapshot");
    assert_eq!(kinds(&begun), ["hello", "snapshot"]);
    assert_eq!((&begun[0]["v"], &begun[0]["pid"]), (&json!(1), &json!(daemon.process())));
    assert_eq!(begun[1]["servers"][0]["state"], "connected");
    call(home);
    let events = feed.until_end_of(1);
    let calls: Vec<&Value> = events.iter().filter(|event| event["type"] == "call").collect();
    let of = |event: &Value| {
        (event["phase"].clone(), event["server"].clone(), event["tool"].clone(), event["outcome"].clone())
    };
    assert_eq!(of(calls[0]), (json!("begin"), json!("echo"), json!("echo"), Value::Null));
    assert_eq!(of(calls[1]), (json!("end"), json!("echo"), json!("echo"), json!("ok")));
    assert!(calls[1]["ms"].as_f64().unwrap() > 0.0 && calls[1]["bytesOut"].as_u64().unwrap() > 0, "{calls:?}");
    assert_eq!((&calls[1]["method"], &calls[1]["door"]), (&json!("tools/call"), &json!("socket")));

    let mut past = Feed::open(home, &daemon, &json!({ "past": 10, "parts": ["lines", "calls"], "server": "echo" }));
    let events = past.until(|event| event["type"] == "snapshot");
    let line = events.iter().find(|event| event["source"] == "stderr").unwrap();
    assert_eq!((&line["text"], &line["server"]), (&json!(r"warming up\u{7}"), &json!("echo")));
    assert!(events.iter().any(|event| event["type"] == "call" && event["id"] == 1), "{events:?}");
    assert_eq!(events.last().unwrap()["servers"], json!([]), "it is not about servers");

    // Answers are counted under that door, too.
    let metrics = run(home, &["metrics"]);
    let mut counted =
        metrics.lines().filter(|line| line.starts_with("mcp_host_door_requests_total{door=\"socket\",status=\"2xx\"}"));
    assert!(counted.next().is_some_and(|line| !line.ends_with(" 0")), "{metrics}");

    // A reload is told, and what becomes of the new server.
    let mut more = config();
    more["mcpServers"]["second"] = more["mcpServers"]["echo"].clone();
    std::fs::write(home.join("mcp.json"), more.to_string()).unwrap();
    let (mut is_connected, mut is_listed) = (false, false);
    let events = feed.until(|event| {
        let changed = event["changed"].as_array().into_iter().flatten();
        is_connected |= event["server"] == "second" && event["to"] == "connected";
        is_listed |= changed.into_iter().any(|server| server["name"] == "second" && server["state"] == "connected");
        is_connected && is_listed
    });
    assert!(events.iter().any(|event| event["config"]["changes"]["added"] == json!(["second"])), "{events:?}");
}

#[test]
fn a_call_that_began_before_anybody_looked_is_among_those_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    let caller = counting(&daemon);
    // `status` looks at no calls.
    let begun = Instant::now();
    while json_status(home)["gauges"]["requests"] != 1 {
        assert!(begun.elapsed() < PATIENCE);
    }
    let mut feed = Feed::open(home, &daemon, &json!({ "parts": ["calls"] }));
    let snapshot = feed.until(|event| event["type"] == "snapshot").pop().unwrap();
    let running = snapshot["running"].as_array().unwrap();
    assert_eq!(running.len(), 1, "{snapshot}");
    let of = |call: &Value| (call["server"].clone(), call["tool"].clone(), call["method"].clone());
    assert_eq!(of(&running[0]), (json!("echo"), json!("countdown"), json!("tools/call")));
    assert_eq!((&running[0]["client"], &running[0]["door"]), (&json!("a test"), &json!("http")));
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    assert!(running[0]["at"].as_u64().unwrap() <= now, "{running:?} after {now}");
    // From now on it is told like all others: its progress, and its end.
    let id = running[0]["id"].as_u64().unwrap();
    feed.until(|event| event["phase"] == "progress" && event["id"] == id);
    drop(caller);
    let end = feed.until_end_of(id).pop().unwrap();
    assert_eq!((&end["outcome"], &end["tool"]), (&json!("cancelled"), &json!("countdown")), "{end}");
    // Another one who comes later finds it among the last calls, once.
    let mut past = Feed::open(home, &daemon, &json!({ "past": 10, "parts": ["calls"] }));
    let events = past.until(|event| event["type"] == "snapshot");
    let calls: Vec<&Value> = events.iter().filter(|event| event["type"] == "call").collect();
    assert_eq!((calls.len(), &calls[0]["id"]), (1, &json!(id)), "{events:?}");
    assert_eq!(events.last().unwrap()["running"], json!([]));
}

#[test]
fn a_feed_that_reads_too_late_is_told_what_it_missed() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    // A hundred lines of a server have events in a second. Together they say nearly a mebibyte of them in that time.
    let lines = "while :; do head -c 101000 /dev/zero | tr '\\0' x | fold -w 1000 >&2; sleep 1; done";
    let script = format!("({lines}) & exec \"$0\" __demo-server");
    let server = json!({ "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-host")] });
    let servers: serde_json::Map<String, Value> = (0..8).map(|number| (format!("s{number}"), server.clone())).collect();
    let daemon = daemon(home, &json!({ "mcpServers": servers }));
    let parts = json!({ "parts": ["lines"] });
    let mut late = Feed::open(home, &daemon, &parts);
    late.until(|event| event["type"] == "snapshot");
    let mut quick = Feed::open(home, &daemon, &parts);
    let (mut bytes, mut last) = (0, String::new());
    // What its socket holds is not unread. To hold each event against the schema takes too long here.
    while bytes < (3 << 20) {
        last.clear();
        quick.0.read_line(&mut last).unwrap();
        assert!(!last.starts_with(r#"{"type":"gap""#), "it reads in time: {last}");
        bytes += last.len();
    }
    let last: Value = serde_json::from_str(&last).unwrap();
    let events = late.until(|event| event["type"] == "snapshot");
    let gap = &events[events.len() - 2];
    assert!(gap["type"] == "gap" && gap["missed"].as_u64().is_some_and(|missed| missed > 500), "{gap}");
    let lines: Vec<u64> =
        events.iter().filter(|event| event["type"] == "line").map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(lines.windows(2).all(|two| two[0] < two[1]), "what it got before is in order");
    assert!(events.last().unwrap()["seq"].as_u64() >= last["seq"].as_u64(), "it begins anew where the host is");
    assert!(
        run(home, &["metrics"])
            .lines()
            .any(|line| line.starts_with("mcp_host_feed_dropped_total") && !line.ends_with(" 0"))
    );
}

/// Begins a call that lasts a minute and wants progress. It ends with its connection.
fn counting(daemon: &Daemon) -> TcpStream {
    let meta = json!({
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "echo__countdown", "arguments": { "from": 60 }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", daemon.port)).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: echo__countdown\r\nContent-Length: {}\r\n\r\n{body}",
        daemon.port,
        body.len()
    )
    .unwrap();
    stream
}

fn json_status(home: &Path) -> Value {
    let said = mcp_host(home, &["status", "--json"]).output().unwrap();
    serde_json::from_slice(&said.stdout).unwrap()
}

#[test]
fn a_feed_that_resumes_gets_each_event_once() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    let about = json!(["calls", "lines"]);
    let mut feed = Feed::open(home, &daemon, &json!({ "from": 0, "parts": about }));
    call(home);
    let first = feed.until_end_of(1);
    drop(feed);
    call(home);
    let seq = first.last().unwrap()["seq"].clone();
    let mut feed = Feed::open(home, &daemon, &json!({ "from": seq, "parts": about }));
    let second = feed.until_end_of(2);
    assert_eq!(kinds(&second), ["hello", "call", "call"], "it needs no snapshot");
    let mut whole = Feed::open(home, &daemon, &json!({ "from": 0, "parts": about }));
    let whole = whole.until_end_of(2);
    let both: Vec<&Value> = first.iter().skip(1).chain(second.iter().skip(1)).collect();
    assert_eq!(whole.iter().skip(1).collect::<Vec<_>>(), both);

    // An event that this run has not had is of another one.
    let mut other = Feed::open(home, &daemon, &json!({ "from": 1_000_000 }));
    assert_eq!(kinds(&other.until(|event| event["type"] == "snapshot")), ["hello", "gap", "snapshot"]);
}

#[test]
fn feeds_that_read_nothing_cost_no_call_and_are_sixteen() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    let mut feeds: Vec<Feed> = (0..16).map(|_| Feed::open(home, &daemon, &json!({ "past": 10_000 }))).collect();
    // Each of them is there once it has its first event.
    feeds.iter_mut().for_each(|feed| assert_eq!(feed.next()["type"], "hello"));
    call(home);
    let refused = |request: &Value| {
        let mut line = String::new();
        Feed::open(home, &daemon, request).0.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(refused(&json!({}))["error"], "busy: too many feeds are open");
    assert_eq!(refused(&json!({ "server": "none" }))["usage"], true);
    let unknown = refused(&json!({ "arguments": "raw" }));
    assert!(unknown["error"].as_str().unwrap().starts_with("not a request for a feed: unknown variant"), "{unknown}");
    assert_eq!(feeds[3].until_end_of(1).last().unwrap()["outcome"], "ok");
    // One that leaves makes room.
    drop(feeds);
    let mut line = String::new();
    while !line.contains("hello") {
        line.clear();
        Feed::open(home, &daemon, &json!({})).0.read_line(&mut line).unwrap();
    }
}
