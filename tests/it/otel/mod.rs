//! Traces and metrics as a collector on this machine decodes them (`host.otel`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod collectors;
mod ways;

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};

use crate::canaries;
use crate::canaries::world::World;
use crate::daemon::run;
use crate::reload::program::{Daemon, mcp_host};
use crate::secrets::echo::request;

/// What the collector got: the path, the headers, and the body.
pub(crate) type Got = (String, String, Vec<u8>);

/// How the collector answers.
#[derive(Clone, Copy)]
pub(crate) enum Answers {
    Ok,
    /// It is busy, and says for how many seconds.
    Busy(&'static str, u32),
    /// It takes the request, and its answer comes after the deadline.
    Late,
    /// It takes the request, and ends the connection.
    HangsUp,
    Never,
}

/// Starts a collector. It ends with the test.
pub(crate) fn collector(answers: Answers) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || collect(stream, &sender, answers));
        }
    });
    (origin, got)
}

fn collect(mut stream: TcpStream, sender: &Sender<Got>, answers: Answers) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((head, body)) = request(&mut reader) {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let _ = sender.send((path, head.to_ascii_lowercase(), body));
        let taken = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
        let answer = match answers {
            Answers::Ok => taken,
            Answers::Busy(status, seconds) => {
                format!("HTTP/1.1 {status}\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n")
            }
            Answers::Late => {
                // The host gives up at its deadline, and closes.
                let _ = reader.read_to_end(&mut Vec::new());
                taken
            }
            Answers::HangsUp => return,
            // The connection stays open, and nothing comes.
            Answers::Never => continue,
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

fn daemon(home: &Path, otel: &Value, vars: &[(&str, &str)]) -> Daemon {
    let server = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"], "env": { "S": "canary-env-plover" } });
    daemon_of(home, &server, otel, vars)
}

/// Starts a daemon with that server as `echo`.
fn daemon_of(home: &Path, server: &Value, otel: &Value, vars: &[(&str, &str)]) -> Daemon {
    let config = json!({ "mcpServers": { "echo": server }, "host": { "otel": otel } });
    std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
    let mut command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
    command.envs(vars.iter().copied());
    let daemon = Daemon::start(command);
    daemon.hears("✓ echo");
    daemon
}

/// Posts a call of a client without a session, with this trace.
fn call(daemon: &Daemon, tool: &str, arguments: &Value, trace: Option<&str>) -> Value {
    let meta = trace.map_or_else(|| json!({}), |trace| json!({ "traceparent": trace }));
    call_with(&daemon.port, "", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
}

/// Posts a call of a client without a session that can be asked, with these params and these headers.
fn call_with(port: &str, headers: &str, mut params: Value) -> Value {
    let name = params["name"].as_str().unwrap().to_owned();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "a test", "version": "1" });
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": { "form": {} } });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let heads = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n{headers}");
    let (head, text) = post(port, &heads, &body);
    let line = text.lines().find(|line| line.contains("\"id\":7")).unwrap_or_else(|| panic!("{head}{text}"));
    serde_json::from_str(line.trim_start_matches("data:").trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Posts a message. Returns the head and the body of the answer.
fn post(port: &str, headers: &str, body: &Value) -> (String, String) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let heads = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((heads + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), text.to_owned())
}

fn spans_of(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans).collect()
}

/// Reads spans until there are as many as a test waits for.
pub(crate) fn spans(got: &Receiver<Got>, is_enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
    let mut all = Vec::new();
    while !is_enough(&all) {
        let (path, head, body) = got.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("only {all:#?}"));
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        if path.ends_with("/v1/traces") {
            all.extend(spans_of(&body));
        }
    }
    all
}

