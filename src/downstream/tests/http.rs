//! The HTTP door: sessions, answers, shutdown.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::support::*;

#[tokio::test]
async fn a_session_from_initialize_to_delete() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let id = peer.session.clone().unwrap();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    assert!(id.len() < 200 && id.bytes().all(is_plain), "{id}");
    let head = peer.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(head.status, 202);
    assert_eq!(peer.body(&head).await, "");
    assert_eq!(peer.post(r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#).await.status, 202);
    let answer = peer.ask(&call(3, "echo")).await;
    assert_eq!((&answer["id"], text(&answer)), (&json!(3), r#"{"id":3}"#));
    assert_eq!(house.stage.sessions(), 1);
    let delete = peer.request("DELETE", "", "");
    assert_eq!(peer.send(&delete).await.status, 204);
    for request in [delete, peer.request("GET", "", ""), peer.request("POST", "", &call(4, "echo"))] {
        let head = peer.send(&request).await;
        assert_eq!(head.status, 404);
        peer.body(&head).await;
    }
    assert_eq!(house.stage.sessions(), 0);
}

#[tokio::test]
async fn initialize_that_fails_makes_no_session() {
    let house = house().await;
    let mut peer = house.connect().await;
    let head = peer.post(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#).await;
    assert_eq!(head.status, 200);
    assert!(!head.headers.contains_key("mcp-session-id"));
    let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32602)));
}

#[tokio::test]
async fn h35_equal_ids_of_two_clients() {
    let house = house().await;
    let mut first = house.client("2025-11-25").await;
    let mut second = house.client("2025-11-25").await;
    first.tell(&call(1, "progress")).await;
    second.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 2).await;
    house.stage.release();
    house.stage.release();
    first.head().await;
    assert_eq!(first.events().await, ["1-0", "1-1 progress 1", "1-2 progress 2", "1-3 answer 1"]);
    let head = second.head().await;
    assert_eq!(head.kind(), "application/json");
    assert!(second.body(&head).await.contains("done"));
}

#[tokio::test]
async fn a_large_answer_has_a_length() {
    let house = house().await;
    let mut peer = house.client("2025-06-18").await;
    let head = peer.post(&call(1, "big")).await;
    assert_eq!(head.kind(), "application/json");
    assert!(head.headers["content-length"].parse::<usize>().unwrap() > 1 << 20);
    let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
    assert_eq!(text(&answer).len(), 1 << 20);
    assert_eq!(peer.ask(&call(2, "echo")).await["id"], 2);
}

#[tokio::test]
async fn h52_a_withdrawn_call_has_no_answer() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(house.again(&peer).await.post(cancel).await.status, 202);
    let head = peer.head().await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(peer.body(&head).await, "");
}

#[tokio::test]
async fn h52_a_lost_connection_is_no_cancel() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let mut other = house.again(&peer).await;
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    drop(peer);
    // The door has noticed the end of the connection once it has served other clients.
    for id in 2..20 {
        other.ask(&call(id, "echo")).await;
    }
    assert_eq!(house.stage.running(), 1);
    house.stage.release();
    until(|| house.stage.running() == 0).await;
}

#[tokio::test]
async fn h62_the_longest_idle_session_makes_room() {
    let house = house_of(forgetful(stage_with(|limits| limits.sessions = 2).await)).await;
    let mut first = house.client("2025-11-25").await;
    let mut busy = house.client("2025-11-25").await;
    busy.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let mut third = house.client("2025-11-25").await;
    assert_eq!(first.post(&call(1, "echo")).await.status, 404);
    third.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 2).await;
    let mut fourth = house.connect().await;
    let head = fourth.post(&initialize("2025-11-25")).await;
    assert_eq!(head.status, 503);
    assert!(head.headers.contains_key("retry-after"));
    let answer: Value = serde_json::from_str(&fourth.body(&head).await).unwrap();
    assert_eq!(answer["id"], 0);
}

#[tokio::test]
async fn h62_idle_sessions_leave_memory() {
    let house = house_of(forgetful(stage_with(|limits| limits.session_idle = Duration::from_secs(60)).await)).await;
    let peer = house.client("2025-11-25").await;
    rest(Duration::from_secs(200)).await;
    until_some_time(|| house.stage.sessions() == 0).await;
    assert_eq!(house.again(&peer).await.post(&call(1, "echo")).await.status, 404);
}

#[tokio::test]
async fn h51_connections_have_a_cap() {
    let house = house_of(stage_with(|limits| limits.connections = 1).await).await;
    let mut first = house.client("2025-11-25").await;
    first.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let mut second = house.connect().await;
    assert_eq!(second.head().await.status, 503);
    assert_eq!(second.stream.read(&mut [0; 1]).await.unwrap(), 0);
    house.stage.release();
    assert_eq!(first.head().await.status, 200);
}

