//! Views: what clients see and may call, by the view that they use, over each transport in each revision.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod audited;
mod choice;
pub(crate) mod clients;
mod trusted;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::FutureExt as _;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::{InProcess, Invocation};
use mcp_host::protocol::{Method, Outcome};
use mcp_host::{ErrorKind, Host, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::clients::{Client, Transport};

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
/// A preset that only the server may get.
const CANARY: &str = "canary-7f3a9c";

/// A view, and the tools, prompts and resources that it shows.
type View = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// The views: what each one shows, by exposed names.
const VIEWS: [View; 3] = [
    ("review", &["code__get", "code__search"], &["code__ask"], &["code+file:///a"]),
    ("reads", &["code__get", "db__read"], &["code__ask", "db__ask"], &["code+file:///a", "db+table:x"]),
    ("data", &["db__read", "db__write"], &["db__ask"], &["db+table:x"]),
];

fn settings() -> Value {
    json!({ "views": {
        "review": {
            "include": ["code__*"], "exclude": ["*delete*"], "prompts": ["code__*"], "resources": ["file:*"],
            "instructions": "Only look.",
            "tools": { "code__search": { "title": "Find", "arguments": {
                "org": { "value": "${CANARY}", "hide": true }, "q": { "name": "query" } } } },
        },
        "reads": { "readOnly": "declared" },
        "data": { "include": ["server:db"] },
    } })
}

fn config(host: &Value) -> Config {
    let text = json!({ "mcpServers": {}, "host": host }).to_string();
    let vars = Vars::from_iter([("CANARY", CANARY)]);
    parse_str(&text, Syntax::Json, "test.json", &vars).unwrap_or_else(|error| panic!("{error}"))
}

/// Answers with the arguments that it got.
#[expect(clippy::needless_pass_by_value, reason = "a tool is given its call")]
fn echo(call: Invocation) -> futures_util::future::BoxFuture<'static, Outcome> {
    let arguments = call.params.member("arguments").map(|arguments| arguments.to_string()).unwrap_or_default();
    async move { Ok(json!({ "content": [{ "type": "text", "text": arguments }] }).into()) }.boxed()
}

fn server(name: &'static str, tools: &[(&str, bool)], uri: &'static str) -> InProcess {
    let mut server = InProcess::new(name, "1").instructions(&format!("This is {name}."));
    for (tool, reads) in tools {
        let properties = json!({ "org": { "type": "string" }, "q": { "type": "string" } });
        let definition = json!({ "name": tool, "annotations": { "readOnlyHint": reads },
            "inputSchema": { "type": "object", "properties": properties, "required": ["org"] } });
        server = server.tool(definition.into(), echo);
    }
    let said = move |_| async move {
        Ok(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": name } }] }).into())
    };
    let read = move |_| async move { Ok(json!({ "contents": [{ "uri": uri, "text": name }] }).into()) };
    server
        .prompt(json!({ "name": "ask", "arguments": [{ "name": "a" }] }).into(), move |call| said(call).boxed())
        .resource(json!({ "uri": uri, "name": "it" }).into(), move |call| read(call).boxed())
        .method(Method::Complete, |_| async { Ok(json!({ "completion": { "values": ["x"] } }).into()) }.boxed())
}

/// Starts a host with two servers, and its endpoint.
async fn start(config: Config) -> (Host, SocketAddr) {
    let code = server("code", &[("get", true), ("search", false), ("delete_all", false)], "file:///a");
    let db = server("db", &[("read", true), ("write", false)], "table:x");
    start_with(config, code, db).await
}

async fn start_with(config: Config, code: InProcess, db: InProcess) -> (Host, SocketAddr) {
    let host = Host::builder().config(config).in_process("code", code).in_process("db", db).start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let endpoint = host.open_http(listener).unwrap();
    tokio::spawn(endpoint.serve());
    (host, to)
}

/// Returns the names and the definitions of a list.
async fn list(client: &mut Client, method: &str, member: &str, key: &str) -> Vec<(String, Value)> {
    let answer = client.ask(method, json!({})).await;
    let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    items.into_iter().map(|item| (item[key].as_str().unwrap().to_owned(), item)).collect()
}

fn names(list: &[(String, Value)]) -> BTreeSet<&str> {
    list.iter().map(|(name, _)| name.as_str()).collect()
}

/// What is the same about two errors, whatever they name.
fn error(answer: &Value, name: &str) -> String {
    assert!(answer["error"].is_object(), "{answer}");
    answer["error"].to_string().replace(name, "NAME")
}

/// Compares what a client sees and gets in a view with what one sees and gets without.
async fn compare(inside: &mut Client, whole: &mut Client, (view, tools, prompts, resources): View) {
    for (method, member, key, shown) in [
        ("tools/list", "tools", "name", tools),
        ("prompts/list", "prompts", "name", prompts),
        ("resources/list", "resources", "uri", resources),
    ] {
        let (mine, all) = (list(inside, method, member, key).await, list(whole, method, member, key).await);
        assert_eq!(names(&mine), shown.iter().copied().collect(), "{view}: {method}");
        for (name, definition) in &mine {
            let same = all.iter().find(|(other, _)| other == name).map(|(_, definition)| definition);
            assert!(name == "code__search" && view == "review" || same == Some(definition), "{view}: {definition}");
        }
        let request = |name: &str| match method {
            "tools/list" => ("tools/call", json!({ "name": name, "arguments": { "org": "o", "q": 1.0 } })),
            "prompts/list" => ("prompts/get", json!({ "name": name })),
            _ => ("resources/read", json!({ "uri": name })),
        };
        for (name, _) in &all {
            let (method, params) = request(name);
            let answer = inside.ask(method, params.clone()).await;
            if !shown.contains(&name.as_str()) {
                let unknown = format!("zz{}", &name[2..]);
                let (_, other) = request(&unknown);
                let other = inside.ask(method, other).await;
                assert_eq!(error(&answer, name), error(&other, &unknown), "{view}: {name}");
            } else if name != "code__search" || view != "review" {
                assert_eq!(answer, whole.ask(method, params).await, "{view}: {name}");
            }
        }
    }
    for (name, shown) in [("code__ask", prompts.contains(&"code__ask")), ("db__ask", prompts.contains(&"db__ask"))] {
        let params = json!({ "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": "a", "value": "" } });
        let answer = inside.ask("completion/complete", params).await;
        assert_eq!(answer["result"]["completion"]["values"] == json!(["x"]), shown, "{view}: {answer}");
    }
}

