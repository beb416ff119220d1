//! The page and its API over HTTP: who gets them, and in which form (`console`).
//!
//! In: requests that have passed the guard. Out: files of the page, and answers of its API. **Invariant:** only a
//! session's token opens the API, and it opens nothing else. A process of another user does not even get the files.
//! Every request that changes something must name our own page as its origin.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::StreamExt as _;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, FORWARDED, HOST, IF_NONE_MATCH, ORIGIN,
    REFERRER_POLICY, RETRY_AFTER, VIA, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::answer::{self, Body, Refusal, Response};
use super::body::{self, Request};
use super::rules::Now;
use super::wires::HttpWire;
use super::{Door, chosen};
use crate::config;
use crate::config::HostSettings;
use crate::downstream::authentication::shown_token;
use crate::downstream::console::{Answer, Asked, Asset, No, Route, asset};
use crate::downstream::peer::Peer;
use crate::router::{Identity, Principal};

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; \
     base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// The target of a path of the page: a file, or a route of the API.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    File(&'static Asset, &'static str),
    Api(Route, &'static str),
}

/// The ends of a connection, as far as they decide who gets the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) peer: Peer,
    /// Whether both ends are on loopback.
    pub(super) is_loopback: bool,
}

impl Target {
    /// Returns the target of a path; `None` if the page does not have that path.
    pub(super) fn of(path: &str) -> Option<Self> {
        if let Some((file, tag)) = asset(path) {
            return Some(Self::File(file, tag));
        }
        Route::of(path).map(|(route, methods)| Self::Api(route, methods))
    }

    /// Reports whether the answer lasts until its reader leaves.
    pub(super) fn streams(self) -> bool {
        matches!(self, Self::Api(route, _) if route.streams())
    }
}

/// Reports whether a request gets the page at all. If not, the page's paths do not exist for it.
pub(super) fn is_served(rules: &Now, ends: Ends, headers: &HeaderMap) -> bool {
    match rules.settings().console {
        config::Console::Off => false,
        config::Console::On => true,
        config::Console::Local => ends.is_loopback && !is_forwarded(headers),
    }
}

/// Reports whether a proxy has passed the request on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let tells = |name: &HeaderName| *name == FORWARDED || *name == VIA || name.as_str().starts_with("x-forwarded-");
    headers.keys().any(tells)
}

