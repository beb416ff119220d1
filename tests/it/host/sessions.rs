//! Sessions, for servers that keep state for each client.

use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Host, Profile, Session, demo};
use serde_json::json;

use super::{PATIENCE, config, until};

/// A server in shell that tells its process id.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"pid","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) reply "{\"content\":[{\"type\":\"text\",\"text\":\"$$\"}]}" ;;
  esac
done"#;

async fn pid(session: &Session) -> String {
    session.call_tool("it__pid", json!({})).timeout(PATIENCE).await.unwrap().text()
}

#[cfg(unix)]
#[tokio::test]
async fn each_session_has_its_own_server_and_takes_it_along() {
    let entry = json!({ "command": "sh", "args": ["-c", SERVER], "sharing": "session" });
    let host = Host::builder().config(config(&json!({ "it": entry }))).start().await.unwrap();
    host.catalog_ready().await;
    let (ann, bob) = (host.session(), host.session());
    let (of_ann, of_bob) = (pid(&ann).await, pid(&bob).await);
    assert_ne!(of_ann, of_bob);
    assert_eq!(pid(&ann.clone()).await, of_ann, "it is one session, however many hold it");
    let has = |host: &Host, pid: &str| host.status()[0].pids.iter().any(|other| other.to_string() == pid);
    assert!(has(&host, &of_ann) && has(&host, &of_bob));
    // A call in flight keeps the session.
    let call = ann.call_tool("it__pid", json!({}));
    drop(ann);
    assert_eq!(call.await.unwrap().text(), of_ann);
    until(&host, |host| (!has(host, &of_ann)).then_some(())).await;
    assert_eq!(pid(&bob).await, of_bob);
    assert!(host.clients().is_empty(), "they are not clients of a door");
    host.shutdown().await;
    assert!(bob.call_tool("it__pid", json!({})).await.is_err());
}

struct Named(&'static str);

impl ClientHandler for Named {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, _: Elicitation) -> ElicitAnswer {
        ElicitAnswer::accept(json!({ "name": self.0 }))
    }
}

#[tokio::test]
async fn questions_go_to_the_handler_of_their_session() {
    let builder = Host::builder().in_process("echo", demo::echo()).client_handler(Named("the host"));
    let host = builder.start().await.unwrap();
    let sessions = [host.session(), host.session_with(Named("Ann")), host.session_with(Named("Bob"))];
    let greetings =
        sessions.iter().map(|session| async { session.call_tool("echo__ask", json!({})).await.unwrap().text() });
    let greetings = futures_util::future::join_all(greetings).await;
    assert_eq!(greetings, ["the host", "Ann", "Bob"].map(|name| format!("Hello {name}, green suits you.")));
    host.shutdown().await;
}
