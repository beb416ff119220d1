//! Rules: what is denied, hidden, asked about, and reported, over each transport in each revision.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod ask;
mod events;
mod left;
mod once;
mod pairs;
mod person;
mod program;
mod questions;
mod strictest;
mod ways;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::policy::{CallFacts, Policy, Verdict};
use mcp_host::protocol::Method;
use mcp_host::{Host, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::views::clients::{Client, Transport};

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// What one test has: a host with a database, how often that was called, and the address of its endpoint.
struct Shop {
    host: Host,
    calls: Arc<AtomicUsize>,
    to: SocketAddr,
}

impl Shop {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn config(policy: &Value) -> Config {
    let text = json!({ "mcpServers": {}, "host": { "policy": policy } }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// A server with a tool that reads, one that writes, a prompt, and a resource.
fn database(calls: &Arc<AtomicUsize>) -> InProcess {
    let mut server = InProcess::new("db", "1").instructions("A database.");
    for (name, reads) in [("read", true), ("write", false)] {
        let properties = json!({ "database": { "type": "string" }, "secret": { "type": "string" } });
        let definition = json!({ "name": name, "annotations": { "readOnlyHint": reads },
            "inputSchema": { "type": "object", "properties": properties } });
        let calls = calls.clone();
        server = server.tool(definition.into(), move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move { Ok(json!({ "content": [{ "type": "text", "text": name }] }).into()) })
        });
    }
    let read = |_| Box::pin(async { Ok(Raw::from(json!({ "contents": [{ "uri": "table:x", "text": "x" }] }))) }) as _;
    let said = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "p" } }] });
    server
        .resource(json!({ "uri": "table:x", "name": "x" }).into(), read)
        .method(Method::Complete, |_| Box::pin(async { Ok(json!({ "completion": { "values": ["x"] } }).into()) }))
        .prompt(json!({ "name": "ask", "arguments": [{ "name": "a" }] }).into(), move |_| {
            let said = said.clone();
            Box::pin(async move { Ok(said.into()) })
        })
}

async fn open(config: Config, program: Option<Fridays>) -> Shop {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut builder = Host::builder().config(config).in_process("db", database(&calls));
    if let Some(program) = program {
        builder = builder.policy(program);
    }
    let host = builder.start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    Shop { host, calls, to }
}

#[expect(clippy::needless_pass_by_value, reason = "a test makes it for this call")]
fn call(name: &str, arguments: Value) -> (&'static str, Value) {
    ("tools/call", json!({ "name": name, "arguments": arguments }))
}

