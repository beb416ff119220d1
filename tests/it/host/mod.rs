//! The crate as an embedding program uses it: calls and their results, questions, events, sessions, the config.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod calls;
mod configured;
mod heard;
mod questions;
mod sessions;

use std::time::Duration;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Host, Raw};
use serde_json::{Value, json};

/// The longest that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the definition of a tool that takes any arguments.
fn tool(name: &str) -> Raw {
    json!({ "name": name, "inputSchema": { "type": "object" } }).into()
}

/// Returns a result with one block of text.
fn said(text: &str) -> Raw {
    json!({ "content": [{ "type": "text", "text": text }] }).into()
}

/// Parses a config with these servers.
fn config(servers: &Value) -> Config {
    let text = json!({ "mcpServers": servers }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap()
}

#[test]
fn the_manager_of_an_agent_fits_on_a_page() {
    let example = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/agent.rs")).unwrap();
    assert!(example.lines().count() <= 60, "{} lines", example.lines().count());
}

/// Waits until `look` finds something.
async fn until<T>(host: &Host, look: impl Fn(&Host) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look(host) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{:?}", host.status()))
}
