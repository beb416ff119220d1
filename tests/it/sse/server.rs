//! A scripted HTTP+SSE server: its answers are set, its requests are recorded.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How the server behaves.
#[derive(Clone)]
pub(super) struct Script {
    /// The status of a POST to `/sse` itself, and the body.
    pub(super) post: (u16, &'static str),
    /// The status of a GET to `/sse`.
    pub(super) get: u16,
    /// How its stream begins; `N` is the number of the stream, `PORT` the port.
    pub(super) first: &'static str,
    /// The status and body for an accepted message.
    pub(super) taken: (u16, &'static str),
    /// Whether responses of the client are ignored.
    pub(super) deaf: bool,
    pub(super) version: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            post: (405, "Method Not Allowed"),
            get: 200,
            first: "event: endpoint\ndata: /messages?session=N\n\n",
            taken: (202, "Accepted"),
            deaf: false,
            version: "2025-06-18",
        }
    }
}

/// One request as received.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) what: String,
    pub(super) headers: HashMap<String, String>,
}

pub(super) struct Server {
    pub(super) port: u16,
    inner: Arc<Inner>,
    _served: JoinSet<()>,
}

struct Inner {
    script: Script,
    port: u16,
    /// A later status for messages, whatever their session.
    refuse: AtomicU16,
    seen: Mutex<Vec<Seen>>,
    /// The open streams, by number.
    streams: Mutex<HashMap<String, mpsc::Sender<String>>>,
    opened: Mutex<usize>,
    /// The call that waits for the answer to its question.
    asking: Mutex<Option<Value>>,
}

impl Server {
    pub(super) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            script,
            port,
            refuse: AtomicU16::new(0),
            seen: Mutex::default(),
            streams: Mutex::default(),
            opened: Mutex::default(),
            asking: Mutex::default(),
        });
        let routes = Router::new().fallback(serve).with_state(inner.clone());
        let mut served = JoinSet::new();
        served.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { port, inner, _served: served }
    }

    /// Returns the requests so far: HTTP verb, path, and method of the message.
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.inner.seen).clone()
    }

    /// Returns the requests so far, in short.
    pub(super) fn story(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    /// Ends every open stream.
    pub(super) fn hang_up(&self) {
        lock(&self.inner.streams).clear();
    }

    /// Answers messages with this status until told otherwise.
    pub(super) fn refuse(&self, status: u16) {
        self.inner.refuse.store(status, Ordering::SeqCst);
    }

    /// Sends a text on every stream.
    pub(super) fn say(&self, text: &str) {
        for stream in lock(&self.inner.streams).values() {
            stream.try_send(text.to_owned()).unwrap();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

async fn serve(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let said = message["method"].as_str().map_or_else(|| "-".to_owned(), str::to_owned);
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let mut what = format!("{} {target}", head.method);
    if head.method == Method::POST {
        what = format!("{what} {said}");
    }
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    lock(&inner.seen).push(Seen { what, headers });
    let moved = |status: u16, to: &str| (code(status), [(header::LOCATION, to.to_owned())]).into_response();
    match (&head.method, head.uri.path()) {
        (_, "/round") => moved(307, "/round"),
        (_, "/away") => moved(307, &format!("http://localhost:{}/sse", inner.port)),
        (_, "/nowhere") => moved(307, "http://["),
        (_, "/found") => moved(302, "/sse"),
        (_, path) if path.starts_with("/moved/") => moved(307, target.strip_prefix("/moved").unwrap()),
        (&Method::GET, "/sse") => inner.open(),
        (&Method::POST, "/messages") if inner.script.deaf && message["method"].is_null() => {
            std::future::pending().await
        }
        (&Method::POST, "/messages") => {
            let number = head.uri.query().and_then(|query| query.strip_prefix("session=")).unwrap_or_default();
            inner.take(number, &message)
        }
        (&Method::POST, "/sse") => {
            let (status, body) = inner.script.post;
            let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
            (code(status), [(header::CONTENT_TYPE, kind)], body.replace("\"ID\"", &message["id"].to_string()))
                .into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}

impl Inner {
    fn open(&self) -> Response {
        if self.script.get != 200 {
            return code(self.script.get).into_response();
        }
        let number = {
            let mut opened = lock(&self.opened);
            *opened += 1;
            opened.to_string()
        };
        let (sender, receiver) = mpsc::channel::<String>(64);
        let first = self.script.first.replace('N', &number).replace("PORT", &self.port.to_string());
        sender.try_send(first).unwrap();
        lock(&self.streams).insert(number, sender);
        let pieces = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        let body = Body::from_stream(pieces.map(|text| Ok::<_, Infallible>(Bytes::from(text))));
        ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
    }

    fn take(&self, number: &str, message: &Value) -> Response {
        let refuse = self.refuse.load(Ordering::SeqCst);
        if refuse != 0 {
            return code(refuse).into_response();
        }
        let Some(stream) = lock(&self.streams).get(number).cloned() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        for answer in self.answers(message) {
            stream.try_send(format!("event: message\ndata: {answer}\n\n")).unwrap();
        }
        let (status, body) = self.script.taken;
        (code(status), body).into_response()
    }

    /// The server itself: `echo` returns its arguments, `never` is silent, `ask` reports, logs, and asks before it
    /// answers.
    fn answers(&self, message: &Value) -> Vec<Value> {
        let id = &message["id"];
        let result = |id: &Value, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") => {
                let info = json!({"name": "script", "version": "1"});
                let capabilities = json!({"tools": {}, "logging": {}});
                let version = self.script.version;
                vec![result(id, json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}))]
            }
            Some("tools/list") => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                let tools = ["echo", "never", "ask"].map(tool);
                vec![result(id, json!({"tools": tools}))]
            }
            Some("tools/call") => match params["name"].as_str() {
                Some("echo") => {
                    let text = params["arguments"].to_string();
                    vec![result(id, json!({"content": [{"type": "text", "text": text}]}))]
                }
                Some("ask") => {
                    *lock(&self.asking) = Some(id.clone());
                    let token = &params["_meta"]["progressToken"];
                    let schema = json!({"type": "object", "properties": {}});
                    vec![
                        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}),
                        json!({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}),
                    ]
                }
                _ => Vec::new(),
            },
            None if *id == json!("q1") => {
                let call = lock(&self.asking).take().unwrap();
                let text = message["result"].to_string();
                vec![result(&call, json!({"content": [{"type": "text", "text": text}]}))]
            }
            _ => Vec::new(),
        }
    }
}
