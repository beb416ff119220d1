//! Event streams: when an answer becomes one, and how a client comes back to one.

use std::time::Duration;

use super::support::*;

const PROGRESS: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":N,"progressToken":1}}"#;
const DONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"done":true}}"#;

fn progress(stream: u32, seq: u32, n: u32) -> String {
    event(stream, seq, &PROGRESS.replace('N', &n.to_string()))
}

fn event(stream: u32, seq: u32, data: &str) -> String {
    format!("id: {stream}-{seq}\ndata: {data}\n\n")
}

#[tokio::test]
async fn messages_come_before_their_answer() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let head = peer.post(&call(1, "quick")).await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(head.headers["cache-control"], "no-cache");
    assert_eq!(head.headers["x-accel-buffering"], "no");
    assert_eq!(peer.body(&head).await, event(1, 0, "") + &progress(1, 1, 1) + &event(1, 2, DONE));
    // The connection serves on.
    assert_eq!(peer.ask(&call(2, "echo")).await["id"], 2);
}

#[tokio::test]
async fn older_revisions_get_no_empty_event() {
    let house = house().await;
    let mut peer = house.client("2025-06-18").await;
    let head = peer.post(&call(1, "quick")).await;
    assert_eq!(peer.body(&head).await, progress(1, 0, 1) + &event(1, 1, DONE));
}

#[tokio::test]
async fn a_late_answer_comes_as_a_stream() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.tell(&call(1, "slow")).await;
    until(|| house.router.running() == 1).await;
    tokio::time::pause();
    let head = peer.head().await;
    assert_eq!(head.kind(), "text/event-stream");
    assert_eq!(peer.chunk().await.unwrap(), event(1, 0, ""));
    assert_eq!(peer.chunk().await.unwrap(), ":\n\n", "after fifteen seconds");
    tokio::time::resume();
    house.router.release();
    assert_eq!(peer.chunk().await.unwrap(), event(1, 1, r#"{"jsonrpc":"2.0","id":1,"result":{"slow":true}}"#));
    assert_eq!(peer.chunk().await, None);
}

#[tokio::test]
async fn h65_a_cut_stream_is_taken_up_again() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let mut stranger = house.client("2025-11-25").await;
    peer.post(&call(1, "progress")).await;
    assert_eq!(peer.chunk().await.unwrap(), event(1, 0, ""));
    assert_eq!(peer.chunk().await.unwrap(), progress(1, 1, 1));
    let mut back = house.again(&peer).await;
    assert_eq!(back.get("Last-Event-ID: 1-0\r\n").await.status, 409, "the first connection lives");
    drop(peer);
    house.router.release();
    until(|| house.router.running() == 0).await;

    for unknown in ["1-9", "2-0", "1", "-", "x-y", "0-0", "99999999999999999999-0"] {
        let mut back = house.again(&back).await;
        let head = back.get(&format!("Last-Event-ID: {unknown}\r\n")).await;
        assert_eq!(head.status, 400, "{unknown}");
    }
    let head = stranger.get("Last-Event-ID: 1-0\r\n").await;
    assert_eq!(head.status, 400);
    assert!(!stranger.body(&head).await.contains("progress"));

    for _ in 0..2 {
        let mut back = house.again(&back).await;
        let head = back.get("Last-Event-ID: 1-0\r\n").await;
        assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
        let rest = ":\n\n".to_owned() + &progress(1, 1, 1) + &progress(1, 2, 2) + &event(1, 3, DONE);
        assert_eq!(back.body(&head).await, rest);
    }
}

#[tokio::test]
async fn a_stream_is_taken_up_while_its_call_runs() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(1, "progress")).await;
    assert_eq!(peer.chunk().await.unwrap(), event(1, 0, ""));
    let session = house.again(&peer).await;
    drop(peer);
    let mut back = loop {
        let mut back = house.again(&session).await;
        if back.get("Last-Event-ID: 1-1\r\n").await.status == 200 {
            break back;
        }
    };
    assert_eq!(back.chunk().await.unwrap(), ":\n\n");
    house.router.release();
    assert_eq!(back.chunk().await.unwrap(), progress(1, 2, 2));
    assert_eq!(back.chunk().await.unwrap(), event(1, 3, DONE));
    assert_eq!(back.chunk().await, None);
}

