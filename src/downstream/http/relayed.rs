//! The peer channel: serves the requests that other replicas hand over.
//!
//! In: connections at `host.cluster.listen`. Out: what the handlers of the door answer. **Invariants:** only who proves a key of
//! the cluster is heard. A request is served for whom its proof names, if the rules of this replica know that principal, and
//! only if it is for this life of the process; everything else gets 421 and has no effect.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::join;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::answer::{self, Body, Refusal, Response};
use super::cluster::{self, BOOT, Channel, LOST, PROOF};
use super::connection::Streams;
use super::halved::Arriving;
use super::routes::Endpoint;
use super::rules::Now;
use super::threads::Threads;
use super::wires::{HttpWire, Listed, Serving};
use super::{Asker, Door, LAST_WORDS, SESSION, body, chosen, post, routes, sse};
use crate::boot::Boot;
use crate::downstream::authentication::{Carried, Proven};
use crate::peers::{ALPN, CONNECTION_WINDOW, HELLO, Peers, STREAM_WINDOW};

/// How long a peer may take to prove its key.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// How many peers may be about to prove their keys.
const ARRIVING: usize = 64;
/// How long the listener pauses after it failed to accept.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a silent channel is pinged, and how long the answer may take.
const PING: Duration = Duration::from_secs(5);
const PONG: Duration = Duration::from_secs(5);
/// How many bytes may wait in one stream for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// How much larger the head of a request may be than that of a client: it has the claims of a token besides.
const HEADS: usize = 3;

/// Serves the peer channel, and keeps channels to the other replicas, until `kill`.
pub(super) async fn serve(door: &Arc<Door>, channel: Channel, threads: &Threads, kill: &CancellationToken) {
    let connections = TaskTracker::new();
    let Channel { peers, listener } = channel;
    let arriving = Arc::new(Semaphore::new(ARRIVING));
    let accept = async {
        loop {
            let stream = match kill.run_until_cancelled(listener.accept()).await {
                None => return,
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection of a replica");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // Peers come again; whoever else comes at this rate is none.
            let Ok(place) = Arc::clone(&arriving).try_acquire_owned() else { continue };
            let (door, peers, kill) = (Arc::clone(door), Arc::clone(&peers), kill.clone());
            let serve = |stream| async move {
                one(door, peers, stream, (place, kill)).await;
            };
            if let Err(error) = threads.serve(&connections, stream, serve) {
                tracing::warn!(%error, "cannot serve a replica");
            }
        }
    };
    join(accept, Arc::clone(&peers).follow(kill)).await;
    connections.close();
    connections.wait().await;
}

/// Serves one connection, once its peer has proven a key.
async fn one(
    door: Arc<Door>,
    peers: Arc<Peers>,
    stream: TcpStream,
    (place, kill): (OwnedSemaphorePermit, CancellationToken),
) {
    // Without this option, small answers would wait until the peer acknowledges earlier ones.
    let _ = stream.set_nodelay(true);
    let accepted = timeout(HANDSHAKE, peers.acceptor().accept(stream));
    let Some(accepted) = kill.run_until_cancelled(accepted).await else { return };
    let stream = match accepted {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN) => stream,
        Ok(Ok(_)) => return tracing::warn!("a connection to the peer channel is of no replica of this version"),
        Ok(Err(error)) => {
            return tracing::warn!(%error, "a connection to the peer channel proves no key of this cluster");
        }
        Err(_) => return,
    };
    drop(place);
    let streams = Streams::new(door.streams.clone());
    let _over = streams.over();
    let limits = door.router.limits();
    let header_bytes = u32::try_from(limits.header_bytes.saturating_mul(HEADS)).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        // Each connection of a client of the other replica may have one stream here, and its stream for news another.
        .max_concurrent_streams(u32::try_from(limits.connections.saturating_mul(2)).unwrap_or(u32::MAX).max(1024))
        .max_header_list_size(header_bytes)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    let service = hyper::service::service_fn(move |request| {
        let (door, peers) = (Arc::clone(&door), Arc::clone(&peers));
        async move { Box::pin(answer_to(&door, &peers, request)).await }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(stream)), service));
    // However it ends, the peer connects again.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = kill.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // The peer is told which requests came too late: it hands them to others.
    let _ = timeout(LAST_WORDS, connection).await;
}

