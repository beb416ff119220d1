//! A server behind a URL: Streamable HTTP.
//!
//! There is one POST per message; in the revisions with a handshake (2025-03-26 to 2025-11-25), also one GET stream and
//! one DELETE. A stream is read by whichever task holds it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING, USER_AGENT,
};
use http::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout};

use super::helper::Helper;
use super::large::{Large, LargeSlot};
use super::turn::Turn;
use super::{Endpoint, Error, elsewhere, excerpt, retry};
use crate::auth::Authorizer;
use crate::config;
use crate::dial::{self, Client, Dialer, Response, SendError};
use crate::lock::lock;
use crate::protocol::gather::Gather;
use crate::protocol::sse::{Event, Events};
use crate::protocol::{Frame, Message, ProtocolVersion, code};
use crate::redact::{MASK, looks_secret};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const SESSION_ID_BYTES: usize = 1024;
/// The maximum bytes of an event id, which must fit into a header; a longer one is ignored.
const EVENT_ID_BYTES: usize = 1024;
/// How much of the body of an error response is read, in bytes.
const REFUSAL_BYTES: usize = 64 * 1024;
/// How long to wait for the headers of a response, if no call waits with its own time limit (`docs/hazards.md` H20).
pub(crate) const HEADERS: Duration = Duration::from_secs(60);
/// How long a response body may pause.
const PAUSE: Duration = Duration::from_secs(60);
/// Error codes that only modern servers use: an error with such a code is an answer even without an id, which the
/// server may have been unable to read.
const MODERN_ERRORS: [i64; 3] = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY, code::UNSUPPORTED_VERSION];

/// One session with a server behind a URL.
#[derive(Debug)]
pub(crate) struct Http {
    pub(super) client: ArcSwap<Client>,
    recipe: dial::Recipe,
    pub(super) url: url::Url,
    pub(super) uri: Uri,
    pub(super) origin: String,
    /// The URL as people see it: without its query, and with path segments that look like keys masked.
    pub(super) place: String,
    /// The headers of every request.
    headers: HeaderMap,
    /// The headers of a message, with the session and the revision. They are put together when one of these changes, not
    /// for each message.
    posted: ArcSwap<HeaderMap>,
    /// The program that provides further headers, if one is configured.
    pub(super) helper: Option<Helper>,
    pub(super) tokens: Option<Arc<Authorizer>>,
    session: ArcSwapOption<HeaderValue>,
    version: ArcSwapOption<HeaderValue>,
    /// Until when the server asked us to send no requests.
    alone: Mutex<Option<Instant>>,
    pub(super) cap: usize,
    /// The maximum number of redirects that one request follows.
    pub(super) redirects: usize,
    large: Large,
}

