//! A server behind a URL: HTTP with SSE, the transport of revision 2024-11-05.
//!
//! One GET whose stream carries everything the server says, answers included, and one POST a message to where the first
//! event of that stream says. The stream is the session: neither outlives the other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tokio::time::Instant;
use url::{Origin, Url};

use super::http::{BOTH, EVENTS, JSON, Kind, kind};
use super::turn::Turn;
use super::{Endpoint, Error, Http, elsewhere, excerpt};
use crate::config;
use crate::dial::Dialer;
use crate::protocol::sse::Events;
use crate::protocol::{Frame, ProtocolVersion};

/// How long a server may take to say where messages are to be posted.
const ENDPOINT: Duration = Duration::from_secs(20);
const ENDPOINT_BYTES: usize = 8 * 1024;
/// What is read of the body behind an accepted message, so that its connection can be used again.
const ACCEPTED_BYTES: usize = 64 * 1024;

/// One session with a server behind a URL.
#[derive(Debug)]
pub(crate) struct Sse {
    /// Makes the requests: the same headers go out with all of them.
    http: Http,
    endpoint: OnceLock<Url>,
    /// A message was accepted at the endpoint: it exists.
    accepted: AtomicBool,
}

/// What the server says, message by message.
#[derive(Debug)]
pub(crate) struct SseStream {
    response: Response,
    events: Events,
    cap: usize,
    /// When the last byte came.
    heard: Instant,
    turn: Turn,
}

impl Sse {
    pub(crate) fn new(endpoint: &Endpoint, dialer: &Dialer, limits: &config::Limits) -> Result<Self, Error> {
        let http = Http::new(endpoint, dialer, limits)?;
        Ok(Self { http, endpoint: OnceLock::new(), accepted: AtomicBool::new(false) })
    }

