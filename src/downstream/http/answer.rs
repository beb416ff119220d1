//! The HTTP responses of the door: JSON-RPC answers, event streams, and refusals with a reason.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::{Frame as Part, SizeHint};

use super::outlet::Outlet;
use super::stream::Events;
use crate::downstream::guard::Denied;
use crate::protocol::{self, ErrorObject, Malformed, RequestId, code};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The response to a request.
pub(super) type Response = http::Response<Body>;

/// Why a request is refused, with what its response needs.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    id: Option<RequestId>,
    error: Box<ErrorObject>,
    more: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// Refuses a request for this reason.
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self::error(status, ErrorObject::new(code::INVALID_REQUEST, reason))
    }

    /// Refuses a request with a JSON-RPC error.
    pub(super) fn error(status: StatusCode, error: ErrorObject) -> Self {
        Self { status, id: None, error: Box::new(error), more: None }
    }

    /// Refuses a request with an error from the classification or the header checks: status 404 for an unknown method,
    /// 400 for anything else.
    pub(super) fn judged(error: ErrorObject) -> Self {
        let known = error.code != code::METHOD_NOT_FOUND;
        Self::error(if known { StatusCode::BAD_REQUEST } else { StatusCode::NOT_FOUND }, error)
    }

    /// Refuses an HTTP method other than POST, GET and DELETE.
    pub(super) fn method() -> Self {
        Self::method_but("use POST, GET or DELETE", "GET, POST, DELETE")
    }

    /// Refuses an HTTP method other than POST where there are no sessions: only sessions have GET and DELETE.
    pub(super) fn post_only() -> Self {
        Self::method_but("use POST: there are no sessions in this revision", "POST")
    }

    fn method_but(reason: &str, allowed: &'static str) -> Self {
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, reason);
        refusal.more = Some((ALLOW, HeaderValue::from_static(allowed)));
        refusal
    }

    /// Refuses any HTTP method but `method`.
    pub(super) fn only(method: &'static str) -> Self {
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}"));
        refusal.more = Some((ALLOW, HeaderValue::from_static(method)));
        refusal
    }

    /// Refuses a request because of overload or shutdown (503); the client may retry soon.
    pub(super) fn busy(reason: &str) -> Self {
        let mut refusal =
            Self::error(StatusCode::SERVICE_UNAVAILABLE, ErrorObject::new(code::INTERNAL, reason.to_owned()));
        refusal.more = Some((RETRY_AFTER, HeaderValue::from_static("5")));
        refusal
    }

    /// Returns the status and the reason.
    pub(super) fn told(&self) -> (StatusCode, &str) {
        (self.status, &self.error.message)
    }

    /// Sets the JSON-RPC id of the refused request.
    pub(super) fn about(mut self, id: Option<RequestId>) -> Self {
        self.id = id;
        self
    }

    /// Returns the HTTP response.
    pub(super) fn into_response(self) -> Response {
        let answer = protocol::Response { id: self.id, outcome: Err(*self.error) };
        let mut response = json(answer.frame().pieces().into());
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.more);
        response
    }
}

impl From<Denied> for Refusal {
    fn from(refused: Denied) -> Self {
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

/// Returns a response with one JSON message, with a `Content-Length` and without a copy.
pub(super) fn json(pieces: VecDeque<Bytes>) -> Response {
    let mut response = Response::new(Body::Whole(pieces));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Returns a response with a JSON array of several answers.
pub(super) fn json_array(responses: &[protocol::Response], outlet: &Outlet) -> Response {
    let mut pieces = VecDeque::new();
    for response in responses {
        pieces.push_back(Bytes::from_static(if pieces.is_empty() { b"[" } else { b"," }));
        pieces.extend(outlet.pieces(response.frame()));
    }
    pieces.push_back(Bytes::from_static(b"]"));
    json(pieces)
}

/// Returns a response with text. `headers` may set another `Content-Type` than plain text.
pub(super) fn text<const N: usize>(headers: [(HeaderName, &'static str); N], text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::Whole(VecDeque::from([text.into()])));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns a response with an event stream.
pub(super) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer responses would hold events back.
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Returns the response to a message that needs no answer.
pub(super) fn accepted() -> Response {
    bare(StatusCode::ACCEPTED)
}

/// Returns a response with a status and no body.
pub(super) fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// The body of a response. A whole body allocates only its pieces; a stream is large and allocated once.
pub(super) enum Body {
    /// No bytes.
    Empty,
    /// A whole body, in pieces.
    Whole(VecDeque<Bytes>),
    /// The events of a session's stream.
    Events(Box<Events>),
    /// Any other event stream.
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// Returns a body that sends the events of a session's stream.
    pub(super) fn record(events: Events) -> Self {
        Self::Events(Box::new(events))
    }

    /// Returns a body that sends what the stream yields.
    pub(super) fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(pieces.boxed())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Part<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(pieces) => {
                let piece = std::iter::from_fn(|| pieces.pop_front()).find(|piece| !piece.is_empty());
                Poll::Ready(piece.map(|piece| Ok(Part::data(piece))))
            }
            Self::Events(events) => Pin::new(&mut **events).poll_frame(cx),
            Self::Stream(pieces) => pieces.poll_next_unpin(cx).map(|piece| piece.map(|piece| Ok(Part::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(pieces) => pieces.iter().all(Bytes::is_empty),
            Self::Events(events) => events.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(pieces) => SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Events(events) => events.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Body as _;
    use http_body_util::BodyExt as _;

    use super::*;

    /// Returns the length if known in advance, whether the body is empty, and the bytes that it sends.
    async fn sent(body: Body) -> (Option<u64>, bool, String) {
        let (length, is_end) = (body.size_hint().exact(), body.is_end_stream());
        let bytes = body.collect().await.unwrap().to_bytes();
        (length, is_end, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_whole_answer_tells_its_length_and_a_stream_does_not() {
        assert_eq!(sent(Body::Empty).await, (Some(0), true, String::new()));
        let pieces =
            |pieces: &[&'static str]| pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        assert_eq!(sent(Body::Whole(pieces(&[]))).await, (Some(0), true, String::new()));
        assert_eq!(sent(Body::Whole(pieces(&["", ""]))).await, (Some(0), true, String::new()));
        assert_eq!(sent(Body::Whole(pieces(&["", "ab", "", "c", ""]))).await, (Some(3), false, "abc".to_owned()));
        let pieces = stream::iter([Bytes::from_static(b":"), Bytes::from_static(b"\n\n")]);
        assert_eq!(sent(Body::stream(pieces)).await, (None, false, ":\n\n".to_owned()));
    }

    #[tokio::test]
    async fn a_text_is_plain_unless_a_header_says_otherwise() {
        let types = |response: &Response| {
            let types = response.headers().get_all(CONTENT_TYPE).iter();
            types.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let plain = text([], "ok\n");
        assert_eq!((plain.status(), types(&plain)), (StatusCode::OK, vec!["text/plain; charset=utf-8".to_owned()]));
        assert_eq!(sent(plain.into_body()).await, (Some(3), false, "ok\n".to_owned()));
        assert_eq!(types(&text([(CONTENT_TYPE, "text/html")], "")), ["text/html"]);
        let bare = accepted();
        assert_eq!((bare.status(), types(&bare)), (StatusCode::ACCEPTED, Vec::new()));
    }
}
