//! Scripts that call tools: what they get, what they may do, and how they end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Host, InProcess, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::views::clients::{Client, Transport};

/// Clients with a session, and one without.
const EACH: [(Transport, &str); 3] =
    [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2025-06-18"), (Transport::Http, "2026-07-28")];

fn config(host: &Value) -> Config {
    let text = json!({ "host": host, "mcpServers": {} }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap_or_else(|error| panic!("{error}"))
}

fn tool(name: &str) -> Raw {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "number" } } });
    json!({ "name": name, "description": "A tool.", "inputSchema": schema }).into()
}

/// What the tests know of the server.
#[derive(Debug, Default)]
struct Seen {
    /// The call of `wait` has come.
    came: Notify,
    /// The call of `wait` was dropped.
    gone: Notify,
    /// How many calls of `wait` came.
    waits: AtomicUsize,
}

/// A server whose tools answer with structured content, JSON, text, or an error, or wait for ever.
fn server(seen: &Arc<Seen>) -> InProcess {
    let text = |text: &str, wrong: bool| -> Raw {
        json!({ "content": [{ "type": "text", "text": text }], "isError": wrong }).into()
    };
    let seen = seen.clone();
    InProcess::new("s", "1")
        .tool(tool("double"), |call| {
            Box::pin(async move {
                let n = call.arguments.member("n").map_or(0.0, |n| n.read::<f64>().unwrap());
                let result = json!({ "n": 2.0 * n });
                Ok(json!({ "content": [{ "type": "text", "text": "doubled" }], "structuredContent": result }).into())
            })
        })
        .tool(tool("list"), move |_| Box::pin(async move { Ok(text("[1, 2, 3]", false)) }))
        .tool(tool("say"), move |_| Box::pin(async move { Ok(text("hello", false)) }))
        .tool(tool("fail"), move |_| Box::pin(async move { Ok(text("no such file", true)) }))
        .tool(tool("wait"), move |_| {
            let seen = seen.clone();
            Box::pin(async move {
                struct Gone(Arc<Seen>);
                impl Drop for Gone {
                    fn drop(&mut self) {
                        self.0.gone.notify_one();
                    }
                }
                let _gone = Gone(seen.clone());
                seen.waits.fetch_add(1, Ordering::Relaxed);
                seen.came.notify_one();
                std::future::pending().await
            })
        })
}

/// A host in code mode; `code` is what scripts may do.
struct Stage {
    host: Host,
    to: SocketAddr,
    seen: Arc<Seen>,
}

impl Stage {
    async fn new(code: Value) -> Self {
        Self::of(json!({ "catalog": { "mode": "code", "code": code } })).await
    }

    async fn of(host: Value) -> Self {
        let seen = Arc::<Seen>::default();
        let builder = Host::builder().config(config(&host)).in_process("s", server(&seen));
        let host = builder.script_program(env!("CARGO_BIN_EXE_mcp-host")).start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(host.open_http(listener).unwrap().serve());
        Self { host, to, seen }
    }