async fn names(client: &mut Client) -> Vec<String> {
    let answer = client.ask("tools/list", json!({})).await;
    answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Checks that a call was denied by the rule.
fn denied(answer: &Value, rule: &str) {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    let error = &result["_meta"]["mcp-host/error"];
    assert_eq!(
        (&error["kind"], &error["rule"], &error["sent"]),
        (&json!("denied"), &json!(rule), &json!(false)),
        "{answer}"
    );
}

#[tokio::test]
async fn what_a_rule_always_denies_is_in_no_list_and_unknown() {
    let rules = json!({ "rules": [{ "name": "reads", "verdict": "deny", "tools": ["hint:not-read-only"] },
        { "name": "no-tables", "verdict": "deny", "resources": ["table:*"] }] });
    let shop = open(config(&rules), None).await;
    for revision in REVISIONS {
        for transport in [Transport::Http, Transport::Sse, Transport::Pipe] {
            if transport == Transport::Sse && revision == "2026-07-28" {
                continue;
            }
            let mut client = Client::enter(&shop.host, shop.to, transport, revision, "").await;
            assert_eq!(names(&mut client).await, ["db__read"], "{transport:?} {revision}");
            for name in ["db__write", "write"] {
                let (method, params) = call(name, json!({}));
                let answer = client.ask(method, params).await;
                assert_eq!(answer["error"]["code"], -32602, "{answer}");
            }
            let answer = client.ask("resources/read", json!({ "uri": "db+table:x" })).await;
            assert!(answer["error"]["message"].as_str().unwrap().starts_with("unknown resource"), "{answer}");
            let answer = client.ask("resources/list", json!({})).await;
            assert_eq!(answer["result"]["resources"], json!([]), "{answer}");
            let (method, params) = call("db__read", json!({}));
            assert_eq!(client.ask(method, params).await["result"]["content"][0]["text"], "read");
        }
    }
    assert_eq!(shop.calls(), 14, "only what is allowed");
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_rule_that_looks_at_arguments_denies_what_the_server_would_get() {
    let rules = json!({ "rules": [{ "name": "no-prod", "verdict": "deny", "tools": ["server:db"],
        "when": "has(args.database) && args.database.startsWith('prod')" }] });
    let shop = open(config(&rules), None).await;
    for revision in REVISIONS {
        let mut client = Client::enter(&shop.host, shop.to, Transport::Http, revision, "").await;
        assert_eq!(names(&mut client).await, ["db__read", "db__write"], "it is in the list");
        for (arguments, is_fine) in [
            (json!({ "database": "test" }), true),
            (json!({}), true),
            (json!({ "database": "prod-1" }), false),
            (json!({ "database": 7 }), false),
        ] {
            let before = shop.calls();
            let (method, params) = call("db__write", arguments);
            let answer = client.ask(method, params).await;
            if is_fine {
                assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
            } else {
                denied(&answer, "no-prod");
                let text = answer["result"]["content"][0]["text"].as_str().unwrap();
                assert_eq!(text, r#"server "db" did not get the request: the rule "no-prod" denies it"#);
            }
            assert_eq!(shop.calls() - before, usize::from(is_fine));
        }
    }
    shop.host.shutdown().await;
}

#[tokio::test]
async fn h37_arguments_that_readers_take_differently_are_refused_where_a_rule_reads_them() {
    let rules = json!({ "rules": [{ "name": "no-prod", "verdict": "deny", "when": "has(args.database) && args.database == 'prod'" }] });
    let shop = open(config(&rules), None).await;
    let mut client = Client::enter(&shop.host, shop.to, Transport::Pipe, "2025-11-25", "").await;
    for arguments in [
        r#"{"database":"test","database":"prod"}"#,
        r#"{"Database":"prod"}"#,
        r#"{"d\u0061tabase":"x","database":"prod"}"#,
    ] {
        let answer = client.ask_raw("tools/call", &format!(r#"{{"name":"db__write","arguments":{arguments}}}"#)).await;
        assert_eq!(answer["result"]["_meta"]["mcp-host/error"]["kind"], "invalid_arguments", "{arguments}: {answer}");
    }
    assert_eq!(shop.calls(), 0);
    shop.host.shutdown().await;
}

#[tokio::test]
async fn other_requests_are_denied_by_an_error() {
    let rules = json!({ "rules": [
        { "name": "no-reads", "verdict": "deny", "hide": false, "resources": ["table:*"], "actions": ["read", "subscribe"] },
        { "name": "no-prompts", "verdict": "deny", "hide": false, "prompts": ["db__*"] }] });
    let shop = open(config(&rules), None).await;
    for revision in REVISIONS {
        let mut client = Client::enter(&shop.host, shop.to, Transport::Http, revision, "").await;
        let completion =
            json!({ "ref": { "type": "ref/prompt", "name": "db__ask" }, "argument": { "name": "a", "value": "" } });
        let mut requests = vec![
            ("resources/read", json!({ "uri": "db+table:x" }), "no-reads"),
            ("prompts/get", json!({ "name": "db__ask" }), "no-prompts"),
            ("completion/complete", completion, "no-prompts"),
        ];
        if revision != "2026-07-28" {
            requests.push(("resources/subscribe", json!({ "uri": "db+table:x" }), "no-reads"));
        }
        for (method, params, rule) in requests {
            let answer = client.ask(method, params).await;
            assert_eq!(answer["error"]["code"], -32603, "{revision} {method}: {answer}");
            assert_eq!(answer["error"]["data"]["mcp-host/error"]["rule"], rule, "{answer}");
        }
    }
    shop.host.shutdown().await;
}

#[tokio::test]
async fn what_is_only_reported_is_sent() {
    let rules = json!({ "mode": "report", "default": "deny", "rules": [{ "name": "all", "verdict": "deny" }] });
    let shop = open(config(&rules), None).await;
    let mut client = Client::enter(&shop.host, shop.to, Transport::Http, "2025-11-25", "").await;
    assert_eq!(names(&mut client).await, ["db__read", "db__write"]);
    let (method, params) = call("db__write", json!({}));
    assert_eq!(client.ask(method, params).await["result"]["content"][0]["text"], "write");
    shop.host.shutdown().await;
}

/// Denies writes, as a program may.
struct Fridays;

impl Policy for Fridays {
    fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        if call.name() == "write" { Verdict::deny("fridays") } else { Verdict::allow() }
    }
}

#[tokio::test]
async fn a_program_may_judge_as_one_more_rule() {
    let shop = open(config(&json!({ "rules": [] })), Some(Fridays)).await;
    let refused = shop.host.call_tool("db__write", json!({})).await.unwrap_err();
    assert_eq!(refused.to_string(), r#"server "db" did not get the request: the rule "fridays" denies it"#);
    assert_eq!(shop.host.call_tool("db__read", json!({})).await.unwrap().text(), "read");
    assert_eq!(shop.calls(), 1);
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_reload_brings_other_rules() {
    let shop = open(config(&json!({ "rules": [] })), None).await;
    let mut client = Client::enter(&shop.host, shop.to, Transport::Http, "2025-06-18", "").await;
    assert_eq!(names(&mut client).await, ["db__read", "db__write"]);
    let rules = json!({ "rules": [{ "name": "reads", "verdict": "deny", "tools": ["*write*"] }] });
    shop.host.reload(config(&rules));
    assert_eq!(names(&mut client).await, ["db__read"]);
    shop.host.reload(config(&json!({})));
    assert_eq!(names(&mut client).await, ["db__read", "db__write"]);
    shop.host.shutdown().await;
}
