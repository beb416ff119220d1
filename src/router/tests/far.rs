//! An HTTP server that treats requests as told and counts them, and can be switched off; and the routers before it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{self, Config, Prefix, Remote, Transport};
use crate::manager::Manager;
use crate::protocol::{Method, Raw};
use crate::router::Router;

/// How a request is treated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Met {
    /// The work is done, but the response is lost.
    Lost,
    /// The request is refused unread: there is no such session.
    Refused,
}

/// The server.
pub(super) struct Far {
    inner: Arc<Inner>,
    served: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Inner {
    port: AtomicUsize,
    /// How the next requests are treated; all others succeed.
    script: Mutex<VecDeque<Met>>,
    seen: Mutex<HashMap<String, usize>>,
    work: AtomicUsize,
    /// The valid session.
    session: AtomicUsize,
}

/// The kinds of client requests that servers answer.
pub(super) fn kinds() -> [(Method, Value); 4] {
    [
        (Method::ToolsCall, json!({ "name": "go", "arguments": {} })),
        (Method::PromptsGet, json!({ "name": "prompt" })),
        (Method::ResourcesRead, json!({ "uri": "thing:/one" })),
        (
            Method::Complete,
            json!({ "ref": { "type": "ref/prompt", "name": "prompt" }, "argument": { "name": "a", "value": "" } }),
        ),
    ]
}

/// What these servers report about themselves, and list.
pub(super) fn told(method: &str) -> Option<Value> {
    Some(match method {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "serverInfo": { "name": "far", "version": "1" },
            "capabilities": { "tools": {}, "prompts": {}, "resources": {}, "completions": {} } }),
        "tools/list" => json!({ "tools": [
            { "name": "go", "inputSchema": { "type": "object" } },
            { "name": "safe", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
        ] }),
        "prompts/list" => json!({ "prompts": [{ "name": "prompt" }] }),
        "resources/list" => json!({ "resources": [{ "uri": "thing:/one", "name": "one" }] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        _ => return None,
    })
}

/// A router over one server, whose entry `change` adapts.
pub(super) fn router_of(transport: Transport, change: impl FnOnce(&mut config::Server)) -> Router {
    let mut entry = config::Server::new("far", transport).unwrap();
    entry.prefix = Prefix::Never;
    entry.era = config::Era::Legacy;
    let (max_retries, min_delay, max_delay) = (1000, Duration::from_millis(5), Duration::from_millis(20));
    entry.restart = config::Restart { max_retries, min_delay, max_delay };
    change(&mut entry);
    let mut config = Config::default();
    config.servers.push(entry);
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &HashMap::new(), info.clone(), None, Default::default());
    Router::start(manager, news, info)
}

impl Far {
    pub(super) async fn start() -> Self {
        let far = Self { inner: Arc::default(), served: Mutex::default() };
        far.open().await;
        far
    }

    /// Begins to listen, at the previous address if there was one.
    pub(super) async fn open(&self) {
        let port = u16::try_from(self.inner.port.load(Ordering::SeqCst)).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        self.inner.port.store(listener.local_addr().unwrap().port().into(), Ordering::SeqCst);
        let inner = self.inner.clone();
        let served = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, inner.clone()));
            }
        });
        *self.served.lock().unwrap() = Some(served);
    }

    /// Stops listening.
    pub(super) async fn close(&self) {
        let served = self.served.lock().unwrap().take().unwrap();
        served.abort();
        let _ = served.await;
    }

    pub(super) fn router(&self, change: impl FnOnce(&mut config::Server)) -> Router {
        let url = format!("http://127.0.0.1:{}/mcp", self.inner.port.load(Ordering::SeqCst)).parse().unwrap();
        router_of(Transport::Http(Remote::new(url)), change)
    }

    /// Sets how the next requests are treated.
    pub(super) fn meet(&self, next: &[Met]) {
        self.inner.script.lock().unwrap().extend(next);
        self.inner.seen.lock().unwrap().clear();
        self.inner.work.store(0, Ordering::SeqCst);
    }

    /// Ends the current session.
    pub(super) fn expire(&self) {
        self.inner.session.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how often such a request arrived.
    pub(super) fn seen(&self, method: &str) -> usize {
        self.inner.seen.lock().unwrap().get(method).copied().unwrap_or_default()
    }

    /// Returns how often work was done in total.
    pub(super) fn work(&self) -> usize {
        self.inner.work.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut length, mut session) = (String::new(), 0, None);
    stream.read_line(&mut first).await.ok()?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("mcp-session-id", value)) => session = value.parse::<usize>().ok(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = if first.starts_with("POST") { inner.meet(&request, session)? } else { (405, Value::Null) };
    let body = if answer.is_null() { String::new() } else { answer.to_string() };
    let id = if request["method"] == "initialize" {
        format!("Mcp-Session-Id: {}\r\n", inner.session.load(Ordering::SeqCst))
    } else {
        String::new()
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{id}Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

impl Inner {
    /// Returns status and response; `None` if there is none.
    fn meet(&self, request: &Value, session: Option<usize>) -> Option<(u16, Value)> {
        let method = request["method"].as_str().unwrap_or_default();
        *self.seen.lock().unwrap().entry(method.to_owned()).or_default() += 1;
        let result = |result: Value| (200, json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
        if method == "initialize" {
            return told(method).map(result);
        }
        if session != Some(self.session.load(Ordering::SeqCst)) {
            return Some((404, Value::Null));
        }
        if let Some(told) = told(method) {
            return Some(result(told));
        }
        let is_ours = kinds().iter().any(|(kind, _)| kind.as_str() == method) || method.contains("roots");
        let met = if is_ours { self.script.lock().unwrap().pop_front() } else { None };
        if matches!(met, Some(Met::Refused)) {
            return Some((404, Value::Null));
        }
        if request["id"].is_null() {
            return if met.is_some() { None } else { Some((202, Value::Null)) };
        }
        self.work.fetch_add(1, Ordering::SeqCst);
        if matches!(met, Some(Met::Lost)) {
            return None;
        }
        Some(result(done(method)))
    }
}

/// Returns the result of such a request.
pub(super) fn done(method: &str) -> Value {
    match method {
        "prompts/get" => json!({ "messages": [] }),
        "resources/read" => json!({ "contents": [] }),
        "completion/complete" => json!({ "completion": { "values": [] } }),
        _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
    }
}
