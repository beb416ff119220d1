//! Clients that read little or nothing: the cost, and who pays it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt as _;

use super::support::*;

const MIB: usize = 1 << 20;

/// A house whose client queues may hold eight mebibytes in total.
async fn narrow() -> House {
    house_of(stage_with(|limits| limits.client_queues = 8 * MIB).await).await
}

/// Waits until pending work is done, and checks that the queues stay within their limit.
async fn settled(house: &House) {
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    let start = TURNS.load(Ordering::Relaxed);
    until(|| {
        assert!(house.stage.queued() <= 8 * MIB, "{} bytes wait", house.stage.queued());
        let kept = house.stage.kept();
        house.stage.running() == 0 && kept <= 8 * MIB && TURNS.fetch_add(1, Ordering::Relaxed) > start + 2000
    })
    .await;
}

/// Opens sessions one by one; each asks for an answer of four mebibytes and reads nothing. A fresh client is served
/// after each.
async fn crowd(house: &House, tool: &str) -> Vec<Peer> {
    let mut slow = Vec::new();
    for number in 0..8 {
        let mut peer = house.client("2025-11-25").await;
        peer.tell(&call(number, tool)).await;
        settled(house).await;
        slow.push(peer);
        let mut fresh = house.client("2025-11-25").await;
        assert_eq!(fresh.ask(&call(1, "echo")).await["id"], 1);
        assert_eq!(text(&fresh.ask(&call(2, "big")).await).len(), MIB);
    }
    slow
}

/// Reports which sessions still exist.
async fn living(house: &House, slow: &[Peer]) -> Vec<bool> {
    let mut living = Vec::new();
    for peer in slow {
        let status = house.again(peer).await.post(&call(99, "echo")).await.status;
        assert!(status == 200 || status == 404, "{status}");
        living.push(status == 200);
    }
    living
}

#[tokio::test]
async fn h49_answers_that_nobody_reads_count_as_json() {
    let house = narrow().await;
    let slow = crowd(&house, "bulk").await;
    let living = living(&house, &slow).await;
    assert_eq!(living.iter().filter(|lives| !**lives).count(), 7, "one has room: {living:?}");
    assert!(!living[0], "whoever waited longest goes first");
}

#[tokio::test]
async fn h49_answers_that_nobody_reads_count_as_streams() {
    let house = narrow().await;
    let mut slow = crowd(&house, "stream").await;
    let living = living(&house, &slow).await;
    assert_eq!(living.iter().filter(|lives| !**lives).count(), 7, "one has room: {living:?}");
    // The connection of a client that is cut off ends in the middle; any other gets its whole answer, however late.
    for (peer, lives) in slow.iter_mut().zip(living) {
        if lives {
            peer.head().await;
            let mut length = 0;
            while let Some(chunk) = peer.chunk().await {
                length += chunk.len();
            }
            assert!(length > 4 * MIB, "{length}");
        } else {
            let mut all = Vec::new();
            let _ = peer.stream.read_to_end(&mut all).await;
            assert!(all.len() < 4 * MIB, "{}", all.len());
        }
    }
}

#[tokio::test]
async fn h49_answers_that_nobody_reads_count_without_a_session() {
    let house = narrow().await;
    let mut slow = Vec::new();
    for number in 0..8 {
        let mut peer = house.connect().await;
        peer.tell_modern(&modern_call(number, if number % 2 == 0 { "bulk" } else { "stream" })).await;
        settled(&house).await;
        slow.push(peer);
        assert_eq!(house.connect().await.ask_modern(&modern_call(1, "echo")).await.0, 200);
    }
    let mut whole = 0;
    for peer in &mut slow {
        // A client that is served completely keeps its connection.
        let mut all = Vec::new();
        let mut some = vec![0; 1 << 16];
        while all.len() < 4 * MIB {
            match peer.stream.read(&mut some).await {
                Ok(length) if length > 0 => all.extend_from_slice(&some[..length]),
                _ => break,
            }
        }
        whole += usize::from(all.len() >= 4 * MIB);
    }
    assert_eq!(whole, 1, "one has room");
}

