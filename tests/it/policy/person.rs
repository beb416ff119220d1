//! `proof: "person"`: a client that takes URLs gets the address of the page, and nothing that it answers allows anything.

use mcp_host::config::Console;
use mcp_host::{Decided, Host};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Shop, call, config, database, denied, open};
use crate::views::clients::{Client, Transport, send};

pub(super) fn person() -> Value {
    json!({ "rules": [{ "name": "writes", "verdict": "ask", "tools": ["db__write"], "proof": "person" }] })
}

/// A client that fills in whatever it is asked with a yes.
pub(super) async fn eager(
    host: &Host,
    to: std::net::SocketAddr,
    transport: Transport,
    revision: &'static str,
) -> Client {
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    let mut client = Client::able(host, to, transport, revision, ("", able)).await;
    client.answer = yes();
    client
}

pub(super) fn yes() -> Value {
    json!({ "action": "accept", "content": { "answer": "once" } })
}

pub(super) async fn write(client: &mut Client) -> Value {
    let (method, params) = call("db__write", json!({ "database": "a" }));
    client.ask(method, params).await
}

/// Waits until a request waits for a person, and returns its number.
pub(super) async fn waiting(host: &Host) -> u64 {
    loop {
        if let Some(ask) = host.asks().first() {
            return ask.id;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) fn retry(asked: &Value, answer: &Value) -> Value {
    let (_, mut params) = call("db__write", json!({ "database": "a" }));
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "mcp-host-ask": answer });
    params
}

/// Checks that a question leads to the page of this host.
fn leads_to_the_page(question: &Value, shop: &Shop) {
    assert_eq!((question["method"].as_str(), &question["params"]["mode"]), (Some("elicitation/create"), &json!("url")));
    assert_eq!(question["params"]["url"], format!("http://{}/#approve", shop.to), "{question}");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("mcp-host asks: client wants to call write of the server \"db\"."), "{message}");
    assert!(message.contains("`mcp-host asks ") && message.ends_with(r#"Arguments: {"database":"a"}"#), "{message}");
}

#[tokio::test]
async fn a_client_with_a_session_that_takes_urls_is_shown_the_page_and_waits_for_a_person() {
    let shop = open(config(&person()), None).await;
    for (decided, is_yes) in [(Decided::Once, true), (Decided::No, false)] {
        let before = shop.calls();
        let mut client = eager(&shop.host, shop.to, Transport::Pipe, "2025-11-25").await;
        let (answer, ()) = tokio::join!(write(&mut client), async {
            let id = waiting(&shop.host).await;
            // The client says yes meanwhile, as often as it is asked.
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
            assert_eq!(shop.calls(), before, "no answer of a client is a yes");
            assert!(shop.host.decide(id, decided));
        });
        match is_yes {
            true => assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}"),
            false => denied(&answer, "writes"),
        }
        assert_eq!((client.asked.len(), shop.calls() - before), (1, usize::from(is_yes)));
        leads_to_the_page(&client.asked[0], &shop);
        let id = client.asked[0]["params"]["elicitationId"].as_str().unwrap();
        let over = client.heard.lines().filter(|line| line.contains("notifications/elicitation/complete"));
        assert_eq!(over.filter(|line| line.contains(id)).count(), 1, "{}", client.heard);
    }
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_client_may_decline_for_its_user_and_whatever_else_it_says_counts_for_nothing() {
    let shop = open(config(&person()), None).await;
    let mut client = eager(&shop.host, shop.to, Transport::Pipe, "2025-11-25").await;
    client.answer = json!({ "action": "decline" });
    let answer = write(&mut client).await;
    denied(&answer, "writes");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("wants a person to allow it, and the client declined"), "{text}");
    assert!(shop.host.asks().is_empty(), "nothing is left to decide");

    let mut modern = eager(&shop.host, shop.to, Transport::Http, "2026-07-28").await;
    let asked = write(&mut modern).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    leads_to_the_page(&asked["result"]["inputRequests"]["mcp-host-ask"], &shop);
    denied(&modern.ask("tools/call", retry(&asked, &json!({ "action": "decline" }))).await, "writes");
    assert!(shop.host.asks().is_empty());
    // The question is over: a yes to it comes too late.
    denied(&modern.ask("tools/call", retry(&asked, &yes())).await, "writes");
    assert_eq!(shop.calls(), 0);
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_client_without_a_session_is_shown_the_page_by_a_result_and_a_persons_yes_sends_one_request() {
    let shop = open(config(&person()), None).await;
    let mut client = eager(&shop.host, shop.to, Transport::Http, "2026-07-28").await;
    for (decided, is_early, is_yes) in [
        (Decided::Once, true, true),
        (Decided::Once, false, true),
        (Decided::No, true, false),
        (Decided::No, false, false),
    ] {
        let before = shop.calls();
        let asked = write(&mut client).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        leads_to_the_page(&asked["result"]["inputRequests"]["mcp-host-ask"], &shop);
        let id = waiting(&shop.host).await;
        if is_early {
            assert!(shop.host.decide(id, decided));
        }
        let (answer, ()) = tokio::join!(client.ask("tools/call", retry(&asked, &yes())), async {
            if !is_early {
                for _ in 0..500 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(shop.calls(), before, "no answer of a client is a yes");
                assert!(shop.host.decide(id, decided));
            }
        });
        match is_yes {
            true => assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}"),
            false => denied(&answer, "writes"),
        }
        assert_eq!(shop.calls() - before, usize::from(is_yes), "{decided:?} {is_early}");
        // A second retry is no second yes.
        let again = client.ask("tools/call", retry(&asked, &yes())).await;
        assert_eq!(shop.calls() - before, usize::from(is_yes), "{again}");
        if is_yes {
            assert_eq!(again["result"]["resultType"], "input_required", "{again}");
            assert!(shop.host.decide(waiting(&shop.host).await, Decided::No));
        }
    }
    shop.host.shutdown().await;
}

