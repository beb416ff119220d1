//! Which answers are kept, for how long, and what drops them.

use std::net::SocketAddr;
use std::sync::Arc;

use mcp_host::config::{AnswerCache, Server, Stdio};
use mcp_host::{Host, Raw};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Seen, age, config, server, start, until};

#[tokio::test]
async fn an_equal_call_gets_the_answer_again_and_is_told_its_age() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__get": { "cache": "1h" } }), &json!({})).await;
    let get = |arguments: &Value| host.call_tool("it__get", arguments.clone());
    let first = get(&json!({ "path": "a", "n": 1 })).await.unwrap();
    assert_eq!((age(&first), seen.count("get")), (None, 1));
    let again = get(&json!({ "n": 1.0, "path": "a" })).await.unwrap();
    assert_eq!(again.text(), first.text());
    assert!(age(&again).is_some_and(|age| age < 60_000), "{again:?}");
    assert_eq!(seen.count("get"), 1);
    // Others are others.
    assert_eq!(age(&get(&json!({ "path": "b", "n": 1 })).await.unwrap()), None);
    assert_eq!(age(&get(&json!({})).meta(json!({ "com.example/tenant": 1 })).await.unwrap()), None);
    assert_eq!(age(&get(&json!({})).meta(json!({ "com.example/tenant": 2 })).await.unwrap()), None);
    assert_eq!(seen.count("get"), 4);
    // A call that wants a new answer gets one, and leaves it for the next.
    let bypass = json!({ "mcp-host/cache": "bypass" });
    let anew = get(&json!({ "path": "a", "n": 1 })).meta(bypass).await.unwrap();
    assert_eq!((age(&anew), seen.count("get")), (None, 5));
    let next = get(&json!({ "path": "a", "n": 1 })).await.unwrap();
    assert_eq!(next.text(), anew.text());
    assert!(age(&next).is_some());
    let told = seen.meta.lock().unwrap().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("com.example/tenant") && !told.contains("mcp-host"), "{told}");
    host.shutdown().await;
}

#[tokio::test]
async fn nothing_is_kept_that_the_config_does_not_name() {
    let seen = Arc::<Seen>::default();
    let tools = json!({ "it__*": { "cache": "1h" }, "it__get": { "cache": "0s" } });
    let host = start(&seen, &tools, &json!({})).await;
    for _ in 0..2 {
        for name in ["it__get", "it__look", "it__put", "it__big"] {
            host.call_tool(name, json!({})).await.unwrap();
        }
        host.read_resource("it+file:///a").await.unwrap();
    }
    let counts = ["get", "look", "put", "file:///a"].map(|name| seen.count(name));
    assert_eq!(counts, [2, 2, 2, 2], "a glob is not enough for a tool that does not say that it only reads");
    host.shutdown().await;
}

#[tokio::test]
async fn an_error_and_an_answer_to_a_question_are_not_kept() {
    struct Agreeable;
    impl mcp_host::ClientHandler for Agreeable {
        fn profile(&self) -> mcp_host::Profile {
            mcp_host::Profile::ELICITATION_FORM
        }

        async fn elicit(&self, _: mcp_host::Elicitation) -> mcp_host::ElicitAnswer {
            mcp_host::ElicitAnswer::accept(json!({}))
        }
    }
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__*": { "cache": "1h" } }), &json!({})).await;
    let session = host.session_with(Agreeable);
    for count in 1..=2 {
        assert!(session.call_tool("it__fail", json!({})).await.unwrap().is_error());
        assert_eq!(session.call_tool("it__ask", json!({})).await.unwrap().text(), format!("ask {count} {{}}"));
    }
    assert_eq!((seen.count("fail"), seen.count("ask")), (2, 2));
    host.shutdown().await;
}

