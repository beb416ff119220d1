//! Rules that want a person's permission: clients with and without a session, and a person at the host.

use std::time::Duration;

use mcp_host::Decided;
use serde_json::{Value, json};

use super::{Shop, call, config, denied, open};
use crate::views::clients::{Client, Transport};

const ELICITS: [&str; 2] = ["2025-06-18", "2025-11-25"];

fn rules(more: &Value) -> Value {
    let mut rule = json!({ "name": "writes", "verdict": "ask", "tools": ["hint:not-read-only"] });
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "rules": [rule] })
}

fn can() -> Value {
    json!({ "elicitation": {} })
}

fn says(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

async fn write(client: &mut Client, arguments: Value) -> Value {
    let (method, params) = call("db__write", arguments);
    client.ask(method, params).await
}

async fn able(shop: &Shop, revision: &'static str) -> Client {
    let transport = if revision == "2026-07-28" { Transport::Http } else { Transport::Pipe };
    Client::able(&shop.host, shop.to, transport, revision, ("", can())).await
}

#[tokio::test]
async fn a_client_with_a_session_is_asked_and_nothing_is_sent_before_its_yes() {
    let shop = open(config(&rules(&json!({}))), None).await;
    for revision in ELICITS {
        let mut client = able(&shop, revision).await;
        for (answer, is_yes) in [
            (says("once"), true),
            (says("no"), false),
            (says("for ever"), false),
            (json!({ "action": "accept" }), false),
            (json!({ "action": "decline" }), false),
            (json!({ "action": "cancel" }), false),
        ] {
            let before = shop.calls();
            client.answer = answer;
            let answer = write(&mut client, json!({ "database": "a" })).await;
            if is_yes {
                assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
            } else {
                denied(&answer, "writes");
            }
            assert_eq!(shop.calls() - before, usize::from(is_yes));
        }
        assert_eq!(client.asked.len(), 6, "each call is asked about");
        let params = &client.asked[0]["params"];
        assert_eq!(
            params["message"],
            "mcp-host asks: client wants to call write of the server \"db\". The rule \"writes\" wants you to decide.\n\n\
             Arguments: {\"database\":\"a\"}"
        );
        assert_eq!(params["requestedSchema"]["properties"]["answer"]["enum"], json!(["once", "no"]));
        let (method, params) = call("db__read", json!({}));
        assert_eq!(client.ask(method, params).await["result"]["content"][0]["text"], "read");
        assert_eq!(client.asked.len(), 6, "what no rule matches is not asked about");
    }
    assert!(shop.host.asks().is_empty());
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_denied() {
    let shop = open(config(&rules(&json!({}))), None).await;
    for revision in super::REVISIONS {
        let mut client = Client::enter(&shop.host, shop.to, Transport::Http, revision, "").await;
        let answer = write(&mut client, json!({})).await;
        denied(&answer, "writes");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.ends_with("wants a person to allow it, and this client cannot be asked"), "{text}");
    }
    assert_eq!(shop.calls(), 0);
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_yes_for_a_while_counts_for_the_session_the_tool_and_the_rule() {
    let shop = open(config(&rules(&json!({ "remember": "15m" }))), None).await;
    let mut client = able(&shop, "2025-11-25").await;
    client.answer = says("for 15 min");
    for number in 0..3 {
        write(&mut client, json!({ "database": number })).await;
    }
    assert_eq!((client.asked.len(), shop.calls()), (1, 3));
    assert_eq!(
        client.asked[0]["params"]["requestedSchema"]["properties"]["answer"]["enum"],
        json!(["once", "for 15 min", "no"])
    );
    let mut other = able(&shop, "2025-11-25").await;
    denied(&write(&mut other, json!({})).await, "writes");
    assert_eq!((other.asked.len(), shop.calls()), (1, 3), "another session is asked itself");
    // A changed rule takes the permission back.
    shop.host.reload(config(&rules(&json!({ "remember": "20m" }))));
    client.answer = says("no");
    denied(&write(&mut client, json!({})).await, "writes");
    shop.host.shutdown().await;
}

#[expect(clippy::needless_pass_by_value, reason = "a test makes it for this call")]
fn retry(asked: &Value, answer: Value) -> Value {
    let (_, mut params) = call("db__write", json!({ "database": "a" }));
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "mcp-host-ask": answer });
    params
}

