//! Hands a request to another replica, and its answer to the client. Both are streamed: a client that reads slowly slows its own
//! stream down, and one that leaves withdraws its request.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, DATE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{BOOT, LOST, PROOF};
use crate::downstream::authentication::{Carried, Proven};
use crate::downstream::http::answer::{Body, Response};
use crate::downstream::http::halved::Arriving;
use crate::downstream::http::wires::HttpWire;
use crate::peers::{Link, SendFailed, Sending};

/// How long the head of an answer may take. A replica that hangs is noticed far sooner, by its channel.
const HEAD: Duration = Duration::from_secs(120);

/// What concerns one hop alone, or must not travel.
const OF_ONE_HOP: [HeaderName; 14] = [
    AUTHORIZATION,
    CONNECTION,
    COOKIE,
    HOST,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    BOOT,
    PROOF,
    LOST,
];

/// What is handed over beside the body.
pub(super) struct Parcel {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// What came of it.
pub(super) enum Forwarded {
    Answered(http::Response<Incoming>),
    /// The other one is not what it was taken for, or stops.
    NotThere,
    /// The request never left.
    Unsent,
    /// It may have arrived, and there is no answer.
    Lost,
}

impl Parcel {
    /// Makes ready what is handed over of this request. Returns `None` if it cannot be written down.
    pub(super) fn new(head: (&Method, &Uri, &HeaderMap), proven: &Proven) -> Option<Self> {
        let (method, uri, headers) = head;
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme("http").authority("peer").path_and_query(path).build().ok()?;
        let mut headers = headers.clone();
        OF_ONE_HOP.iter().for_each(|name| drop(headers.remove(name)));
        let proof = serde_json::to_vec(&Carried::of(proven)).ok()?;
        let mut proof = HeaderValue::try_from(BASE64_URL_SAFE_NO_PAD.encode(proof)).ok()?;
        proof.set_sensitive(true);
        headers.insert(PROOF, proof);
        Some(Self { method: method.clone(), uri, headers })
    }
}

/// Returns a body that is known whole.
pub(super) fn whole(bytes: Bytes) -> Sending {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body that is still arriving.
pub(super) fn streamed(body: Arriving) -> Sending {
    body.map_err(|_| "the client broke off".into()).boxed_unsync()
}

/// Hands a request over. With `is_lost`, the other one does not serve it, and says that its outcome is unknown.
///
/// # Cancel safety
/// Dropping the future withdraws the request.
pub(super) async fn forward(link: &Link, parcel: &Parcel, body: Sending, is_lost: bool) -> Forwarded {
    let mut request = http::Request::new(body);
    *request.method_mut() = parcel.method.clone();
    *request.uri_mut() = parcel.uri.clone();
    *request.headers_mut() = parcel.headers.clone();
    let Ok(boot) = HeaderValue::try_from(link.boot().to_string()) else { return Forwarded::Unsent };
    request.headers_mut().insert(BOOT, boot);
    if is_lost {
        request.headers_mut().insert(LOST, HeaderValue::from_static("1"));
    }
    match timeout(HEAD, link.send(request)).await {
        Ok(Ok(response)) if response.status() == StatusCode::MISDIRECTED_REQUEST => Forwarded::NotThere,
        Ok(Ok(response)) => Forwarded::Answered(response),
        Ok(Err(SendFailed::Unsent)) => Forwarded::Unsent,
        Ok(Err(SendFailed::Lost)) | Err(_) => Forwarded::Lost,
    }
}

/// Returns the answer of another replica as that of this one. If it breaks off, so does the connection to the client. It ends
/// with `until`, if that is given.
pub(super) fn answer(
    response: http::Response<Incoming>,
    wire: &HttpWire,
    until: Option<CancellationToken>,
) -> Response {
    let (head, incoming) = response.into_parts();
    let mut headers = head.headers;
    OF_ONE_HOP.iter().chain([&DATE]).for_each(|name| drop(headers.remove(name)));
    let is_empty = incoming.is_end_stream();
    if is_empty {
        headers.remove(CONTENT_LENGTH);
    }
    let body = if is_empty { Body::Empty } else { Body::stream(pieces(incoming, wire.clone(), until)) };
    let mut answer = Response::new(body);
    *answer.status_mut() = head.status;
    *answer.headers_mut() = headers;
    answer
}

fn pieces(
    incoming: Incoming,
    wire: HttpWire,
    until: Option<CancellationToken>,
) -> impl stream::Stream<Item = Bytes> + Send + 'static {
    stream::unfold((incoming, wire, until), |(mut incoming, wire, until)| async move {
        loop {
            let next = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx));
            let next = match &until {
                Some(until) => until.run_until_cancelled(next).await?,
                None => next.await,
            };
            match next? {
                Ok(frame) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => return Some((piece, (incoming, wire, until))),
                    _ => {}
                },
                Err(_) => {
                    // A body that just ended would look whole.
                    wire.end_token().cancel();
                    return std::future::pending().await;
                }
            }
        }
    })
}
