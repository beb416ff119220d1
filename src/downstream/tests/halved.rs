//! Clients that shut down their sending side and still read (`docs/hazards.md` H106).

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::*;

impl House {
    /// Sends a request, shuts down the sending side, and returns everything that comes back.
    async fn last_words(&self, request: String) -> String {
        let mut peer = self.connect().await;
        self.shut(&mut peer, request).await;
        let mut all = String::new();
        peer.stream.read_to_string(&mut all).await.unwrap();
        all
    }

    /// Sends a request and shuts down the sending side.
    async fn shut(&self, peer: &mut Peer, request: String) {
        let request = request.replace("HOST", &format!("127.0.0.1:{}", self.port));
        peer.stream.write_all(request.as_bytes()).await.unwrap();
        peer.stream.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn h106_posts_of_clients_that_send_no_more_are_answered() {
    let house = house().await;
    let client = house.client("2025-11-25").await;
    for number in 0..50 {
        let request = match number % 5 {
            0 => house.connect().await.request("POST", "", &initialize("2025-11-25")),
            1 => client.request("POST", "", r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#),
            2 => client.request("POST", "", &call(number, "big")),
            3 => client.request("POST", "", &call(number, "quick")),
            _ => "GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n".to_owned(),
        };
        let answer = house.last_words(request).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{number}: {answer:.200}");
        assert!(number % 5 == 4 || answer.contains(r#""result""#), "{number}: {answer:.200}");
        assert!(number % 5 != 2 || answer.len() > 1 << 20, "{}", answer.len());
    }
    // One by one, so that each disconnect is noticed while the call runs.
    let mut slow = Vec::new();
    for id in 0..10 {
        let mut peer = house.connect().await;
        house.shut(&mut peer, client.request("POST", "", &call(id, "slow"))).await;
        until(|| house.stage.running() as u64 == id + 1).await;
        slow.push(peer);
    }
    for id in 0..10 {
        // The end of their input has been noticed once other clients are served.
        let answer = house.last_words(client.request("POST", "", &call(100 + id, "echo"))).await;
        assert!(answer.contains(r#""result""#), "{answer}");
    }
    assert_eq!(house.stage.running(), 10);
    for peer in &mut slow {
        let left = house.stage.running() - 1;
        house.stage.release();
        until(|| house.stage.running() == left).await;
        let mut answer = String::new();
        peer.stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(r#""text":"done""#), "{answer}");
    }
}

#[tokio::test]
async fn h106_a_stream_of_a_client_that_sends_no_more_goes_on_to_its_answer() {
    let house = house().await;
    let client = house.client("2025-11-25").await;
    let mut peer = house.connect().await;
    house.shut(&mut peer, client.request("POST", "", &call(1, "progress"))).await;
    assert_eq!(peer.head().await.kind(), "text/event-stream");
    assert_eq!(peer.event().await.unwrap(), "1-0");
    assert_eq!(peer.event().await.unwrap(), "1-1 progress 1");
    house.stage.release();
    assert_eq!(peer.events().await, ["1-2 progress 2", "1-3 answer 1"]);
    assert_eq!(peer.stream.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn h106_whoever_comes_back_takes_up_a_stream_at_once() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(1, "progress")).await;
    assert_eq!(peer.event().await.unwrap(), "1-0");
    assert_eq!(peer.event().await.unwrap(), "1-1 progress 1");
    let mut back = house.again(&peer).await;
    let mut other = house.again(&peer).await;
    drop(peer);
    for id in 2..20 {
        other.ask(&call(id, "echo")).await;
    }
    assert_eq!(back.get("Last-Event-ID: 1-1\r\n").await.status, 200);
    house.stage.release();
    assert_eq!(back.events().await, [":", "1-2 progress 2", "1-3 answer 1"]);
}

#[tokio::test]
async fn h106_without_a_session_closing_is_a_cancel() {
    let house = house().await;
    for (id, tool) in [(1, "slow"), (2, "progress")] {
        let mut peer = house.connect().await;
        peer.tell_modern(&modern_call(id, tool)).await;
        until(|| house.stage.running() == 1).await;
        peer.stream.shutdown().await.unwrap();
        until(|| house.stage.running() == 0).await;
    }
    until(|| !house.stage.is_busy()).await;
}

#[tokio::test(start_paused = true)]
async fn h106_half_a_body_ends_at_once() {
    let house = house().await;
    let begun = tokio::time::Instant::now();
    for (length, body) in [("Content-Length: 9", "{"), ("Transfer-Encoding: chunked", "2\r\n{}\r\n")] {
        let request = house.connect().await.request("POST", "", "").replace("Content-Length: 0", length);
        let answer = house.last_words(format!("{request}{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}
