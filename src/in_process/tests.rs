//! Two leases of one server, over wires in memory.

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{InProcess, Running};
use crate::protocol::{Message, Method, Profile, Raw, Request, RequestId, Response};
use crate::registry::Kind;
use crate::transport::{Memory, MemoryMessage};

struct Lease {
    wire: Memory,
    said: mpsc::Receiver<MemoryMessage>,
}

impl Lease {
    fn send(&self, message: Message) {
        self.wire.send(message).expect("room on the wire");
    }

    fn request(&self, id: i64, method: Method, params: &Value) {
        let params = Some(Raw::from_value(params));
        self.send(Message::Request(Request { id: RequestId::Number(id), method, params }));
    }

    async fn next(&mut self) -> (Option<u64>, Value) {
        let (during, message) = self.said.recv().await.expect("the server lives");
        (during, serde_json::from_slice(&message.frame().into_bytes()).expect("JSON"))
    }
}

fn lease(server: &std::sync::Arc<Running>, tasks: &TaskTracker) -> Lease {
    let (wire, said, end) = Memory::pair();
    server.start(end, tasks);
    Lease { wire, said }
}

fn tool(name: &str) -> Raw {
    Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }))
}

fn done() -> Raw {
    Raw::from_value(&json!({ "content": [] }))
}

/// `swap` offers `extra`, or withdraws it; `ask` asks for roots under a key and tells what it got.
fn server() -> InProcess {
    InProcess::new("test", "1")
        .tool(tool("swap"), |call| {
            Box::pin(async move {
                if !call.withdraw(Kind::Tools, "extra").await {
                    call.offer(Kind::Tools, tool("extra"), |_| Box::pin(async { Ok(done()) })).await;
                }
                Ok(done())
            })
        })
        .tool(tool("ask"), |call| {
            Box::pin(async move {
                if !call.profile().has(Profile::ROOTS) {
                    return Ok(done());
                }
                call.request_as("client_roots", Method::RootsList, None).await
            })
        })
}

#[tokio::test]
async fn a_changed_list_is_told_to_every_lease_before_the_call_ends() {
    let (running, tasks) = (Running::new(server()), TaskTracker::new());
    let (mut one, mut other) = (lease(&running, &tasks), lease(&running, &tasks));
    let changed = (None, json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    let answer = (None, json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [] } }));
    for names in [vec!["swap", "ask", "extra"], vec!["swap", "ask"]] {
        one.request(1, Method::ToolsCall, &json!({ "name": "swap" }));
        assert_eq!([one.next().await, one.next().await], [changed.clone(), answer.clone()]);
        assert_eq!(other.next().await, changed);
        other.request(2, Method::ToolsList, &json!({}));
        let listed = other.next().await.1;
        let listed: Vec<_> =
            listed["result"]["tools"].as_array().into_iter().flatten().map(|tool| &tool["name"]).collect();
        assert_eq!(listed, names);
    }
    one.request(3, Method::ToolsCall, &json!({ "name": "extra" }));
    let error = json!({ "code": -32602, "message": "unknown tool: extra" });
    assert_eq!(one.next().await.1, json!({ "jsonrpc": "2.0", "id": 3, "error": error }));
}

#[tokio::test]
async fn a_question_says_its_key_and_during_which_call_it_is_asked() {
    let (running, tasks) = (Running::new(server()), TaskTracker::new());
    let mut lease = lease(&running, &tasks);
    let hello = |capabilities: &Value| json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
    lease.request(1, Method::Initialize, &hello(&json!({})));
    lease.next().await;
    lease.request(2, Method::ToolsCall, &json!({ "name": "ask" }));
    assert_eq!(lease.next().await.1, json!({ "jsonrpc": "2.0", "id": 2, "result": { "content": [] } }));

    lease.request(3, Method::Initialize, &hello(&json!({ "roots": {} })));
    lease.next().await;
    lease.request(4, Method::ToolsCall, &json!({ "name": "ask" }));
    let params = json!({ "_meta": { "mcp-host/inputKey": "client_roots" } });
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": params });
    assert_eq!(lease.next().await, (Some(4), question));
    let outcome = Ok(Raw::from_value(&json!({ "roots": [] })));
    lease.send(Message::Response(Response { id: Some(RequestId::Number(1)), outcome }));
    assert_eq!(lease.next().await.1, json!({ "jsonrpc": "2.0", "id": 4, "result": { "roots": [] } }));
}
