//! One connection, from its first byte to its end: with or without TLS, HTTP/1.1 or HTTP/2.
//!
//! The first three bytes of a connection without TLS show which HTTP version it speaks. They are only peeked at and
//! stay in the socket, so that HTTP/1.1 runs directly on the socket, with its requests in the connection's own task.
//! Over HTTP/2 each request has its own task, because frames of different requests interleave; that task ends with its
//! connection.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::console::Ends;
use super::halved::Halved;
use super::rarely::Rarely;
use super::routes::Service;
use super::wires::{BUFFER, HttpWire, Listed};
use super::{Door, tls};
use crate::downstream::peer::Peer;

/// How long a new connection may take until the head of its first request has arrived, TLS handshake included.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// How long the head (request line and headers) of a request may take.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// The number of headers that hyper parses without an extra allocation.
const USUAL_HEADERS: usize = 100;

/// HTTP/2: the most concurrent streams of one connection.
pub(in crate::downstream) const STREAMS: u32 = 256;
/// HTTP/2: how many streams may wait that the client reset before we accepted them (rapid reset). More of them end the
/// connection.
const RESETS_TAKEN: usize = 20;
/// HTTP/2: how many streams we may have to reset because of client errors. More of them end the connection.
const RESETS_MADE: usize = 256;
/// HTTP/2: how many unread bytes a client may send, per stream and per connection: as many as HTTP/1.1 reads ahead.
const WINDOW: u32 = 128 * 1024;
/// HTTP/2: how many bytes may wait in one stream for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// HTTP/2: how often to ping an idle connection, and how long its answer may take. A client that sends endless headers
/// cannot answer, so these are the deadline for headers, too.
const PING: Duration = Duration::from_secs(5);
const PONG: Duration = Duration::from_secs(5);

/// The first bytes of an HTTP/2 connection; no HTTP/1.1 request starts with them (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI";
/// How often to check for more of the preface, which nearly always arrives at once.
const LOOK: Duration = Duration::from_millis(20);

/// A connection before its first request.
struct Opened {
    ends: Ends,
    /// The time by which the first request must have arrived.
    deadline: Instant,
    /// Its token is canceled when the client does not read, and when the connection gives way to another.
    wire: HttpWire,
    kill: CancellationToken,
}

/// A stream behind a pointer: TLS and HTTP/2 are compiled once for all of them.
type AnyStream = Box<dyn Stream>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<I: AsyncRead + AsyncWrite + Unpin + Send> Stream for I {}

/// Serves until the client disconnects, until the door closes and running requests finish, or until `kill`.
pub(super) async fn serve(
    door: Arc<Door>,
    stream: TcpStream,
    wire: HttpWire,
    // The connection is listed before the access rules are read: if the rules change, listed connections are judged
    // again.
    _listed: Listed,
    kill: CancellationToken,
) {
    // Without this option, small answers would wait until the client acknowledges earlier ones.
    let _ = stream.set_nodelay(true);
    let rules = door.rules();
    let is_loopback = is_loopback(&stream);
    // On loopback, the page is for this user alone, whatever proves clients.
    let peer = if rules.authentication.wants_peer() || is_loopback { Peer::of(&stream) } else { Peer::Local };
    let opened = Opened { ends: Ends { peer, is_loopback }, deadline: Instant::now() + FIRST_REQUEST, wire, kill };
    if let Some(acceptor) = rules.tls.clone() {
        // The future of a TLS connection is large, and the many plain connections shall not pay for it.
        return Box::pin(secure(door, acceptor, stream, opened)).await;
    }
    match begun(&door, &opened, begins_h2(&stream)).await {
        Some(Ok(false)) => one(door, stream, opened).await,
        Some(Ok(true)) => Box::pin(two(door, Box::new(stream), opened)).await,
        _ => {}
    }
}

/// Reports whether both ends of a connection are on loopback.
fn is_loopback(stream: &TcpStream) -> bool {
    let is = |address: io::Result<SocketAddr>| address.is_ok_and(|address| address.ip().to_canonical().is_loopback());
    is(stream.local_addr()) && is(stream.peer_addr())
}

/// Serves HTTP/1.1 on a stream other than a socket.
#[cfg(feature = "fuzzing")]
pub(super) async fn bare(door: Arc<Door>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let deadline = Instant::now() + FIRST_REQUEST;
    let (wire, _listed) = door.wires.open();
    let ends = Ends { peer: Peer::Local, is_loopback: true };
    let opened = Opened { ends, deadline, wire, kill: CancellationToken::new() };
    one(door, io, opened).await;
}