#[tokio::test]
async fn the_door_hangs_up_when_told() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let head = peer.post(&call(1, "hang_up")).await;
    assert_eq!(peer.body(&head).await, event(1, 0, "") + &progress(1, 1, 1) + "retry: 500\n\n");
    let head = peer.get("Last-Event-ID: 1-1\r\n").await;
    assert_eq!(head.status, 200);
    house.router.release();
    assert_eq!(peer.body(&head).await, ":\n\n".to_owned() + &progress(1, 2, 2) + &event(1, 3, DONE));
}

#[tokio::test]
async fn older_revisions_are_not_hung_up_on() {
    let house = house().await;
    let mut peer = house.client("2025-03-26").await;
    let head = peer.post(&call(1, "hang_up")).await;
    assert_eq!(peer.chunk().await.unwrap(), progress(1, 0, 1));
    house.router.release();
    assert_eq!(peer.body(&head).await, progress(1, 1, 2) + &event(1, 2, DONE));
}

#[tokio::test]
async fn h61_one_stream_outside_of_calls() {
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let house = house().await;
    let mut first = house.client("2025-11-25").await;
    house.router.announce();
    let head = first.get("").await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(first.chunk().await.unwrap(), ":\n\n");
    assert_eq!(first.chunk().await.unwrap(), event(0, 0, ""));
    assert_eq!(first.chunk().await.unwrap(), event(0, 1, CHANGED));

    let mut second = house.again(&first).await;
    let head = second.get("").await;
    assert_eq!(head.status, 409);
    second.body(&head).await;
    assert_eq!(first.chunk().await.unwrap(), ":\n\n", "the first is asked whether it lives");
    drop(first);
    loop {
        let head = second.get("").await;
        if head.status == 200 {
            break;
        }
        second.body(&head).await;
    }
    assert_eq!(second.chunk().await.unwrap(), ":\n\n");
    assert_eq!(second.chunk().await.unwrap(), event(0, 2, ""));
    house.router.announce();
    assert_eq!(second.chunk().await.unwrap(), event(0, 3, CHANGED));

    let session = house.again(&second).await;
    drop(second);
    let mut third = loop {
        let mut third = house.again(&session).await;
        if third.get("Last-Event-ID: 0-0\r\n").await.status == 200 {
            break third;
        }
    };
    assert_eq!(third.chunk().await.unwrap(), ":\n\n");
    assert_eq!(third.chunk().await.unwrap(), event(0, 1, CHANGED));
    let delete = session.request("DELETE", "", "");
    assert_eq!(house.connect().await.send(&delete).await.status, 204);
    while third.chunk().await.is_some() {}
}

#[tokio::test]
async fn h49_a_client_that_takes_nothing_is_cut_off() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let head = peer.post(&call(1, "flood")).await;
    assert_eq!(peer.body(&head).await, event(1, 0, ""));
    until(|| house.router.seen() == ["close"]).await;
    assert_eq!(peer.post(&call(2, "echo")).await.status, 404);
}

#[tokio::test]
async fn an_open_stream_keeps_the_session() {
    let house = house_of(router_with(|limits| limits.session_idle = Duration::from_millis(20))).await;
    let mut open = house.client("2025-11-25").await;
    open.get("").await;
    let session = open.session.clone();
    // Another session is swept meanwhile.
    house.client("2025-11-25").await;
    until(|| house.router.seen() == ["close"]).await;
    let mut peer = house.connect().await;
    peer.session = session;
    assert_eq!(peer.ask(&call(1, "echo")).await["id"], 1);
}
