//! The channel to one other replica: one connection, HTTP/2 over TLS. It carries whole HTTP exchanges, many at a time.
//!
//! **Invariant:** a client that does not read stops its own stream and no other: a stream holds little, and the connection
//! holds all that its streams may.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ALPN, HELLO, Sending};
use crate::boot::Boot;

/// How long a connection may take to be there.
const CONNECT: Duration = Duration::from_millis(300);
/// How long a replica may take to prove its key and to say who it is.
const GREETING: Duration = Duration::from_secs(1);
/// How often a silent channel is pinged, and how long the answer may take: a pause of a second, as by a CPU limit, ends nothing.
const PING: Duration = Duration::from_secs(1);
const PONG: Duration = Duration::from_secs(3);
/// How many unread bytes one stream may hold. Those of the connection are as many as all streams together may have.
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;
pub(crate) const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// How many bytes may wait in one stream to be sent.
const SEND_BUFFER: usize = 64 * 1024;
/// The most bytes of what a replica says of itself.
const LONGEST: usize = 4096;

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    #[serde(with = "text")]
    pub(crate) boot: Boot,
    pub(crate) version: String,
    /// A digest of its servers and rules.
    pub(crate) config: String,
    /// How it wants to be reached, if its config says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
}

/// The channel to one replica. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    sender: SendRequest<Sending>,
    hello: Arc<Hello>,
    leaves: Arc<AtomicBool>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFailed {
    /// The request never left.
    Unsent,
    /// It may have arrived.
    Lost,
}

/// Runs the tasks of a connection, and none longer than the channels are kept.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }
}

impl Link {
    /// Opens the channel to the replica at an address. The future beside it drives the channel, and ends with it.
    ///
    /// # Errors
    /// With one sentence that says why there is none.
    pub(super) async fn open(
        address: SocketAddr,
        connector: &TlsConnector,
        tasks: &Tasks,
    ) -> Result<(Self, BoxFuture<'static, ()>), String> {
        let stream = match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(format!("it cannot be reached: {error}")),
            Err(_) => return Err(format!("it cannot be reached: no answer within {CONNECT:?}")),
        };
        // Without this option, small requests would wait until earlier ones are acknowledged.
        let _ = stream.set_nodelay(true);
        let greeting = timeout(GREETING, Self::greet(stream, connector, tasks)).await;
        greeting.unwrap_or_else(|_| Err(format!("it did not say who it is within {GREETING:?}")))
    }

    async fn greet(
        stream: TcpStream,
        connector: &TlsConnector,
        tasks: &Tasks,
    ) -> Result<(Self, BoxFuture<'static, ()>), String> {
        // The key is what is checked; the name means nothing.
        let name = ServerName::try_from("mcp-host-peer").map_err(|error| error.to_string())?;
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|error| format!("it proves no key of this cluster: {error}"))?;
        if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err("it is no peer channel of this version".to_owned());
        }
        let handshake = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true)
            .handshake::<_, Sending>(TokioIo::new(stream));
        let broken = |error: hyper::Error| format!("the channel broke: {error}");
        let (mut sender, connection) = handshake.await.map_err(broken)?;
        let mut driving: BoxFuture<'static, ()> = Box::pin(async move {
            // However it ends, there is no channel any more.
            let _ = connection.await;
        });
        let hello = tokio::select! {
            hello = ask(&mut sender) => hello?,
            () = &mut driving => return Err("the channel broke before it said who it is".to_owned()),
        };
        Ok((Self { sender, hello: Arc::new(hello), leaves: Arc::default() }, driving))
    }

    /// Returns the replica at the other end.
    pub(crate) fn boot(&self) -> Boot {
        self.hello.boot
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Reports whether the channel has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Records that the replica stops: it takes up no session any more.
    pub(crate) fn note_leaving(&self) {
        self.leaves.store(true, Ordering::Release);
    }

    /// Reports whether the replica stops.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// Sends a request, and returns the head of its answer, whose body follows as it comes.
    ///
    /// # Errors
    /// When there is no answer: says whether the request can have arrived.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub(crate) async fn send(&self, request: Request<Sending>) -> Result<Response<Incoming>, SendFailed> {
        let mut sender = self.sender.clone();
        if sender.ready().await.is_err() {
            return Err(SendFailed::Unsent);
        }
        sender.try_send_request(request).await.map_err(|mut failed| match failed.take_message() {
            Some(_) => SendFailed::Unsent,
            None if was_refused(failed.error()) => SendFailed::Unsent,
            None => SendFailed::Lost,
        })
    }
}

/// Reports whether the other end said that it did not take the request, as one that stops says of what comes too late.
fn was_refused(error: &hyper::Error) -> bool {
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_late = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (is_late || error.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}

/// Asks a replica who it is.
async fn ask(sender: &mut SendRequest<Sending>) -> Result<Hello, String> {
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let request = Request::get(format!("http://peer{HELLO}")).body(body).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| format!("the channel broke: {error}"))?;
    if response.status() != StatusCode::OK {
        return Err(format!("it does not say who it is (status {})", response.status().as_u16()));
    }
    let mut body = pin!(response.into_body());
    let mut text = Vec::new();
    while let Some(part) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let part = part.map_err(|error| format!("the channel broke: {error}"))?;
        text.extend_from_slice(&part.into_data().unwrap_or_default());
        if text.len() > LONGEST {
            return Err("it says too much of itself".to_owned());
        }
    }
    serde_json::from_slice(&text).map_err(|_| "it does not say who it is in a way that this version reads".to_owned())
}

/// Writes the name of a replica as text.
mod text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::boot::Boot;

    pub(super) fn serialize<S: Serializer>(boot: &Boot, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(boot)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Boot, D::Error> {
        let text = String::deserialize(from)?;
        Boot::parse(text.as_bytes()).ok_or_else(|| D::Error::custom("no name of a replica"))
    }
}