/// Serves a request.
pub(super) async fn serve(
    door: &Arc<Door>,
    wire: &HttpWire,
    (rules, ends): (&Now, Ends),
    target: Target,
    request: Request,
) -> Response {
    let mut response = match target {
        _ if ends.peer == Peer::Stranger => {
            let text = "the client runs as another user of this machine";
            refused(&No::new(StatusCode::FORBIDDEN, "refused", text))
        }
        Target::File(of, tag) => file(of, tag, &request),
        Target::Api(route, methods) => {
            api(door, wire, rules, (route, methods), request).await.unwrap_or_else(|no| refused(&no))
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, SAME_ORIGIN);
    headers.insert(RESOURCE, SAME_ORIGIN);
    response
}

/// Returns a file of the page.
fn file(file: &'static Asset, tag: &'static str, request: &Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return refused_method("GET, HEAD");
    }
    let has_it = request.headers().get_all(IF_NONE_MATCH).iter().any(|value| value.as_bytes() == tag.as_bytes());
    let mut response = if has_it { answer::bare(StatusCode::NOT_MODIFIED) } else { answer::text([], file.bytes) };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    headers.insert(ETAG, HeaderValue::from_static(tag));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Serves a request of the API.
async fn api(
    door: &Arc<Door>,
    wire: &HttpWire,
    rules: &Now,
    (route, methods): (Route, &'static str),
    request: Request,
) -> Result<Response, No> {
    if !methods.split(", ").any(|method| method == request.method().as_str()) {
        return Ok(refused_method(methods));
    }
    let (head, body) = request.into_parts();
    let (headers, is_post) = (&head.headers, head.method == Method::POST);
    if head.method != Method::GET && !is_of_page(&head.uri, headers) {
        let text = "this needs the `Origin` of the page itself";
        return Err(No::new(StatusCode::FORBIDDEN, "refused", text));
    }
    let begins = route == Route::Session && is_post;
    let in_use = match shown_token(headers).and_then(|token| door.console.access().find(token)) {
        Some(in_use) => Some(in_use),
        None if begins => None,
        None => return Err(no_session()),
    };
    if in_use.is_some() {
        wire.proves();
    }
    if door.stopping.is_cancelled() {
        return Err(No::stopping());
    }
    let principal = Principal::console();
    let bytes = if is_post {
        body::check_type(headers).map_err(|refusal| told(&refusal))?;
        body::read(body, door.router.limits().body, &principal, &door.bodies).await.map_err(|refusal| told(&refusal))?
    } else {
        bytes::Bytes::new()
    };
    let answer = match in_use.filter(|_| !begins) {
        None => door.console.begin(&bytes)?,
        Some(in_use) => {
            let identity = identity(rules.settings())?;
            let query = query(&head.uri)?;
            door.console.serve(route, Asked { in_use, identity, query, body: bytes }).await?
        }
    };
    Ok(written(door, wire, answer))
}

/// Writes an answer. Its bytes count until the connection has them.
fn written(door: &Door, wire: &HttpWire, answer: Answer) -> Response {
    let outlet = wire.outlet(&door.router.queues().account());
    let (mut response, media_type) = match answer {
        Answer::Json(text) => (answer::json(outlet.bytes(text.into())), JSON),
        Answer::Lines(lines) => {
            let pieces = lines.flat_map(move |line| futures_util::stream::iter(outlet.bytes(line)));
            (http::Response::new(Body::stream(pieces)), LINES)
        }
    };
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Reports whether a request comes from our own page: its origin is the host that it names.
fn is_of_page(uri: &Uri, headers: &HeaderMap) -> bool {
    // The guard has checked that there is one host at most, and one origin.
    let host = uri.authority().map(|host| host.as_str()).or_else(|| headers.get(HOST)?.to_str().ok());
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let (Some(host), Some((scheme, of))) = (host, origin.and_then(|origin| origin.split_once("://"))) else {
        return false;
    };
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) && of.eq_ignore_ascii_case(host)
}

/// Reads the members of a query.
fn query(uri: &Uri) -> Result<HashMap<String, String>, No> {
    let mut members = HashMap::new();
    for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if members.insert(name.into_owned(), value.into_owned()).is_some() {
            return Err(No::malformed("the query has a member twice"));
        }
    }
    Ok(members)
}

fn no_session() -> No {
    No::new(StatusCode::UNAUTHORIZED, "no_session", "there is no such session, or it is over")
        .help("open the page by `mcp-host open`")
}

/// Returns the identity of a person at the page, or at the daemon's socket.
///
/// # Errors
/// When the view that is the default is for other people.
pub(crate) fn identity(settings: &HostSettings) -> Result<Identity, No> {
    chosen::of_page(settings).map_err(|_| no_view())
}

fn no_view() -> No {
    No::new(StatusCode::NOT_FOUND, "unknown", "the view that is the default is not for the page (host.view)")
        .help("set \"host.view\" to a view without an audience")
}

/// Turns a refusal of the door into one of the API.
fn told(refusal: &Refusal) -> No {
    let (status, message) = refusal.told();
    let error = match status {
        StatusCode::SERVICE_UNAVAILABLE => "busy",
        _ => "malformed",
    };
    No::new(status, error, message)
}

fn refused_method(allowed: &'static str) -> Response {
    let mut response = refused(&No::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("use {allowed}")));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn refused(no: &No) -> Response {
    let mut response = answer::text([], no.json());
    *response.status_mut() = no.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    match no.status {
        StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("5"))),
        _ => {}
    }
    response
}
