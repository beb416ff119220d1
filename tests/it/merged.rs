//! Servers whose equal tools are listed once: `host.merge`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Host, InProcess, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::views::clients::{Client, Transport};

const EACH: [(Transport, &str); 3] =
    [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2025-06-18"), (Transport::Http, "2026-07-28")];

fn config(host: &Value) -> Config {
    let text = json!({ "host": host, "mcpServers": {} }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap_or_else(|error| panic!("{error}"))
}

/// A server whose tools answer with its name and their arguments.
fn server(name: &str, odd: &str) -> InProcess {
    let tool = |tool: &str, description: &str, properties: Value| -> Raw {
        let schema = json!({ "type": "object", "properties": properties });
        json!({ "name": tool, "description": description, "inputSchema": schema }).into()
    };
    let answer = |name: &str| {
        let name = name.to_owned();
        move |call: mcp_host::in_process::Invocation| -> futures_util::future::BoxFuture<'static, _> {
            let text = format!("{name} {}", call.arguments);
            Box::pin(async move { Ok(json!({ "content": [{ "type": "text", "text": text }] }).into()) })
        }
    };
    InProcess::new(name, "1")
        .tool(tool("get", "Gets.", json!({ "pod": { "type": "string" } })), answer(name))
        .tool(tool("odd", odd, json!({})), answer(name))
        .tool(tool("taken", "Takes.", json!({ "cluster": {} })), answer(name))
}

/// A server with one tool, of this description and input schema.
fn single(name: &str, description: &str, schema: &Value) -> InProcess {
    let text = name.to_owned();
    let definition = json!({ "name": "act", "description": description, "inputSchema": schema });
    InProcess::new(name, "1").tool(definition.into(), move |_| {
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        Box::pin(async move { Ok(result.into()) })
    })
}

async fn start(count: usize, host: &Value) -> (Host, SocketAddr) {
    let mut builder = Host::builder().config(config(host));
    for number in 0..count {
        let name = format!("k8s-{number}");
        builder = builder.in_process(&name, server(&name, if number == 0 { "Odd." } else { "Even." }));
    }
    serve(builder.in_process("other", server("other", "Even."))).await
}

async fn serve(builder: mcp_host::HostBuilder) -> (Host, SocketAddr) {
    let host = builder.start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

fn merge() -> Value {
    json!({ "merge": { "k8s": { "servers": ["k8s-*"], "argument": "cluster" } } })
}

async fn listed(client: &mut Client) -> Vec<Value> {
    let answer = client.ask("tools/list", json!({})).await;
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

async fn call(client: &mut Client, name: &str, arguments: Value) -> Value {
    client.ask("tools/call", json!({ "name": name, "arguments": arguments })).await["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn equal_tools_of_ten_servers_are_listed_once_and_reach_the_named_server() {
    let (host, to) = start(10, &merge()).await;
    for (transport, revision) in EACH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        let tools = listed(&mut client).await;
        let mut expected: Vec<String> = (0..10).map(|number| format!("k8s-{number}__taken")).collect();
        expected.extend(
            ["k8s-0__odd", "k8s__get", "k8s__odd", "other__get", "other__odd", "other__taken"].map(str::to_owned),
        );
        expected.sort_unstable();
        assert_eq!(names(&tools), expected);
        let get = tools.iter().find(|tool| tool["name"] == "k8s__get").unwrap();
        assert_eq!(get["inputSchema"]["required"], json!(["cluster"]));
        assert_eq!(get["inputSchema"]["properties"]["cluster"]["enum"].as_array().unwrap().len(), 10);
        let odd = tools.iter().find(|tool| tool["name"] == "k8s__odd").unwrap();
        assert_eq!(odd["inputSchema"]["properties"]["cluster"]["enum"].as_array().unwrap().len(), 9);

        let pods = call(&mut client, "k8s__get", json!({ "cluster": "k8s-7", "pod": "p" })).await;
        assert_eq!(text(&pods), r#"k8s-7 {"pod":"p"}"#);
        assert_eq!(pods["_meta"]["mcp-host/tool"], "k8s-7__get");
        let own = call(&mut client, "k8s-7__get", json!({ "pod": "p" })).await;
        assert_eq!(text(&own), text(&pods));
        let mut said = String::new();
        for arguments in [json!({}), json!({ "cluster": "k8s-70" }), json!({ "cluster": 7 })] {
            let refused = call(&mut client, "k8s__get", arguments).await;
            assert_eq!(refused["isError"], true);
            said += &format!("{}\n", text(&refused));
        }
        insta::allow_duplicates!(insta::assert_snapshot!(said, @"
        k8s__get: `cluster` is missing; it is one of k8s-0, k8s-1, k8s-2, k8s-3, k8s-4, k8s-5, k8s-6, k8s-7, k8s-8, k8s-9
        k8s__get: `cluster` is k8s-70, which is not one of k8s-0, k8s-1, k8s-2, k8s-3, k8s-4, k8s-5, k8s-6, k8s-7, k8s-8, k8s-9
        k8s__get: `cluster` is missing; it is one of k8s-0, k8s-1, k8s-2, k8s-3, k8s-4, k8s-5, k8s-6, k8s-7, k8s-8, k8s-9
        "));
        let twice = r#"{"name":"k8s__get","arguments":{"cluster":"k8s-1","cluster":"k8s-2"}}"#;
        let twice = client.ask_raw("tools/call", twice).await;
        assert!(text(&twice["result"]).ends_with("the arguments hold `cluster` twice"), "{twice}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn what_a_view_hides_or_a_rule_denies_is_not_reached_by_a_merged_tool() {
    let mut settings = merge();
    settings["view"] = json!("few");
    settings["views"] = json!({ "few": { "exclude": ["server:k8s-1"] } });
    settings["policy"] = json!({ "rules": [{ "name": "not-2", "tools": ["k8s-2__*"], "verdict": "deny" }] });
    let (host, to) = start(4, &settings).await;
    for (transport, revision) in EACH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        let tools = listed(&mut client).await;
        let get = tools.iter().find(|tool| tool["name"] == "k8s__get").unwrap();
        let aliases = get["inputSchema"]["properties"]["cluster"]["enum"].clone();
        assert!(!aliases.as_array().unwrap().contains(&json!("k8s-1")), "{aliases}");
        for (cluster, reaches) in [("k8s-0", true), ("k8s-1", false), ("k8s-2", false), ("k8s-3", true)] {
            let answer =
                client.ask("tools/call", json!({ "name": "k8s__get", "arguments": { "cluster": cluster } })).await;
            let is_ok = answer["result"]["isError"] != true && answer.get("error").is_none();
            assert_eq!(is_ok, reaches, "{cluster}: {answer}");
        }
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_search_finds_equal_tools_once() {
    let mut settings = merge();
    settings["catalog"] = json!({ "mode": "search" });
    let (host, to) = start(3, &settings).await;
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
    let servers = call(&mut client, "find_tools", json!({})).await;
    assert!(text(&servers).contains("k8s (2)"), "{servers}");
    let found = call(&mut client, "find_tools", json!({ "query": "gets", "limit": 20 })).await;
    let lines: Vec<&str> = text(&found).lines().filter(|line| line.contains("Gets.")).collect();
    assert_eq!(
        lines,
        ["other__get(pod?: string) - Gets.", "k8s__get(cluster: k8s-0|k8s-1|k8s-2, pod?: string) - Gets."]
    );
    let inner = json!({ "name": "k8s__get", "arguments": { "cluster": "k8s-1" } });
    let pods = call(&mut client, "call_tool", inner).await;
    assert_eq!((text(&pods), &pods["_meta"]["mcp-host/tool"]), ("k8s-1 {}", &json!("k8s-1__get")));
    host.shutdown().await;
}

#[tokio::test]
async fn of_several_definitions_under_one_name_the_most_common_one_is_the_groups() {
    let plain = json!({ "type": "object" });
    let mut builder = Host::builder().config(config(&merge()));
    for (number, description) in ["Old.", "Old.", "New.", "New.", "New."].into_iter().enumerate() {
        let name = format!("k8s-{number}");
        builder = builder.in_process(&name, single(&name, description, &plain));
    }
    let (host, to) = serve(builder).await;
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
    let tools = listed(&mut client).await;
    assert_eq!(names(&tools), ["k8s-0__act", "k8s-1__act", "k8s__act"]);
    let act = tools.iter().find(|tool| tool["name"] == "k8s__act").unwrap();
    assert_eq!(act["description"], "New.");
    assert_eq!(act["inputSchema"]["properties"]["cluster"]["enum"], json!(["k8s-2", "k8s-3", "k8s-4"]));
    for cluster in ["k8s-2", "k8s-3", "k8s-4"] {
        assert_eq!(text(&call(&mut client, "k8s__act", json!({ "cluster": cluster })).await), cluster);
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_schema_that_no_argument_can_be_added_to_stays_apart() {
    let closed = json!({ "type": "object", "allOf": [{ "properties": {}, "additionalProperties": false }] });
    let mut builder = Host::builder().config(config(&merge()));
    for name in ["k8s-0", "k8s-1"] {
        builder = builder.in_process(name, single(name, "Acts.", &closed));
    }
    let (host, to) = serve(builder).await;
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
    assert_eq!(names(&listed(&mut client).await), ["k8s-0__act", "k8s-1__act"]);
    host.shutdown().await;
}