    /// Gets the headers that a program gives, before anybody waits for the stream.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        self.http.prepare().await
    }

    /// Opens the stream and waits for its first event.
    ///
    /// # Errors
    /// When there is no such stream, or its first event names no endpoint of the same origin.
    pub(crate) async fn open(&self) -> Result<SseStream, Error> {
        match tokio::time::timeout(ENDPOINT, self.opened()).await {
            Ok(opened) => opened,
            Err(_) => Err(self.strange(&format!("did not send an `endpoint` event within {ENDPOINT:?}"))),
        }
    }

    async fn opened(&self) -> Result<SseStream, Error> {
        let response = self.http.send(&Method::GET, &self.http.url, &EVENTS, |request| request).await?;
        if !response.status().is_success() {
            self.http.refused(response).await?;
            return Err(self.strange("answered GET with an error"));
        }
        match kind(&response) {
            Kind::Events => {}
            Kind::Json => return Err(self.strange("answered GET with JSON, not with an event stream")),
            Kind::Other(kind) => {
                let kind = if kind.is_empty() { "no content type" } else { &kind };
                let elsewhere = elsewhere(&self.http.place);
                return Err(self.strange(&format!("answered GET with {kind}, not with an event stream{elsewhere}")));
            }
        }
        let opened = response.url().clone();
        let (cap, heard) = (self.http.cap, Instant::now());
        let mut stream = SseStream { response, events: Events::new(cap), cap, heard, turn: Turn::default() };
        let Some((kind, data)) = stream.event().await? else {
            return Err(self.strange("ended its event stream before an `endpoint` event"));
        };
        if kind != "endpoint" {
            let kind = if kind.is_empty() { "message".to_owned() } else { excerpt(kind.as_bytes(), 60) };
            return Err(self.strange(&format!("began its event stream with `{kind}`, not with `endpoint`")));
        }
        let endpoint = self.resolve(&opened, &data)?;
        // A stream is opened once for each `Sse`.
        let _ = self.endpoint.set(endpoint);
        Ok(stream)
    }

    /// The URL that an `endpoint` event names. Credentials of the config go along with every message, so it has to be of
    /// the origin that they are for.
    fn resolve(&self, opened: &Url, data: &[u8]) -> Result<Url, Error> {
        let text = std::str::from_utf8(data).ok().map(str::trim).filter(|text| text.len() <= ENDPOINT_BYTES);
        let Some(mut endpoint) = text.and_then(|text| opened.join(text).ok()) else {
            return Err(self.strange("sent an `endpoint` event whose data is no URL"));
        };
        if endpoint.origin() != self.http.url.origin() {
            let other = match endpoint.origin() {
                origin @ Origin::Tuple(..) => origin.ascii_serialization(),
                Origin::Opaque(_) => format!("{}:", endpoint.scheme()),
            };
            let other = excerpt(other.as_bytes(), 200);
            return Err(Error::Malformed(format!(
                "{} wants messages at {other}, another origin: they and the credentials of this server are only sent to \
                 the origin of its `url`",
                self.http.origin
            )));
        }
        // Both can be done with a URL that has a host.
        let _ = endpoint.set_username("");
        let _ = endpoint.set_password(None);
        endpoint.set_fragment(None);
        Ok(endpoint)
    }

    /// Sends one message. Where the server refuses it with an error of JSON-RPC, that is the answer.
    ///
    /// # Errors
    /// When it was not accepted; [`Error::not_sent`] tells whether it had left.
    pub(crate) async fn post(&self, frame: Frame) -> Result<Option<Bytes>, Error> {
        let Some(endpoint) = self.endpoint.get() else { return Err(Error::Closed) };
        let body = frame.into_bytes();
        let fill = |request: RequestBuilder| request.header(CONTENT_TYPE, JSON).body(body.clone());
        let response = self.http.send(&Method::POST, endpoint, &BOTH, fill).await?;
        // 202 it should be; some servers say 200, and some add a word.
        if response.status().is_success() {
            self.accepted.store(true, Ordering::Relaxed);
            skip(response).await;
            return Ok(None);
        }
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            if self.accepted.load(Ordering::Relaxed) {
                return Err(Error::SessionEnded);
            }
            let path = excerpt(endpoint.path().as_bytes(), 200);
            let (origin, status) = (&self.http.origin, response.status().as_u16());
            let what = format!("{origin} answered {status} at {path}, where it wants messages to be posted");
            return Err(Error::Malformed(what));
        }
        self.http.refused(response).await.map(Some)
    }

    /// From now on every request names the revision that was agreed on, if it is one that has a header for it.
    pub(crate) fn agree(&self, version: ProtocolVersion) {
        if version >= ProtocolVersion::V2025_06_18 {
            self.http.agree(version);
        }
    }

    fn strange(&self, what: &str) -> Error {
        Error::Malformed(format!("{} {what}", self.http.place))
    }
}

/// Reads and drops a small body.
async fn skip(mut response: Response) {
    let mut size = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        size += chunk.len();
        if size > ACCEPTED_BYTES {
            return;
        }
    }
}

impl SseStream {
    /// When it will have been silent for that long, comments counted as words.
    pub(crate) fn silent_for(&self, time: Duration) -> Instant {
        self.heard + time
    }

    /// The next message; `None` at the end.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some((kind, data)) = self.event().await? {
            if kind.is_empty() || kind == "message" {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next event that has data, and its kind.
    async fn event(&mut self) -> Result<Option<(String, Bytes)>, Error> {
        loop {
            self.turn.pass().await;
            while let Some(event) = self.events.next().map_err(|_| Error::TooLarge(self.cap))? {
                self.turn.message();
                if !event.data.is_empty() {
                    return Ok(Some((event.kind, event.data)));
                }
                self.turn.pass().await;
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.turn.bytes(chunk.len());
                    self.heard = Instant::now();
                    self.events.push(&chunk);
                }
                Ok(None) => return Ok(None),
                Err(_) => return Err(Error::Broken),
            }
        }
    }
}