    async fn client(&self, (transport, revision): (Transport, &'static str)) -> Client {
        Client::enter(&self.host, self.to, transport, revision, "").await
    }
}

async fn run(client: &mut Client, script: &str) -> Value {
    let params = json!({ "name": "run_script", "arguments": { "script": script } });
    client.ask("tools/call", params).await["result"].clone()
}

fn texts(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect()
}

/// Returns the text of a result that is an error.
fn wrong(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    texts(result)[0]
}

#[tokio::test]
async fn a_script_calls_tools_and_returns_what_matters() {
    let stage = Stage::new(json!({ "tools": "all" })).await;
    for each in EACH {
        let mut client = stage.client(each).await;
        let listed = client.ask("tools/list", json!({})).await;
        let names: Vec<&str> =
            listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["find_tools", "call_tool", "run_script"]);
        let script = "
            const all = await call('s__list');
            const doubled = await Promise.all(all.map((n) => call('s__double', { n })));
            console.log('doubled', doubled.length, { a: 1 });
            return { sum: doubled.reduce((sum, { n }) => sum + n, 0), said: await call('s__say'), input };";
        let params = json!({ "name": "run_script", "arguments": { "script": script, "input": [7] } });
        let result = client.ask("tools/call", params).await["result"].clone();
        let value = json!({ "sum": 12, "said": "hello", "input": [7] });
        let log = r#"doubled 3 {"a":1}"#;
        assert_eq!(texts(&result)[1], log);
        assert_eq!(result["structuredContent"], json!({ "value": value, "log": log }), "{result}");
        assert_eq!(serde_json::from_str::<Value>(texts(&result)[0]).unwrap(), value);
        for (script, text) in [
            ("return 'text'", "\"text\""),
            ("return [1]", "[1]"),
            ("1 + 1", "null"),
            ("await call('s__say'); // a comment at the end", "null"),
            ("return (await call('find_tools', {})).servers", r#"[{"server":"s","tools":5}]"#),
            // What is not awaited is waited for all the same.
            ("let n = 0; call('s__say').then(() => { console.log('late') }); return n", "0"),
        ] {
            let result = run(&mut client, script).await;
            let value: Value = serde_json::from_str(text).unwrap();
            let told = (texts(&result)[0], &result["structuredContent"]["value"]);
            assert_eq!(told, (text, &value), "{script}: {result}");
        }
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn what_goes_wrong_in_a_call_can_be_caught() {
    let stage = Stage::new(json!({ "tools": "all" })).await;
    for each in EACH {
        let mut client = stage.client(each).await;
        let caught = |call: &str| {
            format!(
                "try {{ return await {call} }} catch (e) {{ return [e instanceof CallError, e.kind, e.tool, e.text] }}"
            )
        };
        for (call, kind, tool, text) in [
            ("call('s__fail')", "tool_error", "s__fail", "no such file"),
            ("call('s__sya')", "unknown", "s__sya", "no tool is called `s__sya`; the nearest are "),
            ("call('run_script', { script: '' })", "unknown", "run_script", "a script calls tools of servers"),
            ("call('call_tool', { name: 's__say' })", "unknown", "call_tool", "a script calls tools of servers"),
        ] {
            let result = run(&mut client, &caught(call)).await;
            let got: Value = serde_json::from_str(texts(&result)[0]).unwrap();
            assert_eq!([&got[0], &got[1], &got[2]], [&json!(true), &json!(kind), &json!(tool)], "{call}: {got}");
            assert!(got[3].as_str().unwrap().starts_with(text), "{call}: {got}");
        }
        let result = run(&mut client, "const a = 1;\nawait call('s__fail');").await;
        assert_eq!(wrong(&result), "run_script: CallError (tool_error) at line 2: no such file");
        assert_eq!(result["_meta"]["mcp-host/error"]["kind"], "tool_error");
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn mistakes_in_a_script_are_told_with_their_line() {
    let stage = Stage::new(json!({ "tools": "all" })).await;
    let mut client = stage.client(EACH[0]).await;
    for (script, text) in [
        ("const a = 1;\nreturn b;", "ReferenceError at line 2: b is not defined"),
        ("let a = ;", "SyntaxError at line 1: unexpected token in expression: ';'"),
        ("console.log('before');\nthrow new Error('done');", "Error at line 2: done"),
        ("throw 'text'", "Error: text"),
        ("const a = {}; a.a = a; return a", "TypeError: circular reference"),
        (
            "let a = {}; for (let i = 0; i < 126; i++) a = { a }; return a",
            "it returned a value that is nested too deeply: return a flatter one",
        ),
        ("return call(1)", "TypeError at line 1: call: the name of the tool is not a string"),
        ("return call('s__say', [])", "TypeError at line 1: call: the arguments of s__say are not an object"),
    ] {
        let result = run(&mut client, script).await;
        let told = wrong(&result);
        let end = text.rsplit_once(": ").unwrap().1;
        let start = text.split(": ").next().unwrap();
        assert!(told.starts_with(&format!("run_script: {start}")) && told.ends_with(end), "{script}: {told}");
    }
    let deep = run(&mut client, "let a = {}; for (let i = 0; i < 100; i++) a = { a }; return a").await;
    assert!(deep["structuredContent"]["value"]["a"].is_object(), "{deep}");
    let result = run(&mut client, "console.log('before');\nthrow new Error('done');").await;
    assert_eq!(texts(&result)[1], "before");
    for (arguments, text) in [
        (json!({}), "run_script: `script` is missing: the body of an async function, in JavaScript"),
        (json!({ "script": 1 }), "run_script: `script` is missing: the body of an async function, in JavaScript"),
        (
            json!({ "script": " ".repeat(262_145) }),
            "run_script: the script has 262145 bytes; 262144 at most: give data as `input`",
        ),
    ] {
        let result = client.ask("tools/call", json!({ "name": "run_script", "arguments": arguments })).await;
        assert_eq!(wrong(&result["result"]), text);
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_script_that_takes_too_long_ends_with_its_calls() {
    let stage = Stage::new(json!({ "tools": "all", "time": "1s" })).await;
    for each in EACH {
        let mut client = stage.client(each).await;
        let result = run(&mut client, "await call('s__wait')").await;
        let text = "run_script: it ran for more than 1s with its calls: do less, or raise host.catalog.code.time";
        assert_eq!(wrong(&result), text);
        // On a slow machine, the script may not have come to its call.
        if stage.seen.came.notified().now_or_never().is_some() {
            stage.seen.gone.notified().await;
        }
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn so_many_calls_of_a_script_run_at_once_and_the_others_wait() {
    let stage = Stage::new(json!({ "tools": "all", "time": "2s", "parallel": 2 })).await;
    let mut client = stage.client(EACH[0]).await;
    let result = run(&mut client, "await Promise.all([1, 2, 3, 4].map(() => call('s__wait')))").await;
    assert!(wrong(&result).contains("host.catalog.code.time"), "{result}");
    // On a slow machine, it may not have come to its calls.
    assert!(stage.seen.waits.load(Ordering::Relaxed) <= 2);
    let script = "return (await Promise.all([1, 2, 3, 4].map((n) => call('s__double', { n })))).map(({ n }) => n)";
    assert_eq!(texts(&run(&mut client, script).await), ["[2,4,6,8]"]);
    stage.host.shutdown().await;
}

#[tokio::test]
async fn the_calls_of_a_script_end_with_its_client() {
    let stage = Stage::new(json!({ "tools": "all" })).await;
    // Over HTTP, a client with a session that loses its connection has not cancelled.
    for each in [EACH[0], EACH[2]] {
        let mut client = stage.client(each).await;
        let calling = tokio::spawn(async move { run(&mut client, "await call('s__wait')").await });
        stage.seen.came.notified().await;
        calling.abort();
        stage.seen.gone.notified().await;
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_script_calls_what_only_reads_unless_the_config_says_more() {
    let trusts = json!({ "s__s*": { "annotations": { "readOnlyHint": true } } });
    let view = json!({ "tools": trusts });
    let stage = Stage::of(json!({ "view": "v", "views": { "v": view }, "catalog": { "mode": "code" } })).await;
    for each in EACH {
        let mut client = stage.client(each).await;
        let said = run(&mut client, "return await call('s__say')").await;
        assert_eq!(texts(&said), [r#""hello""#], "{said}");
        let refused = run(&mut client, "return await call('s__list')").await;
        assert_eq!(
            wrong(&refused),
            "run_script: CallError (denied) at line 1: scripts may call a tool only if the config says that it \
             only reads, and `s__list` may change something (host.catalog.code.tools)"
        );
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn each_call_of_a_script_has_its_line_in_the_audit_and_the_script_has_one_around_them() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.jsonl");
    let code = json!({ "mode": "code", "code": { "tools": "all" } });
    let stage = Stage::of(json!({ "audit": { "file": file }, "catalog": code })).await;
    let mut names = Vec::new();
    for each in EACH {
        let mut client = stage.client(each).await;
        run(&mut client, "await call('s__say'); try { await call('s__fail') } catch {}").await;
        names.push(each.1);
    }
    stage.host.shutdown().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3 * names.len(), "{text}");
    for lines in lines.chunks(3) {
        let script = lines[2]["script"].as_str().unwrap();
        assert!(script.starts_with("script-") && script.len() == 23, "{script}");
        let told: Vec<_> = lines
            .iter()
            .map(|line| json!([line["server"], line["target"], line["outcome"], line["via"], line["parent"]]))
            .collect();
        assert_eq!(
            json!(told),
            json!([
                ["s", "say", "ok", "script", script],
                ["s", "fail", "tool_error", "script", script],
                [null, "run_script", "ok", null, null],
            ])
        );
    }
}

/// A client that can be asked, over a pipe.
async fn askable(stage: &Stage, answer: &str) -> Client {
    let capabilities = json!({ "elicitation": {} });
    let mut client = Client::able(&stage.host, stage.to, Transport::Pipe, "2025-11-25", ("", capabilities)).await;
    client.answer = json!({ "action": "accept", "content": { "answer": answer } });
    client
}

#[cfg(feature = "policy")]
#[tokio::test]
async fn a_yes_may_count_for_the_script() {
    let rules = json!([{ "name": "ask", "verdict": "ask", "tools": ["s__say", "s__list"] }]);
    let code = json!({ "mode": "code", "code": { "tools": "all" } });
    let stage = Stage::of(json!({ "policy": { "rules": rules }, "catalog": code })).await;
    let script = "for (let i = 0; i < 3; i++) await call('s__say', { n: i }); return await call('s__list')";
    for (answer, asked) in [("once", 4), ("for this script", 2)] {
        // The next script asks anew.
        for _ in 0..2 {
            let mut client = askable(&stage, answer).await;
            let result = run(&mut client, script).await;
            assert_eq!(texts(&result), ["[1,2,3]"], "{result}");
            assert_eq!(client.asked.len(), asked, "{answer}");
            let answers = &client.asked[0]["params"]["requestedSchema"]["properties"]["answer"]["enum"];
            assert_eq!(*answers, json!(["once", "for this script", "no"]));
        }
    }
    // It is no answer where no script calls.
    let mut client = askable(&stage, "for this script").await;
    let refused = client.ask("tools/call", json!({ "name": "s__say" })).await;
    assert_eq!(refused["result"]["_meta"]["mcp-host/error"]["kind"], "denied", "{refused}");
    let no = run(&mut askable(&stage, "no").await, script).await;
    assert!(wrong(&no).starts_with("run_script: CallError (denied) at line 1: "), "{no}");
    // A client without a session cannot be asked while its script runs.
    let able = ("", json!({ "elicitation": {} }));
    let mut modern = Client::able(&stage.host, stage.to, Transport::Http, "2026-07-28", able).await;
    let refused = run(&mut modern, script).await;
    assert!(wrong(&refused).contains("this client cannot be asked"), "{refused}");
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_client_that_wants_progress_hears_of_each_call() {
    let stage = Stage::new(json!({ "tools": "all" })).await;
    let mut client = stage.client(EACH[0]).await;
    let script = "for (let i = 0; i < 3; i++) await call('s__say')";
    let params =
        json!({ "name": "run_script", "arguments": { "script": script }, "_meta": { "progressToken": "mine" } });
    client.ask("tools/call", params).await;
    let said = client.heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<Value> =
        said.filter(|said| said["method"] == "notifications/progress").map(|said| said["params"].clone()).collect();
    let of = |progress: f64| json!({ "progress": progress, "message": "s__say", "progressToken": "mine" });
    assert_eq!(told, [of(1.0), of(2.0), of(3.0)]);
    stage.host.shutdown().await;
}

#[tokio::test]
async fn so_many_scripts_run_at_once_and_the_others_wait() {
    let stage = Stage::new(json!({ "tools": "all", "scripts": 1 })).await;
    let mut first = stage.client(EACH[0]).await;
    let waiting = tokio::spawn(async move { run(&mut first, "await call('s__wait')").await });
    stage.seen.came.notified().await;
    let mut second = stage.client(EACH[0]).await;
    let next = tokio::spawn(async move { run(&mut second, "return 1").await });
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    waiting.abort();
    assert_eq!(texts(&next.await.unwrap()), ["1"]);
    stage.host.shutdown().await;
}

#[tokio::test]
async fn only_clients_in_code_mode_run_scripts() {
    let view = json!({ "catalog": { "mode": "code" } });
    let stage = Stage::of(json!({ "catalog": { "mode": "search" }, "views": { "v": view } })).await;
    for each in EACH {
        let mut client = stage.client(each).await;
        let refused = client.ask("tools/call", json!({ "name": "run_script", "arguments": { "script": "" } })).await;
        assert_eq!(refused["error"]["message"], "unknown tool: run_script", "{refused}");
        let mut client = Client::enter(&stage.host, stage.to, each.0, each.1, "/v").await;
        if each.0 == Transport::Http {
            assert_eq!(texts(&run(&mut client, "return 1").await), ["1"]);
        }
    }
    stage.host.shutdown().await;
}
