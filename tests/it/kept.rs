//! Listings kept for the next start: shown before their servers are up, and only to whom they belong.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use crate::reload::until;

/// A folder with a state directory, and with files that control the server.
struct Home(tempfile::TempDir);

/// A shell server. `$0` is the folder of its files: `tools` is what it lists, `hang` and `die` are how it starts.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
[ -e "$0/die" ] && exit 3
[ -e "$0/hang" ] && exec sleep 100
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"instructions":"be kind","serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply "{\"tools\":[$(cat "$0/tools")]}" ;;
    *'"tools/call"'*) echo call >> "$0/calls"; reply '{"content":[]}' ;;
  esac
done"#;

const ACT: &str = r#"{"name":"act","inputSchema":{"type":"object","required":["a"]}}"#;

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.put("tools", ACT);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts a host over this server, with more members in its entry.
    async fn host(&self, more: &Value) -> Host {
        let mut entry =
            json!({ "command": "sh", "args": ["-c", SERVER, self.0.path()], "restart": { "maxRetries": 0 } });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = json!({ "host": { "startupWait": "300ms" }, "mcpServers": { "it": entry } }).to_string();
        let config = config::parse_str(&text, Syntax::Json, "mcp.json", &Vars::from_process()).unwrap();
        Host::builder().config(config).state_directory(self.path("state")).start().await.unwrap()
    }

    /// Returns the files of listings.
    fn kept(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("state/offers")).into_iter().flatten();
        files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect()
    }

    /// Runs a host until its server's listing is kept.
    async fn once(&self, more: &Value) {
        let host = self.host(more).await;
        host.settled().await;
        assert_eq!(tools(&host).await, ["it__act"]);
        until(&host, |_| self.kept().first().map(drop)).await;
        host.shutdown().await;
    }
}

async fn tools(host: &Host) -> Vec<String> {
    host.catalog_ready().await.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

fn state(host: &Host) -> StateName {
    host.status()[0].state
}

#[tokio::test]
async fn a_first_list_waits_for_no_server_that_was_there_before() {
    let home = Home::new();
    home.once(&json!({})).await;
    let text = fs::read_to_string(&home.kept()[0]).unwrap();
    assert!(text.contains("be kind") && text.contains("\"act\""), "{text}");
    home.put("hang", "");
    let host = home.host(&json!({})).await;
    let begun = Instant::now();
    assert_eq!(tools(&host).await, ["it__act"]);
    assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
    assert_eq!(state(&host), StateName::Connecting);
    host.kill();
    host.shutdown().await;

    let text = fs::read(&home.kept()[0]).unwrap();
    for broken in [&text[..text.len() / 2], b"", b"\xff\0", br#"{"version":1}"#] {
        fs::write(&home.kept()[0], broken).unwrap();
        let host = home.host(&json!({})).await;
        assert_eq!(tools(&host).await, [""; 0], "it costs a wait, and nothing else");
        host.kill();
        host.shutdown().await;
    }
}

#[tokio::test]
async fn a_listing_is_that_of_one_account() {
    let home = Home::new();
    home.once(&json!({ "env": { "TOKEN": "one" } })).await;
    home.put("hang", "");
    for (entry, shown) in [
        (json!({ "env": { "TOKEN": "one" } }), 1),
        (json!({ "env": { "TOKEN": "two" } }), 0),
        (json!({ "env": { "TOKEN": "one" }, "manifest": "off" }), 0),
        (json!({ "env": { "TOKEN": "one" }, "disabled": true }), 0),
    ] {
        let host = home.host(&entry).await;
        assert_eq!(tools(&host).await.len(), shown, "{entry}");
        host.kill();
        host.shutdown().await;
    }
    // Under the name of another account it is worthless.
    let own = home.kept()[0].clone();
    fs::rename(&own, own.with_file_name(own.file_name().unwrap().to_str().unwrap().replacen(|c| c != 'a', "a", 1)))
        .unwrap();
    let host = home.host(&json!({ "env": { "TOKEN": "one" } })).await;
    assert_eq!(tools(&host).await.len(), 0);
    host.kill();
    host.shutdown().await;
}

#[tokio::test]
async fn nothing_is_kept_where_the_config_says_so() {
    let home = Home::new();
    let host = home.host(&json!({ "manifest": "off" })).await;
    host.settled().await;
    assert_eq!(tools(&host).await, ["it__act"]);
    // It would be written by now at the latest.
    host.shutdown().await;
    assert!(home.kept().is_empty());
}

#[tokio::test]
async fn what_a_failed_server_listed_is_not_shown() {
    let home = Home::new();
    home.once(&json!({})).await;
    home.put("die", "");
    let host = home.host(&json!({})).await;
    until(&host, |host| (state(host) == StateName::Failed).then_some(())).await;
    assert_eq!(tools(&host).await, [""; 0]);
    host.shutdown().await;
}

#[tokio::test]
async fn a_lazy_server_is_listed_without_a_start() {
    let home = Home::new();
    home.once(&json!({ "start": "lazy" })).await;
    let host = home.host(&json!({ "start": "lazy" })).await;
    assert_eq!(tools(&host).await, ["it__act"]);
    assert_eq!((state(&host), host.status()[0].tools), (StateName::Idle, 1));
    host.call_tool("it__act", json_raw(r#"{"a":1}"#)).await.unwrap();
    assert_eq!(state(&host), StateName::Connected);
    host.shutdown().await;
}

fn json_raw(text: &str) -> mcp_host::protocol::Raw {
    mcp_host::protocol::Raw::parse(&text.to_owned().into()).unwrap()
}

#[tokio::test]
async fn a_call_of_what_has_changed_is_told_to_list_again() {
    let other = ACT.replace(r#"["a"]"#, r#"["b"]"#);
    let optional = ACT.replace(r#"["a"]"#, "[]");
    for (now, text) in [
        (other.as_str(), r#"server "it" has changed the arguments of the tool act: it needs "b"; list again"#),
        (r#"{"name":"new","inputSchema":{"type":"object"}}"#, r#"server "it" has no tool act any more; list again"#),
        (optional.as_str(), ""),
    ] {
        let home = Home::new();
        home.once(&json!({ "start": "lazy" })).await;
        home.put("tools", now);
        let host = home.host(&json!({ "start": "lazy" })).await;
        assert_eq!(tools(&host).await, ["it__act"]);
        let outcome = host.call_tool("it__act", json_raw(r#"{"a":1}"#)).await;
        let said = outcome.map(|result| result.to_string()).unwrap_or_else(|error| error.to_string());
        assert_eq!(home.path("calls").exists(), text.is_empty(), "{said}");
        assert!(said.replace("\\\"", "\"").contains(text), "{said}");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_unused_is_closed_and_its_list_stays() {
    let home = Home::new();
    let host = home.host(&json!({ "idleStop": "200ms", "required": true })).await;
    host.settled().await;
    assert_eq!(tools(&host).await, ["it__act"]);
    for _ in 0..2 {
        until(&host, |host| (state(host) == StateName::Idle).then_some(())).await;
        assert_eq!(tools(&host).await, ["it__act"]);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!((state(&host), host.status()[0].pids.len()), (StateName::Idle, 0), "a list starts nothing");
        host.call_tool("it__act", json_raw(r#"{"a":1}"#)).await.unwrap();
        assert_eq!(state(&host), StateName::Connected);
    }
    host.shutdown().await;
}
