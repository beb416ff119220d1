//! Results that are larger than `host.results.limit`: what clients get of them, and how they read the rest.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Host, InProcess, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::views::clients::{Client, Transport};

/// The oldest and the newest client with a session, and one without.
const EACH: [(Transport, &str); 4] = [
    (Transport::Pipe, "2024-11-05"),
    (Transport::Pipe, "2025-11-25"),
    (Transport::Http, "2025-06-18"),
    (Transport::Http, "2026-07-28"),
];

/// The hashes of 32 letters `a`, and of 32 letters `b`.
const ANN: &str = "sha256:3ba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547";
const BOB: &str = "sha256:bdb339768bc5e4fecbe55a442056919b2b325907d49bcbf3bf8de13781996a83";

fn config(host: &Value) -> Config {
    let text = json!({ "host": host, "mcpServers": {} }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap_or_else(|error| panic!("{error}"))
}

fn lines() -> String {
    (0..1000).map(|number| format!("row {number} of the table\n")).collect()
}

fn rows() -> Value {
    json!({ "rows": (0..500).map(|number| json!({ "number": number })).collect::<Vec<_>>() })
}

/// A server whose results are large.
fn server() -> InProcess {
    let schema = json!({ "type": "object", "properties": { "rows": { "type": "array", "items": { "type": "object" } } }, "required": ["rows"] });
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let mut listed = tool("rows");
    listed["outputSchema"] = schema;
    let answer = |result: Value| {
        move |_| -> futures_util::future::BoxFuture<'static, _> {
            let result = Raw::from(result.clone());
            Box::pin(async move { Ok(result) })
        }
    };
    InProcess::new("big", "1")
        .tool(tool("text").into(), answer(json!({ "content": [{ "type": "text", "text": lines() }] })))
        .tool(
            listed.into(),
            answer(json!({ "content": [{ "type": "text", "text": rows().to_string() }], "structuredContent": rows() })),
        )
        .tool(tool("small").into(), answer(json!({ "content": [{ "type": "text", "text": "small" }] })))
        .tool(
            tool("image").into(),
            answer(json!({ "content": [{ "type": "image", "data": "A".repeat(4000), "mimeType": "image/png" }] })),
        )
}

