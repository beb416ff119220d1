//! Legacy sessions: how they begin, are lost, and end; and batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::{Barrier, mpsc, watch};

use super::support::*;
use crate::config::Era::Legacy;
use crate::protocol::{Method, Raw};
use crate::upstream::{Item, Owner, Terms};

const CALL: &str = "POST tools/call";
const CANCEL: &str = "POST notifications/cancelled";

#[tokio::test]
async fn race_11_a_session_that_ended_under_ten_calls_is_opened_anew_once() {
    // Sessions are numbered; calls of the first one are refused once all ten have arrived.
    let (opened, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opening, ending) = (opened.clone(), ended.clone());
    let server = Server::start(move |seen| match seen.what().as_str() {
        "POST initialize" => {
            let number = opening.fetch_add(1, Ordering::SeqCst) + 1;
            let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": initialized()});
            Reply::Session(format!("s-{number}"), body.to_string())
        }
        CALL if seen.header("mcp-session-id") == "s-1" => {
            ending.fetch_add(1, Ordering::SeqCst);
            Reply::Text(404, "")
        }
        CALL => seen.result(&json!({"content": []})),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let start = Barrier::new(10);
    let calls = (0..10).map(|_| async {
        lease.connected().await;
        start.wait().await;
        // The router resends unsent requests likewise.
        match lease.ask(&Method::ToolsCall, &json!({"name": "x"})).await {
            Err(error) if error == "SessionEnded" => lease.ask(&Method::ToolsCall, &json!({"name": "x"})).await,
            outcome => outcome,
        }
    });
    let outcomes = join_all(calls).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(json!({"content": []}))), "{outcomes:?}");
    assert!(ended.load(Ordering::SeqCst) >= 1);
    assert_eq!(opened.load(Ordering::SeqCst), 2, "one for ten calls");
    assert!(lease.noted().is_empty());
    lease.end().await;
}

