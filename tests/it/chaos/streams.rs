//! Event streams that are cut, never end, or repeat.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcp_host::protocol::Raw;
use serde_json::{Value, json};

use super::server::{Close, EVENTS, Endless, Hold, Reset, Seen, Server, Write, text};
use super::{beside, call, host, host_with, still_serves};

/// The events that answer a call: an empty one, progress, the response. Each has an id.
fn events(seen: &Seen) -> [String; 3] {
    let token = &seen.body["params"]["_meta"]["progressToken"];
    let params = json!({ "progressToken": token, "progress": 1 });
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
    [
        "id: 0\ndata:\n\n".to_owned(),
        format!("id: 1\ndata: {progress}\n\n"),
        format!("id: 2\ndata: {}\n\n", seen.done("done")),
    ]
}

#[tokio::test]
async fn h24_a_stream_may_be_cut_anywhere() {
    let cut = Arc::new(AtomicUsize::new(0));
    let last = Arc::<Mutex<Vec<String>>>::default();
    let (at, said) = (cut.clone(), last.clone());
    let server = Server::start(move |seen| {
        let at = at.load(Ordering::SeqCst);
        let end = if at.is_multiple_of(2) { Close } else { Reset };
        match (seen.what(), seen.tool(), seen.headers.get("last-event-id")) {
            ("tools/call", "go", _) => {
                *said.lock().unwrap() = events(seen).to_vec();
                let all = events(seen).concat();
                Some(vec![text(EVENTS), text(&all[..at.min(all.len())]), end])
            }
            ("GET", _, Some(id)) => {
                let behind = said.lock().unwrap()[id.parse::<usize>().unwrap() + 1..].concat();
                Some(vec![text(EVENTS), text(behind), Close])
            }
            _ => None,
        }
    })
    .await;
    let host = host(server.entry()).await;
    host.settled().await;
    tokio::time::pause();
    let first = "id: 0\ndata:\n\n".len();
    beside(&host, async {
        for place in 0.. {
            cut.store(place, Ordering::SeqCst);
            let before = server.count("tools/call");
            let outcome = host.call_tool("go", Raw::empty_object()).await;
            let (calls, all) = (server.count("tools/call") - before, last.lock().unwrap().concat().len());
            assert_eq!(calls, 1, "a call is sent once");
            // A reset may discard what was written before it.
            match outcome {
                Ok(result) => assert!(place >= first && result.to_string().contains("done"), "at {place}"),
                Err(error) => {
                    assert!(place < first || place % 2 == 1, "at {place}: {error}");
                    assert!(error.to_string().contains("outcome is unknown"), "at {place}: {error}");
                }
            }
            if place > all {
                break;
            }
        }
    })
    .await;
    tokio::time::resume();
    host.shutdown().await;
}

#[tokio::test]
async fn h24_a_modern_stream_that_is_cut_is_lost() {
    let cut = Arc::new(AtomicUsize::new(0));
    let at = cut.clone();
    let server = Server::start(move |seen| {
        (seen.tool() == "go").then(|| {
            let all = events(seen).concat();
            vec![text(EVENTS), text(&all[..at.load(Ordering::SeqCst).min(all.len())]), Close]
        })
    })
    .await;
    let mut entry = server.entry();
    entry["era"] = json!("modern");
    let host = host(entry).await;
    host.settled().await;
    let mut lost = 0;
    beside(&host, async {
        for place in 0.. {
            cut.store(place, Ordering::SeqCst);
            match host.call_tool("go", Raw::empty_object()).await {
                Ok(result) => {
                    assert!(result.to_string().contains("done"));
                    break;
                }
                Err(error) => assert!(error.to_string().contains("outcome is unknown"), "at {place}: {error}"),
            }
            lost += 1;
        }
    })
    .await;
    assert!(lost > 200, "{lost}");
    assert_eq!((server.count("tools/call"), server.count("GET")), (lost + 1, 0));
    host.shutdown().await;
}

#[tokio::test]
async fn h25_a_resumed_stream_of_somebody_else_is_dropped() {
    let begun = Arc::<Mutex<Option<Value>>>::default();
    let call_id = begun.clone();
    let server = Server::start(move |seen| match (seen.what(), seen.tool(), seen.headers.get("last-event-id")) {
        ("tools/call", "go", _) => {
            *call_id.lock().unwrap() = Some(seen.body.clone());
            Some(vec![text(EVENTS), text("id: 0\ndata:\n\n"), Close])
        }
        ("GET", _, Some(id)) if id == "0" => {
            // A message of another session.
            let line = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "error", "data": "foreign" } });
            let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [{ "type": "text", "text": "foreign" }] } });
            Some(vec![text(EVENTS), text(format!("id: 5\ndata: {line}\n\nid: 6\ndata: {answer}\n\n")), Close])
        }
        ("GET", _, Some(_)) => {
            let mine = Seen { body: call_id.lock().unwrap().clone().unwrap(), ..seen.clone() };
            Some(vec![text(EVENTS), text(format!("data: {}\n\n", mine.done("mine"))), Close])
        }
        _ => None,
    })
    .await;
    let host = host(server.entry()).await;
    host.settled().await;
    tokio::time::pause();
    assert_eq!(call(&host, "go").await.as_deref(), Ok("mine"));
    tokio::time::resume();
    let status = host.status().into_iter().find(|status| status.name == "bad").unwrap();
    assert_eq!(status.dropped, 2);
    host.shutdown().await;
}

