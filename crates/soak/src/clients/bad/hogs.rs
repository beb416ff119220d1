//! Clients that take connections, sessions, and memory without using them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::Target;
use super::wire::{Wire, call, get, head, hello, post, within};

/// Time between a closed connection and the next one.
const AGAIN: Duration = Duration::from_millis(500);
/// The longest body (`host.limits.body`).
const BODY: usize = 4 << 20;

/// A head, one byte per second.
pub(super) fn slow_heads(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(100, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            drip(&mut wire, "POST /mcp HTTP/1.1\r\nX-Slow: ").await
        }
    })
}

/// A body, one byte per second.
pub(super) fn slow_bodies(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(100, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let head = head(&target, "POST /mcp", "Content-Length: 1000\r\n\r\n");
            drip(&mut wire, &head).await
        }
    })
}

/// Sends the beginning, then a byte per second until the host gives up.
async fn drip(wire: &mut Wire, begin: &str) -> io::Result<()> {
    wire.send(begin).await?;
    let mut bytes = [0; 512];
    loop {
        if timeout(Duration::from_secs(1), wire.0.read(&mut bytes)).await.is_ok() || wire.send(" ").await.is_err() {
            return Ok(());
        }
    }
}

/// A body of the largest size, but for its last byte.
pub(super) fn nearly_whole(target: &Target) -> LocalBoxFuture<'static, ()> {
    let (of, piece) = (target.clone(), Rc::new(" ".repeat(64 * 1024)));
    target.many(100, AGAIN, move |_| {
        let (target, piece) = (of.clone(), piece.clone());
        async move {
            let mut wire = Wire::open(&target).await?;
            wire.send(&head(&target, "POST /mcp", &format!("Content-Length: {BODY}\r\n\r\n"))).await?;
            let (mut read, mut write) = wire.0.split();
            let mut bytes = [0; 512];
            let send = async {
                let mut left = BODY - 1;
                while left > 0 {
                    let length = left.min(piece.len());
                    write.write_all(&piece.as_bytes()[..length]).await?;
                    left -= length;
                }
                std::future::pending::<io::Result<()>>().await
            };
            // The host says that it has no room, or that this took too long.
            tokio::select! {
                _ = read.read(&mut bytes) => Ok(()),
                _ = send => Ok(()),
            }
        }
    })
}

/// A chunked body that never ends.
pub(super) fn endless_chunks(target: &Target) -> LocalBoxFuture<'static, ()> {
    let (of, chunk) = (target.clone(), Rc::new(format!("4000\r\n{}\r\n", " ".repeat(0x4000))));
    target.many(16, AGAIN, move |_| {
        let (target, chunk) = (of.clone(), chunk.clone());
        async move {
            let mut wire = Wire::open(&target).await?;
            wire.send(&head(&target, "POST /mcp", "Transfer-Encoding: chunked\r\n\r\n")).await?;
            while wire.send(&chunk).await.is_ok() {}
            Ok(())
        }
    })
}

/// As many connections as allowed, without a token; one in four shows a sign of life now and then.
pub(super) fn idle(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(2048, Duration::from_secs(2), move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            if number % 4 != 0 {
                wire.closed().await;
                return Ok(());
            }
            let ask = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", target.place.address);
            while wire.ask(&ask).await.is_ok_and(|answer| answer.status == 200) {
                if timeout(Duration::from_secs(4), wire.closed()).await.is_ok() {
                    break;
                }
            }
            Ok(())
        }
    })
}

/// Posts of clients that shut their sending side at once, like `nc -N`; a complete request is still answered.
pub(super) fn half_closed(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(4, Duration::from_millis(20), move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let session = wire.session(&target, &json!({})).await?;
            // A session unused for two seconds may have made room for another one of the same principal.
            let used = wire.ask(&post(&target, &within(&session), &call(0, "work__echo"))).await?;
            if used.status != 200 {
                return wire.end(&target, &session).await;
            }
            let mut half = Wire::open(&target).await?;
            half.send(&post(&target, &within(&session), &call(1, "work__echo"))).await?;
            half.0.shutdown().await?;
            // A client that was refused, or got no session, was told so.
            let answered = half.answer(false).await;
            wire.end(&target, &session).await?;
            match answered {
                Ok(answer) if !matches!(answer.status, 200 | 503) => {
                    target.wrong(format!("a half-closed post was answered {}", answer.text));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    target.wrong("a half-closed post was not answered".to_owned());
                }
                _ => {}
            }
            Ok(())
        }
    })
}

/// A request, and the connection reset with it.
pub(super) fn resets(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.hoards();
    target.many(8, Duration::from_millis(5), move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let message = if number % 2 == 0 { hello(&json!({})) } else { call(1, "big__bulk") };
            wire.send(&post(&target, "", &message)).await?;
            rustix::net::sockopt::set_socket_linger(&wire.0, Some(Duration::ZERO))?;
            Ok(())
        }
    })
}

/// Thousands of sessions, each with an unread stream.
pub(super) fn streams(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.hoards();
    // A hundred and fifty attempts per second throughout: thousands even in the shortest run.
    target.many(600, Duration::from_secs(4), move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::narrow(&target).await?;
            let Ok(session) = wire.session(&target, &json!({})).await else { return Ok(()) };
            wire.send(&get(&target, &within(&session))).await?;
            sleep(Duration::from_secs(30)).await;
            Ok(())
        }
    })
}
