//! Spans of calls that wait, fail, go on without their request, or belong to a session.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};

use super::{Answers, TRACE, Until as _, attributes, call, call_with, collector, daemon, daemon_of, hex, post, spans};

const PARENT: &str = "b7ad6b7169203331";

/// Returns the spans of that trace, in the order of their beginnings.
fn of_trace<'a>(all: &'a [Span], trace: &str) -> Vec<&'a Span> {
    let mut own: Vec<&Span> = all.iter().filter(|span| hex(&span.trace_id) == trace).collect();
    own.sort_by_key(|span| span.start_time_unix_nano);
    own
}

fn events(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_str()).collect()
}

fn start(
    home: &Path,
    server: &Value,
    answers: Answers,
) -> (crate::reload::program::Daemon, std::sync::mpsc::Receiver<super::Got>) {
    let (origin, got) = collector(answers);
    (daemon_of(home, server, &json!({ "endpoint": origin }), &[]), got)
}

fn demo() -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] })
}

#[test]
fn the_header_of_a_request_is_its_parent_and_a_link_where_the_message_names_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, got) = start(folder.path(), &demo(), Answers::Ok);
    let header = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let params = |meta: Value| json!({ "name": "echo__echo", "arguments": { "text": "x" }, "_meta": meta });
    call_with(&daemon.port, &header, params(json!({})));
    let other = "1".repeat(32);
    call_with(&daemon.port, &header, params(json!({ "traceparent": format!("00-{other}-{PARENT}-01") })));
    call_with(&daemon.port, "traceparent: nonsense\r\n", params(json!({ "traceparent": "nonsense" })));
    let doors = |spans: &[Span]| spans.iter().filter(|span| span.kind == 2).count();
    let all = spans(&got, |spans| doors(spans) >= 3);
    let by_header = of_trace(&all, TRACE)[0];
    assert_eq!((hex(&by_header.parent_span_id), by_header.links.len()), (PARENT.to_owned(), 0));
    let by_message = of_trace(&all, &other)[0];
    let links: Vec<_> = by_message.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    assert_eq!(
        (hex(&by_message.parent_span_id), links),
        (PARENT.to_owned(), vec![(TRACE.to_owned(), PARENT.to_owned())])
    );
    let root = all.iter().find(|span| span.kind == 2 && span.parent_span_id.is_empty());
    assert!(root.is_some_and(|root| root.links.is_empty()), "{all:#?}");
    daemon.end();
}

#[test]
fn two_attempts_of_a_call_are_below_one_door_and_a_lost_connection_has_a_duration() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    // The first process ends when it is asked to call a tool.
    let script = r#"if [ -e "$1" ]; then exec "$0" __demo-server; fi; : > "$1"
while read -r line; do case "$line" in *'"tools/call"'*) exit 1;; esac; printf '%s\n' "$line"; done | "$0" __demo-server"#;
    let once = home.join("once");
    let server = json!({ "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-host"), once], "repeatable": ["echo"] });
    let (mut daemon, got) = start(home, &server, Answers::Ok);
    let answer = call(&daemon, "echo__echo", &json!({ "text": "x" }), Some(&format!("00-{TRACE}-{PARENT}-01")));
    assert!(answer["result"].is_object(), "{answer}");
    let all = spans(&got, |spans| of_trace(spans, TRACE).len() >= 3);
    let own = of_trace(&all, TRACE);
    let [door, first, second] = own[..] else { panic!("{own:#?}") };
    assert_eq!((door.kind, first.kind, second.kind), (2, 3, 3));
    assert!([first, second].iter().all(|attempt| attempt.parent_span_id == door.span_id));
    let told = [first, second].map(|attempt| {
        let of = attributes(&attempt.attributes);
        (of["mcp_host.attempt"].clone(), of.get("error.type").cloned())
    });
    assert_eq!(told[1], ("2".to_owned(), None));
    assert_eq!((told[0].0.as_str(), told[0].1.is_some()), ("1", true), "{told:?}");
    daemon.end();
    let metrics = got.iter_until(|(path, ..)| path == "/v1/metrics");
    let request = ExportMetricsServiceRequest::decode(&*metrics.2).unwrap();
    let lasted = points(&request, "mcp.client.session.duration");
    let first = lasted.iter().find(|(of, _)| of["mcp_host.server"] == "echo");
    assert!(first.is_some_and(|(_, count)| *count >= 1), "{lasted:?}");
}

type Points = Vec<(std::collections::BTreeMap<String, String>, u64)>;

/// Returns the attributes and counts of a histogram.
fn points(request: &ExportMetricsServiceRequest, name: &str) -> Points {
    let mut metrics = request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
    let metric = metrics.rfind(|metric| metric.name == name);
    let Some(Data::Histogram(histogram)) = metric.and_then(|metric| metric.data.as_ref()) else { return Points::new() };
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    let of_point = |attributes_of| attributes(attributes_of).into_iter().map(owned).collect();
    histogram.data_points.iter().map(|point| (of_point(&point.attributes), point.count)).collect()
}