/// The headers of one request, in addition to those that every request has.
pub(crate) type Heads = Vec<(Cow<'static, str>, String)>;

/// The response to a POST.
#[derive(Debug)]
pub(crate) enum Reply {
    /// 202 or 204: a notification or a response was accepted.
    Accepted { status: u16 },
    /// One message.
    Json(Bytes),
    /// One message, a JSON-RPC error, in a response with an error status.
    Refused { status: u16, body: Bytes },
    /// A stream of messages, the answer among them.
    Stream(Box<EventStream>),
}

impl Http {
    pub(crate) fn new(endpoint: &Endpoint, dialer: &Dialer, limits: &config::Limits) -> Result<Self, Error> {
        let Endpoint { name, remote, tokens, large } = endpoint;
        let origin = remote.url.origin().ascii_serialization();
        let (uri, mut headers) = asked(&remote.url)?;
        let mut given = HeaderMap::new();
        for (name, value) in &remote.headers {
            let bad = |what: &str| {
                Error::Malformed(format!("header `{name}` in the config: its {what} is not legal in HTTP"))
            };
            let header = HeaderName::try_from(name.as_str()).map_err(|_| bad("name"))?;
            let mut value = HeaderValue::try_from(value.expose()).map_err(|_| bad("value"))?;
            value.set_sensitive(true);
            given.append(header, value);
        }
        replace(&mut headers, given);
        let client = dialer.client(remote).map_err(|reason| Error::Untrusted { origin: origin.clone(), reason })?;
        let http = Self {
            client: ArcSwap::from_pointee(client),
            recipe: dialer.recipe(remote),
            place: place(&remote.url),
            url: remote.url.clone(),
            uri,
            origin,
            headers,
            posted: ArcSwap::default(),
            helper: Helper::of(name, remote),
            tokens: tokens.clone(),
            session: ArcSwapOption::empty(),
            version: ArcSwapOption::empty(),
            alone: Mutex::default(),
            cap: limits.message,
            redirects: limits.redirects,
            large: large.clone(),
        };
        http.gather_headers();
        Ok(http)
    }

    /// Runs the headers helper, if any, before the time limit of a request starts.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        match &self.helper {
            Some(helper) => helper.headers().await.map(drop),
            None => Ok(()),
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the response holds no MCP answer; [`Error::not_sent`] tells whether the message was sent.
    pub(crate) async fn post(&self, frame: Frame) -> Result<Reply, Error> {
        self.post_with(frame, None).await
    }

    /// Sends one message; `heads` are the headers of a modern request, which has no session.
    pub(crate) async fn post_with(&self, frame: Frame, heads: Option<&Heads>) -> Result<Reply, Error> {
        let own = heads.map(header_map).transpose()?.unwrap_or_default();
        let asked = Asked { method: Method::POST, place: None, own, body: frame.into_bytes() };
        let (response, _) = self.send(&asked).await?;
        let status = response.status().as_u16();
        if heads.is_none() && response.status().is_success() {
            self.check_session(&response)?;
        }
        if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
            return Ok(Reply::Accepted { status });
        }
        if !response.status().is_success() {
            return Ok(Reply::Refused { status, body: self.refused(response).await? });
        }
        match kind(&response) {
            Kind::Json => Ok(Reply::Json(self.body(response, self.cap).await?)),
            Kind::Events => Ok(Reply::Stream(Box::new(self.events(response)))),
            Kind::Other(kind) if response.content_length() == Some(0) && kind.is_empty() => {
                Ok(Reply::Accepted { status })
            }
            Kind::Other(kind) => Err(Error::Malformed(format!(
                "{} answered with {}, not with JSON or an event stream{}",
                self.place,
                if kind.is_empty() { "no content type" } else { &kind },
                elsewhere(&self.place)
            ))),
        }
    }

    /// Opens the GET stream for messages that answer no request; with `last_event`, resumes a broken stream after that
    /// event.
    pub(crate) async fn stream(&self, last_event: Option<&str>) -> Result<EventStream, Error> {
        let last_event = last_event.and_then(|id| HeaderValue::from_str(id).ok());
        let own = last_event.map(|id| (LAST_EVENT, id)).into_iter().collect();
        let asked = Asked { own, ..Asked::of(Method::GET) };
        let opened = async {
            let (response, _) = self.send(&asked).await?;
            if !response.status().is_success() {
                self.refused(response).await?;
                return Err(Error::Malformed(format!("{} answered GET with an error", self.place)));
            }
            Ok(response)
        };
        let response =
            timeout(HEADERS, opened).await.unwrap_or_else(|_| Err(self.silent("did not answer", HEADERS)))?;
        self.check_session(&response)?;
        match kind(&response) {
            Kind::Events => Ok(self.events(response)),
            Kind::Json | Kind::Other(_) => {
                Err(Error::Malformed(format!("{} answered GET without an event stream", self.place)))
            }
        }
    }

    /// Creates the error for a response from this server that has this status and carries no answer.
    pub(crate) fn status(&self, status: u16) -> Error {
        Error::Status { place: self.place.clone(), status, body: None, retry: self.left() }
    }

    /// Creates an error for a server that was silent for too long.
    pub(crate) fn silent(&self, what: &'static str, limit: Duration) -> Error {
        Error::Stalled { origin: self.origin.clone(), what, limit }
    }

    /// Fails if the server asked us to send no requests (`Retry-After`) and that time is not over.
    pub(crate) fn may_ask(&self) -> Result<(), Error> {
        match self.left() {
            Some(left) => Err(Error::Paused { origin: self.origin.clone(), left }),
            None => Ok(()),
        }
    }

    fn left(&self) -> Option<Duration> {
        let alone = (*lock(&self.alone))?;
        Some(alone.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Ends the session, if there is one.
    pub(crate) async fn delete(&self) {
        if self.session.load().is_some() {
            let _ = self.send(&Asked::of(Method::DELETE)).await;
        }
    }

    /// Names the agreed revision in every request from now on.
    pub(crate) fn agree(&self, version: ProtocolVersion) {
        self.version.store(Some(Arc::new(HeaderValue::from_static(version.as_str()))));
        self.gather_headers();
    }

    /// Returns the headers of a request with this method, without credentials.
    pub(super) fn headers(&self, method: &Method) -> HeaderMap {
        match *method {
            Method::POST => HeaderMap::clone(&self.posted.load()),
            Method::GET => self.with_session(&EVENTS),
            _ => self.with_session(&BOTH),
        }
    }

    fn with_session(&self, accept: &HeaderValue) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.append(ACCEPT, accept.clone());
        if let Some(session) = &*self.session.load() {
            headers.append(SESSION, HeaderValue::clone(session));
        }
        if let Some(version) = &*self.version.load() {
            headers.append(VERSION, HeaderValue::clone(version));
        }
        headers
    }

    fn gather_headers(&self) {
        let mut headers = self.with_session(&BOTH);
        headers.append(CONTENT_TYPE, JSON);
        self.posted.store(Arc::new(headers));
    }

    /// Returns the id that the server gave this session.
    #[cfg(feature = "otel")]
    pub(crate) fn session(&self) -> Option<Arc<HeaderValue>> {
        self.session.load_full()
    }

    /// Whether the server gave this session an id.
    pub(crate) fn has_session(&self) -> bool {
        self.session.load().is_some()
    }

    /// Stores the session id of the response to `initialize`. A later response with another id belongs to another
    /// session and is an error (`docs/hazards.md` H31).
    fn check_session(&self, response: &Response) -> Result<(), Error> {
        let mut ids = response.headers().get_all(SESSION).iter();
        let Some(id) = ids.next() else { return Ok(()) };
        if let Some(known) = &*self.session.load() {
            let is_ours = std::iter::once(id).chain(ids).all(|id| id == **known);
            return if is_ours { Ok(()) } else { Err(Error::SessionChanged) };
        }
        if self.version.load().is_some() {
            // The response to `initialize` named no session, so there is none.
            return Ok(());
        }
        let legal = ids.next().is_none()
            && !id.is_empty()
            && id.len() <= SESSION_ID_BYTES
            && id.as_bytes().iter().all(|byte| (0x21..=0x7e).contains(byte));
        if !legal {
            return Err(Error::Malformed(format!(
                "{} gave a session id that is not one piece of visible ASCII up to 1 KiB",
                self.origin
            )));
        }
        self.session.store(Some(Arc::new(id.clone())));
        self.gather_headers();
        Ok(())
    }

    /// Interprets a response whose status is not 2xx. Returns the body if it is an answer nevertheless: some servers
    /// send a JSON-RPC error with a 4xx.
    pub(super) async fn refused(&self, response: Response) -> Result<Bytes, Error> {
        let status = response.status();
        let place = self.place.clone();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let helper = self.helper.as_ref().map(|helper| helper.program().to_owned());
            return Err(Error::Unauthorized { place, status: status.as_u16(), helper });
        }
        if status == StatusCode::NOT_FOUND && self.session.load().is_some() {
            return Err(Error::SessionEnded);
        }
        let retry = self.note_retry(&response);
        let kind = kind(&response);
        let is_text = matches!(&kind, Kind::Other(essence) if essence.eq_ignore_ascii_case("text/plain"));
        let body = match kind {
            // A body that is too large or breaks off counts as empty.
            Kind::Json => self.body(response, REFUSAL_BYTES).await.unwrap_or_default(),
            // Plain text is a sentence for people, not a page for browsers.
            Kind::Other(_) if is_text => self.body(response, REFUSAL_BYTES).await.unwrap_or_default(),
            Kind::Events | Kind::Other(_) => Bytes::new(),
        };
        if !is_text
            && let Ok(Message::Response(answer)) = Message::parse(&body)
            && (answer.id.is_some() || answer.outcome.is_err_and(|error| MODERN_ERRORS.contains(&error.code)))
        {
            return Ok(body);
        }
        let body = Some(excerpt(&body, 200)).filter(|text| !text.is_empty());
        Err(Error::Status { place, status: status.as_u16(), body, retry })
    }

    /// Records how long the server asked us to send no requests, if the status is 429 or 503. Returns that time.
    fn note_retry(&self, response: &Response) -> Option<Duration> {
        if !matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return None;
        }
        let wait = retry::after(response.headers(), SystemTime::now())?;
        *lock(&self.alone) = Some(Instant::now() + wait);
        Some(wait)
    }

    async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Error> {
        match timeout(PAUSE, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|_| Error::Broken),
            Err(_) => Err(self.silent("did not continue its response", PAUSE)),
        }
    }

    fn events(&self, response: Response) -> EventStream {
        EventStream::new(response, self.cap, self.large.answer())
    }

    async fn body(&self, mut response: Response, cap: usize) -> Result<Bytes, Error> {
        let length = match response.content_length().map(usize::try_from) {
            Some(Ok(length)) if length <= cap => Some(length),
            None => None,
            Some(_) => return Err(Error::TooLarge(cap)),
        };
        let first = self.chunk(&mut response).await?.unwrap_or_default();
        if length == Some(first.len()) {
            return Ok(first);
        }
        let (mut place, mut turn) = (self.large.answer(), Turn::default());
        place.reach(length.unwrap_or_default()).await;
        let mut whole = Gather::with_room(length.unwrap_or_default());
        whole.push(&first);
        drop(first);
        while let Some(chunk) = self.chunk(&mut response).await? {
            if whole.len() + chunk.len() > cap {
                return Err(Error::TooLarge(cap));
            }
            whole.push(&chunk);
            place.reach(length.unwrap_or(whole.len())).await;
            turn.bytes(chunk.len());
            turn.pass().await;
        }
        Ok(whole.take(whole.len()))
    }

    /// Refuses a response whose length two readers could understand differently, and a compressed response: no
    /// compression was asked for, and its size is unknown until it is decompressed (`docs/hazards.md` H21, H22).
    pub(super) fn check_framing(&self, response: &Response) -> Result<(), Error> {
        let headers = response.headers();
        let origin = &self.origin;
        if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
            // Anything may follow on its connection, which the HTTP client keeps for the next request. So further
            // requests get a new HTTP client.
            if let Ok(client) = self.recipe.client() {
                self.client.store(Arc::new(client));
            }
            return Err(Error::Malformed(format!("{origin} sent both Content-Length and Transfer-Encoding")));
        }
        let packed = |value: &&HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        match headers.get(CONTENT_ENCODING).filter(packed) {
            None => Ok(()),
            Some(coding) => {
                let coding = excerpt(coding.as_bytes(), 60);
                Err(Error::Malformed(format!("{origin} answered in the encoding {coding}, which it was not asked for")))
            }
        }
    }

    pub(super) fn failed(&self, error: SendError) -> Error {
        let origin = || self.origin.clone();
        match error {
            SendError::Untrusted(reason) => Error::Untrusted { origin: origin(), reason },
            SendError::Unreachable(reason) => Error::Unreachable { origin: origin(), reason },
            SendError::Broken(_) => Error::Broken,
        }
    }
}

