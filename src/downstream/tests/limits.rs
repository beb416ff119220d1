//! Limits of the door: headers, connections, and slow clients.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::support::*;
use super::two::*;

#[tokio::test]
async fn h81_headers_have_a_count() {
    for limit in [10, 100, 150] {
        let house = house_of(stage_with(|limits| limits.headers = limit).await).await;
        for (count, status) in [(limit - 1, 200), (limit, 200), (limit + 1, 431)] {
            let mut peer = house.connect().await;
            let more: String = (1..count).map(|index| format!("X-{index}: 1\r\n")).collect();
            let head = peer.send(&format!("GET /healthz HTTP/1.1\r\nHost: HOST\r\n{more}\r\n")).await;
            assert_eq!(head.status, status, "{count} of {limit}");
            let two = Two::connect(&house).await;
            let mut request = two.request("GET", "/healthz");
            for index in 0..count {
                request.headers_mut().append("x", index.to_string().parse().unwrap());
            }
            assert_eq!(two.ask(request, "").await.status, status, "{count} of {limit} over HTTP/2");
        }
    }
}

#[tokio::test]
async fn h81_headers_have_a_size() {
    const LIMIT: usize = 20_000;
    let house = house_of(stage_with(|limits| limits.header_bytes = LIMIT).await).await;
    for (size, status) in [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 431)] {
        let mut peer = house.connect().await;
        let first = format!("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nX: ", house.port);
        let head = peer.send(&format!("{first}{}\r\n\r\n", "x".repeat(size - first.len() - 4))).await;
        assert_eq!(head.status, status, "{size}");
        // HTTP/2 counts each field as its name, its value and 32 bytes (RFC 9113, 6.5.2).
        let two = Two::connect(&house).await;
        let mut request = two.request("GET", "/healthz");
        let authority = request.uri().authority().unwrap().as_str().len();
        let fields = [(":method", 3), (":scheme", 4), (":path", 8), (":authority", authority), ("x", 0)];
        let rest: usize = fields.iter().map(|(name, value)| name.len() + value + 32).sum();
        request.headers_mut().insert("x", "x".repeat(size - rest).parse().unwrap());
        assert_eq!(two.ask(request, "").await.status, status, "{size} over HTTP/2");
    }
}

#[tokio::test]
async fn h81_connections_have_a_cap() {
    let house = house_of(stage_with(|limits| limits.connections = 3).await).await;
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = house.client("2025-11-25").await;
        assert_eq!(peer.get("").await.status, 200);
        peers.push(peer);
    }
    assert_eq!(house.connect().await.head().await.status, 503, "one more");
    drop(peers.pop());
    let room = async {
        loop {
            let mut peer = house.connect().await;
            if peer.send_if("GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n").await == Some(200) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), room).await.unwrap();
}

/// Returns how long the door waits for a client that sends only this, in seconds of its own clock.
async fn patience(house: &House, said: &[u8]) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    let begun = Instant::now();
    stream.write_all(said).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    begun.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn h81_a_first_request_has_ten_seconds() {
    let house = house().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let hello = [preface, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let open = [&*hello, &[0, 0, 0, 1, 0, 0, 0, 0, 1]].concat();
    let cases: [(&str, &[u8]); 7] = [
        ("nothing", b""),
        ("a letter", b"P"),
        ("half a line", b"POST /mcp HT"),
        ("half a head", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-"),
        ("half a preface", b"PRI * HTTP/2"),
        ("a hello", &hello),
        ("half of headers", &open),
    ];
    for (what, said) in cases {
        let took = patience(&house, said).await;
        assert!((9..=10).contains(&took), "{what}: {took} s");
    }
    let mut peer = house.connect().await;
    assert_eq!(peer.send("GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn h100_half_a_preface_is_not_looked_at_when_no_more_can_come() {
    let house = house().await;
    let mut stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    let begun = Instant::now();
    stream.write_all(b"PR").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn h81_later_headers_have_ten_seconds() {
    let house = house().await;
    let mut frames = Frames::connect(&house).await;
    let block = Frames::block(&house);
    frames.put(HEADERS, END_HEADERS | END_STREAM, 1, &block).await.unwrap();
    while let Some((kind, _, _)) = frames.take().await {
        if kind == 0 {
            break;
        }
    }
    // It acknowledges nothing, because in the middle of headers it must not.
    frames.put(HEADERS, END_STREAM, 3, &block[..9]).await.unwrap();
    let begun = Instant::now();
    while frames.take().await.is_some() {}
    let took = begun.elapsed().as_secs();
    assert!((5..=10).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn h81_a_body_has_thirty_seconds() {
    let house = house().await;
    let mut peer = house.connect().await;
    let request = peer.request("POST", "", "").replace("Content-Length: 0", "Content-Length: 9");
    let begun = Instant::now();
    let head = peer.send(&format!("{request}{{")).await;
    assert_eq!((head.status, begun.elapsed().as_secs()), (408, 30));
    let two = Two::connect(&house).await;
    let begun = Instant::now();
    let mut send = two.send.clone().ready().await.unwrap();
    let (answer, _body) = send.send_request(two.posting(&[]), false).unwrap();
    let answer = Answer::of(answer).await;
    assert_eq!((answer.status, begun.elapsed().as_secs()), (408, 30));
    assert_eq!(two.ask(two.request("GET", "/healthz"), "").await.status, 200, "the connection is as good as before");
}