#[test]
fn a_session_is_told_by_a_hash_and_has_a_duration() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, got) = start(folder.path(), &demo(), Answers::Ok);
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let (head, _) =
        post(&daemon.port, "", &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }));
    let id = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = id.unwrap_or_else(|| panic!("{head}"));
    let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-06-18\r\n");
    for number in [2, 3] {
        let params = json!({ "name": "echo__echo", "arguments": { "text": "x" } });
        let (_, body) = post(
            &daemon.port,
            &headers,
            &json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params }),
        );
        assert!(body.contains("\"result\""), "{body}");
    }
    let all = spans(&got, |spans| spans.iter().filter(|span| span.kind == 2).count() >= 2);
    let sessions: Vec<String> = all
        .iter()
        .filter(|span| span.kind == 2)
        .map(|span| attributes(&span.attributes)["mcp.session.id"].clone())
        .collect();
    assert!(sessions.len() == 2 && sessions[0] == sessions[1] && sessions[0].len() == 32, "{sessions:?}");
    assert!(!format!("{all:?}").contains(&id), "the id itself opens the session");
    let mut gone = TcpStream::connect(format!("127.0.0.1:{}", daemon.port)).unwrap();
    let request =
        format!("DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n{headers}\r\n", daemon.port);
    gone.write_all(request.as_bytes()).unwrap();
    gone.read_to_end(&mut Vec::new()).unwrap();
    daemon.end();
    let metrics = got.iter_until(|(path, ..)| path == "/v1/metrics");
    let request = ExportMetricsServiceRequest::decode(&*metrics.2).unwrap();
    let lasted = points(&request, "mcp.server.session.duration");
    let of_http =
        lasted.iter().find(|(of, _)| of["mcp.protocol.version"] == "2025-06-18" && of["network.transport"] == "tcp");
    assert!(of_http.is_some_and(|(_, count)| *count == 1), "{lasted:?}");
}

/// The stream of a client over HTTP with SSE.
struct Stream {
    lines: BufReader<TcpStream>,
    /// Where the client posts.
    endpoint: String,
    port: String,
}

impl Stream {
    fn open(port: &str) -> Self {
        let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let head = format!("GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = Self { lines: BufReader::new(socket), endpoint: String::new(), port: port.to_owned() };
        stream.endpoint = stream.line("data: /messages");
        stream
    }

    /// Returns the next line that begins so, without `data: `.
    fn line(&mut self, begins: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if line.starts_with(begins) {
                return line.trim_start_matches("data: ").trim_end().to_owned();
            }
        }
    }

