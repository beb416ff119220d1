//! Rules that ask, and what else goes on with a call: it becomes a task, its server asks for roots, its client hears of
//! everything on one stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::protocol::Method;
use mcp_host::{Host, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Shop, call, config, denied, open};
use crate::views::clients::{Client, Transport};
use crate::withheld::server::{Kind, Server};

fn says(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

fn asks() -> Value {
    json!({ "rules": [{ "name": "careful", "verdict": "ask", "tools": ["it__*", "db__write"] }] })
}

/// Starts a host with that server, and a rule that asks.
async fn with(server: &Server) -> (Host, std::net::SocketAddr) {
    let host = json!({ "approval": "off", "policy": asks() });
    let text = json!({ "host": host, "mcpServers": { "it": server.entry() } }).to_string();
    let config = parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap();
    let host = Host::builder().config(config).start().await.unwrap();
    host.catalog_ready().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

fn as_task() -> Value {
    json!({ "name": "it__act", "arguments": {}, "task": { "ttl": 9000 } })
}

#[tokio::test]
async fn a_call_that_wants_to_be_a_task_is_asked_about_before_there_is_one() {
    for kind in [Kind::Stdio, Kind::Http] {
        let server = Server::new(kind).await;
        let (host, to) = with(&server).await;
        let able = json!({ "elicitation": {}, "tasks": {} });
        let mut client = Client::able(&host, to, Transport::Pipe, "2025-11-25", ("", able)).await;
        for (answer, is_yes) in [("no", false), ("once", true), ("no", false)] {
            server.got();
            client.answer = says(answer);
            let answer = client.ask("tools/call", as_task()).await;
            let calls: Vec<Value> =
                server.got().into_iter().filter(|message| message["method"] == "tools/call").collect();
            if is_yes {
                assert!(answer["result"]["task"]["taskId"].is_string(), "{kind:?}: {answer}");
                assert_eq!((calls.len(), &calls[0]["params"]["task"]), (1, &json!({ "ttl": 9000 })), "{calls:?}");
            } else {
                denied(&answer, "careful");
                assert!(calls.is_empty(), "{kind:?}: {calls:?}");
            }
        }
        assert_eq!(client.asked.len(), 3);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn a_client_without_a_session_that_takes_tasks_is_asked_by_a_result_first() {
    for kind in [Kind::Stdio, Kind::ModernHttp] {
        let server = Server::new(kind).await;
        let (host, to) = with(&server).await;
        let able = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let mut client = Client::able(&host, to, Transport::Http, "2026-07-28", ("", able)).await;
        server.got();
        let params = json!({ "name": "it__act", "arguments": { "path": "x" } });
        let asked = client.ask("tools/call", params.clone()).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{kind:?}: {asked}");
        assert_eq!(server.got(), [Value::Null; 0], "{kind:?}");
        let mut again = params;
        again["requestState"] = asked["result"]["requestState"].clone();
        again["inputResponses"] = json!({ "mcp-host-ask": says("once") });
        let done = client.ask("tools/call", again.clone()).await;
        assert!(done["result"].is_object() && done["result"]["resultType"] != "input_required", "{kind:?}: {done}");
        let calls = || server.got().iter().filter(|message| message["method"] == "tools/call").count();
        assert_eq!(calls(), 1, "{kind:?}");
        // The same answer is no second yes.
        let second = client.ask("tools/call", again).await;
        assert_eq!((second["result"]["resultType"].as_str(), calls()), (Some("input_required"), 0), "{second}");
        host.shutdown().await;
    }
}

/// A server whose tool asks for the roots of its client, and counts its calls.
fn rooted(calls: &Arc<AtomicUsize>) -> InProcess {
    let calls = calls.clone();
    let definition = json!({ "name": "write", "inputSchema": { "type": "object" } });
    InProcess::new("db", "1").tool(definition.into(), move |call| {
        let calls = calls.clone();
        Box::pin(async move {
            calls.fetch_add(1, Ordering::SeqCst);
            let roots = call.request(Method::RootsList, None).await?;
            Ok(Raw::from(json!({ "content": [{ "type": "text", "text": roots.to_string() }] })))
        })
    })
}

#[tokio::test]
async fn a_client_that_was_asked_for_its_roots_is_asked_for_permission_as_well() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let calls = Arc::<AtomicUsize>::default();
        let host = Host::builder().config(config(&asks())).in_process("db", rooted(&calls)).start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let able = json!({ "elicitation": {}, "roots": {} });
        let mut client = Client::able(&host, to, Transport::Pipe, revision, ("", able)).await;
        // From the first call on it is known that the server asks for roots: then they are asked for before a call.
        for (round, (answer, is_yes)) in [("once", true), ("no", false), ("once", true)].into_iter().enumerate() {
            let before = calls.load(Ordering::SeqCst);
            client.answer = says(answer);
            let (method, params) = call("db__write", json!({}));
            let answer = client.ask(method, params).await;
            if is_yes {
                let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
                assert!(text.contains("file:///of-the-client"), "{revision} {round}: {text}");
            } else {
                denied(&answer, "careful");
            }
            assert_eq!(calls.load(Ordering::SeqCst) - before, usize::from(is_yes), "{revision} {round}");
            let forms = client.asked.iter().filter(|asked| asked["method"] == "elicitation/create").count();
            assert_eq!(forms, round + 1, "{revision}: once for each call");
        }
        assert!(client.asked.iter().any(|asked| asked["method"] == "roots/list"), "{:?}", client.asked);
        host.shutdown().await;
    }
}

async fn at_stream(shop: &Shop, revision: &'static str) -> Client {
    Client::able(&shop.host, shop.to, Transport::Sse, revision, ("", json!({ "elicitation": {} }))).await
}

#[tokio::test]
async fn a_client_over_sse_is_asked_on_its_stream() {
    let shop = open(config(&asks()), None).await;
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut client = at_stream(&shop, revision).await;
        for (round, (answer, is_yes)) in [("once", true), ("no", false)].into_iter().enumerate() {
            let before = shop.calls();
            client.answer = says(answer);
            let (method, params) = call("db__write", json!({ "database": "a" }));
            let answer = client.ask(method, params).await;
            assert_eq!(client.asked.len(), round + 1, "{revision}");
            assert_eq!(client.asked[round]["method"], "elicitation/create");
            if is_yes {
                assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
            } else {
                denied(&answer, "careful");
            }
            assert_eq!(shop.calls() - before, usize::from(is_yes), "{revision}");
        }
    }
    assert!(shop.host.asks().is_empty());
    shop.host.shutdown().await;
}
