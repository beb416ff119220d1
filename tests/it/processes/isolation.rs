//! Two clients with tokens, and servers that report their process and whom they list to.

use std::path::Path;

use mcp_host::Host;
use mcp_host::config::BearerClient;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::support::entry;

/// A server whose one tool is named after its number, in order of start, and returns its process id. `$0` counts.
const NUMBERED: &str = r#"
echo >>"$0"
number=$(wc -l <"$0")
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) [ "$number" -lt "$HANGS_FROM" ] || sleep 600
      reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"number '"$((number))"'"}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"tool'"$((number))"'","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) reply '{"content":[{"type":"text","text":"'$$'"}]}' ;;
  esac
done"#;

const TOKENS: [&str; 2] =
    ["the long token of ann, which nobody guesses", "the long token of bob, which nobody guesses"];

/// A host whose clients have tokens, at a port.
async fn host(home: &Path, hangs_from: usize) -> (Host, u16) {
    let mut server = entry(NUMBERED, &home.join("count"));
    server["env"] = json!({ "HANGS_FROM": hangs_from.to_string() });
    let clients = ["ann", "bob"].into_iter().zip(TOKENS);
    let clients = clients.map(|(name, token)| (name, BearerClient::of_token(name, token).unwrap().to_string()));
    let clients: serde_json::Map<_, _> = clients.map(|(name, hash)| (name.to_owned(), hash.into())).collect();
    let config = json!({
        "mcpServers": { "s": server },
        "host": { "auth": { "type": "bearer", "clients": clients }, "startupWait": "2s" }
    });
    let file = home.join("mcp.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let host = Host::builder().config_file(file).start().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = host.clone();
    tokio::spawn(async move { serving.serve_http(listener).await });
    (host, port)
}

/// A client with a session.
struct Client {
    port: u16,
    token: &'static str,
    session: String,
    /// The result of `initialize`.
    hello: Value,
}

impl Client {
    async fn open(port: u16, token: &'static str) -> Self {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let mut client = Self { port, token, session: String::new(), hello: Value::Null };
        let (head, hello) = client.post("initialize", &params).await;
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        client.session = format!("Mcp-Session-Id: {}\r\n", session.unwrap());
        client.hello = hello;
        client
    }

    async fn post(&self, method: &str, params: &Value) -> (String, Value) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (port, token, session) = (self.port, self.token, &self.session);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{session}\
             Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        // As JSON or as an event, it is one object.
        let message = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        (head.to_owned(), serde_json::from_str(message).unwrap())
    }

    /// Returns the tools that it is shown.
    async fn tools(&self) -> Vec<String> {
        let (_, answer) = self.post("tools/list", &json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the process that serves its calls. Before the first call, it is shown what the host itself was shown.
    async fn pid(&self) -> String {
        if let Ok(pid) = self.called().await {
            return pid;
        }
        self.called().await.unwrap()
    }

    /// Returns what the last tool of its list answers.
    async fn called(&self) -> Result<String, String> {
        let tool = self.tools().await.pop().unwrap();
        let (_, answer) = self.post("tools/call", &json!({ "name": tool, "arguments": {} })).await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        if answer["result"]["isError"] == true { Err(text) } else { Ok(text) }
    }
}

#[tokio::test]
async fn h64_two_principals_see_two_processes() {
    let home = tempfile::tempdir().unwrap();
    let (host, port) = host(home.path(), 100).await;
    let (ann, again) = (Client::open(port, TOKENS[0]).await, Client::open(port, TOKENS[0]).await);
    let bob = Client::open(port, TOKENS[1]).await;
    let (first, second, other) = (ann.pid().await, again.pid().await, bob.pid().await);
    assert_eq!(first, second, "one person's clients share");
    assert_ne!(first, other);
    host.shutdown().await;
}

#[tokio::test]
async fn h63_a_list_of_one_principal_is_not_shown_to_another() {
    let home = tempfile::tempdir().unwrap();
    // The first process is the host's own, the second Ann's; Bob's never comes up.
    let (host, port) = host(home.path(), 3).await;
    host.settled().await;
    let ann = Client::open(port, TOKENS[0]).await;
    assert_eq!(ann.tools().await, ["s__tool1"], "the host's own list is for everyone");
    assert!(ann.called().await.unwrap_err().contains("list again"), "her call opens her own process");
    assert_eq!(ann.tools().await, ["s__tool2"]);
    let bob = Client::open(port, TOKENS[1]).await;
    assert!(!bob.hello.to_string().contains("number 2"), "{}", bob.hello);
    assert_eq!(bob.tools().await, ["s__tool1"]);
    let (_, answer) = bob.post("tools/call", &json!({ "name": "s__tool2", "arguments": {} })).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("unknown tool"), "{answer}");
    assert_eq!(ann.tools().await, ["s__tool2"]);
    let ann = Client::open(port, TOKENS[0]).await;
    assert!(ann.hello.to_string().contains("number 2"), "{}", ann.hello);
    host.shutdown().await;
}
