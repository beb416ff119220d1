//! `proof: "person"`: a client that closes its dialog, cancels its call, or goes. Only a person decides, and a late yes counts
//! once, for the same call.

use mcp_host::Decided;
use serde_json::{Value, json};

use super::person::{eager, person, retry, waiting, write, yes};
use super::{Shop, call, config, open};
use crate::reload::until;
use crate::views::clients::{Client, Transport, send};

/// What a client says whose user closed the dialog.
fn dismissed() -> Value {
    json!({ "action": "cancel" })
}

fn is_sent(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"] == "write" && answer["result"]["isError"] != true
}

/// Lets whatever an answer of a client could do happen, and checks that it did nothing.
async fn nothing_is_decided(shop: &Shop, before: usize) {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
    assert_eq!((shop.calls(), shop.host.asks().len()), (before, 1));
}

#[tokio::test]
async fn a_dialog_that_is_closed_decides_nothing() {
    let shop = open(config(&person()), None).await;
    for decided in [Decided::Once, Decided::No] {
        let before = shop.calls();
        let mut client = eager(&shop.host, shop.to, Transport::Pipe, "2025-11-25").await;
        client.answer = dismissed();
        let (answer, ()) = tokio::join!(write(&mut client), async {
            let id = waiting(&shop.host).await;
            nothing_is_decided(&shop, before).await;
            assert!(shop.host.decide(id, decided));
        });
        assert_eq!((client.asked.len(), is_sent(&answer)), (1, decided == Decided::Once), "{answer}");

        let before = shop.calls();
        let mut modern = eager(&shop.host, shop.to, Transport::Http, "2026-07-28").await;
        let asked = write(&mut modern).await;
        let (answer, ()) = tokio::join!(modern.ask("tools/call", retry(&asked, &dismissed())), async {
            let id = waiting(&shop.host).await;
            nothing_is_decided(&shop, before).await;
            assert!(shop.host.decide(id, decided));
        });
        assert_eq!(is_sent(&answer), decided == Decided::Once, "{answer}");
    }
    assert_eq!(shop.calls(), 2);
    shop.host.shutdown().await;
}

#[tokio::test]
async fn what_a_session_wanted_is_over_when_it_ends() {
    let shop = open(config(&person()), None).await;
    for transport in [Transport::Pipe, Transport::Sse] {
        let mut client = eager(&shop.host, shop.to, transport, "2025-11-25").await;
        client.answer = Value::Null;
        let running = tokio::spawn(async move { write(&mut client).await });
        let id = waiting(&shop.host).await;
        running.abort();
        assert!(running.await.is_err());
        until(&shop.host, |host| host.asks().is_empty().then_some(())).await;
        assert!(!shop.host.decide(id, Decided::Once), "nobody is left to send it for");
    }
    assert_eq!(shop.calls(), 0);
    shop.host.shutdown().await;
}

/// A request in the session of a client over HTTP.
async fn in_session(shop: &Shop, session: &str, body: &Value) -> String {
    let headers = format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
    send(shop.to, "POST", "/mcp", &headers, &body.to_string()).await
}

#[tokio::test]
async fn a_call_that_its_client_cancels_ends_and_a_late_yes_counts_for_the_same_call_once() {
    let shop = open(config(&person()), None).await;
    let client = Client::enter(&shop.host, shop.to, Transport::Http, "2025-11-25", "").await;
    let session = client.heard.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let (method, params) = call("db__write", json!({ "database": "a" }));
    let [first, second] = [7, 8].map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    let over = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    let (cancelled, ()) = tokio::join!(in_session(&shop, session, &first), async {
        waiting(&shop.host).await;
        in_session(&shop, session, &over).await;
    });
    assert!(!cancelled.contains(r#""text":"write""#), "{cancelled}");
    nothing_is_decided(&shop, 0).await;
    assert!(shop.host.decide(waiting(&shop.host).await, Decided::Once));
    assert_eq!(shop.calls(), 0, "a late yes sends nothing by itself");
    let again = in_session(&shop, session, &second).await;
    assert!(again.contains(r#""text":"write""#), "{again}");
    assert_eq!((shop.calls(), shop.host.asks().len()), (1, 0));
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_client_without_a_session_that_goes_leaves_a_question_to_which_a_late_yes_counts_once() {
    let shop = open(config(&person()), None).await;
    let mut client = eager(&shop.host, shop.to, Transport::Http, "2026-07-28").await;
    assert_eq!(write(&mut client).await["result"]["resultType"], "input_required");
    drop(client);
    assert!(shop.host.decide(waiting(&shop.host).await, Decided::Once));
    assert_eq!(shop.calls(), 0, "a late yes sends nothing by itself");
    let mut next = eager(&shop.host, shop.to, Transport::Http, "2026-07-28").await;
    let other = next.ask("tools/call", call("db__write", json!({ "database": "b" })).1).await;
    assert_eq!(other["result"]["resultType"], "input_required", "{other}");
    assert!(shop.host.decide(waiting(&shop.host).await, Decided::No));
    let sent = write(&mut next).await;
    assert!(is_sent(&sent), "{sent}");
    let asked = write(&mut next).await;
    assert_eq!((asked["result"]["resultType"].as_str(), shop.calls()), (Some("input_required"), 1), "{asked}");
    // What the client says is no yes, however often it says so.
    let (answer, ()) = tokio::join!(next.ask("tools/call", retry(&asked, &yes())), async {
        nothing_is_decided(&shop, 1).await;
        assert!(shop.host.decide(waiting(&shop.host).await, Decided::No));
    });
    assert!(!is_sent(&answer), "{answer}");
    assert!(shop.host.asks().is_empty());
    shop.host.shutdown().await;
}
