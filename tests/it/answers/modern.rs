//! Kept and joined answers of a server of 2026-07-28: it says itself how long a resource is good, and for whom; and it may
//! answer a call with a task.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mcp_host::Host;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::until;
use crate::auth::site::{Asked, Site, Told};
use crate::views::clients::{Client, Transport, send};

/// What the server has seen, and when it answers calls.
#[derive(Default)]
struct Seen {
    reads: Mutex<Vec<String>>,
    calls: Mutex<usize>,
    gate: Arc<Notify>,
}

/// Answers one message. What a resource says of its age is in its URI: `a:TTL:SCOPE`.
fn answer(seen: &Seen, asked: &Asked) -> Told {
    if asked.method != "POST" {
        return Told::Answer(405, Vec::new(), String::new());
    }
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    let params = &body["params"];
    let whole = |mut result: Value| {
        if result["resultType"].is_null() {
            result["resultType"] = json!("complete");
        }
        json!({ "jsonrpc": "2.0", "id": body["id"], "result": result })
    };
    let mut lists = json!({ "ttlMs": 3_600_000, "cacheScope": "public" });
    match body["method"].as_str().unwrap_or_default() {
        "server/discover" => Told::json(
            200,
            &whole(json!({ "supportedVersions": ["2026-07-28"], "serverInfo": { "name": "s", "version": "1" },
                "capabilities": { "tools": {}, "resources": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } } })),
        ),
        "tools/list" => {
            lists["tools"] = json!([{ "name": "job", "inputSchema": { "type": "object" },
                "annotations": { "readOnlyHint": true } }]);
            Told::json(200, &whole(lists))
        }
        "resources/list" => {
            lists["resources"] = json!([]);
            Told::json(200, &whole(lists))
        }
        "resources/templates/list" => {
            lists["resourceTemplates"] = json!([{ "uriTemplate": "a:{+x}", "name": "a" }]);
            Told::json(200, &whole(lists))
        }
        "resources/read" => {
            let uri = params["uri"].as_str().unwrap().to_owned();
            let mut reads = seen.reads.lock().unwrap();
            reads.push(uri.clone());
            let mut result = json!({ "contents": [{ "uri": uri, "text": format!("read {}", reads.len()) }] });
            let mut words = uri.split(':').skip(1);
            if let Some(ttl) = words.next().and_then(|ttl| ttl.parse::<u64>().ok()) {
                result["ttlMs"] = json!(ttl);
            }
            if let Some(scope) = words.next() {
                result["cacheScope"] = json!(scope);
            }
            Told::json(200, &whole(result))
        }
        "tools/call" => {
            let mut calls = seen.calls.lock().unwrap();
            *calls += 1;
            let task = json!({ "resultType": "task", "taskId": format!("t{calls}"), "status": "working",
                "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": 60_000,
                "pollIntervalMs": 60_000 });
            Told::Held(seen.gate.clone(), Box::new(Told::json(200, &whole(task))))
        }
        method if method.starts_with("notifications/") => Told::Answer(202, Vec::new(), String::new()),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            Told::json(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "error": error }))
        }
    }
}

fn hash(token: &str) -> String {
    let digits: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

struct Stage {
    host: Host,
    to: SocketAddr,
    seen: Arc<Seen>,
    _site: Site,
}

impl Stage {
    async fn new(host: Value, more: Value) -> Self {
        let seen = Arc::<Seen>::default();
        let own = seen.clone();
        let site = Site::start(move |_| move |asked: &Asked| answer(&own, asked)).await;
        let mut entry = json!({ "type": "http", "url": format!("{}/mcp", site.url) });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = json!({ "host": host, "mcpServers": { "it": entry } }).to_string();
        let config: Config = parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap();
        let host = Host::builder().config(config).start().await.unwrap();
        host.catalog_ready().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(host.open_http(listener).unwrap().serve());
        Self { host, to, seen, _site: site }
    }

    fn reads(&self) -> usize {
        self.seen.reads.lock().unwrap().len()
    }

    /// Reads a resource as a client of 2026-07-28 with this token.
    async fn read(&self, token: &str, uri: &str) -> Value {
        let params = json!({ "uri": uri, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "client", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {} } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params }).to_string();
        let headers = format!(
            "authorization: Bearer {token}\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: resources/read\r\nmcp-name: {uri}\r\n"
        );
        let answer = send(self.to, "POST", "/mcp", &headers, &body).await;
        let line = answer
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)).ok());
        line.unwrap_or_else(|| panic!("{answer}"))["result"].clone()
    }
}

