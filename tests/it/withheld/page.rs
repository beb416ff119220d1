//! The page calls no more than other clients do.

use mcp_host::Host;
use mcp_host::admin::OpenRequest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::server::{KINDS, Server};
use super::{Names, REASONS, Reason, config, start};
use crate::views::clients::send;

/// Sends a request to the page's side of a host, and returns the last line of the answer.
async fn post(to: std::net::SocketAddr, path: &str, token: &str, body: &Value) -> Value {
    let headers = format!("origin: http://{to}\r\nauthorization: Bearer {token}\r\n");
    let answer = send(to, "POST", path, &headers, &body.to_string()).await;
    let lines = answer.lines().rev();
    lines.flat_map(serde_json::from_str).find(Value::is_object).unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn nothing_that_is_forbidden_reaches_a_server_from_the_page() {
    for kind in KINDS {
        for reason in [Reason::Allowed].into_iter().chain(REASONS) {
            let case = format!("{reason:?} × {kind:?}");
            let server = Server::new(kind).await;
            let host = Host::builder().config(config(&server, &server, reason, Names::Prefixed)).start().await.unwrap();
            let (host, _) = start(host, reason).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = listener.local_addr().unwrap();
            let endpoint = host.open_http(listener).unwrap();
            let link = endpoint.page_link(OpenRequest::default()).unwrap().url;
            tokio::spawn(endpoint.serve());
            let code = link.split_once("#k=").unwrap().1;
            let begun = post(to, "/console/session", "none", &json!({ "code": code })).await;
            let token = begun["token"].as_str().unwrap_or_else(|| panic!("{case}: {begun}"));
            server.got();
            for tool in ["it__act", "act", "it__other", "call_tool", "call_read_tool"] {
                let arguments = match tool {
                    "call_tool" | "call_read_tool" => json!({ "name": "it__act", "arguments": {} }),
                    _ => json!({ "path": "x" }),
                };
                // A rule that asks would ask the page: its calls are looked at elsewhere.
                if reason == Reason::Asked {
                    continue;
                }
                let said = post(to, "/console/call", token, &json!({ "tool": tool, "arguments": arguments })).await;
                let got = server.got();
                let acts: Vec<&Value> = got.iter().filter(|message| message["params"]["name"] == "act").collect();
                let arrives = reason == Reason::Allowed;
                assert_eq!(!acts.is_empty(), arrives, "{case}: {tool} is answered {said}, the server got {got:?}");
            }
            host.shutdown().await;
        }
    }
}
