//! Broken streams of a Streamable HTTP server: what is resumed, how often, and what is not believed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::protocol::Raw;
use mcp_host::{Error, Host};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What one connection of the response's stream carries. `ID` is the id of the call, `OTHER` that of another one.
#[derive(Clone, Copy)]
enum Part {
    /// Events and a clean end.
    Ends(&'static str),
    /// Events, then the connection breaks.
    Breaks(&'static str),
    /// A status instead of a stream.
    Status(u16),
    /// Every connection from here on.
    Always(&'static str),
}

use Part::{Always, Breaks, Ends, Status};

const PRIME: &str = "id: s-0\ndata:\n\n";
const DONE: &str = "id: s-9\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n";
const FOREIGN: &str = "id: s-8\ndata: {\"jsonrpc\":\"2.0\",\"id\":OTHER,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"foreign\"}]}}\n\n";

struct Server {
    inner: Arc<Inner>,
    port: u16,
    _served: JoinSet<()>,
}

#[derive(Default)]
struct Inner {
    parts: Mutex<VecDeque<Part>>,
    calls: Mutex<Vec<Value>>,
    /// `Last-Event-ID` of each GET.
    resumed: Mutex<Vec<String>>,
}

impl Server {
    async fn start(parts: &[Part]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner { parts: Mutex::new(parts.iter().copied().collect()), ..Inner::default() });
        let routes = Router::new().fallback(serve).with_state(inner.clone());
        let mut served = JoinSet::new();
        served.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { inner, port, _served: served }
    }

    async fn host(&self) -> Host {
        let entry = json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", self.port), "prefix": "never",
            "era": "legacy", "maxCallTime": "10m"});
        let text = json!({"mcpServers": {"cut": entry}}).to_string();
        let config = parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap();
        let host = Host::builder().config(config).start().await.unwrap();
        host.settled().await;
        host
    }

    fn resumed(&self) -> Vec<String> {
        self.inner.resumed.lock().unwrap().clone()
    }

    /// Waits until this many calls have arrived.
    async fn called(&self, count: usize) {
        while self.inner.calls.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }
}

async fn serve(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        let Some(last) = head.headers.get("last-event-id") else {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        };
        inner.resumed.lock().unwrap().push(last.to_str().unwrap().to_owned());
        return inner.next_part();
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "cut", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "go", "inputSchema": {"type": "object"}},
            {"name": "wait", "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => {
            inner.calls.lock().unwrap().push(message["id"].clone());
            if message["params"]["name"] == "wait" {
                return events(PRIME.to_owned(), End::Never);
            }
            return inner.next_part();
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
}

impl Inner {
    fn next_part(&self) -> Response {
        let part = {
            let mut parts = self.parts.lock().unwrap();
            match parts.front() {
                Some(Always(text)) => Ends(text),
                _ => parts.pop_front().unwrap(),
            }
        };
        let calls = self.calls.lock().unwrap();
        let fill = |text: &str| {
            let text = text.replace("ID", &calls.last().unwrap().to_string());
            text.replace("OTHER", &calls.first().unwrap().to_string())
        };
        match part {
            Ends(text) | Always(text) => events(fill(text), End::Good),
            Breaks(text) => events(fill(text), End::Broken),
            Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        }
    }
}

enum End {
    Good,
    Broken,
    Never,
}

fn events(text: String, end: End) -> Response {
    let pieces = stream::unfold((Some(text), end), |(text, end)| async move {
        match (text, end) {
            (Some(text), end) => Some((Ok(Bytes::from(text)), (None, end))),
            (None, End::Good) => None,
            (None, End::Broken) => {
                // Written data is sent once the stream has nothing more for a moment.
                tokio::task::yield_now().await;
                Some((Err(io::Error::other("cut")), (None, End::Good)))
            }
            (None, End::Never) => std::future::pending().await,
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

async fn call(host: &Host, tool: &str) -> Result<String, Error> {
    let result: Value = host.call_tool(tool, Raw::empty_object()).await?.read().unwrap();
    Ok(result["content"][0]["text"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn h24_an_answer_is_fetched_after_the_break() {
    let cases: [(&[Part], &[&str]); 5] = [
        (&[Ends(PRIME), Ends(DONE)], &["s-0"]),
        (&[Breaks(PRIME), Ends(DONE)], &["s-0"]),
        (&[Breaks("id: s-0\ndata:\n\nid: s-1\ndata: {\"jsonrpc\":\"2.0\",\"meth"), Ends(DONE)], &["s-0"]),
        (&[Breaks(PRIME), Status(503), Ends("id: s-3\ndata:\n\n"), Ends(DONE)], &["s-0", "s-0", "s-3"]),
        (
            &[
                Ends("retry: 10\nid: s-0\ndata:\n\n"),
                Ends(":\n\n"),
                Ends(":\n\n"),
                Ends(":\n\n"),
                Ends(":\n\n"),
                Ends(DONE),
            ],
            &["s-0"; 5],
        ),
    ];
    for (parts, resumed) in cases {
        let server = Server::start(parts).await;
        let host = server.host().await;
        tokio::time::pause();
        assert_eq!(call(&host, "go").await.unwrap(), "done");
        assert_eq!(server.resumed(), resumed);
        tokio::time::resume();
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h24_what_cannot_be_fetched_is_lost() {
    let cases: [(&[Part], usize); 4] = [
        (&[Breaks("data:\n\n")], 0),
        (&[Breaks(PRIME), Status(405)], 1),
        (&[Breaks(PRIME), Status(400)], 1),
        (&[Breaks(PRIME), Breaks(":\n\n"), Breaks(":\n\n"), Breaks(":\n\n")], 3),
    ];
    for (parts, resumed) in cases {
        let server = Server::start(parts).await;
        let host = server.host().await;
        tokio::time::pause();
        let error = call(&host, "go").await.unwrap_err().to_string();
        assert!(error.contains("outcome is unknown"), "{error}");
        assert_eq!(server.resumed().len(), resumed);
        tokio::time::resume();
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h25_a_resumed_stream_answers_no_other_call() {
    let server = Server::start(&[Breaks(PRIME), Ends(FOREIGN), Ends(DONE)]).await;
    let host = server.host().await;
    let waiting = host.call_tool("wait", Raw::empty_object());
    let mut waiting = std::pin::pin!(waiting.into_future());
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("it has no answer"),
        () = server.called(1) => {}
    }
    tokio::time::pause();
    tokio::select! {
        biased;
        answer = &mut waiting => panic!("another call's stream answered it: {answer:?}"),
        answer = call(&host, "go") => assert_eq!(answer.unwrap(), "done"),
    }
    assert_eq!(server.resumed(), ["s-0", "s-8"]);
    tokio::time::resume();
    host.shutdown().await;
}

#[tokio::test]
async fn h26_a_stream_that_ends_at_once_is_no_storm() {
    let server = Server::start(&[Ends("retry: 0\nid: s-0\ndata:\n\n"), Always("retry: 0\n\n")]).await;
    let host = server.host().await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    call(&host, "go").await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), Duration::from_secs(60).as_secs(), "callTimeout");
    assert!((5..=10).contains(&server.resumed().len()), "{}", server.resumed().len());
    tokio::time::resume();
    host.shutdown().await;
}