/// How many of our POSTs one server may leave unanswered, and some connections for everything else.
const SOCKETS: usize = 16 + 6;

#[tokio::test]
async fn h18_a_server_that_asks_without_end_and_takes_no_answer_holds_few_sockets() {
    let server = Server::start(|seen| match (seen.what(), seen.body.is_null()) {
        ("GET", _) => {
            let mut flood = String::new();
            for id in 0..5000 {
                let method = if id % 2 == 0 { "ping" } else { "no/such" };
                let request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
                write!(flood, "data: {request}\n\n").unwrap();
            }
            Some(vec![text(EVENTS), text(flood), Hold])
        }
        // Our own responses.
        ("POST", false) => Some(vec![Hold]),
        _ => None,
    })
    .await;
    let host = host_with(server.entry(), json!({ "stopClose": "100ms" })).await;
    let dropped = || host.status().into_iter().find(|status| status.name == "bad").unwrap().dropped;
    let all = async {
        // Some are answered, some wait; all others are counted.
        while dropped() < 4900 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    beside(&host, tokio::time::timeout(Duration::from_secs(60), all)).await.unwrap_or_else(|_| panic!("{}", dropped()));
    still_serves(&host).await;
    assert!(server.count("POST") <= SOCKETS, "{} answers at once", server.count("POST"));
    assert!(server.connections() <= SOCKETS, "{} connections", server.connections());
    // Nor does it keep the host from ending.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    host.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn h26_the_stream_of_news_is_given_up_and_the_server_is_not() {
    let server =
        Server::start(|seen| (seen.what() == "GET").then(|| vec![text(EVENTS), text("retry: 0\n\n"), Close])).await;
    let host = host(server.entry()).await;
    host.settled().await;
    tokio::time::pause();
    beside(&host, tokio::time::sleep(Duration::from_secs(60))).await;
    let gets = server.count("GET");
    assert!((3..=10).contains(&gets), "{gets} in the first minute");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.count("GET"), 10, "given up");
    still_serves(&host).await;
    tokio::time::resume();
    host.shutdown().await;
}

#[tokio::test]
async fn h27_an_event_without_end_fails_its_call_alone() {
    for start in ["data: {", "data: x\ndata: ", ": ", "id: ", "event: ", "unknown", "\u{feff}"] {
        let server = Server::start(move |seen| {
            (seen.tool() == "go").then(|| vec![text(EVENTS), text(start), Endless(b"a".to_vec())])
        })
        .await;
        let host = host_with(server.entry(), json!({ "message": "256KiB" })).await;
        host.settled().await;
        let error = call(&host, "go").await.unwrap_err();
        assert!(error.contains("host.limits.message"), "{start}: {error}");
        still_serves(&host).await;
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h27_events_of_every_shape_are_read() {
    type Shape = fn(&str) -> String;
    let shapes: [Shape; 9] = [
        |answer| format!("data: {answer}\n\n"),
        |answer| format!("\u{feff}data:{answer}\r\n\r\n"),
        |answer| format!("data: {answer}\r\r"),
        |answer| format!(": hello\n\n:\ndata: {answer}\n: inside\n\n"),
        |answer| format!("event: message\nid: a\0b\ndata: {answer}\n\n"),
        |answer| format!("event: other\ndata: {{\n\ndata: {answer}\n\n"),
        |answer| format!("data\n\ndata:\n\nretry: x\nretry: 99999999999999999999999\ndata: {answer}\n\n"),
        |answer| format!("data: {}\ndata: {}\n\n", &answer[..1], &answer[1..]),
        |answer| format!("id: {}\ndata: {answer}\n\n", "x".repeat(100_000)),
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        let server = Server::start(move |seen| {
            (seen.tool() == "go").then(|| {
                // Byte by byte.
                let bytes = shape(&seen.done("read"));
                let mut steps = vec![text(EVENTS)];
                steps.extend(
                    bytes
                        .as_bytes()
                        .chunks(if bytes.len() > 1000 { 1000 } else { 1 })
                        .map(|piece| Write(piece.to_vec())),
                );
                steps.push(Close);
                steps
            })
        })
        .await;
        let host = host(server.entry()).await;
        host.settled().await;
        assert_eq!(call(&host, "go").await.as_deref(), Ok("read"), "shape {number}");
        host.shutdown().await;
    }
}
