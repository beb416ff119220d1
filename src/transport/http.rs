//! A server behind a URL: Streamable HTTP.
//!
//! One POST a message; with a handshake (2025-03-26 to 2025-11-25) one GET stream and one DELETE, too. What is said on a stream is read by whoever holds it.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::{Error, excerpt};
use crate::config;
use crate::dial::{self, Dialer};
use crate::protocol::sse::{Event, Events};
use crate::protocol::{Frame, Message, ProtocolVersion, code};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const SESSION_ID_BYTES: usize = 1024;
/// Errors that only servers of the modern era have: they are answers, even if the id could not be read.
const MODERN_ERRORS: [i64; 3] = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY, code::UNSUPPORTED_VERSION];

/// One session with a server behind a URL.
#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    pub(super) url: url::Url,
    pub(super) origin: String,
    headers: HeaderMap,
    session: ArcSwapOption<HeaderValue>,
    version: ArcSwapOption<HeaderValue>,
    pub(super) cap: usize,
}

/// Headers of one request beside those of every request, by name.
pub(crate) type Heads = Vec<(Cow<'static, str>, String)>;

/// What a POST is answered with.
#[derive(Debug)]
pub(crate) enum Reply {
    /// 202: a notification or a response was taken.
    Accepted,
    /// One message.
    Json(Bytes),
    /// One message, an error, under a status that says so, too.
    Refused { status: u16, body: Bytes },
    /// Messages until the answer is among them.
    Stream(Box<EventStream>),
}

impl Http {
    pub(crate) fn new(remote: &config::Remote, dialer: &Dialer, cap: usize) -> Result<Self, Error> {
        let origin = remote.url.origin().ascii_serialization();
        let mut headers = HeaderMap::new();
        for (name, value) in &remote.headers {
            let bad = |what: &str| {
                Error::Malformed(format!("header `{name}` in the config: its {what} is not legal in HTTP"))
            };
            let header = HeaderName::try_from(name.as_str()).map_err(|_| bad("name"))?;
            let mut value = HeaderValue::try_from(value.expose()).map_err(|_| bad("value"))?;
            value.set_sensitive(true);
            headers.append(header, value);
        }
        let client =
            dialer.client(&remote.url).map_err(|reason| Error::Unreachable { origin: origin.clone(), reason })?;
        Ok(Self {
            client,
            url: remote.url.clone(),
            origin,
            headers,
            session: ArcSwapOption::empty(),
            version: ArcSwapOption::empty(),
            cap,
        })
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When no answer of MCP came; [`Error::not_sent`] tells whether the message had left.
    pub(crate) async fn post(&self, frame: Frame) -> Result<Reply, Error> {
        self.post_with(frame, None).await
    }

    /// The same under headers of its own, beside no session.
    pub(crate) async fn post_with(&self, frame: Frame, heads: Option<&Heads>) -> Result<Reply, Error> {
        let (own, body) = (heads.map(header_map).transpose()?, frame.into_bytes());
        let fill = |request: RequestBuilder| {
            let request = request.header(CONTENT_TYPE, JSON).body(body.clone());
            if let Some(own) = &own { request.headers(own.clone()) } else { request }
        };
        let response = self.send(&Method::POST, &self.url, &BOTH, fill).await?;
        if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
            return Ok(Reply::Accepted);
        }
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Ok(Reply::Refused { status, body: self.refused(response).await? });
        }
        if heads.is_none() && self.session.load().is_none() && self.version.load().is_none() {
            // Only the answer to `initialize` comes before a version is agreed on.
            self.learn_session(&response)?;
        }
        match kind(&response) {
            Kind::Json => Ok(Reply::Json(self.body(response).await?)),
            Kind::Events => Ok(Reply::Stream(Box::new(EventStream::new(response, self.cap)))),
            Kind::Other(kind) if response.content_length() == Some(0) && kind.is_empty() => Ok(Reply::Accepted),
            Kind::Other(kind) => Err(Error::Malformed(format!(
                "{} answered with {}, not with JSON or an event stream; is this the URL of an MCP endpoint?",
                self.origin,
                if kind.is_empty() { "no content type" } else { &kind }
            ))),
        }
    }

    /// Opens the stream of messages that answer no request, or resumes a broken one.
    pub(crate) async fn stream(&self, last_event: Option<&str>) -> Result<EventStream, Error> {
        let last_event = last_event.and_then(|id| HeaderValue::from_str(id).ok());
        let fill = |request: RequestBuilder| match &last_event {
            Some(id) => request.header(LAST_EVENT, id),
            None => request,
        };
        let response = self.send(&Method::GET, &self.url, &EVENTS, fill).await?;
        if !response.status().is_success() {
            self.refused(response).await?;
            return Err(Error::Malformed(format!("{} answered GET with an error", self.origin)));
        }
        match kind(&response) {
            Kind::Events => Ok(EventStream::new(response, self.cap)),
            Kind::Json | Kind::Other(_) => {
                Err(Error::Malformed(format!("{} answered GET without an event stream", self.origin)))
            }
        }
    }

    /// A status of this server that is no answer.
    pub(crate) fn status(&self, status: u16) -> Error {
        Error::Status { origin: self.origin.clone(), status, body: None }
    }

    /// Ends the session, if there is one.
    pub(crate) async fn delete(&self) {
        if self.session.load().is_some() {
            let _ = self.request_to(Method::DELETE, self.url.clone(), BOTH).send().await;
        }
    }

    /// From now on every request names the revision that was agreed on.
    pub(crate) fn agree(&self, version: ProtocolVersion) {
        self.version.store(Some(Arc::new(HeaderValue::from_static(version.as_str()))));
    }

    /// A request to a URL of this origin.
    pub(super) fn request_to(&self, method: Method, url: url::Url, accept: HeaderValue) -> RequestBuilder {
        let mut request = self.client.request(method, url).headers(self.headers.clone()).header(ACCEPT, accept);
        if let Some(session) = &*self.session.load() {
            request = request.header(SESSION, HeaderValue::clone(session));
        }
        if let Some(version) = &*self.version.load() {
            request = request.header(VERSION, HeaderValue::clone(version));
        }
        request
    }

    fn learn_session(&self, response: &Response) -> Result<(), Error> {
        let Some(id) = response.headers().get(SESSION) else { return Ok(()) };
        let legal = !id.is_empty()
            && id.len() <= SESSION_ID_BYTES
            && id.as_bytes().iter().all(|byte| (0x21..=0x7e).contains(byte));
        if !legal {
            return Err(Error::Malformed(format!(
                "{} gave a session id that is not visible ASCII up to 1 KiB",
                self.origin
            )));
        }
        self.session.store(Some(Arc::new(id.clone())));
        Ok(())
    }

    /// What a status other than 2xx means; the body where it is the answer all the same: some servers send a JSON-RPC error
    /// with a 4xx.
    pub(super) async fn refused(&self, response: Response) -> Result<Bytes, Error> {
        let status = response.status();
        let origin = self.origin.clone();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(Error::Unauthorized { origin, status: status.as_u16() });
        }
        if status == StatusCode::NOT_FOUND && self.session.load().is_some() {
            return Err(Error::SessionEnded);
        }
        let json = kind(&response) == Kind::Json && response.content_length().is_none_or(|length| length <= 64 * 1024);
        let body = if json { self.body(response).await? } else { Bytes::new() };
        if let Ok(Message::Response(answer)) = Message::parse(&body)
            && (answer.id.is_some() || answer.outcome.is_err_and(|error| MODERN_ERRORS.contains(&error.code)))
        {
            return Ok(body);
        }
        let body = Some(excerpt(&body, 200)).filter(|text| !text.is_empty());
        Err(Error::Status { origin, status: status.as_u16(), body })
    }

    async fn body(&self, mut response: Response) -> Result<Bytes, Error> {
        let length = response.content_length().and_then(|length| usize::try_from(length).ok());
        if length.is_some_and(|length| length > self.cap) {
            return Err(Error::TooLarge(self.cap));
        }
        let first = response.chunk().await.map_err(|_| Error::Broken)?.unwrap_or_default();
        if length == Some(first.len()) {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(length.unwrap_or(first.len() * 2));
        whole.extend_from_slice(&first);
        while let Some(chunk) = response.chunk().await.map_err(|_| Error::Broken)? {
            if whole.len() + chunk.len() > self.cap {
                return Err(Error::TooLarge(self.cap));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    pub(super) fn failed(&self, error: &reqwest::Error) -> Error {
        if error.is_connect() {
            return Error::Unreachable { origin: self.origin.clone(), reason: dial::explain(error) };
        }
        Error::Broken
    }
}

fn header_map(heads: &Heads) -> Result<HeaderMap, Error> {
    let illegal = |name: &str| Error::Malformed(format!("header `{name:.60}` that it wants is not legal in HTTP"));
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

/// What a response says its body is.
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

/// Messages that come one by one over one response.
#[derive(Debug)]
pub(crate) struct EventStream {
    response: Response,
    events: Events,
    /// The id of the last event: from here the stream can be resumed.
    pub(crate) last_event: Option<String>,
    /// How long the server wants us to wait before we come back, in milliseconds.
    pub(crate) retry: Option<u64>,
    cap: usize,
}

impl EventStream {
    fn new(response: Response, cap: usize) -> Self {
        Self { response, events: Events::new(cap), last_event: None, retry: None, cap }
    }

    /// The data of the next event that has any; `None` at the end.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            while let Some(event) = self.events.next().map_err(|_| Error::TooLarge(self.cap))? {
                let Event { kind, data, id, retry } = event;
                self.last_event = id.filter(|id| !id.is_empty()).or(self.last_event.take());
                self.retry = retry.or(self.retry);
                if !data.is_empty() && (kind.is_empty() || kind == "message") {
                    return Ok(Some(data));
                }
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.events.push(&chunk),
                Ok(None) => return Ok(None),
                Err(_) => return Err(Error::Broken),
            }
        }
    }
}