pub(crate) fn attributes(all: &[KeyValue]) -> BTreeMap<&str, String> {
    let shown = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    all.iter().map(|attribute| (attribute.key.as_str(), shown(attribute))).collect()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn client_door_and_attempt_share_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, got) = collector(Answers::Ok);
    let otel = json!({ "endpoint": format!("{origin}/base"), "headers": { "x-api-key": "canary-header-plover" } });
    let mut daemon = daemon(home, &otel, &[("OTEL_RESOURCE_ATTRIBUTES", "team=a")]);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let answer = call(&daemon, "echo__echo", &json!({ "text": "canary-argument-plover" }), Some(&parent));
    assert!(answer.to_string().contains("canary-argument-plover"), "{answer}");
    // Its client records nothing, so neither do we.
    call(
        &daemon,
        "echo__echo",
        &json!({ "text": "x" }),
        Some(&parent.replace("-01", "-00").replace(TRACE, &"1".repeat(32))),
    );
    let malformed = call(&daemon, "echo__echo", &json!({ "tex": "x" }), Some("00-nonsense"));
    assert_eq!(malformed["error"]["code"], -32602, "{malformed}");
    let calls = |spans: &[Span]| spans.iter().filter(|span| span.name.starts_with("tools/call")).count();
    let all = spans(&got, |spans| calls(spans) >= 4 && spans.iter().any(|span| span.name == "mcp_host.server.start"));
    let of_trace: Vec<&Span> = all.iter().filter(|span| hex(&span.trace_id) == TRACE).collect();
    let (door, attempt) = (of_trace[0], of_trace[1]);
    assert_eq!(
        (of_trace.len(), door.name.as_str(), attempt.name.as_str()),
        (2, "tools/call echo__echo", "tools/call echo")
    );
    assert_eq!((hex(&door.parent_span_id), &attempt.parent_span_id), ("b7ad6b7169203331".to_owned(), &door.span_id));
    assert_eq!((door.kind, attempt.kind), (2, 3), "server and client");
    assert!(
        door.start_time_unix_nano <= attempt.start_time_unix_nano
            && attempt.end_time_unix_nano >= attempt.start_time_unix_nano
    );
    insta::assert_debug_snapshot!(attributes(&door.attributes), @r#"
    {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo__echo",
        "jsonrpc.request.id": "7",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "mcp_host.server": "echo",
        "network.transport": "tcp",
    }
    "#);
    let mut of_attempt = attributes(&attempt.attributes);
    let id: u64 = of_attempt.remove("jsonrpc.request.id").unwrap().parse().unwrap();
    assert_ne!(id, 7, "the server gets an id of ours");
    insta::assert_debug_snapshot!(of_attempt, @r#"
    {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "mcp_host.attempt": "1",
        "mcp_host.server": "echo",
        "network.transport": "pipe",
    }
    "#);
    // A malformed parent is none: a new root.
    let failed = all.iter().find(|span| {
        attributes(&span.attributes).get("error.type").is_some_and(|kind| kind == "tool_error" || kind == "-32602")
    });
    let failed = failed.unwrap_or_else(|| panic!("{all:#?}"));
    assert!(hex(&failed.trace_id) != TRACE && failed.status.as_ref().unwrap().code == 2);
    assert!(!all.iter().any(|span| hex(&span.trace_id) == "1".repeat(32)), "it is not sampled");
    assert!(!format!("{all:?}").contains("plover"), "{all:#?}");
    // At the end come the metrics.
    let said = daemon.end().join("\n");
    assert!(!said.contains("plover"), "{said}");
    let metrics = got.iter_until(|(path, ..)| path == "/base/v1/metrics");
    let request = ExportMetricsServiceRequest::decode(&*metrics.2).unwrap();
    let of = &request.resource_metrics[0];
    let resource = attributes(&of.resource.as_ref().unwrap().attributes);
    assert_eq!((resource["service.name"].as_str(), resource["team"].as_str()), ("mcp-host", "a"));
    let names: Vec<&str> = of.scope_metrics[0].metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names[..2], ["mcp.server.operation.duration", "mcp.client.operation.duration"]);
    assert!(metrics.1.contains("x-api-key: canary-header-plover"), "its own collector gets its headers");
    assert!(!format!("{request:?}").contains("plover"));
}

trait Until {
    fn iter_until(&self, is_it: impl Fn(&Got) -> bool) -> Got;
}

impl Until for Receiver<Got> {
    fn iter_until(&self, is_it: impl Fn(&Got) -> bool) -> Got {
        loop {
            let got = self.recv_timeout(Duration::from_secs(20)).unwrap();
            if is_it(&got) {
                return got;
            }
        }
    }
}

#[test]
fn no_canary_of_any_kind_is_in_a_span_or_a_metric() {
    let folder = tempfile::tempdir().unwrap();
    let (home, world) = (folder.path(), World::start());
    let (origin, got) = collector(Answers::Ok);
    let mut config = world.config(home);
    // Its collector gets the header as a header, and nothing else gets it.
    let headers = json!({ "x-key": "plover-own-canary" });
    config["host"]["otel"] = json!({ "endpoint": origin, "headers": headers });
    let mut daemon = World::daemon(home, &config);
    canaries::world::visit(&daemon);
    daemon.end();
    let mut bodies = Vec::new();
    while let Ok((path, _, body)) = got.recv_timeout(Duration::from_secs(1)) {
        let text = match path.as_str() {
            "/v1/traces" => format!("{:?}", spans_of(&body)),
            _ => format!("{:?}", ExportMetricsServiceRequest::decode(&*body).unwrap()),
        };
        bodies.push(text);
    }
    let all = bodies.join("\n");
    for span in ["tools/call works__break", "tools/call echo", "completion/complete", "mcp_host.server.start"] {
        assert!(all.contains(span), "no {span}: {all}");
    }
    canaries::assert_none("spans and metrics", &all);
    assert!(!all.contains("plover"), "{all}");
}

#[test]
fn nothing_is_sent_without_the_key_and_wrong_words_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (origin, got) = collector(Answers::Ok);
    std::fs::write(home.join("mcp.json"), json!({ "mcpServers": {} }).to_string()).unwrap();
    let mut command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &origin);
    Daemon::start(command).end();
    assert!(got.try_recv().is_err());
    std::fs::write(home.join("mcp.json"), json!({ "mcpServers": {}, "host": { "otel": {} } }).to_string()).unwrap();
    let mut command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{text}");
    assert!(
        text.contains("OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\" is not spoken; use http/protobuf, port 4318"),
        "{text}"
    );
    let wrong =
        json!({ "mcpServers": {}, "host": { "otel": { "endpoint": "http://127.0.0.1:4317", "sample": "some" } } });
    std::fs::write(home.join("mcp.json"), wrong.to_string()).unwrap();
    let said = run(home, &["check", "--config", "mcp.json"]);
    assert!(said.contains("port 4317 is that of gRPC") && said.contains("host.otel.sample"), "{said}");
}
