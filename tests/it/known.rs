//! What is known of a server from one start to the next: what it asks, until a new version asks no more, and whether it
//! lists something for MCP Apps.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::protocol::{Profile, Raw};
use mcp_host::{ClientHandler, Host, Root};
use serde_json::{Value, json};

use crate::reload::until;

/// A shell server. `$0` is the folder of its files: `version` is its reported version, `asks` makes it ask for roots in
/// each call, `ui` makes it list a tool with a page.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
page=; [ -e "$0/ui" ] && page=',"_meta":{"ui":{"resourceUri":"ui://s/page"}}'
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"$(cat "$0/version")\"}}" ;;
    *'"tools/list"'*) reply "{\"tools\":[{\"name\":\"act\",\"inputSchema\":{\"type\":\"object\"}$page}]}" ;;
    *'"tools/call"'*)
      if [ -e "$0/asks" ]; then
        printf '{"jsonrpc":"2.0","id":"r","method":"roots/list"}\n'
        read -r answer
      fi
      reply '{"content":[]}' ;;
  esac
done"#;

/// A client with roots.
struct Rooted;

impl ClientHandler for Rooted {
    fn profile(&self) -> Profile {
        Profile::ROOTS
    }

    async fn roots(&self, _: Option<&str>) -> Vec<Root> {
        vec![Root::new("file:///a")]
    }
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.put("version", "1");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Starts a host over this server, and waits until it is connected.
    async fn host(&self) -> Host {
        let entry = json!({ "command": "sh", "args": ["-c", SERVER, self.0.path()] });
        let text = json!({ "mcpServers": { "it": entry } }).to_string();
        let config = config::parse_str(&text, Syntax::Json, "mcp.json", &Vars::from_process()).unwrap();
        let builder = Host::builder().config(config).client_handler(Rooted).state_directory(self.path("state"));
        let host = builder.start().await.unwrap();
        host.settled().await;
        host
    }

    /// Makes one call in a host of its own, and returns what is known of the server after it.
    async fn call(&self) -> String {
        let host = self.host().await;
        host.call_tool("it__act", Raw::from_value(&json!({}))).await.unwrap();
        let words = sharing(&host);
        host.shutdown().await;
        words
    }
}

fn sharing(host: &Host) -> String {
    host.status()[0].sharing.join("\n")
}

/// Changes what is kept of the only server.
fn kept(state: &Path, change: impl FnOnce(&mut Value)) {
    let file = state.join("servers.json");
    let mut whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let servers = whole["servers"].as_object_mut().unwrap();
    assert_eq!(servers.len(), 1);
    change(servers.values_mut().next().unwrap());
    std::fs::write(&file, whole.to_string()).unwrap();
}

const ASKS: &str = "asks clients for roots";

/// Twenty connections of another version that declared roots, each with a call and no question: it asks no more.
#[tokio::test]
async fn another_version_that_asks_for_no_roots_is_believed_after_twenty_connections() {
    let home = Home::new();
    home.put("asks", "");
    assert!(home.call().await.contains(ASKS));
    std::fs::remove_file(home.path("asks")).unwrap();
    assert!(home.call().await.contains(ASKS), "the same version may ask rarely");
    kept(&home.path("state"), |server| assert_eq!(server["quiet"], 0, "{server}"));
    home.put("version", "2");
    assert!(home.call().await.contains(ASKS));
    kept(&home.path("state"), |server| {
        assert_eq!((&server["quiet"], &server["version"]), (&json!(1), &json!("1")), "{server}");
        server["quiet"] = json!(18);
    });
    assert!(home.call().await.contains(ASKS), "nineteen are not enough");
    let words = home.call().await;
    assert!(!words.contains(ASKS) && words.contains("has asked clients nothing so far"), "{words}");
    kept(&home.path("state"), |server| assert_eq!(server["asks"], json!([]), "{server}"));
}

#[tokio::test]
async fn a_server_with_pages_is_known_as_one_at_the_next_start() {
    const PAGES: &str = "lists tools for MCP Apps";
    let home = Home::new();
    home.put("ui", "");
    let host = home.host().await;
    until(&host, |_| sharing(&host).contains(PAGES).then_some(())).await;
    host.shutdown().await;
    kept(&home.path("state"), |server| assert_eq!(server["ui"], true, "{server}"));
    // It lists none any more, as its first list shows.
    std::fs::remove_file(home.path("ui")).unwrap();
    let host = home.host().await;
    until(&host, |_| (!sharing(&host).contains(PAGES)).then_some(())).await;
    host.shutdown().await;
    kept(&home.path("state"), |server| assert_eq!(server["ui"], false, "{server}"));
}
