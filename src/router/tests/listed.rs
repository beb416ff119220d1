//! How the tools of a client are listed: what `auto` decides, for how long, and which tools are listed in any case. And how
//! long a result that was cut can be read. On a paused clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::advance;

use super::support::*;
use crate::config::{CatalogMode, Config, Prefix, Server, Stdio, Transport};
use crate::in_process::InProcess;
use crate::manager::Principal;
use crate::protocol::{Method, Profile, ProtocolVersion, Raw};
use crate::router::Client;

/// A server with four tools, of which two say that they are listed in any case.
fn server() -> InProcess {
    let marked =
        json!({ "name": "marked", "_meta": { "anthropic/alwaysLoad": true }, "inputSchema": { "type": "object" } });
    let shown = json!({ "name": "shown", "_meta": { "ui": { "resourceUri": "ui://it/x" } }, "inputSchema": { "type": "object" } });
    let plain = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    [marked, shown, plain("one"), plain("two")].iter().fold(InProcess::new("it", "1"), |server, definition| {
        server.tool(Raw::from_value(definition), |_| {
            async { Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": "row\n".repeat(100) }] }))) }
                .boxed()
        })
    })
}

/// A stage whose catalog is `auto`, with at most so many tools in a full list.
fn staged(most: usize) -> Stage {
    stage_with_server(server(), |config| auto(config, most))
}

fn auto(config: &mut Config, most: usize) {
    config.host.catalog.mode = CatalogMode::Auto;
    config.host.catalog.max_tools = most;
}

/// Changes how many tools a full list may have.
fn change(stage: &Stage, most: usize) {
    let mut config = Config::default();
    let mut entry = Server::new("script", Transport::Stdio(Stdio::default())).unwrap();
    entry.prefix = Prefix::Never;
    config.servers.push(entry);
    auto(&mut config, most);
    stage.router.manager().reload(config, &HashMap::new());
}

fn legacy(stage: &Stage) -> Arc<Client> {
    stage.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

fn modern(stage: &Stage) -> Arc<Client> {
    stage.router.modern(Principal::local(), &Raw::empty_object()).unwrap()
}

async fn names(stage: &Stage, client: &Arc<Client>) -> Vec<String> {
    let listed = request(&stage.router, client, Method::ToolsList, &json!({})).answer().await;
    let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

const FULL: [&str; 4] = ["marked", "shown", "one", "two"];
/// What is listed in any case, and the host's tools.
const SEARCH: [&str; 4] = ["marked", "shown", "find_tools", "call_tool"];

#[tokio::test(start_paused = true)]
async fn a_session_keeps_how_its_tools_are_listed() {
    let stage = staged(4);
    // Nothing is known yet.
    let early = legacy(&stage);
    assert_eq!(names(&stage, &early).await, SEARCH);
    let first = legacy(&stage);
    assert_eq!(names(&stage, &first).await, FULL);
    change(&stage, 3);
    let second = legacy(&stage);
    assert_eq!(names(&stage, &first).await, FULL);
    assert_eq!(names(&stage, &second).await, SEARCH);
    change(&stage, 100);
    let third = legacy(&stage);
    assert_eq!(names(&stage, &second).await, SEARCH);
    assert_eq!(names(&stage, &third).await, FULL);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_what_was_decided_stays_for_ten_minutes_and_goes_back_below_four_fifths() {
    let stage = staged(3);
    names(&stage, &legacy(&stage)).await;
    let client = modern(&stage);
    assert_eq!(names(&stage, &client).await, SEARCH);
    // Four tools are over 80 % of four.
    change(&stage, 4);
    assert_eq!(names(&stage, &client).await, SEARCH);
    change(&stage, 5);
    assert_eq!(names(&stage, &client).await, FULL);
    change(&stage, 3);
    assert_eq!(names(&stage, &client).await, FULL, "it has just changed");
    advance(Duration::from_secs(599)).await;
    assert_eq!(names(&stage, &client).await, FULL);
    advance(Duration::from_secs(2)).await;
    assert_eq!(names(&stage, &client).await, SEARCH);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_is_expired() {
    let stage = stage_with_server(server(), |config| {
        config.host.results.limit = 100;
        config.host.results.keep = Duration::from_secs(5);
    });
    let client = legacy(&stage);
    names(&stage, &client).await;
    let call = async |name: &str, arguments: &Value| {
        let params = json!({ "name": name, "arguments": arguments });
        request(&stage.router, &client, Method::ToolsCall, &params).answer().await
    };
    let head = call("one", &json!({})).await;
    let id = head["_meta"]["mcp-host/cut"]["id"].as_str().unwrap_or_else(|| panic!("{head}")).to_owned();
    assert_eq!(text(&call("read_result", &json!({ "id": id, "match": "row" })).await).lines().next(), Some("1: row"));
    advance(Duration::from_secs(6)).await;
    let told = format!(
        "read_result: expired: the result {id} is no longer kept (host.results.keep, host.results.store, host.limits.results); call the tool again"
    );
    assert_eq!(text(&call("read_result", &json!({ "id": id })).await), told);
}
