//! A server behind a URL: HTTP with SSE, the transport of revision 2024-11-05.
//!
//! There is one GET, whose stream carries every message from the server, responses included, and one POST per message
//! to the server, at the endpoint that the stream's first event names. The stream is the session: neither outlives the
//! other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use tokio::time::Instant;
use url::{Origin, Url};

use super::http::{Asked, Kind, kind, uri};
use super::turn::Turn;
use super::{Endpoint, Error, Http, elsewhere, excerpt};
use crate::config;
use crate::dial::{Dialer, Response};
use crate::protocol::sse::Events;
use crate::protocol::{Frame, ProtocolVersion};

/// How long a server may take to send the `endpoint` event.
const ENDPOINT: Duration = Duration::from_secs(20);
const ENDPOINT_BYTES: usize = 8 * 1024;
/// How much of the body of an accepted POST is read, so that its connection can be reused.
const ACCEPTED_BYTES: usize = 64 * 1024;

/// One session with a server behind a URL.
#[derive(Debug)]
pub(crate) struct Sse {
    /// Makes the requests: all of them carry the same headers.
    http: Http,
    endpoint: OnceLock<(Url, Uri)>,
    /// Whether a message was accepted at the endpoint, which proves that it exists.
    accepted: AtomicBool,
}

/// The messages from the server, one by one.
#[derive(Debug)]
pub(crate) struct SseStream {
    response: Response,
    events: Events,
    cap: usize,
    /// When the last byte arrived.
    heard: Instant,
    turn: Turn,
}

impl Sse {
    pub(crate) fn new(endpoint: &Endpoint, dialer: &Dialer, limits: &config::Limits) -> Result<Self, Error> {
        let http = Http::new(endpoint, dialer, limits)?;
        Ok(Self { http, endpoint: OnceLock::new(), accepted: AtomicBool::new(false) })
    }

    /// Runs the headers helper, if any, before the time limit of the stream starts.
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
        let (response, redirected) = self.http.send(&Asked::of(Method::GET)).await?;
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
        let opened = redirected.unwrap_or_else(|| self.http.url.clone());
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
        let uri = uri(&endpoint)?;
        // Each `Sse` opens only one stream.
        let _ = self.endpoint.set((endpoint, uri));
        Ok(stream)
    }

    /// Resolves the URL of an `endpoint` event. The configured credentials are sent with every message, so the URL must
    /// have the origin that they are meant for.
    fn resolve(&self, opened: &Url, data: &[u8]) -> Result<Url, Error> {
        let text = std::str::from_utf8(data).ok().map(str::trim).filter(|text| text.len() <= ENDPOINT_BYTES);
        let Some(mut endpoint) = text.and_then(|text| opened.join(text).ok()) else {
            return Err(self.strange("sent an `endpoint` event whose data is not a URL"));
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
        // Neither call fails for a URL that has a host.
        let _ = endpoint.set_username("");
        let _ = endpoint.set_password(None);
        endpoint.set_fragment(None);
        Ok(endpoint)
    }

    /// Sends one message. Returns `None` if it was accepted; a JSON-RPC error in the response is the answer and is
    /// returned.
    ///
    /// # Errors
    /// When the message was not accepted; [`Error::not_sent`] tells whether it was sent.
    pub(crate) async fn post(&self, frame: Frame) -> Result<Option<Bytes>, Error> {
        let Some((endpoint, uri)) = self.endpoint.get() else { return Err(Error::Closed) };
        let asked = Asked { place: Some((endpoint, uri)), body: frame.into_bytes(), ..Asked::of(Method::POST) };
        let (response, _) = self.http.send(&asked).await?;
        // The status should be 202; some servers send 200, and some add a body.
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

    /// Names the agreed revision in every request from now on, if that revision has a header for it.
    pub(crate) fn agree(&self, version: ProtocolVersion) {
        if version >= ProtocolVersion::V2025_06_18 {
            self.http.agree(version);
        }
    }

    fn strange(&self, what: &str) -> Error {
        Error::Malformed(format!("{} {what}", self.http.place))
    }
}

/// Reads and discards a small body.
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
    /// Returns when the stream will have been silent for that long; comments count as activity.
    pub(crate) fn silent_for(&self, time: Duration) -> Instant {
        self.heard + time
    }

    /// Returns the next message; `None` at the end.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some((kind, data)) = self.event().await? {
            if kind.is_empty() || kind == "message" {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the type and the data of the next event that has data; `None` at the end.
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
