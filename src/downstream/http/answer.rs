//! The responses of the HTTP door: answers, and refusals with a sentence.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame as Part, SizeHint};

use super::outlet::Outlet;
use crate::downstream::guard::Refused;
use crate::protocol::{self, ErrorObject, Malformed, RequestId, code};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Why a request is not served, with the answer it gets.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    id: Option<RequestId>,
    error: Box<ErrorObject>,
    more: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal with a sentence.
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self::error(status, ErrorObject::new(code::INVALID_REQUEST, reason))
    }

    /// A refusal with an error of JSON-RPC.
    pub(super) fn error(status: StatusCode, error: ErrorObject) -> Self {
        Self { status, id: None, error: Box::new(error), more: None }
    }

    /// A refusal of the classification: what is not there is not found, all else is the request's own fault.
    pub(super) fn judged(error: ErrorObject) -> Self {
        let known = error.code != code::METHOD_NOT_FOUND;
        Self::error(if known { StatusCode::BAD_REQUEST } else { StatusCode::NOT_FOUND }, error)
    }

    /// The method of HTTP does not exist here.
    pub(super) fn method() -> Self {
        Self::method_but("use POST, GET or DELETE", "GET, POST, DELETE")
    }

    /// Sessions have GET and DELETE, requests without one have not.
    pub(super) fn post_only() -> Self {
        Self::method_but("use POST: there are no sessions in this revision", "POST")
    }

    fn method_but(reason: &str, allowed: &'static str) -> Self {
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, reason);
        refusal.more = Some((ALLOW, HeaderValue::from_static(allowed)));
        refusal
    }

    /// Nothing but this method exists here.
    pub(super) fn only(method: &'static str) -> Self {
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}"));
        refusal.more = Some((ALLOW, HeaderValue::from_static(method)));
        refusal
    }

    /// Too much to do; try again soon.
    pub(super) fn busy(reason: &str) -> Self {
        let mut refusal =
            Self::error(StatusCode::SERVICE_UNAVAILABLE, ErrorObject::new(code::INTERNAL, reason.to_owned()));
        refusal.more = Some((RETRY_AFTER, HeaderValue::from_static("5")));
        refusal
    }

    /// Names the request that is refused.
    pub(super) fn about(mut self, id: Option<RequestId>) -> Self {
        self.id = id;
        self
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let mut refusal = Self::new(refused.status, refused.reason);
        refusal.more = refused.more;
        refusal
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        let error = ErrorObject::new(malformed.code, malformed.reason);
        Self::error(StatusCode::BAD_REQUEST, error).about(malformed.id)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let answer = protocol::Response { id: self.id, outcome: Err(*self.error) };
        let mut response = json(answer.frame().pieces().into());
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.more);
        response
    }
}

/// A message as the whole answer, by `Content-Length` and without a copy.
pub(super) fn json(pieces: VecDeque<Bytes>) -> Response {
    let mut response = Response::new(Body::new(Pieces(pieces)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Several messages as the whole answer.
pub(super) fn json_array(responses: &[protocol::Response], outlet: &Outlet) -> Response {
    let mut pieces = VecDeque::new();
    for response in responses {
        pieces.push_back(Bytes::from_static(if pieces.is_empty() { b"[" } else { b"," }));
        pieces.extend(outlet.pieces(response.frame()));
    }
    pieces.push_back(Bytes::from_static(b"]"));
    let mut response = Response::new(Body::new(Pieces(pieces)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A stream of events.
pub(super) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that collect answers before they pass them on would hold events back.
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

/// The answer to what needs no answer.
pub(super) fn accepted() -> Response {
    StatusCode::ACCEPTED.into_response()
}

/// A body of ready pieces.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Part<Bytes>, Infallible>>> {
        while let Some(piece) = self.0.pop_front() {
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Part::data(piece))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}
