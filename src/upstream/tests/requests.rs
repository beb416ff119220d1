//! Requests to a modern server over HTTP: their metadata, renegotiation when it no longer holds, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;
use crate::config::Era::Auto;
use crate::protocol::{Method, Profile, Raw};
use crate::registry::Kind;
use crate::upstream::{Exchange, Item, Owner, Terms};

const CALL: &str = "POST tools/call";
const LIST: &str = "POST tools/list";
const DISCOVER: &str = "POST server/discover";

/// A tool that wants its argument `city` in a header.
fn tool(header: &str) -> Value {
    json!({"name": "weather", "inputSchema": {"type": "object", "properties": {
        "city": {"type": "string", "x-mcp-header": header}, "days": {"type": "integer"}}}})
}

fn listed(tools: &Value) -> Value {
    json!({"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "public"})
}

fn weather() -> Value {
    json!({"name": "weather", "arguments": {"city": "Zürich", "days": 3}})
}

/// A modern server with these tools, whose calls `call` answers.
async fn server(call: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |seen| match seen.what().as_str() {
        DISCOVER => seen.result(&discovered(&json!({"tools": {}}))),
        LIST => seen.result(&listed(&json!([tool("City"), {"name": "bad", "inputSchema": {"type": "object",
            "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}}]))),
        _ => call(seen),
    })
    .await
}

async fn open(lease: &Lease, method: &Method, params: &Value) -> Exchange {
    let connection = lease.connected().await;
    let terms = Terms { owner: Owner(7), ..Terms::host() };
    connection.open(connection.next_id(), method, Some(&Raw::from_value(params)), &terms)
}

#[tokio::test]
async fn a_call_says_everything_of_itself() {
    let server = server(|seen| seen.result(&json!({"resultType": "complete", "content": []}))).await;
    let lease = Lease::start(server.target(), Auto);
    let connection = lease.connected().await;
    let terms = Terms {
        owner: Owner(7),
        profile: Profile::ROOTS.with(Profile::ROOTS_CHANGED).with(Profile::SAMPLING),
        extensions: Some(Raw::from_value(&json!({"io.modelcontextprotocol/ui": {}}))),
        level: Some("warning"),
        ..Terms::host()
    };
    let mut params = weather();
    params["_meta"] = json!({"progressToken": 5, "com.example/x": 1});
    let exchange = connection.open(connection.next_id(), &Method::ToolsCall, Some(&Raw::from_value(&params)), &terms);
    let result = exchange.outcome().await.unwrap().unwrap();
    assert_eq!(result.as_str(), r#"{"content":[],"resultType":"complete"}"#, "as the server said it");
    let call = server.until(CALL, 1).await;
    assert_eq!(
        call.body["params"]["_meta"],
        json!({
            "progressToken": 5, "com.example/x": 1,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities":
                {"roots": {}, "sampling": {}, "extensions": {"io.modelcontextprotocol/ui": {}}},
            "io.modelcontextprotocol/logLevel": "warning",
        })
    );
    let heads =
        ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-city", "mcp-param-days", "mcp-session-id"];
    let heads = heads.map(|name| call.header(name));
    assert_eq!(heads, ["2026-07-28", "tools/call", "weather", "=?base64?WsO8cmljaA==?=", "", ""]);
    let listing = server.until(LIST, 1).await;
    assert_eq!((listing.header("mcp-method"), listing.header("mcp-name")), ("tools/list", ""));
    lease.end().await;
}

#[tokio::test]
async fn a_tool_with_an_impossible_header_is_left_out() {
    let server = server(|_| Reply::HangUp).await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let offer = lease.upstream.offer().unwrap();
    assert_eq!(offer.count(Kind::Tools), 1);
    assert!(offer.problems().any(|problem| problem.contains("bad")));
    lease.end().await;
}

#[tokio::test]
async fn lists_say_how_long_they_are_good() {
    let server = server(|_| Reply::HangUp).await;
    let lease = Lease::start(server.target(), Auto);
    let fresh = lease.connected().await.freshness(Kind::Tools).unwrap();
    assert!(fresh.public && (50..=60).contains(&fresh.ttl.as_secs()), "{fresh:?}");
    assert!(lease.connected().await.freshness(Kind::Prompts).is_none());
    lease.end().await;
}

#[tokio::test]
async fn a_list_whose_time_is_over_is_read_for_the_next_one_who_asks() {
    let server = Server::start(|seen| match seen.what().as_str() {
        DISCOVER => seen.result(&discovered(&json!({"tools": {}, "prompts": {}}))),
        LIST => seen.result(&listed(&json!([tool("City")]))),
        _ => seen.result(&json!({"prompts": []})),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    let connection = lease.connected().await;
    assert!(!connection.freshness(Kind::Tools).unwrap().ttl.is_zero());
    assert_eq!(server.story().len(), 3);
    assert!(connection.freshness(Kind::Prompts).unwrap().ttl.is_zero(), "it said nothing of it");
    server.until("POST prompts/list", 2).await;
    lease.end().await;
}

#[tokio::test]
async fn h47_headers_that_do_not_fit_are_made_anew_once() {
    let lists = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| match seen.what().as_str() {
        DISCOVER => seen.result(&discovered(&json!({"tools": {}}))),
        LIST => {
            let header = if lists.fetch_add(1, Ordering::SeqCst) == 0 { "City" } else { "Town" };
            seen.result(&listed(&json!([tool(header)])))
        }
        _ if seen.header("mcp-param-town").is_empty() => seen.error(400, -32020, &json!({})),
        _ => seen.result(&json!({"content": []})),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Ok(json!({"content": []})));
    assert_eq!(server.story()[..5], [DISCOVER, LIST, CALL, LIST, CALL]);
    lease.end().await;
}

#[tokio::test]
async fn headers_that_never_fit_are_the_answer() {
    let server = server(|seen| seen.error(400, -32020, &json!({}))).await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("-32020".to_owned()));
    assert_eq!(server.story().iter().filter(|said| *said == CALL).count(), 2);
    lease.end().await;
}

#[tokio::test]
async fn a_capability_that_is_missing_is_the_answer() {
    let server = server(|seen| seen.error(400, -32021, &json!({"requiredCapabilities": {"sampling": {}}}))).await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("-32021".to_owned()));
    lease.end().await;
}

#[tokio::test]
async fn a_refused_revision_is_agreed_on_anew_and_the_request_not_counted_as_sent() {
    let server = server(|seen| seen.error(400, -32022, &json!({"supported": ["2026-07-28"]}))).await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("Renegotiated".to_owned()));
    assert_eq!(server.story(), [DISCOVER, LIST, CALL, DISCOVER]);
    assert!(!lease.connected().await.is_gone(), "it still speaks it");
    lease.end().await;
}

#[tokio::test]
async fn a_refused_revision_is_told_when_another_request_ends_the_connection_meanwhile() {
    let probes = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| match (seen.what().as_str(), seen.body["params"]["name"].as_str()) {
        (DISCOVER, _) if probes.fetch_add(1, Ordering::SeqCst) == 0 => seen.result(&discovered(&json!({}))),
        (DISCOVER, _) => Reply::Silence,
        (_, Some("first")) => seen.error(400, -32022, &json!({"supported": ["2026-07-28"]})),
        _ => Reply::Text(401, ""),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    let params = [json!({"name": "first"}), json!({"name": "second"})];
    let first = lease.ask(&Method::ToolsCall, &params[0]);
    let second = async {
        server.until(DISCOVER, 2).await;
        lease.ask(&Method::ToolsCall, &params[1]).await
    };
    let both = tokio::time::timeout(Duration::from_secs(9), async { tokio::join!(first, second) }).await;
    let (first, second) = both.expect("each has its end");
    assert_eq!(first, Err("Renegotiated".to_owned()), "it was refused, and did nothing");
    assert!(second.is_err_and(|error| error.starts_with("Unauthorized")));
    lease.end().await;
}

#[tokio::test]
async fn a_server_that_speaks_it_no_longer_is_connected_anew() {
    let probes = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| match seen.what().as_str() {
        DISCOVER if probes.fetch_add(1, Ordering::SeqCst) == 0 => seen.result(&discovered(&json!({}))),
        DISCOVER | CALL => seen.error(400, -32022, &json!({"supported": ["2025-11-25"]})),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("Renegotiated".to_owned()));
    assert_eq!(lease.revision().await, "2025-11-25");
    lease.end().await;
}

#[tokio::test]
async fn an_error_whose_id_could_not_be_read_is_the_answer_all_the_same() {
    let server = server(|_| {
        let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32021, "message": "no"}});
        Reply::Json(400, body.to_string())
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("-32021".to_owned()));
    lease.end().await;
}

#[tokio::test]
async fn an_answer_to_something_else_is_none() {
    let server = server(|seen| {
        let id = seen.body["id"].as_u64().unwrap() + 1;
        Reply::Json(200, json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string())
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert!(lease.ask(&Method::ToolsCall, &weather()).await.unwrap_err().starts_with("Malformed"));
    lease.end().await;
}

#[tokio::test]
async fn what_comes_before_the_answer_comes_with_it() {
    let server = server(|seen| {
        let progress = json!({"progressToken": seen.body["id"], "progress": 1});
        let says = [
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}),
            json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {"content": []}}),
        ];
        stream(says).1
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    let mut exchange = open(&lease, &Method::ToolsCall, &weather()).await;
    assert!(matches!(exchange.next().await, Item::Progress(_)));
    assert!(matches!(exchange.next().await, Item::Log(_)));
    assert!(matches!(exchange.next().await, Item::Done(Ok(_))));
    lease.end().await;
}

#[tokio::test]
async fn a_broken_stream_loses_its_request() {
    let server = server(|seen| {
        let progress = json!({"progressToken": seen.body["id"], "progress": 1});
        stream([json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})]).1
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    assert_eq!(lease.ask(&Method::ToolsCall, &weather()).await, Err("Broken".to_owned()));
    assert_eq!(server.story().iter().filter(|said| *said == CALL || *said == "GET").count(), 1, "nothing is resumed");
    assert!(!lease.connected().await.is_gone());
    lease.end().await;
}

#[tokio::test]
async fn h52_a_call_that_is_given_up_closes_its_stream_and_says_nothing() {
    let server = server(|seen| {
        let progress = json!({"progressToken": seen.body["id"], "progress": 1});
        let (sender, reply) =
            stream([json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})]);
        OPEN.with_borrow_mut(|open| open.push(sender));
        reply
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    let mut exchange = open(&lease, &Method::ToolsCall, &weather()).await;
    assert!(matches!(exchange.next().await, Item::Progress(_)));
    drop(exchange);
    server.until_closed(CALL, 1).await;
    lease.end().await;
    assert_eq!(server.story(), [DISCOVER, LIST, CALL], "no notification, no DELETE");
}

thread_local! {
    /// Streams that stay open.
    static OPEN: std::cell::RefCell<Vec<tokio::sync::mpsc::Sender<String>>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[tokio::test]
async fn a_session_id_of_a_modern_server_is_ignored() {
    let server = Server::start(|seen| {
        let result = if seen.what() == DISCOVER { discovered(&json!({})) } else { json!({"content": []}) };
        Reply::Session("s-1".to_owned(), json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string())
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    lease.ask(&Method::ToolsCall, &weather()).await.unwrap();
    assert_eq!(server.until(CALL, 1).await.header("mcp-session-id"), "");
    lease.end().await;
    assert_eq!(server.story(), [DISCOVER, CALL]);
}

#[tokio::test(start_paused = true)]
async fn h52_over_a_pipe_a_call_that_is_given_up_is_cancelled() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, crate::config::Era::Modern);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("server/discover").await;
    peer.result(&id, &discovered(&json!({}))).await;
    let exchange = open(&lease, &Method::ToolsCall, &weather()).await;
    let (id, params) = peer.hears("tools/call").await;
    assert_eq!(params["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    drop(exchange);
    let (_, params) = peer.hears("notifications/cancelled").await;
    assert_eq!(params["requestId"], id);
    let connection = lease.connected().await;
    connection.notify(Method::RootsListChanged, None);
    peer.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})).await;
    let other = open(&lease, &Method::ToolsCall, &weather()).await;
    peer.hears("tools/call").await;
    drop(other);
}

#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_fails_its_call_alone_over_http() {
    let server = server(|seen| {
        let arguments = &seen.body["params"]["arguments"];
        let depth = usize::try_from(arguments["depth"].as_u64().unwrap()).unwrap() - 2;
        let (id, open, close) = (&seen.body["id"], "[".repeat(depth), "]".repeat(depth));
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":{open}{close}}}}}"#);
        if arguments["stream"] == false {
            return Reply::Json(200, body);
        }
        let (sender, reply) = stream([]);
        sender.try_send(body).unwrap();
        reply
    })
    .await;
    let limits = crate::config::Limits { depth: 10, ..Default::default() };
    let lease = Lease::limited(server.target(), Auto, limits);
    for (depth, stream, fine) in [(10, false, true), (11, false, false), (10, true, true), (11, true, false)] {
        let params = json!({"name": "weather", "arguments": {"depth": depth, "stream": stream}});
        let answer = lease.ask(&Method::ToolsCall, &params).await;
        assert_eq!(answer.is_ok(), fine, "{depth} {stream}: {answer:?}");
    }
    assert_eq!(
        server.story().iter().filter(|said| *said == DISCOVER).count(),
        1,
        "the connection is as good as before"
    );
    lease.end().await;
}

#[cfg(unix)]
#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_fails_its_call_alone_over_a_pipe() {
    let script = r#"while read -r line; do
        id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
        case $line in
        *'"initialize"'*) result=$0 ;;
        *'"tools/call"'*) result="{\"x\":$(printf %s "$line" | sed -n 's/.*"nest":"\([][]*\)".*/\1/p')}" ;;
        *) continue ;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
    done"#;
    let args = vec!["-c".to_owned(), script.to_owned(), initialized().to_string()];
    let target =
        crate::upstream::Target::Stdio(crate::config::Stdio { command: "sh".to_owned(), args, ..Default::default() });
    let limits = crate::config::Limits { depth: 10, ..Default::default() };
    let lease = Lease::limited(target, crate::config::Era::Legacy, limits);
    for (depth, fine) in [(10, true), (11, false), (10, true)] {
        let nest = format!("{}{}", "[".repeat(depth - 2), "]".repeat(depth - 2));
        let params = json!({"name": "weather", "arguments": {"nest": nest}});
        let answer = lease.ask(&Method::ToolsCall, &params).await;
        assert_eq!(answer.is_ok(), fine, "{depth}: {answer:?}");
    }
    lease.end().await;
}
