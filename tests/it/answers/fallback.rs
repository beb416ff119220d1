//! Calls that another tool gets, because their own did not serve them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use mcp_host::in_process::InProcess;
use mcp_host::{CallResult, Host};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Seen, config, said, server, tool, until};

/// A server that tells how often it was called, and with what. A call with `wait` waits until its progress was heard.
fn backup(calls: &Arc<AtomicUsize>, heard: &Arc<Notify>) -> InProcess {
    let mut server = InProcess::new("b", "1");
    for (name, more) in [
        ("get", json!({})),
        ("put", json!({})),
        ("shaped", json!({ "outputSchema": { "type": "object", "properties": { "a": {} } } })),
    ] {
        let (calls, heard) = (calls.clone(), heard.clone());
        server = server.tool(tool(name, &more), move |call| {
            let (count, heard) = (calls.fetch_add(1, Ordering::SeqCst) + 1, heard.clone());
            async move {
                call.progress(1.0, None, "backup").await;
                if call.arguments.member("wait").is_some() {
                    heard.notified().await;
                }
                Ok(said(&format!("backup {count} {}", call.arguments)))
            }
            .boxed()
        });
    }
    server
}

struct Stage {
    host: Host,
    seen: Arc<Seen>,
    calls: Arc<AtomicUsize>,
    heard: Arc<Notify>,
}

