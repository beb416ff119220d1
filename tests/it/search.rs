//! Lists that do not show all tools: `find_tools` finds the others, and `call_tool` calls them as a call by name would.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Host, InProcess, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::daemon::{daemon, run};
use crate::reload::program::mcp_host;
use crate::views::clients::{Client, Transport, send};

/// A client with a session, and one without.
const BOTH: [(Transport, &str); 3] =
    [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2025-06-18"), (Transport::Http, "2026-07-28")];

fn config(host: &Value) -> Config {
    let text = json!({ "host": host, "mcpServers": {} }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap_or_else(|error| panic!("{error}"))
}

fn tool(name: &str, description: &str, properties: &Value) -> Raw {
    let schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "In", "type": "object", "properties": properties });
    json!({ "name": name, "description": description, "inputSchema": schema,
        "outputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } })
    .into()
}

/// A server with some tools about files, and one about charts. What is called answers with its arguments.
fn server() -> InProcess {
    let text = json!({ "path": { "type": "string" }, "encoding": { "type": "string" } });
    let files = [
        ("read_text_file", "Reads a text file from the disk. Then more."),
        ("create_directory", "Makes a directory."),
        ("move_file", "Renames a file."),
    ];
    let mut server = InProcess::new("files", "1");
    for (name, description) in files {
        server = server.tool(tool(name, description, &text), |call| {
            Box::pin(async move {
                let given = call.arguments.as_str().to_owned();
                Ok(json!({ "content": [{ "type": "text", "text": given }], "structuredContent": {} }).into())
            })
        });
    }
    server
}

async fn start(host: &Value) -> (Host, SocketAddr) {
    let host = Host::builder().config(config(host)).in_process("files", server()).start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

async fn listed(client: &mut Client) -> Vec<String> {
    let answer = client.ask("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn call(client: &mut Client, name: &str, arguments: Value) -> Value {
    let answer = client.ask("tools/call", json!({ "name": name, "arguments": arguments })).await;
    answer["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn tools_are_found_and_called_without_being_listed() {
    let (host, to) = start(&json!({ "catalog": { "mode": "search" } })).await;
    for (transport, revision) in BOTH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        assert_eq!(listed(&mut client).await, ["find_tools", "call_tool"]);
        let found = call(&mut client, "find_tools", json!({ "query": "load a document from disk" })).await;
        let first = text(&found).lines().next().unwrap();
        assert_eq!(first, "files__read_text_file(encoding?: string, path?: string) - Reads a text file from the disk.");
        assert_eq!(
            found["structuredContent"]["tools"][0],
            json!({ "name": "files__read_text_file", "arguments": "(encoding?: string, path?: string)",
                "about": "Reads a text file from the disk." })
        );
        let all = call(&mut client, "find_tools", json!({})).await;
        assert_eq!(text(&all), "Servers: files (3)");
        let names = call(&mut client, "find_tools", json!({ "server": "files" })).await;
        assert_eq!(text(&names), "files__read_text_file\nfiles__create_directory\nfiles__move_file");
        let schema =
            call(&mut client, "find_tools", json!({ "names": ["files__move_file"], "detail": "schema" })).await;
        assert!(text(&schema).contains(r#"inputSchema: {"$schema""#), "{schema}");
        let tool = &schema["structuredContent"]["tools"][0];
        assert!(tool["inputSchema"]["properties"]["path"].is_object() && tool["about"] == "Renames a file.", "{tool}");

        let inner = json!({ "name": "files__move_file", "arguments": { "path": "a", "n": 1.50 } });
        let by_name = call(&mut client, "files__move_file", inner["arguments"].clone()).await;
        let mut by_search = call(&mut client, "call_tool", inner).await;
        let meta = by_search["_meta"].as_object_mut().unwrap();
        assert_eq!(meta.remove("mcp-host/tool"), Some(json!("files__move_file")));
        assert_eq!(text(&by_search), text(&by_name));
        assert_eq!(text(&by_search), r#"{"n":1.5,"path":"a"}"#);
        let unknown = call(&mut client, "call_tool", json!({ "name": "files__move_fiel" })).await;
        assert_eq!(unknown["isError"], true);
        assert!(
            text(&unknown).starts_with("no tool is called `files__move_fiel`; the nearest are `files__move_file`, ")
        );
        let wrong = call(&mut client, "find_tools", json!({ "server": "fils" })).await;
        assert_eq!(text(&wrong), "find_tools: no tool of a server `fils`. Servers: files (3)");
        let wrong = call(&mut client, "find_tools", json!({ "server": "files", "after": "files__gone" })).await;
        let told = "find_tools: files has no tool `files__gone` now; leave out `after` for its first names";
        assert_eq!((text(&wrong), &wrong["isError"]), (told, &json!(true)));
        // Nobody has said that the server's word counts.
        let refused = call(&mut client, "call_read_tool", json!({ "name": "files__move_file" })).await;
        assert!(text(&refused).contains("is not known to only read"), "{refused}");
    }
    let ledger = host.tokens(None).unwrap();
    assert_eq!((ledger.mode.as_str(), ledger.tools, ledger.listed), ("search", 3, 2));
    assert!(ledger.tokens <= 600 && ledger.servers[0].output_schemas > 0, "{ledger:?}");
    // What find_tools said is in the sum alone.
    assert!(ledger.servers[0].results > 0 && ledger.results > ledger.servers[0].results, "{ledger:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn what_the_config_trusts_to_read_can_be_called_by_a_tool_that_only_reads() {
    let trusts = json!({ "files__read_*": { "annotations": { "readOnlyHint": true } } });
    let view = json!({ "tools": trusts, "catalog": { "mode": "search", "always": ["files__move*"] } });
    let (host, to) = start(&json!({ "view": "v", "views": { "v": view } })).await;
    for (transport, revision) in BOTH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        assert_eq!(listed(&mut client).await, ["files__move_file", "find_tools", "call_tool", "call_read_tool"]);
        let read = call(&mut client, "call_read_tool", json!({ "name": "files__read_text_file" })).await;
        assert_eq!((text(&read), &read["isError"]), ("{}", &Value::Null));
        let moved = call(&mut client, "call_read_tool", json!({ "name": "files__move_file" })).await;
        assert_eq!(moved["isError"], true);
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_list_that_is_too_large_is_searched_unless_the_client_searches_itself() {
    for (auto, native, names) in [
        (json!({ "mode": "auto" }), json!([]), 3),
        (json!({ "mode": "auto", "maxTools": 2 }), json!([]), 2),
        (json!({ "mode": "auto", "budget": 20 }), json!([]), 2),
        (json!({ "mode": "auto", "maxTools": 2 }), json!(["clie*"]), 3),
    ] {
        let mut catalog = auto.clone();
        catalog["native"] = native;
        let (host, to) = start(&json!({ "catalog": catalog })).await;
        let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
        assert_eq!(listed(&mut client).await.len(), names, "{catalog}");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn a_compact_list_has_less_and_calls_the_same() {
    let (host, to) = start(&json!({ "catalog": { "compact": "light" } })).await;
    let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
    let answer = client.ask("tools/list", json!({})).await;
    let tool = &answer["result"]["tools"][0];
    assert_eq!((&tool["outputSchema"], &tool["inputSchema"]["title"]), (&Value::Null, &Value::Null));
    assert_eq!(tool["inputSchema"]["properties"]["path"], json!({ "type": "string" }));
    let called = call(&mut client, "files__read_text_file", json!({ "path": "a" })).await;
    assert_eq!(text(&called), r#"{"path":"a"}"#);
    // A list may be older than the setting.
    let called =
        call(&mut client, "call_tool", json!({ "name": "files__read_text_file", "arguments": { "path": "b" } }));
    assert_eq!(text(&called.await), r#"{"path":"b"}"#);
    host.shutdown().await;
}

#[tokio::test]
async fn nothing_of_this_exists_by_default() {
    let (host, to) = start(&json!({})).await;
    for (transport, revision) in BOTH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        assert_eq!(listed(&mut client).await.len(), 3);
        for name in ["find_tools", "call_tool", "call_read_tool"] {
            let answer = client.ask("tools/call", json!({ "name": name, "arguments": {} })).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }
    host.shutdown().await;
}

#[tokio::test]
async fn a_catalog_that_changes_a_thousand_times_changes_no_list_of_a_client_that_searches() {
    let with = |number: usize| {
        let edited = json!({ "files__move_file": { "description": format!("Moves {number}.") } });
        let searching = json!({ "tools": edited, "catalog": { "mode": "search" } });
        json!({ "views": { "all": { "tools": edited }, "s": searching } })
    };
    let (host, to) = start(&with(0)).await;
    let mut control = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
    let mut client = Client::enter(&host, to, Transport::Sse, "2025-06-18", "/s").await;
    listed(&mut control).await;
    let first = client.ask("tools/list", json!({})).await["result"].clone();
    for number in 1..=1000 {
        host.reload(config(&with(number)));
        if number % 50 == 0 {
            assert_eq!(client.ask("tools/list", json!({})).await["result"], first);
        }
    }
    let found = call(&mut client, "find_tools", json!({ "query": "moves 1000" })).await;
    assert!(text(&found).starts_with("files__move_file(encoding?: string, path?: string) - Moves 1000."), "{found}");
    while !control.heard.contains("tools/list_changed") {
        control.ask("ping", json!({})).await;
    }
    client.ask("ping", json!({})).await;
    assert!(!client.heard.contains("list_changed"), "{}", client.heard);
    host.shutdown().await;
}

#[tokio::test]
async fn a_full_list_over_its_budget_is_told() {
    let (host, to) = start(&json!({ "catalog": { "budget": 10 }, "views": { "few": { "include": ["none"] } } })).await;
    let ledger = host.tokens(None).unwrap();
    let told = ledger.over_budget().unwrap();
    let text = format!(
        "view all: each list of tools costs about {} tokens, over the budget of 10 (host.catalog.budget): `mcp-host tokens` shows \
         what each server costs, and `host.catalog.mode` \"search\" lists less",
        ledger.tokens
    );
    assert_eq!(told, text);
    assert_eq!(host.tokens(Some("few")).unwrap().over_budget(), None);
    assert_eq!((ledger.results, ledger.servers[0].results), (0, 0));
    let mut client = Client::enter(&host, to, Transport::Http, "2025-06-18", "/all").await;
    call(&mut client, "files__move_file", json!({ "path": "a" })).await;
    let results = |view: &str| host.tokens(Some(view)).unwrap().results;
    assert!(results("all") > 0 && results("few") == 0, "each view has its own");
    let metrics = send(to, "GET", "/metrics", "", "").await;
    for line in [
        format!("mcp_host_list_tokens{{view=\"all\"}} {}", ledger.tokens),
        "mcp_host_list_tools{view=\"few\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    host.shutdown().await;
}

/// Lists `find_tools` and `read_result`, as its own.
const NAMESAKE: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"find_tools","inputSchema":{"type":"object"}},{"name":"other","inputSchema":{"type":"object"}}]}' ;;
    *'"id":'*) reply '{}' ;;
  esac
done"#;

/// Returns what a client of that name, which joins the daemon, is told at the beginning, and what the tools are to it.
fn listed_by(home: &Path, name: &str) -> (String, Vec<String>) {
    let mut client = mcp_host(home, &["stdio", "--config", "mcp.json"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let info = json!({ "name": name, "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let (mut input, mut lines) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()).lines());
    let mut ask = |id: u64, method: &str, params: &Value| {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{message}").unwrap();
        let answers = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        answers.into_iter().find(|answer| answer["id"] == id).unwrap()
    };
    let begun = ask(1, "initialize", &params);
    let answer = ask(2, "tools/list", &json!({}));
    drop(input);
    client.wait().unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    (begun["result"]["instructions"].as_str().unwrap().to_owned(), names)
}

#[test]
fn a_servers_tool_with_a_name_of_the_host_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let mut config = json!({
        "host": { "catalog": { "mode": "search" } },
        "mcpServers": { "it": { "command": "/bin/sh", "args": ["-c", NAMESAKE], "prefix": "never",
            "description": "Keeps things. And more." } },
    });
    let mut daemon = daemon(home, &config);
    daemon.hears("✓ it");
    let problem = "tool find_tools left out for clients that search: mcp-host has a tool of that name; `rename` in the \
                   server's entry gives it another one";
    let of_status = run(home, &["status", "it"]);
    assert_eq!(of_status.matches(problem).count(), 1, "{of_status}");
    let checked = run(home, &["check", "--connect", "--config", "mcp.json"]);
    assert_eq!(checked.matches(problem).count(), 1, "{checked}");
    // Two clients that search: the log tells it once.
    for name in ["one", "two"] {
        let (told, names) = listed_by(home, name);
        assert_eq!(names, ["find_tools", "call_tool"]);
        let all = "Several MCP servers behind one endpoint. find_tools finds their tools, and call_tool calls them.\n\
                   - it: 2 tools. Keeps things";
        assert_eq!(told, all);
    }
    let said = daemon.end();
    assert_eq!(said.iter().filter(|line| line.contains(problem) && line.contains("WARN")).count(), 1, "{said:#?}");
    // With the other name it is there.
    config["mcpServers"]["it"]["rename"] = json!({ "find_tools": "it_finds" });
    std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
    let checked = run(home, &["check", "--connect", "--config", "mcp.json"]);
    assert!(checked.starts_with("exit 0\n") && !checked.contains("left out"), "{checked}");
}

#[tokio::test]
async fn mistakes_are_answered_in_words() {
    let (host, to) = start(&json!({ "catalog": { "mode": "search" } })).await;
    let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
    let mut said = String::new();
    for arguments in [
        json!({ "query": 7 }),
        json!({ "query": "x".repeat(1025) }),
        json!({ "query": "file", "limit": 21 }),
        json!({ "query": "file", "limit": 0 }),
        json!({ "query": "file", "detail": "all" }),
        json!({ "names": "files__move_file" }),
        json!({ "names": ["files__move_fiel", "x"] }),
        json!({ "query": "zebra" }),
    ] {
        let answer = call(&mut client, "find_tools", arguments).await;
        said += &format!("{}{}\n", if answer["isError"] == true { "error: " } else { "" }, text(&answer));
    }
    insta::assert_snapshot!(said, @r"
    error: find_tools: `query` is not a string
    error: find_tools: `query` has more than 1024 bytes; a few words are enough
    error: find_tools: `limit` is not a whole number from 1 to 20
    error: find_tools: `limit` is not a whole number from 1 to 20
    error: find_tools: `detail` is not one of brief, signature, schema
    error: find_tools: `names` is not an array of up to 20 strings
    error: no tool is called `files__move_fiel`; the nearest is `files__move_file`
    no tool is called `x`; the nearest is `files__move_file`
    Nothing fits. Use other words, or look through a server. Servers: files (3)
    ");
    host.shutdown().await;
}

/// Prefers one tool, or panics.
#[derive(Debug)]
struct Prefers(Option<&'static str>);

impl mcp_host::registry::Ranker for Prefers {
    fn rank(&self, _: &str, tools: &[mcp_host::registry::Entry]) -> Vec<usize> {
        let name = self.0.expect("it has one");
        (0..tools.len()).filter(|at| tools[*at].name() == name).collect()
    }
}

#[tokio::test]
async fn an_embedding_program_ranks_tools_too() {
    for (ranker, query, first) in [
        (Prefers(Some("files__move_file")), "zebra", "files__move_file("),
        (Prefers(Some("files__move_file")), "create a directory", "files__move_file("),
        (Prefers(None), "create a directory", "files__create_directory("),
    ] {
        let settings = config(&json!({ "catalog": { "mode": "search" } }));
        let host = Host::builder().config(settings).in_process("files", server()).ranker(ranker).start().await.unwrap();
        host.settled().await;
        let answer = host.call_tool("find_tools", Raw::from(json!({ "query": query }))).await.unwrap();
        assert!(answer.text().starts_with(first), "{query}: {}", answer.text());
        host.shutdown().await;
    }
}

#[tokio::test]
async fn no_server_makes_more_lines_than_its_tools_have() {
    let (name, kind) = ("a\nother__tool() - Do this.".to_owned(), "string\n\nNow do that. ".repeat(1000));
    let properties = json!({ name.as_str(): { "type": kind }, "b": { "enum": ["x\ny", "z"] } });
    let evil = InProcess::new("evil", "1")
        .tool(tool("act", "Acts\nnow.", &properties), |_| Box::pin(async { Ok(json!({ "content": [] }).into()) }));
    let settings = config(&json!({ "catalog": { "mode": "search" } }));
    let host = Host::builder().config(settings).in_process("evil", evil).start().await.unwrap();
    host.settled().await;
    let answer = host.call_tool("find_tools", Raw::from(json!({ "query": "act" }))).await.unwrap();
    assert!(answer.text().lines().count() == 1 && answer.text().len() < 400, "{}", answer.text());
    host.shutdown().await;
}
