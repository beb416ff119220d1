//! Hints of tools that changed: what counts is the stricter of what was approved and what is said now.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::{Config, Host};
use serde_json::{Value, json};

use super::{WAYS, Way, World, act, until_waiting};
use crate::auth::site::{Asked, Site, Told};
use crate::reload::until;

/// The tool, with this as what it says of itself.
fn saying(annotations: Value) -> Value {
    let mut tool = act();
    tool["annotations"] = annotations;
    tool
}

impl World {
    fn viewed(&self, approval: &str) -> Config {
        let mut config: Value = serde_json::from_str(&self.config(approval, &json!({}))).unwrap();
        config["host"]["views"] = json!({
            "reads": { "readOnly": "declared" },
            "writes": { "include": ["hint:not-read-only"] },
            "forced": { "readOnly": "declared", "tools": { "it__act": { "annotations": { "readOnlyHint": true } } } },
        });
        config::parse_str(&config.to_string(), Syntax::Json, "mcp.json", &Vars::from_process()).unwrap()
    }

    async fn viewing(&self, approval: &str) -> Host {
        let config = self.viewed(approval);
        let host = Host::builder().config(config).state_directory(self.path("state")).start().await.unwrap();
        self.listed(&host).await;
        host
    }
}

/// Returns the tools that a view shows.
async fn seen(host: &Host, view: &str) -> Vec<String> {
    let catalog = host.view(view).unwrap().catalog_ready().await;
    catalog.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

async fn views(host: &Host) -> [usize; 3] {
    [seen(host, "reads").await.len(), seen(host, "writes").await.len(), seen(host, "forced").await.len()]
}

#[tokio::test]
async fn h85_a_tool_that_calls_itself_read_only_since_yesterday_is_not_until_it_is_approved() {
    for way in WAYS {
        let world = World::new(way).await;
        world.list(&[saying(json!({ "readOnlyHint": false }))]);
        let host = world.viewing("warn").await;
        host.catalog_ready().await;
        assert_eq!(views(&host).await, [0, 1, 1]);
        host.shutdown().await;

        world.list(&[saying(json!({ "readOnlyHint": true }))]);
        let host = world.viewing("warn").await;
        assert_eq!(views(&host).await, [0, 1, 1], "at the first list already");
        let whole = host.catalog_ready().await;
        let said = whole.tools()[0].definition().member("annotations").unwrap();
        assert_eq!(said.as_str(), r#"{"readOnlyHint":true}"#, "clients see what the server says");
        let waiting = until_waiting(&host, 1).await;
        assert_eq!(views(&host).await, [0, 1, 1]);
        host.approve(&waiting).await.unwrap();
        assert_eq!(views(&host).await, [1, 0, 1]);
        host.shutdown().await;

        world.list(&[saying(json!({ "readOnlyHint": false }))]);
        let host = world.viewing("warn").await;
        assert_eq!(views(&host).await, [0, 1, 1], "less trust counts at once");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h85_a_loud_change_of_hints_counts_for_less_at_once() {
    let world = World::new(Way::Stdio).await;
    let host = world.viewing("warn").await;
    host.catalog_ready().await;
    assert_eq!(views(&host).await, [0, 1, 1]);
    let new = json!({ "name": "new", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } });
    world.put("loud", "");
    world.put("next", &format!("{},{new}", saying(json!({ "readOnlyHint": true }))));
    until(&host, |host| host.status()[0].changed.is_empty().then_some(())).await;
    host.call_tool("it__act", json!({ "a": "x" })).await.unwrap();
    let waiting = until_waiting(&host, 2).await;
    assert_eq!(views(&host).await, [0, 2, 1]);
    host.approve(&waiting).await.unwrap();
    assert_eq!(seen(&host, "reads").await, ["it__act", "it__new"]);
    host.shutdown().await;
}

#[tokio::test]
async fn h85_hints_count_as_they_are_said_where_nothing_is_compared() {
    let world = World::new(Way::Stdio).await;
    for (approval, reads, shown) in [("off", false, 0), ("off", true, 1)] {
        world.list(&[saying(json!({ "readOnlyHint": reads }))]);
        let host = world.viewing(approval).await;
        host.catalog_ready().await;
        assert_eq!(seen(&host, "reads").await.len(), shown);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h85_a_call_is_sent_again_only_if_the_tool_was_approved_as_safe() {
    let (says, calls) = (Arc::new(Mutex::new(saying(json!({})))), Arc::new(AtomicUsize::new(0)));
    let (listed, counted) = (says.clone(), calls.clone());
    // The connection breaks during each call.
    let site = Site::start(move |_| {
        move |asked: &Asked| {
            let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
            let result = match body["method"].as_str() {
                Some("initialize") => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "s", "version": "1" } }),
                Some("tools/list") => json!({ "tools": [*listed.lock().unwrap()] }),
                Some("tools/call") => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    return Told::Broken;
                }
                Some("ping") => json!({}),
                _ if asked.method == "GET" => return Told::Answer(405, Vec::new(), String::new()),
                _ => return Told::Answer(202, Vec::new(), String::new()),
            };
            Told::json(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }))
        }
    })
    .await;
    let state = tempfile::tempdir().unwrap();
    let entry = json!({ "type": "http", "url": format!("{}/mcp", site.url), "trustAnnotations": true });
    let config = json!({ "mcpServers": { "it": entry } }).to_string();
    let start = async || {
        let config = config::parse_str(&config, Syntax::Json, "mcp.json", &Vars::default()).unwrap();
        let host = Host::builder().config(config).state_directory(state.path()).start().await.unwrap();
        host.catalog_ready().await;
        host
    };
    let sent = async |host: &Host| {
        calls.store(0, Ordering::Relaxed);
        host.call_tool("it__act", json!({ "a": "x" })).await.unwrap_err();
        calls.load(Ordering::Relaxed)
    };
    let host = start().await;
    assert_eq!(sent(&host).await, 1, "nothing says that it is safe");
    host.shutdown().await;
    *says.lock().unwrap() = saying(json!({ "readOnlyHint": true }));
    let host = start().await;
    let waiting = until_waiting(&host, 1).await;
    assert_eq!(sent(&host).await, 1, "it says so since its last update");
    host.approve(&waiting).await.unwrap();
    assert_eq!(sent(&host).await, 2);
    host.shutdown().await;
}
