//! Hints of tools that changed: what counts is the stricter of what was approved and what is said now.

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::{Config, Host};
use serde_json::{Value, json};

use super::{WAYS, Way, World, act, until_waiting};
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
