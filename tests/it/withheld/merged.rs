//! A tool that stands for those of several servers (`host.merge`) leads to none that is hidden or denied: by its name, by
//! `call_tool`, and by a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_host::{Host, InProcess, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::CLIENTS;
use crate::views::clients::Client;

/// A server with one tool, whose calls are counted.
fn server(calls: &Arc<AtomicUsize>) -> InProcess {
    let calls = calls.clone();
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let definition: Raw = json!({ "name": "act", "inputSchema": schema }).into();
    InProcess::new("s", "1").tool(definition, move |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(json!({ "content": [{ "type": "text", "text": "done" }] }).into()) })
    })
}

/// What forbids the tool of `it`, by a word for the report, and `host` of the config.
fn reasons() -> Vec<(&'static str, Value)> {
    let rule = |more: Value| {
        let mut rule = json!({ "name": "r", "verdict": "deny", "tools": ["it__act"] });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "policy": { "rules": [rule] } })
    };
    vec![
        ("nothing", json!({})),
        ("outside", json!({ "view": "v", "views": { "v": { "exclude": ["it__act"] } } })),
        ("hidden", rule(json!({}))),
        ("denied", rule(json!({ "hide": false }))),
        ("judged", rule(json!({ "when": "view == 'all'" }))),
        ("asked", rule(json!({ "verdict": "ask" }))),
    ]
}

#[tokio::test]
async fn what_is_forbidden_is_not_reached_by_a_tool_that_stands_for_it() {
    for (reason, mut host) in reasons() {
        let mode = if cfg!(feature = "script") { "code" } else { "search" };
        host["catalog"] = json!({ "mode": mode, "code": { "tools": "all" } });
        host["merge"] = json!({ "group": { "servers": ["it", "twin"], "argument": "which" } });
        let text = json!({ "host": host, "mcpServers": {} }).to_string();
        let (it, twin) = (Arc::default(), Arc::default());
        let builder = Host::builder().config(super::parsed(&text));
        #[cfg(feature = "script")]
        let builder = builder.script_program(env!("CARGO_BIN_EXE_mcp-host"));
        let host = builder.in_process("it", server(&it)).in_process("twin", server(&twin)).start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(host.open_http(listener).unwrap().serve());
        for (transport, revision) in CLIENTS {
            let mut client = Client::enter(&host, to, transport, revision, "").await;
            let arguments = json!({ "which": "it" });
            let script = "return await call('group__act', { which: 'it' })";
            for (name, arguments) in [
                ("group__act", arguments.clone()),
                ("call_tool", json!({ "name": "group__act", "arguments": arguments })),
                ("run_script", json!({ "script": script })),
            ] {
                if name == "run_script" && !cfg!(feature = "script") {
                    continue;
                }
                let before = it.load(Ordering::Relaxed);
                let answer = client.ask("tools/call", json!({ "name": name, "arguments": arguments })).await;
                let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
                let has_come = it.load(Ordering::Relaxed) > before;
                assert_eq!(
                    (is_refused, has_come),
                    (reason != "nothing", reason == "nothing"),
                    "{reason} {name}: {answer}"
                );
            }
        }
        assert_eq!(twin.load(Ordering::Relaxed), 0, "{reason}: another server got the call");
        host.shutdown().await;
    }
}
