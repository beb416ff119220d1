//! Rules about what servers ask.

use mcp_host::in_process::InProcess;
use mcp_host::protocol::Method;
use mcp_host::{Host, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::config;
use crate::views::clients::{Client, Transport};

/// A server whose tool asks the client, and tells what came of it.
fn asking() -> InProcess {
    let tool = json!({ "name": "ask", "inputSchema": { "type": "object" } });
    InProcess::new("it", "1").tool(tool.into(), |call| {
        Box::pin(async move {
            let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
            let params = json!({ "message": "May I?", "requestedSchema": schema });
            let answer = call.request(Method::Elicit, Some(params.into())).await;
            let said = match answer {
                Ok(answer) => format!("answered {answer:?}"),
                Err(error) => format!("refused: {error:?}"),
            };
            Ok(Raw::from(json!({ "content": [{ "type": "text", "text": said }] })))
        })
    })
}

#[tokio::test]
async fn a_server_that_may_not_ask_is_told_that_the_client_cannot_answer() {
    for (rules, may) in [
        (json!([]), true),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["elicit"], "tools": ["server:it"] }]), false),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["elicit"], "tools": ["server:other"] }]), true),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["sample", "roots"] }]), true),
    ] {
        let host = Host::builder().config(config(&json!({ "rules": rules }))).in_process("it", asking());
        let host = host.start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let able = json!({ "elicitation": {} });
        let mut client = Client::able(&host, to, Transport::Pipe, "2025-11-25", ("", able)).await;
        client.answer = json!({ "action": "accept", "content": { "a": "x" } });
        let answer: Value = client.ask("tools/call", json!({ "name": "it__ask", "arguments": {} })).await;
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!((said.starts_with("answered"), client.asked.len()), (may, usize::from(may)), "{rules}: {said}");
        host.shutdown().await;
    }
}
