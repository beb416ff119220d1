//! Which view a client gets: by path, header, token, or the config; and what a reload makes of it.

use serde_json::{Value, json};

use super::clients::{Client, Transport, send};
use super::{config, settings, start};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

fn session(answer: &str) -> String {
    let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    format!("mcp-session-id: {}\r\n", id.unwrap_or_else(|| panic!("{answer}")))
}

/// Returns a list request of a client without a session.
fn modern() -> (String, String) {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    ("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n".to_owned(), body.to_string())
}

/// Returns the number of tools in an answer, and whether caches may share it.
fn listed(answer: &str) -> (usize, String) {
    let body =
        answer.lines().find_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)).ok());
    let result = body.unwrap_or_else(|| panic!("{answer}"))["result"].clone();
    let scope = result["cacheScope"].as_str().unwrap_or_default().to_owned();
    (result["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).len(), scope)
}

#[tokio::test]
async fn a_view_is_chosen_by_path_then_header_then_config() {
    let mut own = settings();
    own["view"] = json!("data");
    let (host, to) = start(config(&own)).await;
    let (head, body) = modern();
    let ask = async |path: &str, more: &str| send(to, "POST", path, &format!("{head}{more}"), &body).await;
    assert_eq!(listed(&ask("/mcp", "").await), (2, "public".to_owned()));
    assert_eq!(listed(&ask("/mcp/all", "").await), (5, "public".to_owned()));
    assert_eq!(listed(&ask("/mcp/review", "").await), (2, "public".to_owned()));
    assert_eq!(listed(&ask("/mcp", "mcp-host-view: reads\r\n").await), (2, "private".to_owned()));
    assert_eq!(listed(&ask("/mcp/reads", "mcp-host-view: reads\r\n").await).0, 2);
    assert_eq!(status(&ask("/mcp/reads", "mcp-host-view: data\r\n").await), "400");
    assert_eq!(listed(&ask("/mcp?view=all", "").await).0, 2, "queries are not read");
    let unknown = ask("/mcp/none", "").await;
    assert_eq!(status(&unknown), "404", "{unknown}");
    assert_eq!(status(&ask("/mcp", "mcp-host-view: none\r\n").await), "404");
    assert_eq!(status(&send(to, "GET", "/sse/none", "", "").await), "404");
    host.shutdown().await;
}

#[tokio::test]
async fn a_list_that_rules_make_for_some_callers_is_private_to_caches() {
    for (who, scope) in [(json!({ "principals": ["local"] }), "private"), (json!({ "views": ["data"] }), "public")] {
        let mut rule = json!({ "name": "r", "verdict": "deny", "tools": ["none__*"] });
        rule.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
        let mut own = settings();
        own["policy"] = json!({ "rules": [rule] });
        let (host, to) = start(config(&own)).await;
        let (head, body) = modern();
        let answer = send(to, "POST", "/mcp", &head, &body).await;
        assert_eq!(listed(&answer).1, scope, "{who}");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn without_views_only_all_exists() {
    let (host, to) = start(config(&json!({}))).await;
    let (head, body) = modern();
    for (path, want) in [("/mcp", "200"), ("/mcp/all", "200"), ("/mcp/review", "404"), ("/mcp/all/x", "404")] {
        assert_eq!(status(&send(to, "POST", path, &head, &body).await), want, "{path}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_session_stays_in_its_view() {
    let (host, to) = start(config(&settings())).await;
    let session = session(&send(to, "POST", "/mcp/review", "", HELLO).await);
    assert_eq!(listed(&send(to, "POST", "/mcp/review", &session, LIST).await).0, 2);
    for path in ["/mcp", "/mcp/data", "/mcp/all"] {
        assert_eq!(status(&send(to, "POST", path, &session, LIST).await), "404", "{path}");
    }
    assert_eq!(status(&send(to, "DELETE", "/mcp", &session, "").await), "404");
    let by_header = format!("{session}mcp-host-view: review\r\n");
    assert_eq!(listed(&send(to, "POST", "/mcp", &by_header, LIST).await).0, 2);
    host.shutdown().await;
}

#[tokio::test]
async fn a_token_is_bound_to_its_views_and_a_view_to_its_people() {
    let mut own = settings();
    // The SHA-256 of `one` and of `two`.
    let hashes = [
        "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
        "sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",
    ];
    own["auth"] = json!({ "type": "bearer", "clients": {
        "one": { "hash": hashes[0], "views": ["review", "data"] }, "two": hashes[1] } });
    own["views"]["reads"]["for"] = json!(["two"]);
    let (host, to) = start(config(&own)).await;
    let (head, body) = modern();
    let ask = async |path: &str, token: &str| {
        send(to, "POST", path, &format!("{head}authorization: Bearer {token}\r\n"), &body).await
    };
    assert_eq!(listed(&ask("/mcp", "one").await), (2, "private".to_owned()), "its first view");
    assert_eq!(listed(&ask("/mcp/data", "one").await).0, 2);
    assert_eq!(status(&ask("/mcp/all", "one").await), "404");
    assert_eq!(status(&ask("/mcp/reads", "one").await), "404");
    assert_eq!(listed(&ask("/mcp", "two").await).0, 5);
    assert_eq!(listed(&ask("/mcp/reads", "two").await), (2, "private".to_owned()));
    host.shutdown().await;
}

#[tokio::test]
async fn a_view_that_is_gone_ends_its_sessions() {
    let (host, to) = start(config(&settings())).await;
    let gone = session(&send(to, "POST", "/mcp/review", "", HELLO).await);
    let stays = session(&send(to, "POST", "/mcp/data", "", HELLO).await);
    let mut stream = Client::enter(&host, to, Transport::Sse, "2024-11-05", "/review").await;
    assert!(stream.ask("tools/list", json!({})).await["result"].is_object());
    let mut others = settings();
    others["views"].as_object_mut().unwrap().remove("review");
    others["views"]["data"]["exclude"] = json!(["db__write"]);
    host.reload(config(&others));
    assert_eq!(status(&send(to, "POST", "/mcp/review", &gone, LIST).await), "404");
    assert_eq!(status(&send(to, "POST", "/mcp", &gone, LIST).await), "404");
    assert_eq!(listed(&send(to, "POST", "/mcp/data", &stays, LIST).await).0, 1, "what stays shows the new definition");
    assert!(stream.ended().await);
    host.shutdown().await;
}