/// Checks the tool whose arguments the view edits, and the instructions.
async fn edits(client: &mut Client) {
    let shown = list(client, "tools/list", "tools", "name").await;
    let (_, search) = shown.iter().find(|(name, _)| name == "code__search").unwrap();
    assert_eq!(search["inputSchema"]["properties"], json!({ "query": { "type": "string" } }));
    assert_eq!((&search["title"], &search["inputSchema"]["required"]), (&json!("Find"), &Value::Null));
    for (arguments, why) in [
        (json!({ "org": "mine" }), r#"it takes no "org""#),
        (json!({ "ORG": "mine" }), r#""ORG" and another argument of the tool differ only in upper and lower case"#),
        (json!({ "q": 1 }), r#"it takes no "q""#),
    ] {
        let answer = client.ask("tools/call", json!({ "name": "code__search", "arguments": arguments })).await;
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{answer}");
        assert_eq!(result["_meta"]["mcp-host/error"]["kind"], "invalid_arguments", "{answer}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(why), "{answer}");
    }
    assert!(!client.heard.contains(CANARY), "nothing but the server's own answer shows the preset");
    let answer = client.ask("tools/call", json!({ "name": "code__search", "arguments": { "query": 1.0 } })).await;
    let echoed = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(echoed, format!(r#"{{"q":1.0,"org":"{CANARY}"}}"#));
    let echo = answer["result"]["content"][0]["text"].to_string();
    assert_eq!(client.heard.matches(CANARY).count(), 1, "the echo alone: {echo}");
}

#[tokio::test]
async fn a_view_shows_what_it_selects_and_nothing_else_exists() {
    let (host, to) = start(config(&settings())).await;
    for view in VIEWS {
        // A pipe has no path: its view is that of the config.
        let mut own = settings();
        own["view"] = json!(view.0);
        let (piped, there) = start(config(&own)).await;
        for revision in REVISIONS {
            for transport in [Transport::Http, Transport::Sse, Transport::Pipe] {
                if transport == Transport::Sse && revision == "2026-07-28" {
                    continue;
                }
                let at = format!("/{}", view.0);
                let (by, to_its) = if transport == Transport::Pipe { (&piped, there) } else { (&host, to) };
                let mut inside = Client::enter(by, to_its, transport, revision, &at).await;
                let mut whole = Client::enter(&host, to, transport, revision, "").await;
                compare(&mut inside, &mut whole, view).await;
                if view.0 == "review" {
                    edits(&mut inside).await;
                } else {
                    assert!(!inside.heard.contains(CANARY));
                }
            }
        }
        piped.shutdown().await;
    }
    host.shutdown().await;
}

#[tokio::test]
async fn instructions_and_subscriptions_stay_within_the_view() {
    let (host, to) = start(config(&settings())).await;
    for (view, shown, hidden) in [("review", "Only look.", "This is db."), ("data", "This is db.", "This is code.")] {
        let client = Client::enter(&host, to, Transport::Http, "2025-11-25", &format!("/{view}")).await;
        assert!(client.heard.contains(shown) && !client.heard.contains(hidden), "{}", client.heard);
    }
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "/data").await;
    let outside = client.ask("resources/subscribe", json!({ "uri": "code+file:///a" })).await;
    let unknown = client.ask("resources/subscribe", json!({ "uri": "zzde+file:///a" })).await;
    assert_eq!(error(&outside, "code+file"), error(&unknown, "zzde+file"));
    host.shutdown().await;
}

#[tokio::test]
async fn what_is_logged_and_completed_outside_of_a_view_is_not_heard_inside() {
    let loud = |call: Invocation| {
        async move {
            call.log("error", json!("from code").into()).await;
            call.notify(Method::LogMessage, json!({ "level": "error", "data": "of nobody" }).into()).await;
            Ok(json!({ "content": [] }).into())
        }
        .boxed()
    };
    let tool = json!({ "name": "loud", "inputSchema": { "type": "object" } });
    let code = server("code", &[], "file:///a").tool(tool.into(), loud);
    let db = server("db", &[("read", true)], "table:x");
    let (host, to) = start_with(config(&settings()), code, db).await;
    let mut inside = Client::enter(&host, to, Transport::Sse, "2025-11-25", "/data").await;
    let mut outside = Client::enter(&host, to, Transport::Sse, "2025-11-25", "").await;
    for client in [&mut inside, &mut outside] {
        assert_eq!(client.ask("logging/setLevel", json!({ "level": "debug" })).await["result"], json!({}));
        client.ask("tools/call", json!({ "name": "db__read", "arguments": { "org": "o" } })).await;
    }
    outside.ask("tools/call", json!({ "name": "code__loud", "arguments": {} })).await;
    assert!(outside.heard.contains("from code"), "{}", outside.heard);
    // What was sent before this answer was heard before it.
    inside.ask("ping", json!({})).await;
    assert!(!inside.heard.contains("from code") && !inside.heard.contains("of nobody"), "{}", inside.heard);
    let complete =
        |uri: &str| json!({ "ref": { "type": "ref/resource", "uri": uri }, "argument": { "name": "a", "value": "" } });
    let shown = inside.ask("completion/complete", complete("db+table:x")).await;
    assert_eq!(shown["result"]["completion"]["values"], json!(["x"]), "{shown}");
    let hidden = inside.ask("completion/complete", complete("code+file:///a")).await;
    let unknown = inside.ask("completion/complete", complete("zzde+file:///a")).await;
    assert_eq!(error(&hidden, "code+file"), error(&unknown, "zzde+file"));
    host.shutdown().await;
}

#[tokio::test]
async fn an_embedding_program_chooses_a_view_too() {
    let (host, _) = start(config(&settings())).await;
    let view = host.view("review").unwrap();
    let catalog = view.catalog_ready().await;
    let shown: Vec<&str> = catalog.tools().iter().map(|tool| tool.name()).collect();
    assert_eq!(shown, ["code__get", "code__search"]);
    let told = view.call_tool("code__search", json!({ "query": 1 })).await.unwrap();
    assert_eq!(told.text(), format!(r#"{{"q":1,"org":"{CANARY}"}}"#));
    let hidden = view.call_tool("db__read", json!({})).await.unwrap_err();
    assert_eq!(hidden.kind(), ErrorKind::Unknown);
    assert!(host.call_tool("db__read", json!({})).await.is_ok());
    assert_eq!(host.view("none").unwrap_err().kind(), ErrorKind::Unknown);
    let all: Raw = json!({ "org": "x" }).into();
    assert!(host.view("all").unwrap().call_tool("db__write", all).await.is_ok());
    host.shutdown().await;
}
