//! Rules about what servers ask: sampling, elicitation, and roots.

use std::collections::BTreeMap;

use mcp_host::Host;
use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::protocol::{Method, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::config;
use crate::views::clients::{Client, Transport};

/// What a server may ask: the word of the rules, which is also its tool, the method, the capability of a client that can
/// answer, and the answer.
const KINDS: [(&str, &str, &str, &str); 3] = [
    (
        "sample",
        "sampling/createMessage",
        "sampling",
        r#"{"role":"assistant","model":"m","content":{"type":"text","text":"x"}}"#,
    ),
    ("elicit", "elicitation/create", "elicitation", r#"{"action":"accept","content":{}}"#),
    ("roots", "roots/list", "roots", "{}"),
];

/// A shell server whose tools ask the client. Their results say whether it was answered, and by which process. `$0` is the
/// folder in which each process writes what was declared to it.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
reply() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
ask() { say "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"$1\",\"params\":$2}"; }
told() { id=$call; reply "{\"content\":[{\"type\":\"text\",\"text\":\"$1 $$\"}]}"; }
tool() { printf '{"name":"%s","inputSchema":{"type":"object"}}' "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) printf '%s\n' "$line" > "$0/$$"; reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply "{\"tools\":[$(tool sample),$(tool elicit),$(tool roots)]}" ;;
    *'"name":"sample"'*) call=$id; ask sampling/createMessage '{"messages":[],"maxTokens":9}' ;;
    *'"name":"elicit"'*) call=$id; ask elicitation/create '{"message":"?","requestedSchema":{"type":"object","properties":{}}}' ;;
    *'"name":"roots"'*) call=$id; ask roots/list '{}' ;;
    *'"id":"q"'*'"error"'*) told refused ;;
    *'"error"'*'"id":"q"'*) told refused ;;
    *'"id":"q"'*) told answered ;;
  esac
done"#;

/// What became of the question of each tool, and what the process that asked it was told that the client can answer.
async fn asked(rule: &Value, sharing: &str) -> BTreeMap<&'static str, (bool, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let entry = json!({ "command": "sh", "args": ["-c", SERVER, folder.path()], "sharing": sharing });
    let host = json!({ "policy": { "rules": [rule] } });
    let text = json!({ "host": host, "mcpServers": { "it": entry } }).to_string();
    let config = parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap();
    let host = Host::builder().config(config).start().await.unwrap();
    host.catalog_ready().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let able = json!({ "sampling": {}, "elicitation": {}, "roots": {} });
    let mut found = BTreeMap::new();
    for (word, method, capability, answer) in KINDS {
        let mut client = Client::able(&host, to, Transport::Pipe, "2025-11-25", ("", able.clone())).await;
        client.answer = serde_json::from_str(answer).unwrap();
        let told = client.ask("tools/call", json!({ "name": format!("it__{word}"), "arguments": {} })).await;
        let text = told["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}"));
        let (end, pid) = text.split_once(' ').unwrap();
        let reached = client.asked.iter().any(|asked| asked["method"] == method);
        assert_eq!(reached, end == "answered", "{rule} {sharing} {word}: {:?}", client.asked);
        let hello: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join(pid)).unwrap()).unwrap();
        found.insert(word, (reached, hello["params"]["capabilities"][capability].is_object()));
    }
    host.shutdown().await;
    found
}

fn rule(actions: &[&str], more: &Value) -> Value {
    let mut rule = json!({ "name": "quiet", "verdict": "deny", "actions": actions });
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rule
}

#[tokio::test]
async fn what_a_server_may_not_ask_is_refused_as_if_the_client_could_not_answer_and_nothing_else_is() {
    for sharing in ["session", "auto"] {
        for (denied, ..) in KINDS {
            let found = asked(&rule(&[denied], &json!({ "tools": ["server:it"] })), sharing).await;
            for (word, (is_answered, is_declared)) in found {
                assert_eq!(is_answered, word != denied, "{sharing}: {denied} is denied, {word} is asked");
                // A process of the client's own is told so from its start.
                assert!(sharing != "session" || is_declared == is_answered, "{denied} is denied, {word} is declared");
            }
        }
    }
}

#[tokio::test]
async fn a_rule_about_questions_holds_for_its_servers_and_verdicts_alone() {
    let all = ["sample", "elicit", "roots"];
    for (rule, may) in [
        (rule(&all, &json!({ "tools": ["server:other"] })), true),
        (rule(&all, &json!({ "unless": { "tools": ["server:it"] } })), true),
        (rule(&all, &json!({ "report": true })), true),
        (rule(&["call"], &json!({ "report": true })), true),
        (rule(&all, &json!({})), false),
        // Nobody can be asked whether a server may ask.
        (rule(&all, &json!({ "verdict": "ask" })), false),
    ] {
        let found = asked(&rule, "session").await;
        assert!(found.values().all(|end| *end == (may, may)), "{rule}: {found:?}");
    }
}

/// A server in this process whose tool asks the client, and tells what came of it.
fn asking() -> InProcess {
    let tool = json!({ "name": "ask", "inputSchema": { "type": "object" } });
    InProcess::new("it", "1").tool(tool.into(), |call| {
        Box::pin(async move {
            let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
            let params = json!({ "message": "May I?", "requestedSchema": schema });
            let answer = call.request(Method::Elicit, Some(params.into())).await;
            let said = match answer {
                Ok(answer) => format!("answered {answer:?}"),
                Err(error) => format!("refused: {error:?}"),
            };
            Ok(Raw::from(json!({ "content": [{ "type": "text", "text": said }] })))
        })
    })
}

#[tokio::test]
async fn a_server_that_may_not_ask_is_told_that_the_client_cannot_answer() {
    for (rules, may) in [
        (json!([]), true),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["elicit"], "tools": ["server:it"] }]), false),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["elicit"], "tools": ["server:other"] }]), true),
        (json!([{ "name": "quiet", "verdict": "deny", "actions": ["sample", "roots"] }]), true),
    ] {
        let host = Host::builder().config(config(&json!({ "rules": rules }))).in_process("it", asking());
        let host = host.start().await.unwrap();
        host.settled().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let able = json!({ "elicitation": {} });
        let mut client = Client::able(&host, to, Transport::Pipe, "2025-11-25", ("", able)).await;
        client.answer = json!({ "action": "accept", "content": { "a": "x" } });
        let answer: Value = client.ask("tools/call", json!({ "name": "it__ask", "arguments": {} })).await;
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!((said.starts_with("answered"), client.asked.len()), (may, usize::from(may)), "{rules}: {said}");
        host.shutdown().await;
    }
}