/// A request to a server.
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    /// Where it goes, if not to the URL of the config.
    pub(super) place: Option<(&'a url::Url, &'a Uri)>,
    /// The headers that only this request has.
    pub(super) own: HeaderMap,
    pub(super) body: Bytes,
}

impl Asked<'_> {
    /// A request without a body or headers of its own.
    pub(super) fn of(method: Method) -> Self {
        Self { method, place: None, own: HeaderMap::new(), body: Bytes::new() }
    }
}

/// Returns what a request to a URL of the config asks for, and the headers that follow from the URL. A name and a
/// password in the URL become a header (RFC 7617).
fn asked(url: &url::Url) -> Result<(Uri, HeaderMap), Error> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(dial::USER_AGENT));
    let mut bare = url.clone();
    if !url.username().is_empty() || url.password().is_some() {
        // Neither call fails for a URL that has a host.
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        headers.insert(AUTHORIZATION, basic(url));
    }
    // Over HTTP/2, which only TLS brings, the authority is no header.
    if bare.scheme() == "http"
        && let Ok(host) = HeaderValue::try_from(&bare[url::Position::BeforeHost..url::Position::AfterPort])
    {
        headers.insert(HOST, host);
    }
    Ok((uri(&bare)?, headers))
}

/// Returns the credentials in a URL, as a header.
fn basic(url: &url::Url) -> HeaderValue {
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let text = format!("Basic {}", STANDARD.encode(pair));
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

pub(super) fn uri(url: &url::Url) -> Result<Uri, Error> {
    Uri::try_from(url.as_str()).map_err(|_| Error::Malformed(format!("{} is no URL that HTTP can ask for", place(url))))
}

/// Adds headers, in place of those with the same names.
pub(super) fn replace(headers: &mut HeaderMap, others: HeaderMap) {
    if headers.is_empty() {
        *headers = others;
        return;
    }
    let mut last = None;
    for (name, value) in others {
        match (name, &last) {
            (Some(name), _) => {
                headers.insert(name.clone(), value);
                last = Some(name);
            }
            // A further value of the same header has no name.
            (None, Some(name)) => {
                headers.append(name, value);
            }
            (None, None) => {}
        }
    }
}

/// Formats a URL for people. The path stays, because a wrong path is the usual mistake.
fn place(url: &url::Url) -> String {
    let path = url.path().split('/').map(|part| if looks_secret(part) { MASK } else { part });
    let path = path.collect::<Vec<_>>().join("/");
    excerpt(format!("{}{path}", url.origin().ascii_serialization()).as_bytes(), 300)
}

fn header_map(heads: &Heads) -> Result<HeaderMap, Error> {
    let illegal = |name: &str| Error::Malformed(format!("header `{name:.60}` of its tools is not legal in HTTP"));
    let mut map = HeaderMap::with_capacity(heads.len());
    for (name, value) in heads {
        let header = HeaderName::try_from(&**name).map_err(|_| illegal(name))?;
        map.insert(header, HeaderValue::try_from(value.as_str()).map_err(|_| illegal(name))?);
    }
    Ok(map)
}

#[derive(PartialEq)]
pub(super) enum Kind {
    Json,
    Events,
    Other(String),
}

/// Returns the declared type of a response body.
pub(super) fn kind(response: &Response) -> Kind {
    let Some(value) = response.headers().get(CONTENT_TYPE) else { return Kind::Other(String::new()) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Kind::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Kind::Events
    } else {
        Kind::Other(excerpt(essence.as_bytes(), 60))
    }
}

/// Messages that arrive one by one in one response.
#[derive(Debug)]
pub(crate) struct EventStream {
    response: Response,
    events: Events,
    /// The id of the last event, after which the stream can be resumed.
    pub(crate) last_event: Option<String>,
    /// How long the server wants us to wait before we reconnect, in milliseconds.
    pub(crate) retry: Option<u64>,
    cap: usize,
    turn: Turn,
    place: LargeSlot,
}

impl EventStream {
    fn new(response: Response, cap: usize, place: LargeSlot) -> Self {
        let (events, turn) = (Events::new(cap), Turn::default());
        Self { response, events, last_event: None, retry: None, cap, turn, place }
    }

    /// Returns the data of the next event that has any; `None` at the end.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            self.turn.pass().await;
            while let Some(event) = self.events.next().map_err(|_| Error::TooLarge(self.cap))? {
                self.turn.message();
                let Event { kind, data, id, retry } = event;
                let id = id.filter(|id| !id.is_empty() && id.len() <= EVENT_ID_BYTES);
                self.last_event = id.or(self.last_event.take());
                self.retry = retry.or(self.retry);
                self.place.shrink(self.events.open());
                if !data.is_empty() && (kind.is_empty() || kind == "message") {
                    return Ok(Some(data));
                }
                self.turn.pass().await;
            }
            self.place.reach(self.events.open()).await;
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.turn.bytes(chunk.len());
                    self.events.push(&chunk);
                }
                Ok(None) => return Ok(None),
                Err(_) => return Err(Error::Broken),
            }
        }
    }
}
