//! The audit names the view of each call, and the definition that was called.

use mcp_host::config::Audit;
use serde_json::{Value, json};

use super::clients::{Client, Transport};
use super::{config, settings, start};

#[tokio::test]
async fn h99_a_line_names_the_view_and_the_definition_that_the_server_listed() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.jsonl");
    let mut config = config(&settings());
    config.host.audit = Some(Audit::new(&file));
    let (host, to) = start(config).await;
    let mut calls = 0;
    for (view, revision) in
        [("/review", "2025-11-25"), ("", "2025-11-25"), ("/review", "2026-07-28"), ("", "2026-07-28")]
    {
        let mut client = Client::enter(&host, to, Transport::Http, revision, view).await;
        for tool in ["code__search", "code__delete_all", "code__nothing"] {
            let arguments = if view.is_empty() { json!({ "org": "x" }) } else { json!({}) };
            client.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
            calls += 1;
        }
        client.ask("prompts/get", json!({ "name": "code__ask" })).await;
        calls += 1;
    }
    let stated = host.definitions().await;
    let pin = |name: &str| {
        let found = stated.iter().find(|stated| stated.server == "code" && stated.name == name);
        json!(found.unwrap_or_else(|| panic!("{name} of {stated:?}")).pin.to_string())
    };
    host.shutdown().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), calls, "{text}");
    // The view "review" edits `search`, and does not show `delete_all`.
    for (lines, view) in lines.chunks(4).zip(["review", "all", "review", "all"]) {
        let deleted = if view == "all" { pin("delete_all") } else { Value::Null };
        let pins: Vec<&Value> = lines.iter().map(|line| &line["pin"]).collect();
        assert_eq!(json!(pins), json!([pin("search"), deleted, null, pin("ask")]), "{view}");
        assert!(lines.iter().all(|line| line["view"] == view), "{lines:?}");
    }
}
