//! One connection, from its first byte to its end: TLS or not, HTTP/1.1 or HTTP/2.
//!
//! A plain connection shows which HTTP it speaks in its first three bytes. They are peeked at, so that HTTP/1.1 runs on
//! the bare socket and its requests in the connection's own task. Over HTTP/2 each request has a task, because its
//! frames come between those of others; the task ends with its connection.

use std::io;
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
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::halved::Halved;
use super::routes::Service;
use super::wires::{BUFFER, Listed, Wire};
use super::{Door, tls};
use crate::downstream::peer::Peer;

/// How long a client may take to its first request, TLS included.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// How long the head of a later one may take.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// As many headers as hyper takes without an allocation of their own.
const USUAL_HEADERS: usize = 100;

/// What HTTP/2 allows one connection: streams at once.
pub(in crate::downstream) const STREAMS: u32 = 256;
/// Streams that were reset before they were looked at (rapid reset), and streams that we had to reset: more end the
/// connection.
const RESETS_TAKEN: usize = 20;
const RESETS_MADE: usize = 256;
/// What a client may send that was not taken yet, on one stream and on all of them: as much as is read ahead over HTTP/1.1.
const WINDOW: u32 = 128 * 1024;
/// What waits in one stream for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// How often a quiet connection is asked whether it lives, and how long it may take to say so. A client in the middle of
/// endless headers may say nothing else, so this is the deadline of headers, too.
const PING: Duration = Duration::from_secs(5);
const PONG: Duration = Duration::from_secs(5);

/// How a connection over HTTP/2 begins, and no request over HTTP/1.1 does (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI";
/// How often it is looked whether there is more of it; nearly always all is there at once.
const LOOK: Duration = Duration::from_millis(20);

/// A connection at its begin.
struct Opened {
    peer: Peer,
    /// When the first request has to be here.
    deadline: Instant,
    /// Cancelled when a client does not take what is there for it, and when it gives way to another.
    wire: Wire,
    kill: CancellationToken,
}

/// Serves until the client goes, or the door closes and what runs is over, or `kill`.
pub(super) async fn serve(
    door: Arc<Door>,
    stream: TcpStream,
    // Since before the rules are looked at: when others come, those that are listed are judged by them.
    (wire, _listed): (Wire, Listed),
    kill: CancellationToken,
) {
    // Small answers must not wait for the acknowledgement of the ones before.
    let _ = stream.set_nodelay(true);
    let rules = door.rules();
    let peer = if rules.authentication.wants_peer() { Peer::of(&stream) } else { Peer::Local };
    let opened = Opened { peer, deadline: Instant::now() + FIRST_REQUEST, wire, kill };
    if let Some(acceptor) = rules.tls.clone() {
        // It is large, and plain connections are many.
        return Box::pin(secure(door, acceptor, stream, opened)).await;
    }
    match begun(&door, &opened, begins_h2(&stream)).await {
        Some(Ok(false)) => one(door, stream, opened).await,
        Some(Ok(true)) => Box::pin(two(door, stream, opened)).await,
        _ => {}
    }
}

/// Serves HTTP/1.1 on what is no socket.
#[cfg(feature = "fuzzing")]
pub(super) async fn bare(door: Arc<Door>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let deadline = Instant::now() + FIRST_REQUEST;
    let (wire, _listed) = door.wires.open();
    let opened = Opened { peer: Peer::Local, deadline, wire, kill: CancellationToken::new() };
    one(door, io, opened).await;
}

async fn secure(door: Arc<Door>, acceptor: TlsAcceptor, stream: TcpStream, opened: Opened) {
    let Some(Ok(stream)) = begun(&door, &opened, acceptor.accept(stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
        two(door, stream, opened).await;
    } else {
        one(door, stream, opened).await;
    }
}

/// What comes before the first request, unless that is late, or it is over before.
async fn begun<T>(door: &Door, opened: &Opened, begin: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        begun = timeout_at(opened.deadline, begin) => begun.ok(),
        () = door.stopping.cancelled() => None,
        () = opened.wire.ended() => None,
    }
}

/// Looks at the first bytes, and leaves them where they are.
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
        // What was said stays there to be seen again, whether more follows or not.
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
    let service = Service::new(Arc::clone(&door), opened.peer, opened.wire.clone(), Arc::clone(&used));
    let io = TokioIo::new(Halved::new(io, opened.wire.clone()));
    let connection = builder.serve_connection(io, service);
    run(&door, connection, http1::Connection::graceful_shutdown, &used, &opened).await;
}

async fn two<I: AsyncRead + AsyncWrite + Unpin>(door: Arc<Door>, io: I, opened: Opened) {
    let streams = Streams { tasks: door.streams.clone(), over: CancellationToken::new() };
    let _over = streams.over.clone().drop_guard();
    // The size that is named is itself one too many.
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
    let service = Service::new(Arc::clone(&door), opened.peer, opened.wire.clone(), Arc::clone(&used));
    let io = TokioIo::new(Halved::new(io, opened.wire.clone()));
    let connection = builder.serve_connection(io, service);
    run(&door, connection, http2::Connection::graceful_shutdown, &used, &opened).await;
}

/// Drives a connection. Errors are the client's: it went away, or what it sent is no HTTP.
async fn run<C: Future>(door: &Door, connection: C, end: fn(Pin<&mut C>), used: &AtomicBool, opened: &Opened) {
    let mut connection = pin!(connection);
    let is_used = || used.load(Ordering::Relaxed);
    let idle = async {
        sleep_until(opened.deadline).await;
        if is_used() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = opened.wire.ended() => return,
        () = door.stopping.cancelled() => {}
        // Who has said nothing whole by then has no place here.
        () = idle => return,
    }
    if is_used() {
        end(connection.as_mut());
        tokio::select! {
            _ = connection => {}
            () = opened.wire.ended() => {}
            () = opened.kill.cancelled() => {}
        }
    }
}

/// Runs the requests of one connection, each in a task of its own, and none of them longer than the connection.
#[derive(Clone)]
struct Streams {
    tasks: TaskTracker,
    over: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let over = self.over.clone();
        self.tasks.spawn(async move {
            over.run_until_cancelled(stream).await;
        });
    }
}