#[tokio::test]
async fn a_call_that_writes_drops_what_is_kept_of_its_server() {
    let seen = Arc::<Seen>::default();
    let tools = json!({ "it__get": { "cache": "1h" }, "it__look": { "cache": "1h" } });
    let host = start(&seen, &tools, &json!({ "reads": "1h" })).await;
    let look = |path: &str| host.call_tool("it__look", json!({ "path": path }));
    let get = || host.call_tool("it__get", json!({}));
    let read = || host.read_resource("it+file:///a");
    // A tool that does not say that it only reads, and whose answers are kept: its calls leave its own answers.
    look("a").await.unwrap();
    look("b").await.unwrap();
    assert!(age(&look("a").await.unwrap()).is_some());
    get().await.unwrap();
    read().await.unwrap();
    assert!(age(&get().await.unwrap()).is_some() && age(&read().await.unwrap()).is_some());
    host.call_tool("it__put", json!({})).await.unwrap();
    assert!(age(&get().await.unwrap()).is_none());
    assert!(age(&read().await.unwrap()).is_none());
    assert!(age(&look("a").await.unwrap()).is_none());
    assert!(age(&get().await.unwrap()).is_none(), "the call of `look` was one of a tool that may write");
    host.shutdown().await;
}

#[tokio::test]
async fn a_changed_list_and_an_updated_resource_drop_what_is_kept() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__get": { "cache": "1h" } }), &json!({ "reads": "1h" })).await;
    let read = || host.read_resource("it+file:///a");
    assert_eq!(age(&read().await.unwrap()), None);
    assert!(age(&read().await.unwrap()).is_some_and(|age| age < 60_000));
    let mut updates = host.subscribe("it+file:///a").await.unwrap();
    host.call_tool("it__touch", json!({})).await.unwrap();
    updates.next().await.unwrap();
    assert_eq!((age(&read().await.unwrap()), seen.count("file:///a")), (None, 2));
    host.call_tool("it__get", json!({})).await.unwrap();
    assert!(age(&host.call_tool("it__get", json!({})).await.unwrap()).is_some());
    host.call_tool("it__relist", json!({})).await.unwrap();
    until(|| host.catalog().tools().iter().any(|tool| tool.name() == "it__new")).await;
    assert_eq!(age(&host.call_tool("it__get", json!({})).await.unwrap()), None);
    assert_eq!(age(&read().await.unwrap()), None);
    host.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_has_a_size() {
    let seen = Arc::<Seen>::default();
    let tools = json!({ "it__*": { "cache": "1h" } });
    let host = start(&seen, &tools, &json!({ "entry": "2KiB", "size": "2KiB" })).await;
    for _ in 0..2 {
        host.call_tool("it__big", json!({})).await.unwrap();
    }
    assert_eq!(seen.count("big"), 2, "it is larger than an entry may be");
    // Two of these fit.
    let get = async |path: &str| age(&host.call_tool("it__get", json!({ "path": path })).await.unwrap()).is_some();
    assert!(!get("a").await && !get("b").await && !get("c").await);
    assert!(get("a").await, "three fit");
    assert!(!get("d").await && get("a").await, "it was used after `b`");
    assert!(!get("b").await);
    host.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_was_kept_does_not_count_against_a_rate() {
    let seen = Arc::<Seen>::default();
    let settings = json!({ "rates": { "principal": "2/hour" }, "views": { "all": { "tools": { "it__get": { "cache": "1h" } } } } });
    let builder = Host::builder().config(config(&settings)).in_process("it", server(&seen));
    let host = builder.start().await.unwrap();
    host.settled().await;
    for _ in 0..9 {
        host.call_tool("it__get", json!({})).await.unwrap();
    }
    host.call_tool("it__get", json!({ "path": "b" })).await.unwrap();
    assert!(host.call_tool("it__get", json!({ "path": "c" })).await.is_err());
    assert_eq!(seen.count("get"), 2);
    host.shutdown().await;
}

#[tokio::test]
async fn h37_arguments_that_readers_may_take_differently_are_refused() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__get": { "cache": "1h" } }), &json!({})).await;
    for arguments in [r#"{"path":1,"path":2}"#, r#"{"Path":1}"#, r#"{"x":{"a":1,"\u0061":2}}"#] {
        let arguments = Raw::parse(&arguments.to_owned().into()).unwrap();
        let refused = host.call_tool("it__get", arguments).await.unwrap_err();
        assert!(refused.to_string().contains("did not get the call"), "{refused}");
    }
    assert_eq!(seen.count("get"), 0);
    host.shutdown().await;
}

