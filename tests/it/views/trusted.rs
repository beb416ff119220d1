//! `readOnly` of a view: whose word counts for it that a tool only reads.

use std::collections::BTreeSet;

use mcp_host::Host;
use mcp_host::config::{Syntax, Vars, parse_str};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::clients::{Client, Transport};
use super::{list, names};

/// A server whose tools all call themselves read-only. `more` is added to its entry.
fn demo(more: &Value) -> Value {
    let mut entry = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn reads(is_so: bool) -> Value {
    json!({ "annotations": { "readOnlyHint": is_so } })
}

#[tokio::test]
async fn trusted_takes_the_word_of_the_config_and_of_servers_that_it_trusts() {
    let text = json!({
        "mcpServers": {
            "plain": demo(&json!({})),
            "trusted": demo(&json!({ "trustAnnotations": true, "tools": { "ask": reads(false) } })),
            "edited": demo(&json!({ "tools": { "echo": reads(true) } })),
        },
        "host": { "views": {
            "everything": { "readOnly": "no" },
            "declared": { "readOnly": "declared" },
            "trusted": { "readOnly": "trusted" },
            "own": { "readOnly": "trusted", "tools": { "plain__ask": reads(true), "trusted__echo": reads(false) } },
        } },
    });
    let config = parse_str(&text.to_string(), Syntax::Json, "test.json", &Vars::from_process()).unwrap();
    let host = Host::builder().config(config).start().await.unwrap();
    host.catalog_ready().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    let all: BTreeSet<String> = ["plain", "trusted", "edited"]
        .iter()
        .flat_map(|server| ["echo", "countdown", "ask"].map(|tool| format!("{server}__{tool}")))
        .collect();
    let without = |out: &str| all.iter().map(String::as_str).filter(|name| *name != out).collect::<BTreeSet<_>>();
    for (view, shown) in [
        ("everything", without("")),
        ("declared", without("trusted__ask")),
        ("trusted", BTreeSet::from(["trusted__echo", "trusted__countdown", "edited__echo"])),
        ("own", BTreeSet::from(["trusted__countdown", "edited__echo", "plain__ask"])),
    ] {
        for (transport, revision) in [(Transport::Http, "2025-11-25"), (Transport::Http, "2026-07-28")] {
            let mut client = Client::enter(&host, to, transport, revision, &format!("/{view}")).await;
            let listed = list(&mut client, "tools/list", "tools", "name").await;
            assert_eq!(names(&listed), shown, "{view} {revision}");
            for name in all.iter().filter(|name| name.ends_with("__echo")) {
                let answer = client.ask("tools/call", json!({ "name": name, "arguments": { "text": "hi" } })).await;
                let is_unknown = answer["error"]["code"] == -32602;
                assert_eq!(is_unknown, !shown.contains(name.as_str()), "{view} {revision} {name}: {answer}");
            }
        }
    }
    host.shutdown().await;
}
