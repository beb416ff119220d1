//! Sessions over HTTP go on after a restart: what they keep, and what ends them all the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use futures_util::FutureExt as _;
use mcp_host::Host;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::views::clients::send;

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// One run of a host: its servers have 30 tools, and it keeps its state in a folder.
struct Run {
    host: Host,
    to: SocketAddr,
}

impl Run {
    async fn start(state: Option<&Path>, settings: &Value) -> Self {
        let server = (0..30).fold(InProcess::new("s", "1"), |server, number| {
            let definition = json!({ "name": format!("t{number}"), "description": format!("Does the thing {number}."),
                "inputSchema": { "type": "object" } });
            server.tool(definition.into(), |_| {
                async { Ok(json!({ "content": [{ "type": "text", "text": "done" }] }).into()) }.boxed()
            })
        });
        let mut builder = Host::builder().config(config(settings)).in_process("s", server);
        if let Some(state) = state {
            builder = builder.state_directory(state);
        }
        let host = builder.start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(host.open_http(listener).unwrap().serve());
        Self { host, to }
    }

    /// Ends this run, and starts another one with the same state.
    async fn again(self, state: Option<&Path>, settings: &Value) -> Self {
        self.host.shutdown().await;
        Self::start(state, settings).await
    }

    /// Opens a session, and returns its header.
    async fn open(&self, path: &str, more: &str, (revision, capabilities): (&str, &Value)) -> String {
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": { "name": "c", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
        let answer = send(self.to, "POST", path, more, &body).await;
        let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        format!("{more}mcp-session-id: {}\r\n", id.unwrap_or_else(|| panic!("{answer}")))
    }

    async fn status(&self, method: &str, path: &str, session: &str) -> String {
        let body = if method == "POST" { LIST } else { "" };
        send(self.to, method, path, session, body).await.split(' ').nth(1).unwrap().to_owned()
    }

    /// Returns the names of the tools that this session lists.
    async fn tools(&self, path: &str, session: &str) -> Vec<String> {
        let answer = send(self.to, "POST", path, session, LIST).await;
        let body = answer.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let body = body.unwrap_or_else(|| panic!("{answer}"));
        let tools = body["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

fn config(host: &Value) -> Config {
    let text = json!({ "mcpServers": {}, "host": host }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn h62_a_host_that_is_restarted_knows_its_sessions() {
    let state = tempfile::tempdir().unwrap();
    let run = Run::start(Some(state.path()), &json!({})).await;
    let all = json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {}, "url": {} },
        "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } } });
    let mut sessions = Vec::new();
    for revision in REVISIONS {
        for capabilities in [&json!({}), &all] {
            sessions.push(run.open("/mcp", "", (revision, capabilities)).await);
        }
    }
    let run = run.again(Some(state.path()), &json!({})).await;
    assert!(run.host.clients().is_empty());
    for session in &sessions {
        assert_eq!(run.tools("/mcp", session).await.len(), 30, "{session}");
    }
    let told: Vec<_> = run.host.clients().into_iter().map(|client| (client.name, client.revision)).collect();
    let want = REVISIONS.iter().flat_map(|revision| [*revision; 2]).map(|of| ("c".to_owned(), of.to_owned()));
    assert_eq!(told, want.collect::<Vec<_>>());
    // An embedding program without a state directory keeps nothing.
    let run = run.again(None, &json!({})).await;
    assert_eq!(run.status("POST", "/mcp", &sessions[0]).await, "404");
    run.host.shutdown().await;
}

#[tokio::test]
async fn a_session_keeps_its_view_and_how_its_tools_are_listed() {
    let state = tempfile::tempdir().unwrap();
    let state = Some(state.path());
    let settings = |views: Value, mode: &str| json!({ "views": views, "catalog": { "mode": mode } });
    let views = json!({ "few": { "include": ["s__t1", "s__t2"] }, "other": { "include": ["s__t3"] } });
    let run = Run::start(state, &settings(views.clone(), "search")).await;
    let client = ("2025-11-25", &json!({}));
    let few = run.open("/mcp/few", "", client).await;
    let searches = run.open("/mcp", "", client).await;
    let listed = run.tools("/mcp", &searches).await;
    assert!(listed.iter().any(|name| name.contains("find_tools")), "{listed:?}");
    let run = run.again(state, &settings(views, "full")).await;
    assert_eq!(run.tools("/mcp", &searches).await, listed, "a session keeps its mode");
    for path in ["/mcp", "/mcp/other", "/mcp/all"] {
        assert_eq!(run.status("POST", path, &few).await, "404", "{path}");
    }
    assert_eq!(run.tools("/mcp/few", &few).await, listed, "of the view, too");
    // A view that is gone ends its sessions.
    let run = run.again(state, &settings(json!({ "other": { "include": ["s__t3"] } }), "full")).await;
    assert_eq!(run.status("POST", "/mcp/few", &few).await, "404");
    assert_eq!(run.status("POST", "/mcp", &few).await, "404");
    assert_eq!(run.status("POST", "/mcp", &searches).await, "200");
    run.host.shutdown().await;
}

#[tokio::test]
async fn h60_only_its_own_principal_takes_a_session_up() {
    let state = tempfile::tempdir().unwrap();
    let state = Some(state.path());
    // The SHA-256 of `one` and of `two`.
    let settings = json!({ "auth": { "type": "bearer", "clients": {
        "one": "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
        "two": "sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3" } } });
    let run = Run::start(state, &settings).await;
    let own = run.open("/mcp", "authorization: Bearer one\r\n", ("2025-06-18", &json!({}))).await;
    let run = run.again(state, &settings).await;
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(run.status(method, "/mcp", &own.replace("one", "two")).await, "404", "{method}");
        assert_eq!(run.status(method, "/mcp", &own.replace("Bearer one", "Bearer x")).await, "401", "{method}");
    }
    assert_eq!(run.status("POST", "/mcp", &own).await, "200");
    assert_eq!(run.status("DELETE", "/mcp", &own).await, "204");
    let run = run.again(state, &settings).await;
    assert_eq!(run.status("POST", "/mcp", &own).await, "404", "its client ended it");
    run.host.shutdown().await;
}

#[tokio::test]
async fn h94_a_damaged_key_ends_sessions_and_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let state = Some(folder.path());
    let run = Run::start(state, &json!({})).await;
    let path = folder.path().join("session-key.json");
    assert!(!path.exists(), "nothing is made before the first session");
    let client = ("2025-11-25", &json!({}));
    let before = run.open("/mcp", "", client).await;
    let key = fs::read_to_string(&path).unwrap();
    fs::write(&path, "{").unwrap();
    let run = run.again(state, &json!({})).await;
    assert_eq!(run.status("POST", "/mcp", &before).await, "404");
    let within = run.open("/mcp", "", client).await;
    assert_eq!(run.status("POST", "/mcp", &within).await, "200");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{", "it is left as it is");
    let run = run.again(state, &json!({})).await;
    assert_eq!(run.status("POST", "/mcp", &within).await, "404", "it ended with its process");
    // Put back, it is as good as before.
    fs::write(&path, key).unwrap();
    let run = run.again(state, &json!({})).await;
    assert_eq!(run.status("POST", "/mcp", &before).await, "200");
    // With no life, a session ends with its process.
    let run = run.again(state, &json!({ "sessionLife": "0s" })).await;
    assert_eq!(run.status("POST", "/mcp", &before).await, "404");
    run.host.shutdown().await;
}