#[tokio::test]
async fn h48_one_that_never_reads_its_stream_costs_nobody_an_answer() {
    let house = house_of(stage_with(|limits| limits.client_queue = 3 * MIB).await).await;
    let mut quick = house.client("2025-11-25").await;
    let mut slow = house.client("2025-11-25").await;
    assert_eq!(slow.get("").await.status, 200);
    let mut id = 0;
    // More than the buffers of its connection hold, and then more than may wait.
    while house.stage.sessions() == 2 {
        let params = serde_json::json!([id, "x".repeat(MIB)]);
        house.stage.announce(Some(crate::protocol::Raw::from_value(&params)));
        assert!(house.stage.queued() < 8 * MIB, "{}", house.stage.queued());
        id += 1;
        assert_eq!(quick.ask(&call(id, "echo")).await["id"], id);
    }
    assert!(id > 3);
    assert_eq!(house.again(&slow).await.post(&call(1, "echo")).await.status, 404);
}

#[tokio::test]
async fn h49_a_reader_of_a_kibibyte_a_second_loses_progress_and_no_answer() {
    let house = house_of(stage_with(|limits| limits.client_queue = MIB).await).await;
    let quick = house.client("2025-11-25").await;
    let mut slow = house.client("2025-11-25").await;
    slow.tell(&call(1, "chatty")).await;
    assert_eq!(slow.head().await.kind(), "text/event-stream");
    tokio::time::pause();
    let mut some = [0; 1024];
    let mut rest = Vec::new();
    let begun = tokio::time::Instant::now();
    for _ in 0..60 {
        let length = slow.stream.read(&mut some).await.unwrap();
        rest.extend_from_slice(&some[..length]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed().as_secs() >= 60);
    tokio::time::resume();
    until(|| house.stage.running() == 0).await;
    // Its own connection was idle for too long.
    assert_eq!(house.again(&quick).await.ask(&call(7, "echo")).await["id"], 7);
    // The end of the stream, which is the end of a chunked body.
    let mut large = vec![0; MIB];
    while !rest.ends_with(b"\r\n0\r\n\r\n") {
        let length = slow.stream.read(&mut large).await.unwrap();
        assert!(length > 0, "the answer comes, however late");
        rest.extend_from_slice(&large[..length]);
    }
    let all = String::from_utf8(rest).unwrap();
    assert!(all.contains(r#""id":1,"result""#));
    let heard = all.matches("notifications/progress").count();
    assert!((1..4000).contains(&heard), "{heard}");
}

#[tokio::test]
async fn h49_answers_that_wait_for_one_stream_count() {
    let house = narrow().await;
    let mut stream = house.connect().await;
    assert_eq!(stream.send("GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n").await.status, 200);
    let first = stream.chunk().await.unwrap();
    let path = first.trim_end().rsplit(' ').next().unwrap().to_owned();
    let mut messages = house.connect().await;
    let mut post = async |message: String| {
        let length = message.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{message}"
        );
        let head = messages.send(&request).await;
        messages.body(&head).await;
        head.status
    };
    assert_eq!(post(initialize("2025-11-25")).await, 202);
    for id in 0..12 {
        assert_eq!(post(call(id, "held")).await, 202);
        until(|| house.stage.running() as u64 == id + 1).await;
    }
    // All of them are answered while its one stream is not read: bytes already handed to the connection do not count as
    // waiting.
    for left in (0..12).rev() {
        house.stage.release();
        until(|| house.stage.running() <= left).await;
    }
    settled(&house).await;
    until(|| house.stage.kept() == 0 && house.stage.sessions() == 0).await;
    assert_eq!(post(call(99, "echo")).await, 404);
}
