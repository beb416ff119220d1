//! The servers of the catalogs: many at one port of a thread of their own. The first one changes a tool at each call of
//! [`FLIP`], another one each time, and says so. A tool that changed three times within an hour would be withheld.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// The tool that makes the first server change.
pub(crate) const FLIP: &str = "tool0";

/// The servers. Their thread ends with the process.
#[derive(Debug)]
pub(crate) struct Servers {
    to: SocketAddr,
    changes: Arc<AtomicUsize>,
}

impl Servers {
    pub(crate) fn start(count: usize, tools: usize) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port")?;
        listener.set_nonblocking(true)?;
        let (to, changes) = (listener.local_addr()?, Arc::<AtomicUsize>::default());
        let seen = changes.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let routes = axum::Router::new().route("/{server}/mcp", axum::routing::post(answer));
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, routes.with_state((seen, count, tools))).await
            })
        });
        Ok(Self { to, changes })
    }

    pub(crate) fn url(&self, server: usize) -> String {
        format!("http://{}/{server}/mcp", self.to)
    }

    /// Returns how often the first server has changed.
    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::SeqCst)
    }
}

/// Returns a definition of about 600 bytes.
fn tool(number: usize, version: usize) -> Value {
    let argument = |text: &str| json!({ "type": "string", "description": text });
    json!({
        "name": format!("tool{number}"), "annotations": { "readOnlyHint": true },
        "description": format!("Reads what is at a path, as many lines as are wanted, in the form {version}."),
        "inputSchema": { "type": "object", "required": ["path"], "properties": {
            "path": argument("The path, from the root of the project."),
            "from": { "type": "integer", "minimum": 1, "description": "The first line." },
            "lines": { "type": "integer", "minimum": 1, "maximum": 5000, "description": "How many lines." },
            "encoding": argument("The encoding of the file, if it is not UTF-8."),
        } },
    })
}

async fn answer(
    State((changes, count, tools)): State<(Arc<AtomicUsize>, usize, usize)>,
    Path(server): Path<usize>,
    body: String,
) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let version = if server == 0 { changes.load(Ordering::SeqCst) } else { 0 };
    let whole = |result: Value| json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }).to_string();
    let as_json = |text: String| ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    match body["method"].as_str().unwrap_or_default() {
        _ if server >= count => StatusCode::NOT_FOUND.into_response(),
        "initialize" => as_json(whole(json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": { "listChanged": true } }, "serverInfo": { "name": "s", "version": "1" } }))),
        "tools/list" => {
            let all: Vec<Value> =
                (0..tools).map(|number| tool(number, usize::from((1..=version).contains(&number)))).collect();
            as_json(whole(json!({ "tools": all })))
        }
        "tools/call" => {
            changes.fetch_add(1, Ordering::SeqCst);
            let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            let events = format!("data: {news}\n\ndata: {}\n\n", whole(json!({ "content": [] })));
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        "ping" => as_json(whole(json!({}))),
        _ => StatusCode::ACCEPTED.into_response(),
    }
}
