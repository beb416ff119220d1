//! Streams end when the token expires that they were opened with.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};

use super::minting::{Key, claims, in_seconds};
use super::oauth::{behind, leaked, site};
use super::support::*;

/// A door for tokens of an issuer, a token that has expired but is accepted for about 25 more seconds, and a fresh token.
async fn stage_set() -> (House, &'static str, &'static str) {
    let key = Key::es256("one");
    let issuer = site(&[&key]).await;
    let house = house_of(behind(stage().await, &issuer, &["mcp"])).await;
    let token = |end: i64| leaked(key.sign(&claims(&json!({"iss": issuer, "exp": in_seconds(end)}))));
    (house, token(-5), token(3600))
}

/// Returns the rest of a stream without comments, and whether it ended when the token expired.
async fn rest(peer: &mut Peer, since: Instant) -> (Vec<String>, bool) {
    let mut all = Vec::new();
    // A stream that never ends fails the test instead of hanging it.
    let end = async {
        while let Some(chunk) = peer.chunk().await {
            all.extend(Some(chunk.trim_end().to_owned()).filter(|chunk| chunk != ":"));
        }
    };
    let _ = timeout(Duration::from_secs(50), end).await;
    let passed = since.elapsed();
    (all, (Duration::from_secs(15)..Duration::from_secs(26)).contains(&passed))
}

#[tokio::test]
async fn h80_the_stream_of_a_session_ends_with_its_token_and_nothing_is_lost() {
    const CHANGED: &str = "notifications/tools/list_changed";
    let (house, old, fresh) = stage_set().await;
    let client = house.client_as(Some(old), "2025-11-25").await;
    let mut stream = house.again(&client).await;
    assert_eq!(stream.get("").await.status, 200);
    house.stage.announce(None);
    assert_eq!([stream.event().await.unwrap(), stream.event().await.unwrap()], [":", "0-0"]);
    assert_eq!(stream.event().await.unwrap(), format!("0-1 {CHANGED}"));
    let mut calls = house.again(&client).await;
    calls.post(&call(1, "progress")).await;
    assert_eq!([calls.event().await.unwrap(), calls.event().await.unwrap()], ["1-0", "1-1 progress 1"]);
    tokio::time::pause();
    let ended = rest(&mut stream, Instant::now()).await;
    assert_eq!(ended, (vec!["retry: 1000".to_owned()], true), "and its connection serves on");
    tokio::time::resume();
    // A running call is answered all the same, and messages wait meanwhile.
    house.stage.release();
    let answered: Vec<_> = calls.events().await.into_iter().filter(|event| event != ":").collect();
    assert_eq!(answered, ["1-2 progress 2", "1-3 answer 1"]);
    house.stage.announce(None);
    let mut back = house.again(&client).await;
    back.token = Some(fresh);
    assert_eq!(back.get("Last-Event-ID: 0-1\r\n").await.status, 200);
    assert_eq!([back.event().await.unwrap(), back.event().await.unwrap()], [":".to_owned(), format!("0-2 {CHANGED}")]);
}

#[tokio::test]
async fn h80_a_stream_that_was_taken_up_again_ends_with_the_token_of_its_own_request() {
    let (house, old, fresh) = stage_set().await;
    let client = house.client_as(Some(fresh), "2025-11-25").await;
    let mut stream = house.again(&client).await;
    stream.get("").await;
    assert_eq!([stream.event().await.unwrap(), stream.event().await.unwrap()], [":", "0-0"]);
    drop(stream);
    let mut session = house.again(&client).await;
    session.token = Some(old);
    let mut stream = house.resumed(&session, "0-0").await;
    tokio::time::pause();
    assert_eq!(rest(&mut stream, Instant::now()).await, (vec!["retry: 1000".to_owned()], true));
}

#[tokio::test]
async fn h80_a_stream_of_changes_ends_with_its_token_and_says_so() {
    let (house, old, fresh) = stage_set().await;
    let mut listens = house.connect().await;
    listens.token = Some(old);
    assert_eq!(listens.post_modern(&listen(7, json!({"toolsListChanged": true}))).await.status, 200);
    listens.message().await.unwrap();
    let mut calls = house.connect().await;
    calls.token = Some(old);
    calls.post_modern(&modern_call(8, "progress")).await;
    assert_eq!(calls.message().await.unwrap()["params"]["progress"], 1.0);
    tokio::time::pause();
    let start = Instant::now();
    let end = timeout(Duration::from_secs(50), listens.message()).await.unwrap().unwrap();
    assert_eq!(
        (&end["id"], &end["result"]["resultType"], subscription(&end)),
        (&json!(7), &json!("complete"), &json!(7))
    );
    assert_eq!(rest(&mut listens, start).await, (Vec::new(), true));
    tokio::time::resume();
    house.stage.release();
    assert_eq!(calls.message().await.unwrap()["params"]["progress"], 2.0);
    assert_eq!(calls.message().await.unwrap()["id"], 8, "a call that runs is answered");
    listens.token = Some(fresh);
    assert_eq!(listens.post_modern(&listen(9, json!({"toolsListChanged": true}))).await.status, 200);
    assert_eq!(subscription(&listens.message().await.unwrap()), 9);
}

#[tokio::test]
async fn h80_a_session_over_sse_ends_with_its_token_once_its_calls_are_through() {
    let (house, old, fresh) = stage_set().await;
    let open = async |busy: bool| {
        let mut stream = house.connect().await;
        let request = format!("GET /sse HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {old}\r\n\r\n");
        assert_eq!(stream.send(&request).await.status, 200);
        let first = stream.chunk().await.unwrap();
        let path = first.trim_end().rsplit_once(' ').unwrap().1.to_owned();
        assert_eq!(post(&house, fresh, &path, &initialize("2024-11-05")).await, 202);
        stream.chunk().await.unwrap();
        if busy {
            assert_eq!(post(&house, fresh, &path, &call(1, "progress")).await, 202);
            assert!(stream.chunk().await.unwrap().contains("notifications/progress"));
        }
        (stream, path)
    };
    let ((mut idle, _), (mut busy, path)) = (open(false).await, open(true).await);
    tokio::time::pause();
    let start = Instant::now();
    assert_eq!(rest(&mut idle, start).await, (Vec::new(), true));
    // A moment later the other one has ended as well, whichever came first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(post(&house, fresh, &path, &call(2, "echo")).await, 404, "nothing new begins");
    assert_eq!(post(&house, fresh, &path, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await, 202);
    house.stage.announce(None);
    house.stage.release();
    let (said, _) = rest(&mut busy, start).await;
    let [progress, answer] = &said[..] else { panic!("{said:?}") };
    assert!(progress.contains("\"progress\":2") && answer.contains("\"result\""), "{said:?}");
    until(|| house.stage.sessions() == 0).await;
}

async fn post(house: &House, token: &str, path: &str, body: &str) -> u16 {
    let mut peer = house.connect().await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}\r\n");
    let length = body.len();
    let rest = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    peer.send(&(head + &rest)).await.status
}

#[tokio::test]
async fn h80_a_token_without_an_end_ends_nothing() {
    let house = house_of(bearer(stage().await)).await;
    let client = house.client_as(Some(ANN), "2025-06-18").await;
    let mut stream = house.again(&client).await;
    stream.get("").await;
    tokio::time::pause();
    let start = Instant::now();
    for _ in 0..2000 {
        assert_eq!(stream.event().await.unwrap(), ":");
    }
    assert!(start.elapsed() > Duration::from_secs(8 * 60 * 60));
}
