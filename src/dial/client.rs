//! The HTTP client of the servers in the config: sends one request, and returns the response to be read in pieces.
//!
//! A server without TLS is reached through hyper's client with a pool. reqwest is built on the same client, but it
//! parses the URL of each request twice more, copies its headers, and passes through layers for redirects and retries
//! that we do not use: a quarter of the instructions of a small call. A server with TLS is reached through reqwest,
//! which also knows the platform's proxies and certificates.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tower_service::Service;

use super::{CONNECT, IDLE, explain, untrusted};
use crate::threads::{self, MOST};

/// How often an idle connection is probed, how often the probe is repeated, and how long bytes may stay unacknowledged,
/// before the connection counts as lost.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How many bytes a connection reads at once. While a stream is read, all other calls wait for as long as it takes to
/// copy this much twice. By default hyper reads three times as much.
const BUFFER: usize = 128 * 1024;

/// An HTTP client. Clones share its connections. Without TLS, each thread (`host.threads`) has its own connections.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    Plain(Arc<[OnceLock<Box<Plain>>; MOST]>),
    Tls(reqwest::Client),
}

/// A client for one thread: its connections are only used on that thread.
type Plain = legacy::Client<InTime, Full<Bytes>>;

/// A response whose body is read in pieces.
#[derive(Debug)]
pub(crate) struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Plain(Incoming),
    Tls(reqwest::Body),
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// The two ends do not trust each other. A retry does not help until a person fixes that.
    #[error("{0}")]
    Untrusted(String),
    /// No connection could be opened, so nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke. Holds the innermost cause.
    #[error("{0}")]
    Broken(String),
}

/// The response body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenOff;

impl Client {
    /// Creates a client without TLS, which reads no certificates and uses no proxy.
    pub(super) fn plain() -> Self {
        Self::Plain(Arc::new([const { OnceLock::new() }; MOST]))
    }

    fn here(clients: &[OnceLock<Box<Plain>>; MOST]) -> &Plain {
        clients[threads::number() % MOST].get_or_init(|| Box::new(Self::of_one_thread()))
    }

    fn of_one_thread() -> Plain {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(PROBE));
        connector.set_keepalive_interval(Some(PROBE));
        connector.set_keepalive_retries(Some(PROBES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        builder.http1_max_buf_size(BUFFER);
        builder.build(InTime(connector))
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    /// Fails if there is no response.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response, SendError> {
        match self {
            Self::Plain(clients) => {
                let sent = Self::here(clients).request(request.map(Full::new)).await;
                let (head, body) = sent.map_err(|error| failed(&error, error.is_connect()))?.into_parts();
                Ok(Response { status: head.status, headers: head.headers, body: Body::Plain(body) })
            }
            // Boxed, so that requests without TLS are small.
            Self::Tls(client) => Box::pin(send_by(client, request)).await,
        }
    }
}

async fn send_by(client: &reqwest::Client, request: Request<Bytes>) -> Result<Response, SendError> {
    // A GET with an empty body must not have a length.
    let request = request.map(|body| if body.is_empty() { reqwest::Body::default() } else { body.into() });
    let request = reqwest::Request::try_from(request).map_err(|error| failed(&error, false))?;
    let sent = client.execute(request).await;
    let response = sent.map_err(|error| failed(&error, error.is_connect()))?;
    let (head, body) = http::Response::from(response).into_parts();
    Ok(Response { status: head.status, headers: head.headers, body: Body::Tls(body) })
}

fn failed(error: &(dyn StdError + 'static), is_connect: bool) -> SendError {
    match untrusted(error) {
        Some(reason) => SendError::Untrusted(reason),
        None if is_connect => SendError::Unreachable(explain(error)),
        None => SendError::Broken(explain(error)),
    }
}

impl Response {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the length of the body, if it is known.
    pub(crate) fn content_length(&self) -> Option<u64> {
        match &self.body {
            Body::Plain(body) => body.size_hint().exact(),
            Body::Tls(body) => body.size_hint().exact(),
        }
    }

    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Fails if the body breaks off.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        loop {
            let frame = match &mut self.body {
                Body::Plain(body) => body.frame().await.map(|frame| frame.map_err(|_| BrokenOff)),
                Body::Tls(body) => body.frame().await.map(|frame| frame.map_err(|_| BrokenOff)),
            };
            // A frame without data has trailers.
            match frame.transpose()?.map(http_body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(data)) => return Ok(Some(data)),
                Some(Err(_)) => {}
            }
        }
    }
}

/// A connector whose attempts end in time, name lookup included.
#[derive(Clone, Debug)]
pub(crate) struct InTime(HttpConnector);

type Connected = <HttpConnector as Service<Uri>>::Response;
type Failed = Box<dyn StdError + Send + Sync>;

impl Service<Uri> for InTime {
    type Response = Connected;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Connected, Failed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            match timeout(CONNECT, connecting).await {
                Ok(connected) => Ok(connected?),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "operation timed out").into()),
            }
        })
    }
}
