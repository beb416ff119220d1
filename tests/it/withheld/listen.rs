//! What clients watch, by subscriptions and by change streams: each resource has a line in the audit, also one that a client
//! may not watch; and it is watched no more once a rule forbids it.

use mcp_host::Host;
use mcp_host::config::{Syntax, Vars, parse_str};
use serde_json::{Value, json};

use super::server::{KINDS, Kind, Server};
use super::{Names, Reason, config, start};
use crate::reload::until;
use crate::views::clients::{Client, Transport, send};

#[tokio::test]
async fn h99_each_resource_of_a_change_stream_has_its_line_in_the_audit() {
    for kind in KINDS {
        for transport in [Transport::Http, Transport::Pipe] {
            let (server, more) = (Server::new(kind).await, Server::new(Kind::Stdio).await);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("audit.jsonl");
            let rule = json!({ "name": "no-rows", "verdict": "deny", "hide": false, "resources": ["it+row:*"] });
            let host = json!({ "approval": "off", "audit": { "file": file }, "policy": { "rules": [rule] } });
            let text = json!({ "host": host, "mcpServers": { "it": server.entry(), "more": more.entry() } });
            let config = parse_str(&text.to_string(), Syntax::Json, "test.json", &Vars::from_process()).unwrap();
            let (host, to) = start(Host::builder().config(config).start().await.unwrap(), Reason::Allowed).await;
            let mut client = Client::enter(&host, to, transport, "2026-07-28", "").await;
            let uris = ["it+table:x", "it+row:1", "other+table:x"];
            let granted = client.listen(&json!({ "toolsListChanged": true, "resourceSubscriptions": uris })).await;
            assert_eq!(granted, json!({ "toolsListChanged": true, "resourceSubscriptions": ["it+table:x"] }));
            // One that watches nothing only hears of lists.
            client.listen(&json!({ "toolsListChanged": true })).await;
            host.shutdown().await;

            let text = std::fs::read_to_string(&file).unwrap();
            let line = |line: &str| -> Value {
                let line: Value = serde_json::from_str(line).unwrap();
                let verdict = &line["verdict"];
                json!([line["target"], line["server"], line["outcome"], line["kind"], line["code"], verdict["rule"]])
            };
            let mut lines: Vec<Value> = text.lines().map(line).collect();
            lines.sort_by_key(Value::to_string);
            let expected = [
                json!(["other+table:x", null, "error", null, -32602, null]),
                json!(["row:1", "it", "host_error", "denied", null, "no-rows"]),
                json!(["table:x", "it", "ok", null, null, null]),
            ];
            assert_eq!(lines, expected, "{kind:?} {transport:?}: {text}");
            for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
                assert_eq!(
                    (&line["method"], &line["via"]),
                    (&json!("resources/subscribe"), &json!("listen")),
                    "{line}"
                );
                assert_eq!((&line["client"], &line["view"]), (&json!("client"), &json!("all")), "{line}");
            }
        }
    }
}

/// Waits until the server gets this method for the resource.
async fn gets(host: &Host, server: &Server, method: &str) {
    let is_it = |message: &Value| message["method"] == method && message.to_string().contains("table:x");
    until(host, |_| server.got().iter().any(is_it).then_some(())).await;
}

#[tokio::test]
async fn what_is_watched_is_watched_no_more_once_a_rule_forbids_it() {
    for kind in [Kind::Stdio, Kind::Http] {
        for reason in [Reason::Hidden, Reason::Denied, Reason::Judged, Reason::Asked] {
            let server = Server::new(kind).await;
            let of = |reason| config(&server, &server, reason, Names::Prefixed);
            let (host, to) = start(Host::builder().config(of(Reason::Allowed)).start().await.unwrap(), reason).await;
            let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
            let watched = client.ask("resources/subscribe", json!({ "uri": "it+table:x" })).await;
            assert_eq!(watched["result"], json!({}), "{watched}");
            gets(&host, &server, "resources/subscribe").await;
            host.reload(of(reason));
            gets(&host, &server, "resources/unsubscribe").await;

            host.reload(of(Reason::Allowed));
            let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "client", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {} });
            let params = json!({ "_meta": meta, "notifications": { "resourceSubscriptions": ["it+table:x"] } });
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
            let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\n";
            let stream = tokio::spawn(async move { send(to, "POST", "/mcp", headers, &body.to_string()).await });
            gets(&host, &server, "resources/subscribe").await;
            host.reload(of(reason));
            let heard = stream.await.unwrap();
            assert!(heard.contains("it+table:x") && heard.contains(r#""result""#), "{kind:?} {reason:?}: {heard}");
            gets(&host, &server, "resources/unsubscribe").await;
            host.shutdown().await;
        }
    }
}