impl Stage {
    async fn of(tools: &Value, more: &Value) -> Self {
        let (seen, calls, heard) = (Arc::<Seen>::default(), Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let mut settings = json!({ "views": { "all": { "tools": tools } } });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let builder = Host::builder().config(config(&settings)).in_process("it", server(&seen));
        let host = builder.in_process("b", backup(&calls, &heard)).start().await.unwrap();
        host.settled().await;
        Self { host, seen, calls, heard }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn mark(result: &CallResult) -> Value {
    let mark = result.member("_meta").and_then(|own| own.member("mcp-host/fallback"));
    mark.map_or(Value::Null, |mark| mark.read().unwrap())
}

fn why(why: &str) -> Value {
    json!({ "from": "it__get", "to": "b__get", "why": why })
}

#[tokio::test]
async fn a_call_over_its_rate_goes_to_the_other_tool_with_the_same_arguments() {
    let tools = json!({ "it__get": { "fallback": "b__get" } });
    let stage = Stage::of(&tools, &json!({ "rates": { "principal": "2/hour" } })).await;
    let get = || stage.host.call_tool("it__get", json!({ "path": "a" }));
    let first = get().await.unwrap();
    assert_eq!((first.text().as_str(), mark(&first)), (r#"get 1 {"path":"a"}"#, Value::Null));
    get().await.unwrap();
    // The rate of the principal holds for the other tool, too.
    let refused = get().await.unwrap_err();
    assert!(refused.to_string().contains("host.rates.principal"), "{refused}");
    assert_eq!(stage.calls(), 0);
    stage.host.shutdown().await;
    let stage = Stage::of(&tools, &json!({ "rates": { "server": "1/hour" } })).await;
    let get = || stage.host.call_tool("it__get", json!({ "path": "a" }));
    assert_eq!(mark(&get().await.unwrap()), Value::Null);
    let second = get().await.unwrap();
    assert_eq!((second.text().as_str(), mark(&second)), (r#"backup 1 {"path":"a"}"#, why("rate_limited")));
    stage.host.shutdown().await;
}

#[tokio::test]
async fn an_error_whose_text_is_named_goes_to_the_other_tool() {
    let to = |pattern: &str| json!({ "it__fail": { "fallback": { "tool": "b__get", "on": [], "match": pattern } } });
    let stage = Stage::of(&to("(?i)QUOTA"), &json!({})).await;
    let result = stage.host.call_tool("it__fail", json!({})).await.unwrap();
    assert_eq!(result.text(), "backup 1 {}");
    assert_eq!(mark(&result), json!({ "from": "it__fail", "to": "b__get", "why": "match" }));
    stage.host.shutdown().await;
    let stage = Stage::of(&to("not found"), &json!({})).await;
    let result = stage.host.call_tool("it__fail", json!({})).await.unwrap();
    assert!(result.is_error() && mark(&result).is_null());
    assert_eq!((stage.seen.count("fail"), stage.calls()), (1, 0));
    stage.host.shutdown().await;
}

#[tokio::test]
async fn there_is_one_step_only() {
    let any = |tool: &str| json!({ "tool": tool, "on": [], "match": "." });
    let tools = json!({ "it__fail": { "fallback": any("it__fail2") }, "it__fail2": { "fallback": any("b__get") } });
    let fails = |name: &'static str| {
        move |_| {
            async move { Ok(json!({ "isError": true, "content": [{ "type": "text", "text": name }] }).into()) }.boxed()
        }
    };
    let two = InProcess::new("it", "1").tool(tool("fail", &json!({})), fails("first"));
    let two = two.tool(tool("fail2", &json!({})), fails("second"));
    let (calls, heard) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let config = config(&json!({ "views": { "all": { "tools": tools } } }));
    let builder = Host::builder().config(config).in_process("it", two).in_process("b", backup(&calls, &heard));
    let host = builder.start().await.unwrap();
    host.settled().await;
    let result = host.call_tool("it__fail", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), result.is_error()), ("second", true));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    host.shutdown().await;
}

#[tokio::test]
async fn a_tool_that_the_client_may_not_call_is_no_fallback() {
    let views = json!({ "views": { "narrow": {
        "include": ["it__*"], "tools": { "it__get": { "fallback": "b__get" } } } },
        "rates": { "server": "1/hour" } });
    let stage = Stage::of(&json!({}), &views).await;
    let view = stage.host.view("narrow").unwrap();
    view.call_tool("it__get", json!({})).await.unwrap();
    let refused = view.call_tool("it__get", json!({})).await.unwrap_err();
    assert!(refused.to_string().contains("host.rates.server"), "{refused}");
    assert_eq!(stage.calls(), 0);
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_tool_with_another_output_schema_is_no_fallback_and_status_says_so() {
    let shaped = json!({ "outputSchema": { "type": "object", "properties": { "b": {} } } });
    let fails =
        |_| async { Ok(json!({ "isError": true, "content": [{ "type": "text", "text": "no" }] }).into()) }.boxed();
    let any = |tool: &str| json!({ "fallback": { "tool": tool, "on": [], "match": "." } });
    let tools = json!({ "it__one": any("b__shaped"), "it__two": any("b__get"), "it__three": any("b__none"), "it__four": any("b__get") });
    let mut server = InProcess::new("it", "1").tool(tool("four", &json!({})), fails);
    for name in ["one", "two", "three"] {
        server = server.tool(tool(name, &shaped), fails);
    }
    let (calls, heard) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let config = config(&json!({ "views": { "all": { "tools": tools } } }));
    let builder = Host::builder().config(config).in_process("it", server).in_process("b", backup(&calls, &heard));
    let host = builder.start().await.unwrap();
    host.settled().await;
    until(|| host.status_of("it").is_some_and(|status| status.problems.len() == 3)).await;
    insta::assert_snapshot!(host.status_of("it").unwrap().problems.join("\n"), @"
    view all: tool one: its fallback b__shaped is not used: its `outputSchema` differs
    view all: tool three: its fallback b__none is not used: no server lists that tool
    view all: tool two: its fallback b__get is not used: its `outputSchema` differs
    ");
    for name in ["it__one", "it__two", "it__three"] {
        let result = host.call_tool(name, json!({})).await.unwrap();
        assert!(result.is_error() && mark(&result).is_null(), "{name}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(host.call_tool("it__four", json!({})).await.unwrap().text(), "backup 1 {}");
    host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_is_down_or_full_is_replaced_and_an_unknown_outcome_is_not() {
    let entries = json!({
        "down": { "command": "/nowhere/at-all", "tools": { "*": { "fallback": "b__get" } } },
        "lost": { "command": "sh", "args": ["-c", LOSES], "restart": { "maxRetries": 1 },
                  "tools": { "*": { "fallback": { "tool": "b__get", "on": ["unavailable", "timeout"] } } } },
        "late": { "command": "sh", "args": ["-c", LOSES], "callTimeout": "300ms", "repeatable": ["idle"],
                  "tools": { "*": { "fallback": { "tool": "b__get", "on": ["timeout"] } } } },
        "full": { "command": "sh", "args": ["-c", LOSES], "maxConcurrent": 1, "queueTimeout": "50ms",
                  "tools": { "*": { "fallback": "b__get" } } },
    });
    let text = json!({ "mcpServers": entries }).to_string();
    let vars = mcp_host::config::Vars::from_process();
    let config = mcp_host::config::parse_str(&text, mcp_host::config::Syntax::Json, "test.json", &vars).unwrap();
    let (calls, heard) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let host = Host::builder().config(config).in_process("b", backup(&calls, &heard)).start().await.unwrap();
    host.settled().await;
    let call = |name: &str| host.call_tool(name, json!({}));
    let marked = |result: &CallResult| mark(result)["why"].clone();
    assert_eq!(marked(&call("full__once").await.unwrap()), Value::Null);
    let held = tokio::spawn(call("full__idle").into_future());
    until(|| host.status_of("full").is_some_and(|status| status.calls_running == 1)).await;
    assert_eq!(marked(&call("full__once").await.unwrap()), "overloaded");
    held.abort();
    let _ = held.await;
    // The server has the call when it dies: what became of it is unknown.
    let before = calls.load(Ordering::SeqCst);
    let lost = call("lost__die").await.unwrap_err();
    assert!(lost.to_string().contains("the outcome is unknown"), "{lost}");
    let late = call("late__wait").await.unwrap_err();
    assert!(late.to_string().contains("callTimeout"), "{late}");
    assert_eq!(calls.load(Ordering::SeqCst), before);
    assert_eq!(marked(&call("late__idle").await.unwrap()), "timeout", "it may be called twice");
    host.shutdown().await;
}

/// A server in shell: `once` answers, `die` ends it, `idle` and `wait` never answer.
const LOSES: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"once","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}},{"name":"idle","inputSchema":{"type":"object"}},{"name":"wait","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"die"'*) exit 1 ;;
    *'"name":"once"'*) reply '{"content":[{"type":"text","text":"once"}]}' ;;
  esac
done"#;

/// A server that starts once: `fails` is over quota, `die` ends it.
const ONCE: &str = r#"
[ -e "$0" ] && exit 1
: > "$0"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"get","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"die"'*) exit 1 ;;
    *'"name":"get"'*) reply '{"isError":true,"content":[{"type":"text","text":"Quota exceeded: 5 of 5"}]}' ;;
  esac
done"#;

#[cfg(unix)]
#[tokio::test]
async fn clients_of_both_eras_get_the_answer_of_the_other_tool_by_text_and_while_the_first_server_is_down() {
    use crate::views::clients::{Client, Transport};

    let folder = tempfile::tempdir().unwrap();
    let fallback = json!({ "tool": "b__get", "match": "(?i)quota" });
    let entry = json!({ "command": "sh", "args": ["-c", ONCE, folder.path().join("ran")],
        "restart": { "maxRetries": 0 }, "tools": { "get": { "fallback": fallback } } });
    let text = json!({ "mcpServers": { "it": entry } }).to_string();
    let vars = mcp_host::config::Vars::from_process();
    let config = mcp_host::config::parse_str(&text, mcp_host::config::Syntax::Json, "test.json", &vars).unwrap();
    let (calls, heard) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let host = Host::builder().config(config).in_process("b", backup(&calls, &heard)).start().await.unwrap();
    host.catalog_ready().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    let mut clients = Vec::new();
    for (transport, revision) in
        [(Transport::Pipe, "2025-11-25"), (Transport::Sse, "2024-11-05"), (Transport::Http, "2026-07-28")]
    {
        clients.push(Client::enter(&host, to, transport, revision, "").await);
    }
    for why in ["match", "unavailable"] {
        for client in &mut clients {
            let before = calls.load(Ordering::SeqCst);
            let answer = client.ask("tools/call", json!({ "name": "it__get", "arguments": { "path": "a" } })).await;
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{why}: {answer}"));
            assert_eq!(text, format!(r#"backup {} {{"path":"a"}}"#, before + 1), "{why}");
            let mark = json!({ "from": "it__get", "to": "b__get", "why": why });
            assert_eq!(answer["result"]["_meta"]["mcp-host/fallback"], mark, "{answer}");
            assert_eq!(calls.load(Ordering::SeqCst) - before, 1);
        }
        if why == "match" {
            host.call_tool("it__die", json!({})).await.unwrap_err();
            until(|| host.status_of("it").is_some_and(|status| status.state == mcp_host::StateName::Failed)).await;
        }
    }
    host.shutdown().await;
}

/// The members of the audit's lines that tell what became of a call.
async fn lines(file: &Path) -> Vec<Value> {
    let text = tokio::fs::read_to_string(file).await.unwrap();
    let members = ["server", "target", "outcome", "kind", "via", "cached"];
    let short = |line: &str| -> Value {
        let line: Value = serde_json::from_str(line).unwrap();
        members
            .iter()
            .filter(|name| !line[**name].is_null())
            .map(|name| ((*name).to_owned(), line[*name].clone()))
            .collect()
    };
    text.lines().map(short).collect()
}

#[tokio::test]
async fn the_audit_has_a_line_for_each_of_both_calls_and_says_what_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let tools = json!({ "it__get": { "fallback": "b__get", "cache": "1h" } });
    let more = json!({ "rates": { "server": "1/hour" }, "audit": { "file": file.to_str().unwrap() } });
    let stage = Stage::of(&tools, &more).await;
    stage.host.call_tool("it__get", json!({})).await.unwrap();
    let heard = stage.heard.clone();
    let call = stage.host.call_tool("it__get", json!({ "wait": true }));
    let call = call.on_progress(move |step| {
        assert_eq!(step.message.as_deref(), Some("backup"));
        heard.notify_one();
    });
    assert_eq!(mark(&call.await.unwrap()), why("rate_limited"));
    stage.host.shutdown().await;
    assert_eq!(
        lines(&file).await,
        [
            json!({ "server": "it", "target": "get", "outcome": "ok" }),
            json!({ "server": "b", "target": "get", "outcome": "ok", "via": "fallback" }),
            json!({ "server": "it", "target": "get", "outcome": "host_error", "kind": "rate_limited" }),
        ]
    );
    let file = folder.path().join("kept.jsonl");
    let stage = Stage::of(&tools, &json!({ "audit": { "file": file.to_str().unwrap() } })).await;
    for _ in 0..2 {
        assert_eq!(stage.host.call_tool("it__get", json!({})).await.unwrap().text(), "get 1 {}");
    }
    stage.host.shutdown().await;
    let sent = json!({ "server": "it", "target": "get", "outcome": "ok" });
    let kept = json!({ "server": "it", "target": "get", "outcome": "ok", "cached": true });
    assert_eq!(lines(&file).await, [sent, kept]);
}