#[tokio::test]
async fn h57_a_session_that_ended_under_one_call_leaves_another_to_its_own_answer() {
    let (answer, later) = watch::channel(None);
    let server = Server::start(move |seen| match (seen.what().as_str(), seen.body["params"]["name"].as_str()) {
        (CALL, Some("runs")) => {
            let (sender, reply) = stream([]);
            answer.send_replace(Some((sender, seen.body["id"].clone())));
            reply
        }
        (CALL, _) => Reply::Text(404, ""),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let runs = json!({"name": "runs"});
    let runs = lease.ask(&Method::ToolsCall, &runs);
    let ends = async {
        server.until(CALL, 1).await;
        assert_eq!(lease.ask(&Method::ToolsCall, &json!({"name": "x"})).await, Err("SessionEnded".to_owned()));
        let (sender, id) = later.borrow().clone().unwrap();
        sender.try_send(json!({"jsonrpc": "2.0", "id": id, "result": {"n": 1}}).to_string()).unwrap();
    };
    let (outcome, ()) = tokio::join!(runs, ends);
    assert_eq!(outcome, Ok(json!({"n": 1})), "what has run is not told as refused");
    lease.end().await;
}

#[tokio::test]
async fn what_runs_is_cancelled_before_the_session_ends_and_nothing_is_said_after() {
    let server = Server::start(|seen| match seen.what().as_str() {
        CALL => Reply::Silence,
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let connection = lease.connected().await;
    let terms = Terms { owner: Owner(7), ..Terms::host() };
    let mut calls: Vec<_> = (0..3)
        .map(|_| {
            let params = Raw::from_value(&json!({"name": "x"}));
            let mut exchange = connection.open(connection.next_id(), &Method::ToolsCall, Some(&params), &terms);
            tokio::spawn(async move { (exchange.next().await, exchange) })
        })
        .collect();
    server.until(CALL, 3).await;
    // One is cancelled by its caller, the others by the end of the lease.
    calls.remove(0).abort();
    lease.end().await;
    for call in calls {
        let (item, _) = call.await.unwrap();
        assert!(matches!(item, Item::Lost(_)));
    }
    let story = server.story();
    let (last, before) = story.split_last().unwrap();
    assert_eq!(last, "DELETE", "{story:?}");
    assert_eq!(before.iter().filter(|said| *said == CANCEL).count(), 3, "{story:?}");
}

#[tokio::test]
async fn h18_what_waits_to_be_said_is_said_in_the_end_and_before_the_session_ends() {
    const NEWS: &str = "POST notifications/roots/list_changed";
    let (open, opened) = watch::channel(false);
    let server = Server::start(move |seen| match seen.what().as_str() {
        // None of these has been answered yet.
        NEWS => Reply::Late(opened.clone(), 202),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let connection = lease.connected().await;
    for _ in 0..100 {
        connection.notify(Method::RootsListChanged, None);
    }
    server.until(NEWS, 16).await;
    assert_eq!(server.story().iter().filter(|said| *said == NEWS).count(), 16, "the others wait");
    let end = lease.end();
    let later = async {
        tokio::task::yield_now().await;
        open.send_replace(true);
    };
    tokio::join!(end, later);
    let story = server.story();
    let (last, before) = story.split_last().unwrap();
    assert_eq!(last, "DELETE", "{story:?}");
    assert_eq!(before.iter().filter(|said| *said == NEWS).count(), 100);
}

#[tokio::test]
async fn a_call_waits_for_the_stream_of_questions_to_be_open_or_refused() {
    let (open, opened) = watch::channel(false);
    let server = Server::start(move |seen| match seen.what().as_str() {
        "GET" if !*opened.borrow() => Reply::Silence,
        "GET" => Reply::Text(405, ""),
        CALL => seen.result(&json!({"content": []})),
        _ => legacy(seen),
    })
    .await;
    let lease = Lease::start(server.target(), Legacy);
    let params = json!({"name": "x"});
    {
        let call = lease.ask(&Method::ToolsCall, &params);
        tokio::pin!(call);
        tokio::select! {
            _ = server.until("GET", 1) => {}
            _ = &mut call => panic!("before the stream"),
        }
        assert!(!server.story().iter().any(|said| said == CALL));
        open.send_replace(true);
        // A silent stream is waited for only a second.
        assert_eq!(call.await, Ok(json!({"content": []})));
    }
    lease.end().await;
}

/// A server that reports changes on streams. They arrive on the channel with the event id that they resume after; the
/// server may refuse the first one.
async fn telling(refuses: bool) -> (Server, mpsc::Receiver<(String, mpsc::Sender<String>)>) {
    let (tell, streams) = mpsc::channel(8);
    let refuses = AtomicBool::new(refuses);
    let server = Server::start(move |seen| match seen.what().as_str() {
        "POST initialize" => {
            let mut result = initialized();
            result["capabilities"] = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
            seen.result(&result)
        }
        "POST tools/list" => seen.result(&json!({"tools": []})),
        "POST resources/list" => seen.result(&json!({"resources": []})),
        "POST resources/templates/list" => seen.result(&json!({"resourceTemplates": []})),
        "POST resources/subscribe" => seen.result(&json!({})),
        "GET" if refuses.swap(false, Ordering::SeqCst) => Reply::Text(503, ""),
        "GET" => {
            let (sender, reply) = stream([]);
            tell.try_send((seen.header("last-event-id").to_owned(), sender)).unwrap();
            reply
        }
        _ => legacy(seen),
    })
    .await;
    (server, streams)
}

#[tokio::test]
async fn what_was_told_while_there_was_no_stream_counts_as_changed() {
    let watching = async |server: &Server| {
        let lease = Lease::start(server.target(), Legacy);
        assert!(lease.upstream.subscribe(&"file:///a".into()).await.is_ok_and(|outcome| outcome.is_ok()));
        lease
    };
    let anew = async |refuses: bool| {
        let (server, mut streams) = telling(refuses).await;
        let mut lease = watching(&server).await;
        if !refuses {
            drop(streams.recv().await);
        }
        let (behind, _open) = streams.recv().await.unwrap();
        assert_eq!(behind, "");
        server.until("POST tools/list", 2).await;
        assert_eq!(lease.updated().await, "file:///a");
        lease.end().await;
    };
    let resumed = async {
        let (server, mut streams) = telling(false).await;
        let mut lease = watching(&server).await;
        let updated = |uri: &str| {
            let params = json!({"uri": uri});
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}).to_string()
        };
        let (_, sender) = streams.recv().await.unwrap();
        sender.send(updated("file:///a/1") + "\nid: 7").await.unwrap();
        drop(sender);
        let (behind, sender) = streams.recv().await.unwrap();
        assert_eq!(behind, "7");
        sender.send(updated("file:///a/2")).await.unwrap();
        assert_eq!([lease.updated().await, lease.updated().await], ["file:///a/1", "file:///a/2"]);
        assert_eq!(server.story().iter().filter(|said| *said == "POST tools/list").count(), 1, "it says it itself");
        lease.end().await;
    };
    let all = async { tokio::join!(anew(false), anew(true), resumed) };
    tokio::time::timeout(Duration::from_secs(9), all).await.expect("they are heard of");
}

/// Builds a batch as of 2025-03-26.
fn batch(items: &[Value]) -> String {
    Value::from(items.to_vec()).to_string()
}

/// A server of `revision` that answers a call with a batch: one progress, an invalid item, and the answer.
async fn batching(revision: &'static str, more: usize) -> Server {
    Server::start(move |seen| match seen.what().as_str() {
        "POST initialize" => {
            let result = json!({"protocolVersion": revision, "capabilities": {}, "serverInfo": {}});
            seen.result(&result)
        }
        CALL => {
            let id = &seen.body["id"];
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": id, "progress": 1}});
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
            let mut items = vec![progress, json!(7)];
            items.resize(items.len() + more, json!({"jsonrpc": "2.0", "method": "notifications/x"}));
            items.push(answer);
            let body = batch(&items);
            if seen.body["params"]["name"] == "stream" {
                let (sender, reply) = stream([]);
                sender.try_send(body).unwrap();
                reply
            } else {
                Reply::Json(200, body)
            }
        }
        _ => legacy(seen),
    })
    .await
}

#[tokio::test]
async fn h39_a_batch_is_heard_as_json_and_on_a_stream() {
    for more in [0, 97] {
        let server = batching("2025-03-26", more).await;
        let lease = Lease::start(server.target(), Legacy);
        let connection = lease.connected().await;
        for name in ["json", "stream"] {
            let params = Raw::from_value(&json!({"name": name}));
            let mut exchange = connection.open(connection.next_id(), &Method::ToolsCall, Some(&params), &Terms::host());
            assert!(matches!(exchange.next().await, Item::Progress(_)), "{name}");
            assert!(matches!(exchange.next().await, Item::Done(Ok(_))), "{name}");
        }
        lease.end().await;
    }
}

#[tokio::test]
async fn h39_a_batch_of_another_revision_or_of_too_many_is_no_answer() {
    for (revision, more) in [("2025-03-26", 98), ("2025-06-18", 0), ("2025-11-25", 0), ("2024-11-05", 0)] {
        let server = batching(revision, more).await;
        let lease = Lease::start(server.target(), Legacy);
        let params = json!({"name": "json"});
        let error = lease.ask(&Method::ToolsCall, &params).await.unwrap_err();
        assert!(error.contains("a batch"), "{revision} {more}: {error}");
        let error = lease.ask(&Method::ToolsCall, &json!({"name": "stream"})).await.unwrap_err();
        assert_eq!(error, "Broken", "{revision} {more}");
        lease.end().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn h39_a_batch_is_heard_over_a_pipe() {
    use crate::config::Stdio;
    use crate::upstream::Target;
    let script = r#"id() { printf %s "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
        read line
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":{},"serverInfo":{}}}\n' "$(id "$line")" "$0"
        read line
        read line
        id=$(id "$line")
        printf '[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":%s,"result":{"n":1}}]\n' "$id"
        printf '{"jsonrpc":"2.0","id":%s,"result":{"n":2}}\n' "$id"
        read line"#;
    for (revision, n) in [("2025-03-26", 1), ("2025-06-18", 2)] {
        let target = Target::Stdio(Stdio {
            command: "sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned(), revision.to_owned()],
            ..Stdio::default()
        });
        let lease = Lease::start(target, Legacy);
        assert_eq!(lease.revision().await, revision);
        assert_eq!(lease.ask(&Method::ToolsCall, &json!({"name": "x"})).await, Ok(json!({"n": n})));
        lease.end().await;
    }
}
