//! Collectors that are absent, busy, late, silent, or hang up: no call waits for them, nothing is sent for ever, and what is
//! dropped is counted, and told once.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Answers, Got, Receiver, call, collector, daemon, post, spans_of};
use crate::daemon::run;
use crate::reload::program::Daemon;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// A word of what is told when a collector takes nothing.
const TOLD: &str = "takes nothing";

/// How many spans were dropped.
fn dropped(home: &Path) -> u64 {
    let text = run(home, &["metrics"]);
    let line = text.lines().find(|line| line.starts_with("mcp_host_otel_dropped_total{signal=\"traces\"}"));
    line.unwrap_or_else(|| panic!("{text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until so many spans are dropped.
fn until_dropped(home: &Path, count: u64) {
    let begun = Instant::now();
    while dropped(home) < count {
        assert!(begun.elapsed() < PATIENCE, "only {} spans are dropped", dropped(home));
    }
}

/// Starts a daemon that sends traces there, and gives up after 200 ms.
fn started(home: &Path, origin: &str) -> Daemon {
    let otel = json!({ "endpoint": origin, "metrics": false });
    daemon(home, &otel, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "200")])
}

/// Makes calls, each of which must be answered.
fn calls(daemon: &Daemon) {
    for _ in 0..20 {
        let answer = call(daemon, "echo__echo", &json!({ "text": "x" }), None);
        assert!(answer["result"].is_object(), "{answer}");
    }
}

/// Ends the daemon, and counts how often it has told of a collector that takes nothing.
fn told(mut daemon: Daemon) -> usize {
    daemon.end().iter().filter(|line| line.contains(TOLD)).count()
}

/// Sees that the collector gets its first request four times, and that the next requests are other ones.
fn four_times(got: &Receiver<Got>) {
    let bodies: Vec<Vec<u8>> = (0..4).map(|_| got.recv_timeout(PATIENCE).unwrap().2).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "all four are the same request");
    assert!(!spans_of(&bodies[0]).is_empty());
    while let Ok((.., body)) = got.try_recv() {
        assert_ne!(body, bodies[0], "it is never sent a fifth time");
    }
}

/// Runs calls against such a collector until two requests are dropped, and sees that this was told once.
fn holds_up_nothing(answers: Answers) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, got) = collector(answers);
    let daemon = started(home, &origin);
    calls(&daemon);
    four_times(&got);
    drops_twice(home, daemon);
}

/// Waits until a request of the first calls is dropped, makes more calls until another one is, and sees that this was told once.
fn drops_twice(home: &Path, daemon: Daemon) {
    until_dropped(home, 1);
    let first = dropped(home);
    calls(&daemon);
    until_dropped(home, first + 1);
    assert_eq!(told(daemon), 1);
}

#[test]
fn a_collector_that_answers_too_many_gets_a_request_four_times() {
    holds_up_nothing(Answers::Busy("429 Too Many Requests", 0));
}

#[test]
fn a_collector_that_is_unavailable_for_a_second_gets_a_request_four_times() {
    holds_up_nothing(Answers::Busy("503 Service Unavailable", 1));
}

#[test]
fn a_collector_that_answers_after_the_deadline_gets_a_request_four_times() {
    holds_up_nothing(Answers::Late);
}

#[test]
fn a_collector_that_hangs_up_gets_a_request_four_times() {
    holds_up_nothing(Answers::HangsUp);
}

#[test]
fn a_collector_that_is_absent_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    // A port that was free a moment ago.
    let absent = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let daemon = started(home, &format!("http://{absent}"));
    calls(&daemon);
    drops_twice(home, daemon);
}

#[test]
fn a_host_that_ends_does_not_wait_as_long_as_a_collector_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, got) = collector(Answers::Busy("503 Service Unavailable", 30));
    let daemon = started(home, &origin);
    calls(&daemon);
    let (.., first) = got.recv_timeout(PATIENCE).unwrap();
    // It waits for thirty seconds now. When it ends, it sends the same once more, and what came later once.
    assert_eq!(told(daemon), 1, "the last word of the task is heard: it ended by itself");
    let bodies: Vec<Vec<u8>> = got.try_iter().map(|(.., body)| body).collect();
    assert_eq!(bodies.iter().filter(|body| **body == first).count(), 1, "{} more", bodies.len());
}

#[test]
fn spans_that_wait_for_a_silent_collector_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, _got) = collector(Answers::Never);
    let otel = json!({ "endpoint": origin, "metrics": false });
    let mut daemon = daemon(home, &otel, &[]);
    // Each of them is a call with two spans: one of the door, and one of the request to the server.
    let call = |id: u64| {
        let params = json!({ "name": "echo__echo", "arguments": { "text": "x" } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let params =
        json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let opened = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let (head, _) = post(&daemon.port, "", &opened);
    let session = head.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:"));
    let headers = format!("{}\r\n", session.unwrap_or_else(|| panic!("{head}")));
    for _ in 0..50 {
        let (head, _) = post(&daemon.port, &headers, &json!((0..50).map(call).collect::<Vec<_>>()));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    // Of 5,000 spans 4,096 wait, those of the first request included; the start of the server may have one, too. A call of
    // which one span fits is dropped whole.
    let count = dropped(home);
    assert!((904..=906).contains(&count), "{count} spans are dropped");
    let said = daemon.end();
    assert_eq!(said.iter().filter(|line| line.contains("slower than the calls")).count(), 1, "{said:#?}");
}