async fn start(host: &Value) -> (Host, SocketAddr) {
    let host = Host::builder().config(config(host)).in_process("big", server()).start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

fn limits() -> Value {
    json!({ "results": { "limit": "2KiB", "image": "1KiB", "preview": "200B" } })
}

async fn call(client: &mut Client, name: &str, arguments: Value) -> Value {
    client.ask("tools/call", json!({ "name": name, "arguments": arguments })).await["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn the_rest_of_a_result_is_read_by_pages_lines_and_pointers() {
    let (host, to) = start(&limits()).await;
    for (transport, revision) in EACH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        let head = call(&mut client, "big__text", json!({})).await;
        assert!(text(&head).len() <= 200 && lines().starts_with(text(&head)), "{revision}: {head}");
        let cut = &head["_meta"]["mcp-host/cut"];
        let (id, pages) = (cut["id"].clone(), cut["pages"].as_u64().unwrap());
        let mut whole = String::new();
        for page in 1..=pages {
            let read = call(&mut client, "read_result", json!({ "id": id, "page": page })).await;
            whole += text(&read).split("\n[mcp-host: page").next().unwrap();
        }
        assert_eq!(whole, lines(), "{revision}");
        let found = call(&mut client, "read_result", json!({ "id": id, "match": "ROW 77" })).await;
        assert_eq!(text(&found).lines().next(), Some("78: row 77 of the table"), "{found}");
        let uri = format!("mcp-host+result://{}", id.as_str().unwrap());
        let read = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["text"], lines(), "{read}");
        let page = client.ask("resources/read", json!({ "uri": format!("{uri}?page=2") })).await;
        assert!(lines().contains(page["result"]["contents"][0]["text"].as_str().unwrap()), "{page}");
        let small = call(&mut client, "big__small", json!({})).await;
        assert!(text(&small) == "small" && small["_meta"].get("mcp-host/cut").is_none(), "{small}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn structured_content_stays_valid_and_images_become_links() {
    let (host, to) = start(&limits()).await;
    for (transport, revision) in EACH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        let head = call(&mut client, "big__rows", json!({})).await;
        let id = head["_meta"]["mcp-host/cut"]["id"].clone();
        let knows = revision >= "2025-06-18";
        if knows {
            let rows = head["structuredContent"]["rows"].as_array().unwrap();
            assert!(rows.len() < 500 && rows[0]["number"] == 0, "{head}");
            let row = call(&mut client, "read_result", json!({ "id": id, "pointer": "/rows/499/number" })).await;
            assert_eq!(text(&row), "499");
        } else {
            assert!(head.get("structuredContent").is_none() && text(&head).starts_with("{\"rows\""), "{head}");
        }
        let image = call(&mut client, "big__image", json!({})).await;
        let block = &image["content"][0];
        let uri = match knows {
            true => block["uri"].as_str().unwrap().to_owned(),
            false => block["text"].as_str().unwrap().strip_prefix("image: ").unwrap().to_owned(),
        };
        let read = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["blob"].as_str().map(str::len), Some(4000), "{read}");
        let watch = client.ask("resources/subscribe", json!({ "uri": uri })).await;
        assert!(watch.get("error").is_some(), "{watch}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn mistakes_are_answered_in_words() {
    let (host, to) = start(&limits()).await;
    let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
    let head = call(&mut client, "big__rows", json!({})).await;
    let id = head["_meta"]["mcp-host/cut"]["id"].clone();
    let mut said = String::new();
    for arguments in [
        json!({}),
        json!({ "id": "0123" }),
        json!({ "id": id, "page": 0 }),
        json!({ "id": id, "page": 99 }),
        json!({ "id": id, "pointer": "/rows/500" }),
        json!({ "id": id, "pointer": "/rows", "match": "a" }),
        json!({ "id": id, "match": 7 }),
        json!({ "id": id, "match": "nowhere" }),
    ] {
        let answer = call(&mut client, "read_result", arguments).await;
        said += &format!("{}{}\n", if answer["isError"] == true { "error: " } else { "" }, text(&answer));
    }
    insta::assert_snapshot!(said, @r#"
    error: read_result: `id` is missing; it stands at the end of a result that was cut
    error: read_result: no result has the id 0123
    error: read_result: `page` is not a whole number from 1 on
    error: read_result: there is no page 99; the last is 4
    error: read_result: pointer /rows/500: nothing is at "500"
    error: read_result: `match` and `pointer` do not go together
    error: read_result: `match` is not a string
    No line has the text nowhere.
    "#);
    let unknown = client.ask("resources/read", json!({ "uri": "mcp-host+result://0123" })).await;
    insta::assert_snapshot!(unknown["error"]["message"], @r#""resource mcp-host+result://0123: no result has the id 0123""#);
    host.shutdown().await;
}

#[tokio::test]
async fn another_principal_and_another_view_do_not_know_a_result() {
    let (ann, bob) = ("a".repeat(32), "b".repeat(32));
    let settings = json!({
        "results": { "limit": "2KiB" },
        "auth": { "type": "bearer", "clients": { "ann": ANN, "bob": BOB } },
    });
    let (host, to) = start(&settings).await;
    let mut client = Client::proving(&host, to, "2025-11-25", &ann).await;
    let head = call(&mut client, "big__text", json!({})).await;
    let id = head["_meta"]["mcp-host/cut"]["id"].clone();
    // The same person reads on in another client.
    for (token, knows) in [(&ann, true), (&bob, false)] {
        let mut other = Client::proving(&host, to, "2026-07-28", token).await;
        let read = call(&mut other, "read_result", json!({ "id": id })).await;
        assert_eq!(text(&read).starts_with("row 0 of the table"), knows, "{read}");
        assert_eq!(text(&read).starts_with("read_result: no result has the id"), !knows, "{read}");
    }
    host.shutdown().await;

    let (host, to) = start(&json!({ "results": { "limit": "2KiB" }, "views": { "other": {} } })).await;
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
    let head = call(&mut client, "big__text", json!({})).await;
    let id = head["_meta"]["mcp-host/cut"]["id"].clone();
    let mut other = Client::enter(&host, to, Transport::Http, "2025-11-25", "/other").await;
    let read = call(&mut other, "read_result", json!({ "id": id })).await;
    assert!(read["isError"] == true && text(&read).contains("no result has the id"), "{read}");
    host.shutdown().await;
}

#[tokio::test]
async fn read_result_is_listed_where_there_is_a_limit() {
    for (settings, names) in [
        (json!({}), "big__image big__rows big__small big__text"),
        (json!({ "results": { "limit": "2KiB" } }), "big__image big__rows big__small big__text read_result"),
        (json!({ "results": { "image": "2KiB" } }), "big__image big__rows big__small big__text"),
        (
            json!({ "results": { "limit": "2KiB" }, "catalog": { "mode": "search" } }),
            "call_tool find_tools read_result",
        ),
        (
            json!({ "view": "v", "views": { "v": { "results": { "limit": "2KiB" } } } }),
            "big__image big__rows big__small big__text read_result",
        ),
        (
            json!({ "results": { "limit": "2KiB" }, "view": "v", "views": { "v": { "results": { "limit": "0B" } } } }),
            "big__image big__rows big__small big__text",
        ),
    ] {
        let (host, to) = start(&settings).await;
        let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
        let answer = client.ask("tools/list", json!({})).await;
        let mut listed: Vec<&str> =
            answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        listed.sort_unstable();
        assert_eq!(listed.join(" "), names, "{settings}");
        let whole = call(&mut client, "big__text", json!({})).await;
        assert_eq!(whole["_meta"]["mcp-host/cut"].is_object(), names.contains("read_result"), "{settings}");
        if settings.get("catalog").is_some() {
            let head = call(&mut client, "call_tool", json!({ "name": "big__text" })).await;
            assert!(
                head["_meta"]["mcp-host/cut"]["id"].is_string() && head["_meta"]["mcp-host/tool"] == "big__text",
                "{head}"
            );
        }
        host.shutdown().await;
    }
}

#[tokio::test]
async fn a_tool_may_have_limits_of_its_own() {
    let tools = json!({
        "big__text": { "results": { "limit": "2KiB", "preview": "100B" } },
        "big__im*": { "results": { "image": "1KiB" } },
    });
    let (host, to) = start(&json!({ "view": "v", "views": { "v": { "tools": tools } } })).await;
    for (transport, revision) in EACH {
        let mut client = Client::enter(&host, to, transport, revision, "").await;
        let answer = client.ask("tools/list", json!({})).await;
        assert!(answer.to_string().contains(r#""name":"read_result""#), "{revision}: {answer}");
        let head = call(&mut client, "big__text", json!({})).await;
        assert!(text(&head).len() <= 100 && lines().starts_with(text(&head)), "{revision}: {head}");
        let id = head["_meta"]["mcp-host/cut"]["id"].clone();
        // What is found has pages of the tool's own limit.
        let found = call(&mut client, "read_result", json!({ "id": id, "match": "row" })).await;
        let (page, more) = text(&found).split_once("\n[mcp-host: page 1 of").unwrap();
        assert!((1025..=2048).contains(&page.len()) && more.contains("go on with page 2"), "{found}");
        let (rows, whole) = (call(&mut client, "big__rows", json!({})).await, rows().to_string());
        assert!(rows["_meta"].get("mcp-host/cut").is_none() && text(&rows) == whole, "{rows}");
        let image = call(&mut client, "big__image", json!({})).await;
        assert!(!image.to_string().contains("AAAA") && image.to_string().contains("mcp-host+result://"), "{image}");
    }
    host.shutdown().await;

    let tools = json!({ "big__text": { "results": { "limit": "0B" } } });
    let view = json!({ "results": { "limit": "2KiB" }, "tools": tools });
    let (host, to) = start(&json!({ "view": "v", "views": { "v": view } })).await;
    let mut client = Client::enter(&host, to, Transport::Http, "2025-11-25", "").await;
    assert_eq!(text(&call(&mut client, "big__text", json!({})).await), lines());
    assert!(call(&mut client, "big__rows", json!({})).await["_meta"]["mcp-host/cut"].is_object());
    host.shutdown().await;
}

#[tokio::test]
async fn the_audit_says_which_results_were_cut() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.jsonl");
    let mut settings = limits();
    settings["audit"] = json!({ "file": file });
    let (host, to) = start(&settings).await;
    let mut client = Client::enter(&host, to, Transport::Pipe, "2025-11-25", "").await;
    for name in ["big__text", "big__small", "big__image"] {
        call(&mut client, name, json!({})).await;
    }
    host.shutdown().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<Value> = lines.map(|line| json!([line["target"], line["cut"]])).collect();
    assert_eq!(json!(told), json!([["text", true], ["small", null], ["image", true]]), "{text}");
}