    fn post(&self, headers: &str, body: &Value) {
        let (body, Self { endpoint, port, .. }) = (body.to_string(), self);
        let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let head = format!(
            "POST {endpoint} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
             Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    }

    /// Posts a request, and waits for its answer.
    fn ask(&mut self, headers: &str, body: &Value) {
        self.post(headers, body);
        let answer = self.line("data: {");
        assert!(answer.contains("\"result\""), "{answer}");
    }
}

#[test]
fn a_header_is_the_parent_over_http_with_sse_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, got) = start(folder.path(), &demo(), Answers::Ok);
    let mut stream = Stream::open(&daemon.port);
    let params =
        json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    stream.ask("", &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }));
    let call = |id: u64| {
        let params = json!({ "name": "echo__echo", "arguments": { "text": "x" } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    stream.ask(&format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n"), &call(2));
    stream.ask("", &call(3));
    // A batch has one header for all of it.
    let other = "1".repeat(32);
    stream.post(&format!("traceparent: 00-{other}-{PARENT}-01\r\n"), &json!([call(4), call(5)]));
    (0..2).for_each(|_| drop(stream.line("data: {")));
    let doors = |spans: &[Span]| spans.iter().filter(|span| span.kind == 2).count();
    let all = spans(&got, |spans| doors(spans) >= 4);
    let told: Vec<_> = ["2", "3", "4", "5"]
        .iter()
        .map(|id| {
            let is_it = |span: &&Span| span.kind == 2 && attributes(&span.attributes)["jsonrpc.request.id"] == *id;
            let span = all.iter().find(is_it).unwrap_or_else(|| panic!("{all:#?}"));
            let of = attributes(&span.attributes);
            assert!(of["mcp.session.id"].len() == 32 && !stream.endpoint.contains(&of["mcp.session.id"]), "{of:?}");
            (hex(&span.trace_id), hex(&span.parent_span_id))
        })
        .collect();
    let with = |trace: &str| (trace.to_owned(), PARENT.to_owned());
    assert_eq!((&told[0], &told[2], &told[3]), (&with(TRACE), &with(&other), &with(&other)));
    assert_eq!(told[1].1, "", "a root");
    daemon.end();
}

#[test]
fn the_session_with_a_server_is_told_by_a_hash() {
    let (below, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = crate::daemon::daemon(below.path(), &json!({ "mcpServers": { "echo": demo() } }));
    server.hears("✓ echo");
    let entry = json!({ "url": format!("http://127.0.0.1:{}/mcp", server.port), "era": "legacy" });
    let (mut daemon, got) = start(folder.path(), &entry, Answers::Ok);
    for _ in 0..2 {
        let answer = call(&daemon, "echo__echo__echo", &json!({ "text": "x" }), None);
        assert!(answer["result"].is_object(), "{answer}");
    }
    let all = spans(&got, |spans| spans.iter().filter(|span| span.kind == 3).count() >= 2);
    let attempts = all.iter().filter(|span| span.kind == 3).map(|span| attributes(&span.attributes));
    let told: Vec<_> = attempts.map(|of| (of["mcp.session.id"].clone(), of["server.port"].clone())).collect();
    assert_eq!((told[0].0.len(), &told[0], &told[0].1), (32, &told[1], &server.port));
    daemon.end();
    server.end();
}

#[test]
fn arguments_and_results_are_told_masked_if_the_config_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, got) = collector(Answers::Ok);
    let mut daemon = daemon_of(folder.path(), &demo(), &json!({ "endpoint": origin, "arguments": true }), &[]);
    let words: Vec<String> = (0..90).map(|number| format!("{number} {}", "x".repeat(90))).collect();
    let arguments = json!({ "text": "y".repeat(130), "token": "canary-token-plover", "words": words });
    let answer = call(&daemon, "echo__echo", &arguments, None);
    assert!(answer.to_string().contains("yyy"), "{answer}");
    let all = spans(&got, |spans| spans.iter().any(|span| span.kind == 2));
    let door = all.iter().find(|span| span.kind == 2).unwrap();
    let of = attributes(&door.attributes);
    let (arguments, result) = (&of["gen_ai.tool.call.arguments"], &of["gen_ai.tool.call.result"]);
    assert!(arguments.contains("\"token\":\"***\"") && arguments.contains(" more"), "{arguments}");
    assert!((2048..=4096 + 64).contains(&arguments.len()), "{} bytes", arguments.len());
    for told in [arguments, result] {
        assert!(told.contains(&format!("{}…", "y".repeat(120))) && !told.contains("plover"), "{told}");
    }
    daemon.end();
}

#[test]
fn a_wait_for_a_slot_is_an_event_of_the_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = demo();
    server["maxConcurrent"] = 1.into();
    let (mut daemon, got) = start(folder.path(), &server, Answers::Ok);
    let port = daemon.port.clone();
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let port = port.clone();
            std::thread::spawn(move || {
                call_with(&port, "", json!({ "name": "echo__countdown", "arguments": { "from": 1 }, "_meta": {} }))
            })
        })
        .collect();
    for call in calls {
        assert!(call.join().unwrap()["result"].is_object());
    }
    let all = spans(&got, |spans| spans.iter().filter(|span| span.kind == 3).count() >= 2);
    let waits: Vec<_> = all.iter().flat_map(|span| &span.events).filter(|event| event.name == "queued").collect();
    assert_eq!(waits.len(), 1, "{all:#?}");
    let waited: u64 = attributes(&waits[0].attributes)["mcp_host.waited_ms"].parse().unwrap();
    assert!(waited > 0);
    daemon.end();
}

#[test]
fn the_attempt_of_a_parked_call_is_told_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, got) = collector(Answers::Ok);
    let mut daemon = daemon(home, &json!({ "endpoint": origin }), &[]);
    let trace = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01") });
    let mut params = json!({ "name": "echo__ask", "arguments": {}, "_meta": trace });
    let asked = call_with(&daemon.port, "", params.clone());
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    // The request has ended, its attempt has not.
    let first = spans(&got, |spans| !of_trace(spans, TRACE).is_empty());
    assert_eq!(of_trace(&first, TRACE).iter().map(|span| span.kind).collect::<Vec<_>>(), [2]);
    let door = of_trace(&first, TRACE)[0].clone();
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "Ada" } } });
    let answer = call_with(&daemon.port, "", params);
    assert!(answer.to_string().contains("Hello Ada"), "{answer}");
    let more = spans(&got, |spans| of_trace(spans, TRACE).iter().any(|span| span.kind == 3));
    let attempts: Vec<&Span> = of_trace(&more, TRACE).into_iter().filter(|span| span.kind == 3).collect();
    assert_eq!(attempts.len(), 1, "{attempts:#?}");
    assert_eq!(attempts[0].parent_span_id, door.span_id, "it is of the request that began the call");
    assert_eq!((events(attempts[0]), attempts[0].status.is_none()), (vec!["question"], true));
    let took = Duration::from_nanos(attempts[0].end_time_unix_nano - attempts[0].start_time_unix_nano);
    assert!(took > Duration::ZERO);
    daemon.end();
}
