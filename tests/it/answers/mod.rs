//! Answers that the host keeps, requests that it joins, and calls that it gives to another tool: `cache`, `host.cache`,
//! and `fallback`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod fallback;
mod joined;
mod kept;
mod modern;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::{InProcess, Invocation};
use mcp_host::protocol::{Method, Outcome};
use mcp_host::registry::Kind;
use mcp_host::{CallResult, Host, Raw};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The longest that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server has seen and done.
#[derive(Debug, Default)]
struct Seen {
    /// How often each tool was called, and each resource read.
    calls: Mutex<BTreeMap<String, usize>>,
    /// What the server got in `_meta`, in order.
    meta: Mutex<Vec<Value>>,
    /// Calls that wait.
    held: AtomicUsize,
    cancelled: AtomicUsize,
    release: Notify,
}

impl Seen {
    fn count(&self, name: &str) -> usize {
        self.calls.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    fn add(&self, name: &str) -> usize {
        let mut calls = self.calls.lock().unwrap();
        let count = calls.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }
}

fn said(text: &str) -> Raw {
    json!({ "content": [{ "type": "text", "text": text }] }).into()
}

fn tool(name: &str, more: &Value) -> Raw {
    let mut definition = json!({ "name": name, "inputSchema": { "type": "object", "properties": { "path": {} } } });
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    definition.into()
}

fn reads() -> Value {
    json!({ "annotations": { "readOnlyHint": true } })
}

/// What a tool does.
async fn act(name: &'static str, seen: Arc<Seen>, call: Invocation) -> Outcome {
    let count = seen.add(name);
    seen.meta.lock().unwrap().push(call.params.member("_meta").map_or(Value::Null, |own| own.read().unwrap()));
    let counted = || said(&format!("{name} {count} {}", call.arguments));
    match name {
        "fail" => Ok(json!({ "content": [{ "type": "text", "text": "over quota" }], "isError": true }).into()),
        "big" => Ok(said(&"x".repeat(3000))),
        "ask" => {
            let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
            call.request(Method::Elicit, Some(params.into())).await?;
            Ok(counted())
        }
        "relist" => {
            call.offer(Kind::Tools, tool("new", &json!({})), |_| async { Ok(said("new")) }.boxed()).await;
            Ok(said("relisted"))
        }
        "touch" => {
            call.notify(Method::ResourceUpdated, json!({ "uri": "file:///a" }).into()).await;
            Ok(said("touched"))
        }
        "slow" => {
            seen.held.fetch_add(1, Ordering::SeqCst);
            call.progress(1.0, None, "begun").await;
            tokio::select! {
                () = seen.release.notified() => Ok(counted()),
                () = call.cancelled() => {
                    seen.cancelled.fetch_add(1, Ordering::SeqCst);
                    Ok(said("cancelled"))
                }
            }
        }
        _ => Ok(counted()),
    }
}

/// A server whose tools count their calls. All but `look` and `put` are said to only read.
fn server(seen: &Arc<Seen>) -> InProcess {
    let mut server = InProcess::new("it", "1");
    for name in ["get", "fail", "big", "ask", "relist", "touch", "slow", "look", "put"] {
        let seen = seen.clone();
        let more = if matches!(name, "look" | "put") { json!({}) } else { reads() };
        server = server.tool(tool(name, &more), move |call| act(name, seen.clone(), call).boxed());
    }
    let seen = seen.clone();
    server.resource(json!({ "uri": "file:///a", "name": "a" }).into(), move |call| {
        let seen = seen.clone();
        async move {
            let count = seen.add("file:///a");
            if call.params.member("_meta").is_some_and(|own| own.member("com.example/hold").is_some()) {
                seen.held.fetch_add(1, Ordering::SeqCst);
                tokio::select! {
                    () = seen.release.notified() => {}
                    () = call.cancelled() => {
                        seen.cancelled.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            Ok(json!({ "contents": [{ "uri": "file:///a", "text": format!("read {count}") }] }).into())
        }
        .boxed()
    })
}

/// Reads a config without servers, with these settings of the host.
fn config(host: &Value) -> Config {
    let text = json!({ "mcpServers": {}, "host": host }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a host with that server, whose tools have these settings by their exposed names.
async fn start(seen: &Arc<Seen>, tools: &Value, cache: &Value) -> Host {
    let config = config(&json!({ "cache": cache, "views": { "all": { "tools": tools } } }));
    let host = Host::builder().config(config).in_process("it", server(seen)).start().await.unwrap();
    host.settled().await;
    host
}

/// Returns the age of an answer that was kept; `None` of one that is new.
fn age(result: &CallResult) -> Option<u64> {
    result.member("_meta")?.member("mcp-host/cache")?.member("ageMs")?.read().ok()
}

/// Waits until the condition holds.
async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, holds).await.expect("it never holds");
}