#[tokio::test]
async fn the_page_grants_nothing_without_a_session_and_takes_the_decision_with_one() {
    let calls = std::sync::Arc::default();
    let host = Host::builder().config(config(&person())).in_process("db", database(&calls)).start().await.unwrap();
    host.settled().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let endpoint = host.open_http(listener).unwrap();
    let link = endpoint.page_link(mcp_host::admin::OpenRequest::default()).unwrap().url;
    tokio::spawn(endpoint.serve());
    let post = async |path: &str, token: &str, body: Value| -> Value {
        let headers = format!("origin: http://{to}\r\nauthorization: Bearer {token}\r\n");
        let answer = send(to, "POST", path, &headers, &body.to_string()).await;
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        body.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("{answer}"))
    };
    let mut client = eager(&host, to, Transport::Pipe, "2025-11-25").await;
    let (answer, ()) = tokio::join!(write(&mut client), async {
        let ask = waiting(&host).await;
        let page = send(to, "GET", "/", "", "").await;
        assert!(page.starts_with("http/1.1 200") && !page.contains("database"), "{page}");
        let decision = json!({ "ask": ask, "verdict": "once" });
        assert_eq!(post("/console/decide", "none", decision.clone()).await["error"], "no_session");
        assert_eq!(host.asks().len(), 1);
        let code = link.split_once("#k=").unwrap().1;
        let begun = post("/console/session", "none", json!({ "code": code })).await;
        let token = begun["token"].as_str().unwrap_or_else(|| panic!("{begun}"));
        assert_eq!(post("/console/decide", token, decision).await, json!({ "decided": ask }));
    });
    assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
    host.shutdown().await;
}

#[tokio::test]
async fn where_there_is_no_page_a_client_that_takes_urls_waits_and_is_asked_nothing() {
    let mut without = config(&person());
    without.host.console = Console::Off;
    let shop = open(without, None).await;
    for (transport, revision) in [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2026-07-28")] {
        let before = shop.calls();
        let mut client = eager(&shop.host, shop.to, transport, revision).await;
        let (answer, ()) = tokio::join!(write(&mut client), async {
            let id = waiting(&shop.host).await;
            assert!(shop.host.decide(id, Decided::Once));
        });
        assert_eq!(answer["result"]["content"][0]["text"], "write", "{answer}");
        assert_eq!((client.asked.len(), shop.calls() - before), (0, 1));
    }
    shop.host.shutdown().await;
}
