//! A rule that asks, for each pair of eras: yes, no, a client that cannot be asked, a client or a server that goes
//! meanwhile, and an answer that comes twice.

use std::net::SocketAddr;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::{Decided, Host};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::denied;
use crate::reload::until;
use crate::views::clients::{Client, Transport};
use crate::withheld::server::{KINDS, Kind, Server};

/// A client with a session, and one without.
const CLIENTS: [(Transport, &str); 2] = [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2026-07-28")];

fn config(servers: &Value, proof: &str) -> Config {
    let rule = json!({ "name": "careful", "verdict": "ask", "tools": ["it__*"], "proof": proof });
    let host = json!({ "approval": "off", "policy": { "rules": [rule] } });
    let text = json!({ "host": host, "mcpServers": servers }).to_string();
    parse_str(&text, Syntax::Json, "test.json", &Vars::from_process()).unwrap()
}

/// One pair: a host with the server, and what is needed to make clients of it.
struct Pair {
    server: Server,
    host: Host,
    to: SocketAddr,
    client: (Transport, &'static str),
    case: String,
}

impl Pair {
    async fn new(kind: Kind, client: (Transport, &'static str), proof: &str) -> Self {
        let server = Server::new(kind).await;
        let host = Host::builder().config(config(&json!({ "it": server.entry() }), proof)).start().await.unwrap();
        host.catalog_ready().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(host.open_http(listener).unwrap().serve());
        server.got();
        Self { server, host, to, client, case: format!("{client:?} × {kind:?}") }
    }

    async fn client(&self, capabilities: Value) -> Client {
        let (transport, revision) = self.client;
        Client::able(&self.host, self.to, transport, revision, ("", capabilities)).await
    }

    async fn able(&self) -> Client {
        self.client(json!({ "elicitation": {} })).await
    }

    /// Returns how many calls the server got since this was last asked.
    fn calls(&self) -> usize {
        self.server.got().iter().filter(|message| message["method"] == "tools/call").count()
    }

    /// Waits until something waits for a person.
    async fn waiting(&self) -> u64 {
        until(&self.host, |host| host.asks().first().map(|ask| ask.id)).await
    }

    /// Takes the server out of the config.
    async fn remove_server(&self, proof: &str) {
        self.host.reload(config(&json!({}), proof));
        until(&self.host, |host| host.status().is_empty().then_some(())).await;
    }
}

fn params() -> Value {
    json!({ "name": "it__act", "arguments": { "path": "x" } })
}

fn says(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

fn retry(asked: &Value, answer: &Value) -> Value {
    let mut params = params();
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "mcp-host-ask": answer });
    params
}

/// Calls, and answers with this.
async fn ask(client: &mut Client, answer: Value) -> Value {
    client.answer = answer.clone();
    let answered = client.ask("tools/call", params()).await;
    if !client.is_modern() {
        return answered;
    }
    assert_eq!(answered["result"]["resultType"], "input_required", "{answered}");
    client.ask("tools/call", retry(&answered, &answer)).await
}

fn kind(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["mcp-host/error"]["kind"]
}

#[tokio::test]
async fn in_each_pair_of_eras_a_yes_sends_one_call_and_everything_else_none() {
    for client in CLIENTS {
        for server in KINDS {
            let pair = Pair::new(server, client, "client").await;
            let mut able = pair.able().await;
            let case = &pair.case;
            assert_eq!(ask(&mut able, says("once")).await["result"]["content"][0]["text"], "done", "{case}");
            assert_eq!(pair.calls(), 1, "{case}");
            denied(&ask(&mut able, says("no")).await, "careful");
            let mut unable = pair.client(json!({})).await;
            denied(&unable.ask("tools/call", params()).await, "careful");
            assert_eq!(pair.calls(), 0, "{case}");
            // The same answer twice: the first time it is a yes.
            if able.is_modern() {
                let asked = able.ask("tools/call", params()).await;
                let answers = [says("once"), says("once"), says("once")];
                let mut results = Vec::new();
                for answer in &answers {
                    let answered = able.ask("tools/call", retry(&asked, answer)).await;
                    results.push((pair.calls(), answered["result"]["resultType"].as_str() == Some("input_required")));
                }
                assert_eq!(results, [(1, false), (0, true), (0, true)], "{case}");
            }
            pair.host.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_question_goes_with_its_client_and_nothing_is_sent() {
    for server in KINDS {
        // The client with a session leaves while it is asked.
        let pair = Pair::new(server, CLIENTS[0], "client").await;
        let mut client = pair.able().await;
        client.answer = Value::Null;
        let call = tokio::spawn(async move { client.ask("tools/call", params()).await });
        let id = pair.waiting().await;
        call.abort();
        assert!(call.await.is_err(), "{}", pair.case);
        until(&pair.host, |host| host.asks().is_empty().then_some(())).await;
        assert!(!pair.host.decide(id, Decided::Once), "{}: nobody is left to send it for", pair.case);
        assert_eq!(pair.calls(), 0, "{}", pair.case);
        pair.host.shutdown().await;
        // One without a session never comes back: a yes at the host sends nothing by itself.
        let pair = Pair::new(server, CLIENTS[1], "client").await;
        let mut client = pair.able().await;
        client.ask("tools/call", params()).await;
        drop(client);
        assert!(pair.host.decide(pair.waiting().await, Decided::Once));
        pair.host.shutdown().await;
        assert_eq!(pair.calls(), 0, "{}", pair.case);
    }
}

#[tokio::test]
async fn a_server_that_goes_while_somebody_is_asked_is_unavailable_and_not_unknown() {
    for server in KINDS {
        // A call that waits, and gets its yes when the server is gone.
        let pair = Pair::new(server, CLIENTS[0], "person").await;
        let mut client = pair.able().await;
        let (answer, ()) = tokio::join!(client.ask("tools/call", params()), async {
            let id = pair.waiting().await;
            pair.remove_server("person").await;
            assert!(pair.host.decide(id, Decided::Once));
        });
        assert_eq!(kind(&answer), "unavailable", "{}: {answer}", pair.case);
        assert_eq!(pair.calls(), 0, "{}", pair.case);
        let unknown = client.ask("tools/call", params()).await;
        assert_eq!(unknown["error"]["code"], -32602, "a call that nobody was asked about: {unknown}");
        pair.host.shutdown().await;
        // A request that comes again with its yes.
        let pair = Pair::new(server, CLIENTS[1], "client").await;
        let mut client = pair.able().await;
        let asked = client.ask("tools/call", params()).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{}: {asked}", pair.case);
        pair.remove_server("client").await;
        for answer in [says("once"), says("no")] {
            let answer = client.ask("tools/call", retry(&asked, &answer)).await;
            assert_eq!(kind(&answer), "unavailable", "{}: {answer}", pair.case);
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert_eq!(text, "the tool it__act is not there any more; list again");
        }
        let unknown = client.ask("tools/call", params()).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        assert_eq!(pair.calls(), 0, "{}", pair.case);
        pair.host.shutdown().await;
    }
}