/// A server in shell that counts its calls, and dies on demand.
const SHELL: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
count=0
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"pid","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}' ;;
    *'"tools/call"'*) count=$((count + 1)); reply "{\"content\":[{\"type\":\"text\",\"text\":\"$$ $count\"}]}" ;;
  esac
done"#;

#[cfg(unix)]
#[tokio::test]
async fn another_connection_and_another_entry_drop_what_is_kept() {
    let entry = |cache: &str| {
        let mut settings = mcp_host::config::ToolSettings::default();
        settings.cache = mcp_host::config::time(cache);
        Server::new("it", Stdio::new("sh").args(["-c", SHELL])).unwrap().tool("*", settings)
    };
    let whole = |cache: &str| mcp_host::config::Config::default().server(entry(cache));
    let host = Host::builder().config(whole("1h")).start().await.unwrap();
    host.settled().await;
    let get = async || host.call_tool("it__pid", json!({})).await.unwrap();
    let first = get().await;
    assert_eq!(get().await.text(), first.text());
    // The server dies, and another one takes its place.
    let pid = host.status()[0].pids[0];
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    until(|| host.status()[0].pids.iter().any(|other| *other != pid)).await;
    let second = get().await;
    assert!(age(&second).is_none() && second.text() != first.text(), "{second:?}");
    assert!(age(&get().await).is_some());
    // The same config drops nothing.
    host.reload(whole("1h"));
    assert!(age(&get().await).is_some());
    assert_eq!(host.reload(whole("2h")).changed, ["it"]);
    assert!(age(&get().await).is_none());
    host.shutdown().await;
}

#[tokio::test]
async fn a_config_made_in_code_is_the_one_of_a_file() {
    let mut cache = AnswerCache::default();
    (cache.size, cache.entry, cache.reads) = (1 << 20, 1 << 10, std::time::Duration::from_secs(5));
    let read = config(&json!({ "cache": { "size": "1MiB", "entry": "1KiB", "reads": "5s" } }));
    assert_eq!(mcp_host::config::HostSettings::default().cache(cache), read.host);
}

/// Calls a tool over HTTP, as a client of 2026-07-28 with this token.
async fn call(to: SocketAddr, token: &str, name: &str) -> Value {
    let params = json!({ "name": name, "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "client", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {token}\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nconnection: close\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: {name}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let line = answer.lines().find_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        serde_json::from_str::<Value>(line).ok().filter(|message| message["id"] == 1)
    });
    line.unwrap_or_else(|| panic!("{answer}"))["result"].clone()
}

#[tokio::test]
async fn no_principal_gets_the_answer_of_another() {
    use sha2::{Digest as _, Sha256};

    let hash = |token: &str| {
        let digits: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    };
    let auth = json!({ "type": "bearer", "clients": { "ann": hash("ann-token"), "bob": hash("bob-token") } });
    let tools = json!({ "it__get": { "cache": "1h" } });
    let seen = Arc::<Seen>::default();
    let config = config(&json!({ "auth": auth, "views": { "all": { "tools": tools } } }));
    let host = Host::builder().config(config).in_process("it", server(&seen)).start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    let age = |result: &Value| result["_meta"]["mcp-host/cache"]["ageMs"].is_number();
    let ann = call(to, "ann-token", "it__get").await;
    assert!(!age(&ann), "{ann}");
    assert!(!age(&call(to, "bob-token", "it__get").await));
    assert_eq!(seen.count("get"), 2);
    let again = call(to, "ann-token", "it__get").await;
    assert!(age(&again) && again["content"] == ann["content"] && again["resultType"] == "complete", "{again}");
    assert_eq!(seen.count("get"), 2);
    host.shutdown().await;
}
