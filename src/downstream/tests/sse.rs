//! HTTP+SSE: a session that lives as long as its stream.

use std::time::Duration;

use serde_json::Value;

use super::support::*;
use crate::protocol::Raw;

/// A client of HTTP+SSE: the connection of its stream, and another one for its messages.
struct Pair {
    stream: Peer,
    messages: Peer,
    /// The address for its messages.
    path: String,
}

/// Opens a stream.
async fn open(house: &House) -> Pair {
    let mut stream = house.connect().await;
    let head = stream.send("GET /sse HTTP/1.1\r\nHost: HOST\r\nAccept: text/event-stream\r\n\r\n").await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(head.headers["x-accel-buffering"], "no");
    let first = stream.chunk().await.unwrap();
    let path = first.strip_prefix("event: endpoint\ndata: ").unwrap().strip_suffix("\n\n").unwrap().to_owned();
    let id = path.strip_prefix("/messages?sessionId=").unwrap();
    assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    Pair { stream, messages: house.connect().await, path }
}

/// Opens a stream and a session of this revision on it.
async fn client(house: &House, revision: &str) -> Pair {
    let mut pair = open(house).await;
    assert_eq!(pair.post(&initialize(revision)).await, 202);
    let answer = pair.next().await;
    assert_eq!(answer["result"]["protocolVersion"], revision);
    pair
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Pair {
    async fn post(&mut self, body: &str) -> u16 {
        let head = self.messages.send(&post(&self.path, body)).await;
        self.messages.body(&head).await;
        head.status
    }

    /// Returns the next message of the stream.
    async fn next(&mut self) -> Value {
        loop {
            let mut event = self.stream.chunk().await.unwrap();
            if event == ":\n\n" {
                continue;
            }
            while !event.ends_with("\n\n") {
                event += &self.stream.chunk().await.unwrap();
            }
            let data = event.strip_prefix("event: message\ndata: ").unwrap();
            return serde_json::from_str(data).unwrap();
        }
    }

    /// Returns the next messages in short form.
    async fn story(&mut self, count: usize) -> Vec<String> {
        let mut story = Vec::new();
        for _ in 0..count {
            let message = self.next().await;
            story.push(match message["method"].as_str() {
                Some("notifications/progress") => format!("progress {}", message["params"]["progress"]),
                Some(method) => method.to_owned(),
                None => format!("answer {}", message["id"]),
            });
        }
        story
    }
}

#[tokio::test]
async fn everything_comes_on_the_stream() {
    let house = house().await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut pair = client(&house, revision).await;
        assert_eq!(pair.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await, 202);
        assert_eq!(pair.post(&call(1, "echo")).await, 202);
        let answer = pair.next().await;
        assert_eq!((&answer["id"], text(&answer)), (&Value::from(1), r#"{"id":1}"#));
        pair.post(&call(2, "quick")).await;
        assert_eq!(pair.story(2).await, ["progress 1", "answer 2"]);
        pair.post(&call(3, "big")).await;
        assert_eq!(text(&pair.next().await).len(), 1 << 20);
        house.stage.announce(None);
        assert_eq!(pair.story(1).await, ["notifications/tools/list_changed"]);
    }
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let house = house().await;
    let mut pair = client(&house, "2024-11-05").await;
    pair.post(&call(1, "progress")).await;
    pair.post(&call(2, "echo")).await;
    let mut story = pair.story(2).await;
    story.sort();
    assert_eq!(story, ["answer 2", "progress 1"]);
    house.stage.release();
    assert_eq!(pair.story(2).await, ["progress 2", "answer 1"]);
}

#[tokio::test]
async fn h52_a_withdrawn_call_has_no_answer() {
    let house = house().await;
    let mut pair = client(&house, "2025-06-18").await;
    pair.post(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(pair.post(cancel).await, 202);
    until(|| house.stage.running() == 0).await;
    pair.post(&call(2, "echo")).await;
    assert_eq!(pair.story(1).await, ["answer 2"]);
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_session() {
    let house = house().await;
    let mut pair = client(&house, "2025-11-25").await;
    pair.post(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let Pair { stream, mut messages, path } = pair;
    drop(stream);
    until(|| house.stage.sessions() == 0).await;
    until(|| house.stage.running() == 0).await;
    assert_eq!(messages.send(&post(&path, &call(2, "echo"))).await.status, 404);
}

#[tokio::test]
async fn before_initialize_and_after() {
    let house = house().await;
    let mut pair = open(&house).await;
    pair.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    pair.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(pair.next().await["result"], serde_json::json!({}));
    pair.post(&call(2, "echo")).await;
    assert_eq!(pair.next().await["error"]["code"], -32600);
    pair.post(r#"{"jsonrpc":"2.0","id":3,"method":"initialize"}"#).await;
    assert_eq!(pair.next().await["error"]["code"], -32602);
    assert_eq!(house.stage.sessions(), 0);
    pair.post(&initialize("2025-06-18")).await;
    assert!(pair.next().await["result"].is_object());
    pair.post(&initialize("2025-06-18")).await;
    assert_eq!(pair.next().await["error"]["code"], -32600);
    assert_eq!(house.stage.sessions(), 1);
}

#[tokio::test]
async fn refusals() {
    let house = house().await;
    let mut pair = client(&house, "2025-06-18").await;
    let path = pair.path.clone();
    let strange = format!("/messages?sessionId={}", "0".repeat(64));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let form = post(&path, "{}").replace("application/json", "text/plain");
    let newer = post(&path, ping).replace("Content-Type", "MCP-Protocol-Version: 2999-01-01\r\nContent-Type");
    let foreign = post(&path, ping).replace("HOST", "evil.example");
    let web = post(&path, ping).replace("Content-Type", "Origin: http://evil.example\r\nContent-Type");
    let cases = [
        ("no id", post("/messages", ping), 400),
        ("another's id", post("/messages?sessionId=7", ping), 404),
        ("unknown id", post(&strange, ping), 404),
        ("no json", post(&path, "{"), 400),
        ("a form", form, 415),
        ("a revision of the future", newer, 400),
        ("foreign host", foreign, 403),
        ("a web page", web, 403),
        ("a web page's stream", "GET /sse HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example\r\n\r\n".into(), 403),
        ("a page", "GET /sse HTTP/1.1\r\nHost: HOST\r\nAccept: text/html\r\n\r\n".into(), 406),
        ("streamable HTTP", post("/sse", &initialize("2025-06-18")), 405),
        ("delete", "DELETE /sse HTTP/1.1\r\nHost: HOST\r\n\r\n".into(), 405),
        ("get", format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n\r\n"), 405),
    ];
    for (what, request, status) in cases {
        let mut peer = house.connect().await;
        let head = peer.send(&request).await;
        let answer: Value = serde_json::from_str(&peer.body(&head).await).unwrap();
        assert_eq!((head.status, answer["error"].is_object()), (status, true), "{what}");
        assert_eq!(head.headers.contains_key("allow"), status == 405, "{what}");
    }
    // None of it has reached the session.
    pair.post(&call(9, "echo")).await;
    assert_eq!(pair.story(1).await, ["answer 9"]);
}

#[tokio::test]
async fn h62_sessions_of_both_kinds_have_one_cap() {
    let house = house_of(forgetful(stage_with(|limits| limits.sessions = 2).await)).await;
    let mut idle = house.client("2025-11-25").await;
    let _first = client(&house, "2024-11-05").await;
    let second = client(&house, "2024-11-05").await;
    assert_eq!(idle.post(&call(1, "echo")).await.status, 404, "it was idle and made room");
    let mut third = house.connect().await;
    let head = third.send("GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert_eq!(head.status, 503);
    assert!(head.headers.contains_key("retry-after"));
    assert_eq!(house.connect().await.post(&initialize("2025-11-25")).await.status, 503);
    drop(second);
    until(|| house.stage.sessions() == 1).await;
    house.client("2025-11-25").await;
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive_and_one_without_hello_ends() {
    let house = house().await;
    let mut silent = open(&house).await;
    let mut pair = client(&house, "2024-11-05").await;
    tokio::time::pause();
    assert_eq!(pair.stream.event().await.unwrap(), ":", "after fifteen seconds");
    let mut comments = 0;
    while silent.stream.chunk().await.is_some() {
        comments += 1;
    }
    assert!((3..=4).contains(&comments), "{comments}");
    tokio::time::resume();
    // The other connection was idle for too long.
    pair.messages = house.connect().await;
    pair.post(&call(1, "echo")).await;
    assert_eq!(pair.story(1).await, ["answer 1"]);
}

#[tokio::test]
async fn h49_a_client_that_takes_nothing_is_cut_off() {
    let limits = |limits: &mut crate::config::Limits| {
        limits.client_queue = 1 << 20;
        limits.session_idle = Duration::from_millis(20);
    };
    let house = house_of(stage_with(limits).await).await;
    let mut pair = client(&house, "2025-11-25").await;
    // More than the buffers of its connection hold, and then more than may wait.
    for number in 0.. {
        tokio::task::yield_now().await;
        if house.stage.sessions() == 0 {
            break;
        }
        let params = serde_json::json!([number, "x".repeat(900_000)]);
        house.stage.announce(Some(Raw::from_value(&params)));
    }
    assert_eq!(pair.post(&call(2, "echo")).await, 404);
}

#[tokio::test]
async fn what_is_posted_waits_up_to_a_cap() {
    // Forty answers of a mebibyte fit before one of them is read.
    let narrow = |limits: &mut crate::config::Limits| (limits.client_queue, limits.client_queues) = (100_000, 64 << 20);
    let house = house_of(stage_with(narrow).await).await;
    let mut pair = client(&house, "2025-11-25").await;
    let mut taken = 0;
    // Answers that fill the buffers of the connection, so that the stream stalls.
    while taken < 24 && pair.post(&call(taken + 1, "big")).await == 202 {
        taken += 1;
    }
    assert!(taken > 1);
    let padding = "x".repeat(90_000);
    let ping = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"x":"{padding}"}}}}"#);
    while pair.post(&ping(taken + 1)).await == 202 {
        taken += 1;
    }
    let mut answered = Vec::new();
    while answered.len() < usize::try_from(taken).unwrap() {
        answered.push(pair.next().await["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=taken).collect::<Vec<_>>());
    assert_eq!(pair.post(&ping(1)).await, 202);
}

#[tokio::test]
async fn h95_running_calls_finish_before_the_door_closes() {
    let house = house().await;
    let mut idle = client(&house, "2024-11-05").await;
    let mut pair = client(&house, "2024-11-05").await;
    pair.post(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    house.stop.cancel();
    assert_eq!(idle.stream.chunk().await, None);
    house.stage.release();
    assert_eq!(pair.story(1).await, ["answer 1"]);
    assert_eq!(pair.stream.chunk().await, None);
    house.served.await.unwrap().unwrap();
    assert_eq!(house.stage.sessions(), 0);
}

#[tokio::test]
async fn h95_the_drain_has_an_end() {
    let house = house_of(stage_with(|limits| limits.drain = Duration::from_millis(20)).await).await;
    let mut pair = client(&house, "2024-11-05").await;
    pair.post(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    house.stop.cancel();
    let last = pair.stream.chunk().await.unwrap();
    assert!(last.contains("shutting_down"), "{last}");
    assert_eq!(pair.stream.chunk().await, None);
    house.served.await.unwrap().unwrap();
    until(|| house.stage.running() == 0).await;
}

#[tokio::test]
async fn it_can_be_turned_off() {
    let settings = Settings { sse: false, ..Settings::default() };
    let house = house_with(stage().await, settings).await;
    for request in ["GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n".to_owned(), post("/messages?sessionId=1", "{}")] {
        assert_eq!(house.connect().await.send(&request).await.status, 404);
    }
}

#[tokio::test]
async fn h39_batches_are_taken_apart() {
    let house = house().await;
    let mut pair = client(&house, "2025-03-26").await;
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    assert_eq!(pair.post(&format!("[{ping},{}]", call(2, "echo"))).await, 202);
    assert_eq!((&pair.next().await["id"], &pair.next().await["id"]), (&"p".into(), &2.into()));
    for body in ["[]".to_owned(), "[1]".to_owned(), format!("[{ping},{}]", modern_call(3, "echo"))] {
        assert_eq!(pair.post(&body).await, 400, "{body}");
    }
    let mut pair = client(&house, "2025-06-18").await;
    assert_eq!(pair.post(&format!("[{ping}]")).await, 400);
}

#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_is_refused() {
    let house = house_of(stage_with(|limits| limits.depth = 8).await).await;
    let mut pair = client(&house, "2025-11-25").await;
    for (depth, status) in [(8, 202), (9, 400), (8, 202)] {
        assert_eq!(pair.post(&nested(depth)).await, status, "{depth}");
    }
}
