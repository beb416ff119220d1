//! Kept listings as clients see them: how long they may be cached, what happens when the server lists differently, and
//! that an unapproved project shows none.

use std::fs;

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::{ACT, Client, Home, kept, names};
use crate::auth::site::{Asked, Site, Told};
use crate::reload::program::{Daemon, mcp_host};
use crate::reload::until;

/// Where the program keeps its state in a home.
fn state(home: &Home) -> std::path::PathBuf {
    home.path().join("mcp-host")
}

fn config(home: &Home, more: &Value) -> String {
    let mut entry = home.entry();
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "mcpServers": { "it": entry } }).to_string()
}

/// Runs a daemon until its server's listing is kept.
#[expect(clippy::disallowed_methods, reason = "another process writes it, and nothing else runs here")]
fn once(home: &Home, args: &[&str]) {
    let daemon = Daemon::start(mcp_host(home.path(), &[args, &["--listen", "127.0.0.1:0"]].concat()));
    daemon.hears("✓ it");
    for _ in 0..2000 {
        if !kept(&state(home)).is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("nothing is kept");
}

#[test]
fn a_kept_list_is_for_no_time_and_a_live_one_for_as_long_as_its_server_tells_of_changes() {
    let home = Home::new(ACT);
    home.put("mcp.json", &config(&home, &json!({})));
    once(&home, &["serve", "-c", "mcp.json"]);
    let hints = |client: &mut Client, id| {
        let list = client.list(
            id,
            &json!({ "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            } }),
        );
        assert_eq!(names(&list), ["it__act"]);
        list["ttlMs"].clone()
    };
    home.put("hang", "");
    let mut client = Client::start(home.path(), &["stdio", "-c", "mcp.json"]);
    assert_eq!(hints(&mut client, 1), 0, "nothing announces its changes");
    drop(client);
    fs::remove_file(home.path().join("hang")).unwrap();
    let mut client = Client::start(home.path(), &["stdio", "-c", "mcp.json"]);
    // A call waits for the server.
    client.hello();
    client.say(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "it__act" } }));
    client.hears(|message| message["id"] == 2);
    assert_eq!(hints(&mut client, 3), 30_000);
}

#[test]
fn a_client_is_told_when_the_server_lists_otherwise() {
    let home = Home::new(ACT);
    home.put("mcp.json", &config(&home, &json!({})));
    once(&home, &["serve", "-c", "mcp.json"]);
    home.put("tools", &ACT.replace("act", "other"));
    let mut client = Client::start(home.path(), &["stdio", "-c", "mcp.json"]);
    client.hello();
    assert_eq!(names(&client.list(1, &json!({}))), ["it__act"]);
    client.hears(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(names(&client.list(2, &json!({}))), ["it__other"]);
}

/// Resources are data, so they are not kept; the first list of them waits for the server as if nothing were known of
/// it.
#[test]
fn resources_are_listed_once_the_server_has_said_them() {
    let home = Home::new(ACT);
    home.put("mcp.json", &config(&home, &json!({})));
    once(&home, &["serve", "-c", "mcp.json"]);
    home.put("slow", "");
    let mut client = Client::start(home.path(), &["stdio", "-c", "mcp.json"]);
    client.hello();
    assert_eq!(names(&client.list(1, &json!({}))), ["it__act"], "a kept list does not wait");
    client.ask(2, "resources/list", &json!({}));
    client.ask(3, "ping", &json!({}));
    assert_eq!(client.hears(|message| !message["id"].is_null())["id"], 3, "the server has said nothing yet");
    fs::remove_file(home.path().join("slow")).unwrap();
    let listed = client.hears(|message| message["id"] == 2);
    assert_eq!(listed["result"]["resources"][0]["name"], "r", "{listed}");
}

#[test]
fn h93_nothing_is_kept_or_shown_of_a_project_that_is_not_approved() {
    let home = Home::new(ACT);
    let project = |more: &Value| {
        let mut more = more.clone();
        // It looks at files beside the config, as no server in a sandbox does.
        more["sandbox"] = json!("off");
        home.put("mcp-host.json", &config(&home, &more));
    };
    let tools = || {
        let mut client = Client::start(home.path(), &["stdio"]);
        client.hello();
        let list = client.list(1, &json!({}));
        names(&list).iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    project(&json!({}));
    assert_eq!(tools(), [""; 0]);
    assert!(kept(&state(&home)).is_empty());
    let approve = mcp_host(home.path(), &["approve", "--yes"]).output().unwrap();
    assert!(approve.status.success(), "{approve:?}");
    once(&home, &["serve"]);
    home.put("hang", "");
    assert_eq!(tools(), ["it__act"]);
    // It reaches the same server, but is not what was approved.
    project(&json!({ "description": "other words" }));
    assert_eq!(tools(), [""; 0]);
    project(&json!({}));
    assert_eq!(tools(), ["it__act"]);
}

#[tokio::test]
async fn what_was_listed_at_an_address_that_is_this_host_by_now_is_not_shown() {
    let state = tempfile::tempdir().unwrap();
    let site = Site::start(|_| {
        |asked: &Asked| {
            let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
            let result = match message["method"].as_str() {
                Some("initialize") => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "s", "version": "1" } }),
                Some("tools/list") => json!({ "tools": [{ "name": "act", "inputSchema": { "type": "object" } }] }),
                _ if asked.method == "POST" => return Told::Answer(202, Vec::new(), String::new()),
                _ => return Told::Answer(405, Vec::new(), String::new()),
            };
            Told::json(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
        }
    })
    .await;
    let address = site.url.trim_start_matches("http://").to_owned();
    let text = json!({
        "host": { "startupWait": "2s" },
        "mcpServers": { "it": { "type": "http", "url": format!("{}/mcp", site.url), "era": "legacy" } },
    });
    let start = async || {
        let config = config::parse_str(&text.to_string(), Syntax::Json, "mcp.json", &Vars::from_process()).unwrap();
        Host::builder().config(config).state_directory(state.path()).start().await.unwrap()
    };
    let host = start().await;
    assert_eq!(host.catalog_ready().await.tools().len(), 1);
    until(&host, |_| kept(state.path()).pop()).await;
    host.shutdown().await;
    drop(site);
    let listener = until_bound(&address).await;
    let host = start().await;
    assert_eq!(host.catalog_ready().await.tools().len(), 1, "nothing newer is known yet");
    let serving = host.clone();
    let served = tokio::spawn(async move { serving.serve_http(listener).await });
    until(&host, |host| (host.status()[0].state == StateName::Disabled).then_some(())).await;
    assert_eq!(host.catalog_ready().await.tools().len(), 0);
    host.shutdown().await;
    served.abort();
}

/// Binds the address once its previous owner is gone.
async fn until_bound(address: &str) -> tokio::net::TcpListener {
    for _ in 0..1000 {
        if let Ok(listener) = tokio::net::TcpListener::bind(address).await {
            return listener;
        }
        tokio::task::yield_now().await;
    }
    panic!("{address} stays taken")
}
