//! Request bodies that are being received: their total memory, and which of them make room.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;

use super::support::*;
use super::two::*;

const KIB: usize = 1024;
/// The limit for one body, and for all together.
const BODY: usize = 256 * KIB;
/// The 26 connections of a test hold 32 KiB each, so 1120 KiB are left for bodies.
const BODIES: usize = 1952 * KIB;

fn narrow(limits: &mut crate::config::Limits) {
    (limits.body, limits.bodies) = (BODY, BODIES);
}

fn held(house: &House) -> usize {
    house.stage.router.meter().usage().iter().find(|usage| usage.limit == "bodies").expect("it is told").used
}

/// A ping of this many bytes.
fn ping(length: usize) -> String {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    format!("{ping}{}", " ".repeat(length - ping.len()))
}

/// Sends a request without its last byte.
async fn all_but_a_byte(house: &House, peer: &mut Peer, request: &str) {
    let request = request.replace("HOST", &format!("127.0.0.1:{}", house.port));
    peer.stream.write_all(&request.as_bytes()[..request.len() - 1]).await.unwrap();
}

fn chunked(peer: &Peer, body: &str) -> String {
    let request = peer.request("POST", "Transfer-Encoding: chunked\r\n", "");
    let (head, _) = request.split_once("Content-Length").unwrap();
    let chunks: String = body.as_bytes().chunks(10_000).fold(String::new(), |all, chunk| {
        all + &format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))
    });
    format!("{head}\r\n{chunks}0\r\n\r\n")
}

/// Returns the status of the answer. A body that is not refused is completed by its last byte.
async fn outcome(mut peer: Peer, last: u8) -> u16 {
    let head = match tokio::time::timeout(Duration::from_secs(3), peer.head()).await {
        Ok(head) => head,
        Err(_) => {
            peer.stream.write_all(&[last]).await.unwrap();
            peer.head().await
        }
    };
    assert_eq!(head.headers.contains_key("retry-after"), head.status == 503);
    let body = peer.body(&head).await;
    assert_eq!(body.contains("host.limits.bodies"), head.status == 503, "{body}");
    head.status
}

#[tokio::test]
async fn h103_bodies_in_receipt_have_a_cap_in_all() {
    let house = house_of(stage_with(narrow).await).await;
    let mut healthy = house.client("2025-11-25").await;
    let mut stream = house.connect().await;
    stream.send("GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    let path = stream.chunk().await.unwrap().trim_end().rsplit(' ').next().unwrap().to_owned();
    let mut outcomes = Vec::new();
    for number in 0..24 {
        let mut peer = house.again(&healthy).await;
        let request = match number % 3 {
            0 => peer.request("POST", "", &ping(BODY)),
            1 => chunked(&peer, &ping(BODY)),
            _ => peer.request("POST", "", &ping(BODY)).replace(" /mcp ", &format!(" {path} ")),
        };
        all_but_a_byte(&house, &mut peer, &request).await;
        outcomes.push(tokio::spawn(outcome(peer, *request.as_bytes().last().unwrap())));
        // A client whose requests arrive at once, or nearly, is served all the while.
        assert!(held(&house) <= BODIES, "{} bytes are held", held(&house));
        assert_eq!(healthy.ask(&call(number, "echo")).await["id"], number);
        let head = healthy.post(&ping(BODY)).await;
        assert_eq!(head.status, 200, "{number}");
        healthy.body(&head).await;
    }
    assert!(held(&house) > BODY, "what is on its way is counted");
    let mut refused = 0;
    for outcome in outcomes {
        let status = outcome.await.unwrap();
        assert!([200, 202, 503].contains(&status), "{status}");
        refused += usize::from(status == 503);
    }
    assert!((20..24).contains(&refused), "{refused}");
    until(|| held(&house) == 0).await;
}

#[tokio::test]
async fn h103_bodies_of_one_connection_over_http2_have_the_same_cap() {
    let house = house_of(stage_with(narrow).await).await;
    let (two, mut healthy) = (Two::client(&house).await, house.client("2025-11-25").await);
    let mut streams = Vec::new();
    for number in 0..12 {
        let mut send = two.send.clone().ready().await.unwrap();
        let (answer, mut stream) = send.send_request(two.posting(&[]), false).unwrap();
        stream.send_data(Bytes::from(ping(BODY - 1)), false).unwrap();
        // Everything is sent once there is capacity for more.
        stream.reserve_capacity(1);
        until_capacity(&mut stream).await;
        assert!(held(&house) <= BODIES, "{} bytes are held", held(&house));
        assert_eq!(healthy.ask(&call(number, "echo")).await["id"], number);
        streams.push((answer, stream));
    }
    assert!(held(&house) > BODY, "what is on its way is counted");
    let mut refused = 0;
    for (answer, mut stream) in streams {
        // A refused body is read no further.
        let _ = stream.send_data(Bytes::from_static(b" "), true);
        let answer = Answer::of(answer).await;
        assert_eq!(answer.headers.contains_key("retry-after"), answer.status == 503);
        assert!([200, 503].contains(&answer.status), "{}", answer.status);
        refused += usize::from(answer.status == 503);
    }
    assert!((8..12).contains(&refused), "{refused}");
    until(|| held(&house) == 0).await;
}

/// Waits until everything given to a stream is sent, or never will be.
async fn until_capacity(stream: &mut h2::SendStream<Bytes>) {
    while let Some(Ok(0)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {}
}