fn is_kept(result: &Value) -> bool {
    result["_meta"]["mcp-host/cache"]["ageMs"].is_number()
}

#[tokio::test]
async fn a_read_is_kept_as_long_as_its_server_says_and_its_client_is_told_what_is_left() {
    let stage = Stage::new(json!({ "cache": { "reads": "1ms" } }), json!({})).await;
    let uri = "it+a:3600000:private";
    let first = stage.read("", uri).await;
    assert_eq!((is_kept(&first), &first["ttlMs"], stage.reads()), (false, &json!(3_600_000), 1), "{first}");
    // Longer than `reads`, which is for servers that say nothing themselves.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let again = stage.read("", uri).await;
    assert_eq!((is_kept(&again), again["contents"][0]["text"].as_str(), stage.reads()), (true, Some("read 1"), 1));
    let (age, left) = (again["_meta"]["mcp-host/cache"]["ageMs"].as_u64().unwrap(), again["ttlMs"].as_u64().unwrap());
    assert!(age >= 5 && age + left == 3_600_000, "{again}");
    for uri in ["it+a:0:public", "it+a:x"] {
        let before = stage.reads();
        for _ in 0..2 {
            assert!(!is_kept(&stage.read("", uri).await), "{uri}");
        }
        assert_eq!(stage.reads() - before, 2, "{uri} is not good for any time");
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_read_is_kept_for_all_only_where_they_share_and_its_server_says_public() {
    let auth = json!({ "type": "bearer", "clients": { "ann": hash("ann-token"), "bob": hash("bob-token") } });
    for (sharing, scope, shared) in
        [("host", "public", true), ("host", "private", false), ("host", "", false), ("auto", "public", false)]
    {
        let stage =
            Stage::new(json!({ "auth": auth, "cache": { "reads": "1h" } }), json!({ "sharing": sharing })).await;
        let uri = format!("it+a:3600000:{scope}");
        assert!(!is_kept(&stage.read("ann-token", &uri).await));
        assert_eq!(is_kept(&stage.read("bob-token", &uri).await), shared, "{sharing} {scope:?}");
        assert_eq!(stage.reads(), if shared { 1 } else { 2 });
        assert!(is_kept(&stage.read("ann-token", &uri).await), "each has its own");
        stage.host.shutdown().await;
    }
}

#[tokio::test]
async fn a_joined_call_that_becomes_a_task_is_that_of_one_and_the_others_are_sent_too() {
    const MANY: usize = 3;
    let stage = Stage::new(json!({}), json!({ "tools": { "job": { "cache": "1h" } } })).await;
    let mut calls = Vec::new();
    for _ in 0..MANY {
        let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let client = Client::able(&stage.host, stage.to, Transport::Http, "2026-07-28", ("", able)).await;
        let mut client = client;
        calls.push(tokio::spawn(async move {
            client.ask("tools/call", json!({ "name": "it__job", "arguments": {} })).await
        }));
    }
    let sent = || *stage.seen.calls.lock().unwrap();
    let begun = || stage.host.clients().iter().map(|client| client.calls).sum::<u64>() == MANY as u64;
    until(|| sent() == 1 && begun()).await;
    assert_eq!(sent(), 1, "one request for all");
    let mut tasks = Vec::new();
    // The first answer is a task: then each of the others makes its own request.
    stage.seen.gate.notify_one();
    until(|| sent() == MANY).await;
    for _ in 1..MANY {
        stage.seen.gate.notify_one();
        tokio::task::yield_now().await;
    }
    for call in calls {
        stage.seen.gate.notify_waiters();
        let answer = call.await.unwrap();
        assert_eq!(answer["result"]["resultType"], "task", "{answer}");
        tasks.push(answer["result"]["taskId"].as_str().unwrap().to_owned());
    }
    tasks.sort();
    tasks.dedup();
    assert_eq!((tasks.len(), sent()), (MANY, MANY), "each has its own task");
    stage.host.shutdown().await;
}