async fn secure(door: Arc<Door>, acceptor: TlsAcceptor, stream: TcpStream, opened: Opened) {
    let Some(Ok(stream)) = begun(&door, &opened, acceptor.accept(stream)).await else { return };
    let is_two = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
    let stream: AnyStream = Box::new(stream);
    if is_two {
        two(door, stream, opened).await;
    } else {
        one(door, stream, opened).await;
    }
}

/// Runs the steps before the first request; `None` if they time out, or the connection or the door ends first.
async fn begun<T>(door: &Door, opened: &Opened, begin: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        begun = timeout_at(opened.deadline, begin) => begun.ok(),
        () = door.stopping.cancelled() => None,
        () = opened.wire.ended() => None,
    }
}

/// Reports whether the first bytes are those of HTTP/2, and leaves them in the socket.
async fn begins_h2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut first).await?;
        let seen = first.get(..length).unwrap_or_default();
        if seen.is_empty() || !PREFACE.starts_with(seen) {
            return Ok(false);
        }
        if seen.len() == PREFACE.len() {
            return Ok(true);
        }
        // The peeked bytes keep the socket readable, so readiness does not tell whether more follows.
        if stream.ready(Interest::READABLE).await?.is_read_closed() {
            return Ok(false);
        }
        sleep(LOOK).await;
    }
}

async fn one<I: AsyncRead + AsyncWrite + Unpin>(door: Arc<Door>, io: I, opened: Opened) {
    let limits = door.router.limits();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_header_size(limits.header_bytes)
        .max_buf_size(BUFFER.max(limits.header_bytes));
    if limits.headers > USUAL_HEADERS {
        builder.max_headers(limits.headers);
    }
    let used = Arc::new(AtomicBool::new(false));
    let service = Service::new(Arc::clone(&door), opened.ends, opened.wire.clone(), Arc::clone(&used));
    let io = TokioIo::new(Halved::new(io, opened.wire.clone()));
    let connection = builder.serve_connection(io, service);
    run(&door, connection, http1::Connection::graceful_shutdown, &used, &opened).await;
}

async fn two(door: Arc<Door>, io: AnyStream, opened: Opened) {
    let streams = Streams::new(door.streams.clone());
    let _over = streams.over();
    // hyper refuses a header list of exactly the given size.
    let header_bytes = u32::try_from(door.router.limits().header_bytes).unwrap_or(u32::MAX).saturating_add(1);
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS_TAKEN)
        .max_local_error_reset_streams(RESETS_MADE)
        .max_header_list_size(header_bytes)
        .max_send_buf_size(SEND_BUFFER)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    let used = Arc::new(AtomicBool::new(false));
    let service = Service::new(Arc::clone(&door), opened.ends, opened.wire.clone(), Arc::clone(&used));
    let io = TokioIo::new(Halved::new(io, opened.wire.clone()));
    let connection = builder.serve_connection(io, service);
    run(&door, connection, http2::Connection::graceful_shutdown, &used, &opened).await;
}

/// Drives a connection; `end` begins its graceful shutdown. Errors are ignored: the client disconnected, or does not
/// speak HTTP.
async fn run<C: Future>(door: &Door, connection: C, end: fn(Pin<&mut C>), used: &AtomicBool, opened: &Opened) {
    let mut connection = pin!(connection);
    let is_used = || used.load(Ordering::Relaxed);
    let idle = async {
        sleep_until(opened.deadline).await;
        if is_used() {
            std::future::pending::<()>().await;
        }
    };
    let stopping = pin!(async {
        tokio::select! {
            () = opened.wire.ended() => false,
            () = door.stopping.cancelled() => true,
            // No request head has arrived in time.
            () = idle => false,
        }
    });
    let goes_on = tokio::select! {
        _ = connection.as_mut() => false,
        stopping = Rarely::new(stopping) => stopping,
    };
    if goes_on && is_used() {
        end(connection.as_mut());
        tokio::select! {
            _ = connection => {}
            () = opened.wire.ended() => {}
            () = opened.kill.cancelled() => {}
        }
    }
}

/// Runs each request of one HTTP/2 connection in its own task, and none longer than the connection.
#[derive(Clone)]
pub(super) struct Streams {
    tasks: TaskTracker,
    over: CancellationToken,
}

impl Streams {
    /// Runs them among these tasks.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { tasks, over: CancellationToken::new() }
    }

    /// Ends them once the result is dropped.
    pub(super) fn over(&self) -> DropGuard {
        self.over.clone().drop_guard()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let over = self.over.clone();
        self.tasks.spawn(async move {
            over.run_until_cancelled(stream).await;
        });
    }
}
