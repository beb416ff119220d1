//! Event streams: when a response becomes one, and how a client resumes one.

use std::time::Duration;

use super::support::*;
use crate::protocol::Raw;

#[tokio::test]
async fn messages_come_before_their_answer() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let head = peer.post(&call(1, "quick")).await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(head.headers["cache-control"], "no-cache");
    assert_eq!(head.headers["x-accel-buffering"], "no");
    assert_eq!(peer.events().await, ["1-0", "1-1 progress 1", "1-2 answer 1"]);
    // The connection stays usable.
    assert_eq!(peer.ask(&call(2, "echo")).await["id"], 2);
}

#[tokio::test]
async fn older_revisions_get_no_empty_event() {
    let house = house().await;
    let mut peer = house.client("2025-06-18").await;
    peer.post(&call(1, "quick")).await;
    assert_eq!(peer.events().await, ["1-0 progress 1", "1-1 answer 1"]);
}

#[tokio::test]
async fn a_late_answer_comes_as_a_stream() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    tokio::time::pause();
    let head = peer.head().await;
    assert_eq!(head.kind(), "text/event-stream");
    assert_eq!(peer.event().await.unwrap(), "1-0");
    assert_eq!(peer.event().await.unwrap(), ":", "after fifteen seconds");
    tokio::time::resume();
    house.stage.release();
    assert_eq!(peer.events().await, ["1-1 answer 1"]);
}

#[tokio::test]
async fn h65_a_cut_stream_is_taken_up_again() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    let mut stranger = house.client("2025-11-25").await;
    peer.post(&call(1, "progress")).await;
    assert_eq!(peer.event().await.unwrap(), "1-0");
    assert_eq!(peer.event().await.unwrap(), "1-1 progress 1");
    let mut back = house.again(&peer).await;
    assert_eq!(back.get("Last-Event-ID: 1-0\r\n").await.status, 409, "the first connection lives");
    drop(peer);
    house.stage.release();
    until(|| house.stage.running() == 0).await;

    for unknown in ["1-9", "2-0", "1", "-", "x-y", "0-0", "99999999999999999999-0"] {
        let mut back = house.again(&back).await;
        let head = back.get(&format!("Last-Event-ID: {unknown}\r\n")).await;
        assert_eq!(head.status, 400, "{unknown}");
    }
    let head = stranger.get("Last-Event-ID: 1-0\r\n").await;
    assert_eq!(head.status, 400);
    assert!(!stranger.body(&head).await.contains("progress"));

    for _ in 0..2 {
        let mut back = house.resumed(&back, "1-0").await;
        assert_eq!(back.events().await, [":", "1-1 progress 1", "1-2 progress 2", "1-3 answer 1"]);
    }
}

#[tokio::test]
async fn a_stream_is_taken_up_while_its_call_runs() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(1, "progress")).await;
    assert_eq!(peer.event().await.unwrap(), "1-0");
    assert_eq!(peer.event().await.unwrap(), "1-1 progress 1");
    let session = house.again(&peer).await;
    drop(peer);
    let mut back = house.resumed(&session, "1-1").await;
    assert_eq!(back.event().await.unwrap(), ":");
    house.stage.release();
    assert_eq!(back.events().await, ["1-2 progress 2", "1-3 answer 1"]);
}

#[tokio::test]
async fn the_door_hangs_up_when_told() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(1, "hang_up")).await;
    assert_eq!(peer.events().await, ["1-0", "1-1 progress 1", "retry: 500"]);
    let head = peer.get("Last-Event-ID: 1-1\r\n").await;
    assert_eq!(head.status, 200);
    house.stage.release();
    assert_eq!(peer.events().await, [":", "1-2 progress 2", "1-3 answer 1"]);
}

#[tokio::test]
async fn older_revisions_are_not_hung_up_on() {
    let house = house().await;
    let mut peer = house.client("2025-03-26").await;
    peer.post(&call(1, "hang_up")).await;
    assert_eq!(peer.event().await.unwrap(), "1-0 progress 1");
    house.stage.release();
    assert_eq!(peer.events().await, ["1-1 progress 2", "1-2 answer 1"]);
}

#[tokio::test]
async fn h61_one_stream_outside_of_calls() {
    const CHANGED: &str = "notifications/tools/list_changed";
    let house = house().await;
    let mut first = house.client("2025-11-25").await;
    house.stage.announce(None);
    let head = first.get("").await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    assert_eq!(first.event().await.unwrap(), ":");
    assert_eq!(first.event().await.unwrap(), "0-0");
    assert_eq!(first.event().await.unwrap(), format!("0-1 {CHANGED}"));

    let mut second = house.again(&first).await;
    let head = second.get("").await;
    assert_eq!(head.status, 409);
    second.body(&head).await;
    assert_eq!(first.event().await.unwrap(), ":", "the first is asked whether it lives");
    drop(first);
    loop {
        let head = second.get("").await;
        if head.status == 200 {
            break;
        }
        second.body(&head).await;
    }
    assert_eq!(second.event().await.unwrap(), ":");
    assert_eq!(second.event().await.unwrap(), "0-2");
    house.stage.announce(None);
    assert_eq!(second.event().await.unwrap(), format!("0-3 {CHANGED}"));

    let session = house.again(&second).await;
    drop(second);
    let mut third = house.resumed(&session, "0-0").await;
    assert_eq!(third.event().await.unwrap(), ":");
    assert_eq!(third.event().await.unwrap(), format!("0-1 {CHANGED}"));
    let delete = session.request("DELETE", "", "");
    assert_eq!(house.connect().await.send(&delete).await.status, 204);
    third.events().await;
}

#[tokio::test]
async fn h49_a_client_that_takes_nothing_is_cut_off() {
    let house = house_of(stage_with(|limits| limits.client_queue = 1 << 20).await).await;
    let mut peer = house.client("2025-11-25").await;
    peer.get("").await;
    assert_eq!(peer.event().await.unwrap(), ":");
    for number in 0..5 {
        let params = serde_json::json!([number, "x".repeat(300_000)]);
        house.stage.announce(Some(Raw::from_value(&params)));
    }
    peer.events().await;
    until(|| house.stage.sessions() == 0).await;
    let mut again = house.again(&peer).await;
    assert_eq!(again.post(&call(2, "echo")).await.status, 404);
}

#[tokio::test]
async fn an_open_stream_keeps_the_session() {
    let house = house_of(stage_with(|limits| limits.session_idle = Duration::from_secs(60)).await).await;
    let mut open = house.client("2025-11-25").await;
    open.get("").await;
    // Meanwhile another session is swept.
    house.client("2025-11-25").await;
    rest(Duration::from_secs(200)).await;
    until_some_time(|| house.stage.sessions() == 1).await;
    assert_eq!(house.again(&open).await.ask(&call(1, "echo")).await["id"], 1);
}
