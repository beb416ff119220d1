//! Checks the headers of a request, and reads its body up to a limit.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;
use tokio::time::timeout;

use super::answer::Refusal;
use super::halved::Arriving;
use super::receipt::Bodies;
use crate::router::Principal;

/// A request whose body is still arriving.
pub(super) type Request = http::Request<Arriving>;

/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// A refused body is read and discarded, up to this many times the size limit and as long as no pause in it exceeds
/// `QUIET`. Otherwise a client that is still writing when the connection closes would see a broken connection, not the
/// refusal.
const DROPPED: usize = 4;
const QUIET: Duration = Duration::from_millis(500);

/// Refuses a body whose `Content-Type` is not JSON, which a form on a web page cannot send (`docs/hazards.md` H81).
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "`Content-Type` must be application/json"))
}

/// The `Accept` header of nearly all clients, and its two types, which a POST needs.
const USUAL: (&str, [&str; 2]) = ("application/json, text/event-stream", ["application/json", "text/event-stream"]);

/// Refuses a request whose `Accept` does not allow all of these media types. A request without `Accept` allows any.
pub(super) fn check_accept(headers: &HeaderMap, types: &[&str]) -> Result<(), Refusal> {
    let is_usual = headers.get(ACCEPT).is_some_and(|value| value == USUAL.0);
    if is_usual && types.iter().all(|wanted| USUAL.1.contains(wanted)) {
        return Ok(());
    }
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

/// Returns the only value of a header; `None` if it is absent.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("more than one `{name}`")));
    }
    Ok(first)
}

/// Reads a whole body of at most `cap` bytes. A body that arrives in one piece is neither copied nor counted in
/// `bodies`.
pub(super) async fn read(mut body: Arriving, cap: usize, of: &Principal, bodies: &Bodies) -> Result<Bytes, Refusal> {
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let most = cap.saturating_mul(DROPPED);
    if promised > most {
        return Err(too_large(cap));
    }
    let whole = async {
        match collect(&mut body, cap, of, bodies).await? {
            Read::Whole(bytes) => Ok(bytes),
            Read::TooLarge => {
                drop_rest(&mut body, most, bodies).await;
                Err(too_large(cap))
            }
            Read::GivenUp => {
                drop_rest(&mut body, most, bodies).await;
                let reason = "too many bodies are being received (host.limits.bodies): send it again, faster";
                Err(Refusal::busy(reason))
            }
        }
    };
    match timeout(BODY_TIME, whole).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

/// The outcome of reading a body. Unless the body is whole, none of its bytes are held any more.
enum Read {
    Whole(Bytes),
    TooLarge,
    GivenUp,
}

async fn collect(body: &mut Arriving, cap: usize, of: &Principal, bodies: &Bodies) -> Result<Read, Refusal> {
    let Some(first) = piece(body).await? else { return Ok(Read::Whole(Bytes::new())) };
    let mut length = first.len();
    if length > cap {
        return Ok(Read::TooLarge);
    }
    if body.is_end_stream() {
        return Ok(Read::Whole(first));
    }
    let most = body.size_hint().exact().and_then(|rest| usize::try_from(rest).ok());
    let most = most.map_or(cap, |rest| rest.saturating_add(length).min(cap));
    let receipt = bodies.begin(of);
    let mut kept = receipt.put(&first, most);
    drop(first);
    while kept.is_ok() {
        let next = tokio::select! {
            biased;
            () = receipt.given_up() => return Ok(Read::GivenUp),
            next = async {
                receipt.turn().await;
                piece(body).await
            } => next?,
        };
        let Some(next) = next else { break };
        length = length.saturating_add(next.len());
        if length > cap {
            return Ok(Read::TooLarge);
        }
        kept = receipt.put(&next, most);
    }
    Ok(kept.and_then(|()| receipt.take()).map_or(Read::GivenUp, Read::Whole))
}

/// Returns the next piece of a body; `None` at its end.
async fn piece(body: &mut Arriving) -> Result<Option<Bytes>, Refusal> {
    while let Some(part) = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let part = part.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body is incomplete"))?;
        if let Ok(part) = part.into_data() {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

/// Reads and discards the rest of a body, unless too many other bodies are being discarded.
async fn drop_rest(body: &mut Arriving, most: usize, bodies: &Bodies) {
    let Some(_place) = bodies.dropping() else { return };
    let mut left = most;
    while let Ok(Ok(Some(piece))) = timeout(QUIET, piece(body)).await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            return;
        }
    }
}

fn too_large(cap: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {cap} bytes"))
}
