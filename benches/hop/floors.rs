//! The floors, which do the least that a hop can do: one forwards HTTP with the host's HTTP library and no logic; one
//! bridges HTTP to pipes and rewrites one JSON-RPC id per message.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, oneshot};

use crate::process::{Process, Role, accept, loopback};

/// Parses HTTP requests and passes them on, with one upstream connection per client connection.
pub(crate) async fn serve_http(port: u16, upstream: u16) -> io::Result<()> {
    accept(port, || {
        let sender: Rc<RefCell<Option<SendRequest<Incoming>>>> = Rc::default();
        move |request| {
            let sender = Rc::clone(&sender);
            async move {
                // Requests on one connection are sequential, so taking the sender out is no race.
                let taken = sender.borrow_mut().take();
                let mut open = match taken {
                    Some(open) => open,
                    None => connect(upstream).await?,
                };
                open.ready().await.map_err(io::Error::other)?;
                let response = open.send_request(request).await.map_err(io::Error::other)?;
                sender.borrow_mut().replace(open);
                Ok::<_, io::Error>(response)
            }
        }
    })
    .await
}

async fn connect(port: u16) -> io::Result<SendRequest<Incoming>> {
    let stream = TcpStream::connect(loopback(port)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // This task ends when the sender is dropped with the client's connection.
    tokio::task::spawn_local(async move { connection.await.ok() });
    Ok(sender)
}

/// Serves HTTP in front of one stdio server: splices the ids, and batches writes.
pub(crate) async fn serve_bridge(port: u16, tools: usize) -> io::Result<()> {
    let (_child, stdin, stdout) = Process::piped(Role::EchoStdio { tools }).map_err(io::Error::other)?;
    let bridge = Rc::new(Bridge::default());
    let door = accept(port, || {
        let bridge = Rc::clone(&bridge);
        move |request| {
            let bridge = Rc::clone(&bridge);
            async move { Ok::<_, Infallible>(bridge.respond(request).await) }
        }
    });
    tokio::select! {
        ended = door => ended,
        ended = bridge.write(stdin) => ended,
        ended = bridge.read(stdout) => ended,
    }
}

/// The requests in flight through one pair of pipes.
#[derive(Debug, Default)]
struct Bridge {
    next: Cell<u64>,
    /// Maps our id to the client's own id, and to the channel on which the client waits.
    pending: RefCell<HashMap<u64, (Bytes, oneshot::Sender<Bytes>)>>,
    out: RefCell<Vec<u8>>,
    written: Notify,
}

impl Bridge {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let plain = |status| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = status;
            response
        };
        if request.method() != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(body) = request.into_body().collect().await else { return plain(StatusCode::BAD_REQUEST) };
        let body = body.to_bytes();
        let Some(id) = id_of(&body) else {
            self.send(&[&body]);
            return plain(StatusCode::ACCEPTED);
        };
        let ours = self.next.get();
        self.next.set(ours + 1);
        let (sender, answer) = oneshot::channel();
        self.send(&[&body[..id.start], ours.to_string().as_bytes(), &body[id.end..]]);
        self.pending.borrow_mut().insert(ours, (body.slice(id), sender));
        let Ok(answer) = answer.await else { return plain(StatusCode::BAD_GATEWAY) };
        Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(answer))
            .expect("all headers are valid")
    }

    /// Appends one line; the writer takes everything gathered since its last write.
    fn send(&self, parts: &[&[u8]]) {
        let mut out = self.out.borrow_mut();
        for part in parts {
            out.extend_from_slice(part);
        }
        out.push(b'\n');
        self.written.notify_one();
    }

    async fn write(&self, mut stdin: ChildStdin) -> io::Result<()> {
        let mut batch = Vec::new();
        loop {
            self.written.notified().await;
            std::mem::swap(&mut batch, &mut *self.out.borrow_mut());
            stdin.write_all(&batch).await?;
            batch.clear();
        }
    }

    async fn read(&self, mut stdout: ChildStdout) -> io::Result<()> {
        let mut received = BytesMut::with_capacity(64 * 1024);
        let mut seen = 0;
        while stdout.read_buf(&mut received).await? > 0 {
            while let Some(at) = memchr::memchr(b'\n', &received[seen..]) {
                let end = seen + at;
                self.deliver(&received[..end]);
                // The line is not split off: a buffer in one piece is reused instead of reallocated.
                received.advance(end + 1);
                seen = 0;
            }
            seen = received.len();
            received.reserve(64 * 1024);
        }
        Ok(())
    }

    fn deliver(&self, line: &[u8]) {
        let Some(span) = id_of(line) else { return };
        let ours = std::str::from_utf8(&line[span.clone()]).ok().and_then(|id| id.parse::<u64>().ok());
        let Some((theirs, client)) = ours.and_then(|ours| self.pending.borrow_mut().remove(&ours)) else { return };
        let mut answer = Vec::with_capacity(line.len() + theirs.len());
        answer.extend_from_slice(&line[..span.start]);
        answer.extend_from_slice(&theirs);
        answer.extend_from_slice(&line[span.end..]);
        // The client may be gone.
        client.send(answer.into()).ok();
    }
}

/// Returns the range of the outermost `id`'s value, without looking at what follows it.
fn id_of(message: &[u8]) -> Option<Range<usize>> {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < message.len() {
        match message[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = string_end(message, at + 1)?;
                let key = &message[at + 1..end];
                at = end;
                if depth == 1 && key == b"id" && message.get(end + 1) == Some(&b':') {
                    let start = end + 2;
                    let length = match message.get(start)? {
                        b'"' => string_end(message, start + 1)? + 1 - start,
                        _ => message[start..].iter().position(|byte| matches!(byte, b',' | b'}' | b' '))?,
                    };
                    return Some(start..start + length);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position of the quote that ends the string whose content starts at `at`.
fn string_end(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', message.get(at..)?)?;
        if message[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}