/// Answers one request of another replica. An error resets its stream.
async fn answer_to(
    door: &Arc<Door>,
    peers: &Peers,
    request: http::Request<Incoming>,
) -> io::Result<http::Response<Relayed>> {
    let Some(named) = request.headers().get(BOOT) else {
        return Ok(plain(hello(peers, &request)));
    };
    let is_own = Boot::parse(named.as_bytes()) == Some(peers.boot());
    if !is_own || (door.stopping.is_cancelled() && !is_needed(door, &request)) {
        return Ok(plain(answer::bare(StatusCode::MISDIRECTED_REQUEST)));
    }
    let rules = door.rules();
    let proof = request.headers().get(PROOF).and_then(|proof| BASE64_URL_SAFE_NO_PAD.decode(proof.as_bytes()).ok());
    let carried = proof.and_then(|proof| serde_json::from_slice::<Carried>(&proof).ok());
    let Some(proven) = carried.and_then(|carried| carried.proven(&rules.authentication)) else {
        let reason = "the replica that handed the request over proved a client that is not known here";
        return Ok(plain(Refusal::new(StatusCode::UNAUTHORIZED, reason).into_response()));
    };
    let (wire, listed) = door.wires.open();
    wire.carries(&proven.principal);
    wire.proves();
    let serving = wire.serve(false);
    let token = door.relayed.token();
    let request = request.map(|body| Arriving::new(body, wire.clone(), false));
    let ended = wire.clone();
    let answer = tokio::select! {
        answer = served(door, &wire, &rules, proven, request) => answer,
        () = ended.ended() => return Err(broken()),
    };
    let ended = wire.end_token().clone().cancelled_owned();
    let held = Box::new((serving, listed, token));
    Ok(answer.map(|body| Relayed { body, ended: Some(Box::pin(ended)), _held: Some(held) }))
}

/// Serves a request by the handlers of the door.
async fn served(door: &Arc<Door>, wire: &HttpWire, rules: &Now, proven: Proven, request: body::Request) -> Response {
    let (route, view) = Endpoint::of(request.uri().path());
    let served = match (route, &door.sse) {
        (Some(Endpoint::Mcp), _) => match chosen::choose(rules, view, request.headers(), &proven) {
            Ok(identity) => {
                let asker = Asker { proven, identity };
                if request.headers().contains_key(LOST) {
                    lost(door, &asker, request).await
                } else if request.method() == Method::POST {
                    Box::pin(post::post(door, wire, &asker, request)).await
                } else {
                    Box::pin(routes::mcp(door, wire, &asker, request)).await
                }
            }
            Err(refused) => Err(refused),
        },
        (Some(Endpoint::Messages), Some(table)) if request.method() == Method::POST => {
            Box::pin(sse::post(door, table, &proven, request)).await
        }
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "replicas hand over requests of sessions alone")),
    };
    served.unwrap_or_else(Refusal::into_response)
}

/// Answers a call that an earlier replica may have begun, and that is not made again.
async fn lost(door: &Arc<Door>, asker: &Asker, request: body::Request) -> Result<Response, Refusal> {
    let (head, arriving) = request.into_parts();
    let bytes = body::read(arriving, door.router.limits().body, &asker.proven.principal, &door.bodies).await?;
    cluster::lost(door, &asker.identity, &head.headers, &bytes).await
}

/// Reports whether a request is for a session that is at work here. While this replica stops, the others take up all
/// other sessions.
fn is_needed(door: &Door, request: &http::Request<Incoming>) -> bool {
    let id = request.headers().get(SESSION);
    id.is_none_or(|id| door.sessions.is_busy(door.sessions.digest(id.as_bytes())))
}

/// Says who this replica is.
fn hello(peers: &Peers, request: &http::Request<Incoming>) -> Response {
    if request.uri().path() != HELLO || request.method() != Method::GET {
        return answer::bare(StatusCode::MISDIRECTED_REQUEST);
    }
    answer::text([(CONTENT_TYPE, "application/json")], serde_json::to_vec(peers.hello()).unwrap_or_default())
}

/// The body of an answer to another replica. It breaks off if the connection of the client would.
struct Relayed {
    body: Body,
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// As long as they exist, the request counts as being served.
    _held: Option<Box<(Serving, Listed, TaskTrackerToken)>>,
}

/// Returns an answer that serves no client.
fn plain(answer: Response) -> http::Response<Relayed> {
    answer.map(|body| Relayed { body, ended: None, _held: None })
}

fn broken() -> io::Error {
    io::Error::other("the client does not read, or may not go on")
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ended.as_mut().is_some_and(|ended| ended.as_mut().poll(cx).is_ready()) {
            self.ended = None;
            return Poll::Ready(Some(Err(broken())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map(|part| part.map(|part| part.map_err(|never| match never {})))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