#[tokio::test]
async fn a_client_without_a_session_gets_a_result_that_asks_and_its_yes_sends_one_request() {
    let shop = open(config(&rules(&json!({}))), None).await;
    let mut client = able(&shop, "2026-07-28").await;
    let asked = write(&mut client, json!({ "database": "a" })).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let question = &asked["result"]["inputRequests"]["mcp-host-ask"];
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    assert_eq!(shop.calls(), 0);
    let done = client.ask("tools/call", retry(&asked, says("once"))).await;
    assert_eq!((done["result"]["content"][0]["text"].as_str(), shop.calls()), (Some("write"), 1), "{done}");
    // The same answer again is no second yes.
    let again = client.ask("tools/call", retry(&asked, says("once"))).await;
    assert_eq!((again["result"]["resultType"].as_str(), shop.calls()), (Some("input_required"), 1), "{again}");
    denied(&client.ask("tools/call", retry(&again, says("no"))).await, "writes");
    // The state is that of its request.
    let fresh = write(&mut client, json!({ "database": "a" })).await;
    let mut other = retry(&fresh, says("once"));
    other["arguments"] = json!({ "database": "b" });
    let refused = client.ask("tools/call", other).await;
    assert_eq!((refused["error"]["code"].as_i64(), shop.calls()), (Some(-32602), 1), "{refused}");
    // Without an answer it is asked once more.
    let silent = client.ask("tools/call", {
        let mut params = retry(&fresh, json!({}));
        params["inputResponses"] = json!({});
        params
    });
    assert_eq!(silent.await["result"]["resultType"], "input_required");
    assert_eq!(shop.calls(), 1);
    shop.host.shutdown().await;
}

/// Waits until a call waits for a person, and returns its number.
async fn waiting(shop: &Shop) -> u64 {
    loop {
        if let Some(ask) = shop.host.asks().first() {
            assert!(ask.person_only);
            assert_eq!((ask.rule.as_str(), ask.server.as_str(), ask.name.as_str()), ("writes", "db", "write"));
            return ask.id;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn where_a_person_must_decide_no_client_is_asked() {
    let shop = open(config(&rules(&json!({ "proof": "person" }))), None).await;
    for revision in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        for (decided, is_yes) in [(Decided::Once, true), (Decided::No, false)] {
            let before = shop.calls();
            let mut client = able(&shop, revision).await;
            client.answer = says("once");
            let (answer, ()) = tokio::join!(write(&mut client, json!({ "database": "a" })), async {
                let id = waiting(&shop).await;
                assert_eq!(shop.calls(), before);
                assert!(shop.host.decide(id, decided));
                assert!(!shop.host.decide(id, Decided::Once), "it is decided");
            });
            if is_yes {
                assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
            } else {
                denied(&answer, "writes");
            }
            assert_eq!((client.asked.len(), shop.calls() - before), (0, usize::from(is_yes)), "{revision}");
        }
    }
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_late_yes_counts_once_and_for_the_same_call() {
    for revision in ["2025-11-25", "2026-07-28"] {
        let mut with_limit = config(&rules(&json!({ "proof": "person" })));
        with_limit.host.limits.answer = Duration::from_millis(300);
        let shop = open(with_limit, None).await;
        let mut client = able(&shop, revision).await;
        let answer = write(&mut client, json!({ "database": "a" })).await;
        denied(&answer, "writes");
        let id = waiting(&shop).await;
        assert!(shop.host.decide(id, Decided::Once));
        denied(&write(&mut client, json!({ "database": "b" })).await, "writes");
        assert_eq!(write(&mut client, json!({ "database": "a" })).await["result"]["content"][0]["text"], "write");
        denied(&write(&mut client, json!({ "database": "a" })).await, "writes");
        assert_eq!(shop.calls(), 1, "{revision}");
        shop.host.shutdown().await;
    }
}
