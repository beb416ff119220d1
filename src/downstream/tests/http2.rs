//! HTTP/2: everything that works over HTTP/1.1, and protection against floods.

use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::*;
use super::two::*;
use crate::downstream::http::STREAMS;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_session_lives_over_http2() {
    let house = house().await;
    let two = Two::client(&house).await;
    let answer: Value = serde_json::from_str(&two.post(&call(7, "echo"), &[]).await.body).unwrap();
    assert_eq!(text(&answer), r#"{"id":7}"#);
    // The form of the response is decided late here, too.
    let answer = two.post(&call(8, "quick"), &[]).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    assert!(answer.body.contains(r#""progressToken":8"#) && answer.body.contains(r#""id":8"#), "{}", answer.body);
    // The session is the same over the other protocol.
    let mut peer = house.connect().await;
    peer.session.clone_from(&two.session);
    assert_eq!(text(&peer.ask(&call(9, "echo")).await), r#"{"id":9}"#);
    let large: Value = serde_json::from_str(&two.post(&call(10, "big"), &[]).await.body).unwrap();
    assert_eq!(text(&large).len(), 1 << 20);
    let mut delete = two.request("DELETE", "/mcp");
    delete.headers_mut().insert("mcp-session-id", two.session.clone().unwrap().parse().unwrap());
    assert_eq!(two.ask(delete, "").await.status, 204);
    assert_eq!(two.post(&call(11, "echo"), &[]).await.status, 404);
}

#[tokio::test]
async fn a_reset_or_a_lost_connection_cancels_what_has_no_session() {
    let house = house().await;
    let running = || house.stage.running();
    let two = Two::connect(&house).await;
    for tool in ["slow", "progress"] {
        // While the response has not started, and while its stream is open.
        let answer = two.tell_modern(&modern_call(1, tool)).await;
        timeout(SOON, until(|| running() == 1)).await.unwrap();
        if tool == "progress" {
            let (_, mut stream) = answer.await.unwrap().into_parts();
            assert!(stream.data().await.is_some());
            drop(stream);
        } else {
            drop(answer);
        }
        timeout(SOON, until(|| running() == 0)).await.unwrap();
    }
    let other = two.tell_modern(&modern_call(2, "slow")).await;
    timeout(SOON, until(|| running() == 1)).await.unwrap();
    two.connection.abort();
    drop((two, other));
    timeout(SOON, until(|| running() == 0)).await.unwrap();
}

#[tokio::test]
async fn a_reset_cancels_no_call_of_a_session() {
    let house = house().await;
    let two = Two::client(&house).await;
    for round in 0..2 {
        let request = two.posting(&[]);
        let answer = two.tell(request, &call(round, "slow")).await;
        timeout(SOON, until(|| house.stage.running() == 1)).await.unwrap();
        drop(answer);
        if round == 1 {
            two.connection.abort();
        } else {
            // This answer shows that the reset has been read.
            assert_eq!(two.post(&call(5, "echo"), &[]).await.status, 200);
        }
        let mut peer = house.connect().await;
        peer.session.clone_from(&two.session);
        assert_eq!(text(&peer.ask(&call(9, "echo")).await), r#"{"id":9}"#);
        assert_eq!(house.stage.running(), 1, "it goes on");
        house.stage.release();
        timeout(SOON, until(|| house.stage.running() == 0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_answers_what_runs_and_closes_what_is_idle() {
    let house = house().await;
    let two = Two::client(&house).await;
    let unused = Two::connect(&house).await;
    let request = two.posting(&[]);
    let answer = two.tell(request, &call(1, "slow")).await;
    timeout(SOON, until(|| house.stage.running() == 1)).await.unwrap();
    house.stop.cancel();
    let _ = timeout(SOON, unused.connection).await.unwrap();
    house.stage.release();
    let answer = timeout(SOON, Answer::of(answer)).await.unwrap();
    assert_eq!(answer.status, 200);
    drop(two.send);
    timeout(SOON, house.served).await.unwrap().unwrap().unwrap();
    let _ = timeout(SOON, two.connection).await.unwrap();
}

#[tokio::test]
async fn h81_streams_at_once_have_a_cap() {
    let house = house_of(stage_with(|limits| limits.pending_per_server = 4096).await).await;
    let two = Two::client(&house).await;
    let most = usize::try_from(STREAMS).unwrap();
    assert_eq!(two.send.current_max_send_streams(), most, "it is told");
    let mut answers = Vec::new();
    for id in 0..STREAMS {
        let request = two.posting(&[]);
        answers.push(two.tell(request, &call(id.into(), "slow")).await);
    }
    timeout(SOON, until(|| house.stage.running() == most)).await.unwrap();
    // One more stream waits at a client that respects the limit, and is refused to one that does not.
    let request = two.posting(&[]);
    let mut one_more = two.tell(request, &call(999, "echo")).await;
    assert!(timeout(Duration::from_millis(200), &mut one_more).await.is_err(), "one more had its turn");
    let other = Two::connect(&house).await;
    assert_eq!(other.ask(other.request("GET", "/healthz"), "").await.status, 200);
    drop(answers);
    assert_eq!(timeout(SOON, Answer::of(one_more)).await.unwrap().status, 200);
}

/// Opens streams beyond the limit: they are refused one by one, then the connection is closed.
#[tokio::test]
async fn h81_streams_beyond_the_cap_are_refused() {
    let house = house().await;
    let mut frames = Frames::connect(&house).await;
    // Unfinished bodies keep streams open.
    let block = Frames::block(&house).into_iter().collect::<Vec<u8>>();
    let block =
        String::from_utf8(block).unwrap().replace("\u{3}GET", "\u{4}POST").replace("\u{8}/healthz", "\u{4}/mcp");
    let more = "\0\u{c}content-type\u{10}application/json";
    let block = format!("{block}{more}").into_bytes();
    let opened = async {
        for index in 0..=STREAMS {
            frames.put(HEADERS, END_HEADERS, index * 2 + 1, &block).await.unwrap();
        }
        loop {
            match frames.take().await {
                Some((RESET, stream, code)) => return (stream, code),
                Some(_) => {}
                None => panic!("it closed"),
            }
        }
    };
    let refused = timeout(SOON, opened).await.unwrap();
    assert_eq!(refused, (STREAMS * 2 + 1, 7_u32.to_be_bytes().to_vec()), "REFUSED_STREAM");
}

/// Sends until the door closes the connection; returns how often, and the code of its GOAWAY.
async fn flood(frames: &mut Frames, mut next: impl FnMut(u32) -> Vec<(u8, u8, u32, Vec<u8>)>) -> (u32, Option<u8>) {
    let mut rounds = 0;
    let mut last = None;
    'sending: for round in 0..20_000 {
        rounds = round;
        for (kind, flags, stream, payload) in next(round) {
            if frames.put(kind, flags, stream, &payload).await.is_err() {
                break 'sending;
            }
        }
        // Let the door run.
        tokio::task::yield_now().await;
    }
    while let Some((kind, _, payload)) = frames.take().await {
        if kind == GOAWAY {
            last = payload.get(7).copied();
        }
    }
    (rounds, last)
}

#[tokio::test]
async fn h81_a_rapid_reset_ends_its_connection_alone() {
    let house = house().await;
    let other = Two::client(&house).await;
    let mut frames = Frames::connect(&house).await;
    let block = Frames::block(&house);
    let cancel = 8_u32.to_be_bytes().to_vec();
    let sending = flood(&mut frames, |round| {
        let stream = round * 2 + 1;
        vec![(HEADERS, END_HEADERS | END_STREAM, stream, block.clone()), (RESET, 0, stream, cancel.clone())]
    });
    let (rounds, last) = timeout(SOON, sending).await.unwrap();
    assert!(rounds < 19_999, "it was let go on");
    assert!(last.is_none_or(|code| code == 11), "ENHANCE_YOUR_CALM, where it still could be heard: {last:?}");
    assert_eq!(other.post(&call(1, "echo"), &[]).await.status, 200);
}

#[tokio::test]
async fn h81_endless_headers_end_their_connection_alone() {
    let house = house().await;
    let other = Two::client(&house).await;
    let mut frames = Frames::connect(&house).await;
    let block = Frames::block(&house);
    // One header of 4 KiB per frame, and never the last frame.
    let mut piece = vec![0, 1, b'a', 0x7f, 0x81, 0x1f];
    piece.extend(vec![b'x'; 4096]);
    let sending = flood(&mut frames, |round| match round {
        0 => vec![(HEADERS, END_STREAM, 1, block.clone())],
        _ => vec![(CONTINUATION, 0, 1, piece.clone())],
    });
    let (rounds, _) = timeout(SOON, sending).await.unwrap();
    assert!(rounds < 5_000, "{rounds} frames were taken");
    assert_eq!(other.post(&call(1, "echo"), &[]).await.status, 200);
}

#[tokio::test]
async fn what_is_nearly_http2_is_http1() {
    let house = house().await;
    let mut peer = house.connect().await;
    assert_eq!(peer.send("PROPFIND /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n").await.status, 405);
    // A preface in pieces.
    let stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.writable().await.unwrap();
    assert_eq!(stream.try_write(b"P").unwrap(), 1);
    tokio::task::yield_now().await;
    struct Rest(TcpStream, usize);
    impl tokio::io::AsyncRead for Rest {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }
    impl tokio::io::AsyncWrite for Rest {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let skipped = std::mem::take(&mut self.1);
            let written = std::pin::Pin::new(&mut self.0).poll_write(cx, &bytes[skipped..]);
            written.map(|written| written.map(|length| length + skipped))
        }
        fn poll_flush(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.0).poll_flush(cx)
        }
        fn poll_shutdown(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
    let two = Two::over(Rest(stream, 1), house.port).await;
    assert_eq!(two.ask(two.request("GET", "/healthz"), "").await.body, "ok\n");
}
