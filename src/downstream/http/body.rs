//! Reads a request: what its headers promise, and its body up to a cap.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use tokio::time::timeout;

use super::answer::Refusal;

/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// A body over the cap is read and dropped up to that many times the cap: a client that is still writing when the
/// connection closes sees a broken connection and not the refusal.
const DROPPED: usize = 4;

/// Refuses a body that is not said to be JSON: a form on a web page cannot send that type (`hazards.md` H81).
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "`Content-Type` must be application/json"))
}

/// Refuses a client that would not understand an answer of one of these types. One that names no types takes any.
pub(super) fn check_accept(headers: &HeaderMap, types: &[&str]) -> Result<(), Refusal> {
    if !headers.contains_key(ACCEPT) || types.iter().all(|wanted| accepts(headers, wanted)) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, format!("`Accept` must allow {}", types.join(" and "))))
}

fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let family = wanted.split('/').next().unwrap_or_default();
    headers.get_all(ACCEPT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|range| {
        let range = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let any = range.strip_suffix(b"/*").is_some_and(|of| of == b"*" || of.eq_ignore_ascii_case(family.as_bytes()));
        any || range.eq_ignore_ascii_case(wanted.as_bytes())
    })
}

/// The one value of a header; `None` if it is absent.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("more than one `{name}`")));
    }
    Ok(first)
}

/// Reads a whole body. One that came in one piece is not copied.
pub(super) async fn read(body: Body, cap: usize) -> Result<Bytes, Refusal> {
    match timeout(BODY_TIME, collect(body, cap)).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

async fn collect(mut body: Body, cap: usize) -> Result<Bytes, Refusal> {
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if promised > cap.saturating_mul(DROPPED) {
        return Err(too_large(cap));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut length = 0_usize;
    while let Some(part) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let part = part.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body is broken off"))?;
        let Ok(part) = part.into_data() else { continue };
        length += part.len();
        if length > cap.saturating_mul(DROPPED) {
            return Err(too_large(cap));
        }
        if length > cap {
            (first, all) = (Bytes::new(), BytesMut::new());
        } else if length == part.len() {
            first = part;
        } else {
            if all.is_empty() {
                all.reserve(promised.min(cap).max(length));
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&part);
        }
    }
    match length {
        _ if length > cap => Err(too_large(cap)),
        _ if all.is_empty() => Ok(first),
        _ => Ok(all.freeze()),
    }
}

fn too_large(cap: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {cap} bytes"))
}