#[tokio::test]
async fn h95_running_calls_finish_before_the_door_closes() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let _quiet = house.connect().await;
    let mut listening = house.again(&peer).await;
    assert_eq!(listening.get("").await.status, 200);
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    house.stop.cancel();
    let mut last = String::new();
    while let Some(piece) = listening.chunk().await {
        last = piece;
    }
    assert_eq!(last, "retry: 3000\n\n", "its last frame says when to come back");
    // Nearly all of the drain time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(9)).await;
    tokio::time::resume();
    house.stage.release();
    let head = peer.head().await;
    assert_eq!(head.status, 200);
    assert!(peer.body(&head).await.contains(r#""text":"done""#));
    house.served.await.unwrap().unwrap();
    assert_eq!(house.stage.sessions(), 0);
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", house.port)).await.is_err());
}

#[tokio::test]
async fn h95_the_drain_has_an_end() {
    let house = house_of(stage_with(|limits| limits.drain = Duration::from_millis(20)).await).await;
    let mut peer = house.client("2025-11-25").await;
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    house.stop.cancel();
    let head = peer.head().await;
    let body = peer.body(&head).await;
    assert!(body.contains("shutting_down") && body.contains(r#""id":1"#), "an answer, though not the server's: {body}");
    house.served.await.unwrap().unwrap();
    assert_eq!(house.stage.running(), 0);
}

#[tokio::test]
async fn health_and_readiness() {
    let house = house().await;
    let mut peer = house.connect().await;
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let head = peer.send(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert_eq!((head.status, peer.body(&head).await.as_str()), (200, text));
    }
}

/// Anyone may repeat these requests: `/readyz` takes no token, and any client can call unknown names.
#[tokio::test]
async fn what_anybody_may_ask_again_and_again_merges_no_catalog_each_time() {
    let house = house().await;
    let manager = house.stage.router.manager();
    let mut peer = house.client("2025-11-25").await;
    let before = *manager.generation().borrow();
    let made = manager.looks();
    for _ in 0..20 {
        let answer = peer.ask(&call(1, "nobody_has_it")).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let mut probe = house.connect().await;
        let head = probe.send("GET /readyz HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
        assert_eq!(head.status, 200);
    }
    // The leases may still have been reading their lists.
    let generations = *manager.generation().borrow() - before + 1;
    assert!(generations < 10 && (manager.looks() - made) as u64 <= generations, "{generations}");
}

#[tokio::test]
async fn h39_batches_of_the_one_revision_that_has_them() {
    let house = house().await;
    let mut peer = house.client("2025-03-26").await;
    let (first, second) = (call(1, "echo"), call(2, "echo"));
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let answers = peer.ask(&format!("[{first},{notice}, {ping},{second},7]")).await;
    let mut ids: Vec<String> = answers.as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [r#""p""#, "1", "2", "null"]);
    let broken = answers.as_array().unwrap().iter().find(|answer| answer.get("id").is_none()).unwrap();
    assert_eq!(broken["error"]["code"], -32600);
    // Messages that need no answer get none.
    for body in [format!("[{notice}]"), format!(r#"[{notice},{{"jsonrpc":"2.0","id":9,"result":{{}}}}]"#)] {
        let head = peer.post(&body).await;
        assert_eq!((head.status, peer.body(&head).await.as_str()), (202, ""));
    }
    // With progress before the answers, the response is a stream.
    let head = peer.post(&format!("[{},{}]", call(3, "quick"), call(4, "echo"))).await;
    assert_eq!(head.kind(), "text/event-stream");
    let events = peer.events().await;
    assert_eq!(events, ["1-0 progress 1", "1-1 answer 3", "1-2 answer 4"]);
    // `initialize` may not be in a batch, and an id may be in use only once.
    let answers = peer.ask(&format!("[{},{},{}]", initialize("2025-03-26"), call(5, "echo"), call(5, "echo"))).await;
    let codes: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["error"]["code"]).collect();
    assert_eq!(codes, [&json!(-32600), &Value::Null, &json!(-32600)]);
    let claiming = modern(1, "tools/list", json!({}));
    for (count, status) in [(99, 200), (100, 200), (101, 400)] {
        let head = peer.post(&format!("[{}{ping}]", format!("{ping},").repeat(count - 1))).await;
        assert_eq!(head.status, status, "{count}");
        peer.body(&head).await;
    }
    let many = format!("[{}1]", "1,".repeat(100));
    for body in ["[]".to_owned(), "[1".to_owned(), many, format!("[{ping},{claiming}]")] {
        let head = peer.post(&body).await;
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        let code = if body == "[1" { -32700 } else { -32600 };
        assert_eq!((head.status, &answer["error"]["code"]), (400, &json!(code)), "{body}");
    }
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut peer = house.client(revision).await;
        assert_eq!(peer.post(&format!("[{ping}]")).await.status, 400, "{revision}");
    }
}
