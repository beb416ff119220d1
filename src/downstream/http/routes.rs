//! The HTTP routes, and the checks before them: first the guard (hosts and origins), then authentication.
//!
//! **Invariant:** only the paths in [`ROUTES`], those of the OAuth resource metadata, and those of the page (`console.rs`) are
//! served. The first two change nothing of the host itself; the page's API wants a session that the user of the local socket
//! began (`docs/hazards.md` H83).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::Either;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method, StatusCode, Version};
use hyper::body::Incoming;

use super::answer::{self, Body, Refusal, Response};
use super::body::Request;
#[cfg(feature = "cluster")]
use super::cluster::Step;
use super::console::{Ends, Target};
use super::halved::{Arriving, Served};
use super::rules::Now;
use super::wires::HttpWire;
use super::{Asker, Door, chosen, console, get, metrics, post, sse};
use crate::counts;
#[cfg(feature = "cluster")]
use crate::downstream::authentication::Proven;
use crate::downstream::authentication::{AuthProgress, AuthResult, PendingAuth};
use crate::downstream::classify::Eras;
use crate::upstream::StateName;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Mcp,
    Sse,
    Messages,
    Healthz,
    Readyz,
    Metrics,
}

/// All routes, except for those of the page, and the OAuth resource metadata, which is served if tokens from an issuer are
/// accepted.
const ROUTES: [(&str, Endpoint); 6] = [
    ("/mcp", Endpoint::Mcp),
    ("/sse", Endpoint::Sse),
    ("/messages", Endpoint::Messages),
    ("/healthz", Endpoint::Healthz),
    ("/readyz", Endpoint::Readyz),
    ("/metrics", Endpoint::Metrics),
];

const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

impl Endpoint {
    /// Returns the route of a path, and the view that the path names (`/mcp/VIEW`, `/sse/VIEW`).
    pub(super) fn of(path: &str) -> (Option<Self>, Option<&str>) {
        if let Some((_, route)) = ROUTES.iter().find(|(known, _)| *known == path) {
            return (Some(*route), None);
        }
        let below = |head: &str| path.strip_prefix(head).filter(|view| !view.is_empty() && !view.contains('/'));
        match (below("/mcp/"), below("/sse/")) {
            (Some(view), _) => (Some(Self::Mcp), Some(view)),
            (_, Some(view)) => (Some(Self::Sse), Some(view)),
            _ => (None, None),
        }
    }

    /// Reports whether a client may use the route without a token, such as a supervisor.
    fn is_open(self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }

    /// Reports whether the response is an event stream that lasts as long as its client stays.
    fn streams(self, method: &Method) -> bool {
        matches!(self, Self::Mcp | Self::Sse) && *method == Method::GET
    }
}

/// The HTTP service of one connection. It serves nothing that the guard refuses, and an unauthenticated client gets
/// only the open routes.
#[derive(Clone)]
pub(super) struct Service {
    door: Arc<Door>,
    ends: Ends,
    used: Arc<AtomicBool>,
    wire: HttpWire,
}

impl Service {
    /// Creates the service of one connection, which sets `used` at the first request.
    pub(super) fn new(door: Arc<Door>, ends: Ends, wire: HttpWire, used: Arc<AtomicBool>) -> Self {
        Self { door, ends, used, wire }
    }
}

type ServedResponse = http::Response<Served<Body>>;
type Routed = Pin<Box<dyn Future<Output = Result<ServedResponse, Infallible>> + Send>>;

impl hyper::service::Service<http::Request<Incoming>> for Service {
    type Response = ServedResponse;
    type Error = Infallible;
    type Future = Either<Ready<Result<ServedResponse, Infallible>>, Routed>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        self.used.store(true, Ordering::Relaxed);
        let (uri, headers) = (request.uri(), request.headers());
        // Over HTTP/1.1 hyper itself leaves out the body of a response to HEAD.
        let head_only = request.method() == Method::HEAD && request.version() >= Version::HTTP_2;
        // The end of the client's input is held back until it is clear that this request ends with it. Over HTTP/2
        // every stream has its own end.
        let serving = self.wire.serve(request.version() < Version::HTTP_2);
        let (route, _) = Endpoint::of(uri.path());
        let page = Target::of(uri.path());
        let door = if page.is_some() { counts::Door::Console } else { door_of(route) };
        let counts = self.door.router.observer().counted().clone();
        let answer = move |response: Response| {
            counts.answered(door, response.status().as_u16());
            cut(response, head_only).map(|body| Served::new(body, serving))
        };
        let at_once = |answer: ServedResponse| Either::Left(ready(Ok(answer)));
        let rules = self.door.rules();
        if let Err(refused) = rules.guard.check(request.version(), uri, headers) {
            return at_once(answer(Refusal::from(refused).into_response()));
        }
        if headers.len() > self.door.router.limits().headers {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            let refusal = Refusal::new(status, "too many headers (host.limits.headers)");
            return at_once(answer(refusal.into_response()));
        }
        if let Some(metadata) = rules.authentication.metadata(uri.path()) {
            let metadata = only_read(request.method(), answer::text(JSON, metadata.to_owned()));
            return at_once(answer(metadata.unwrap_or_else(Refusal::into_response)));
        }
        if let Some(target) = page.filter(|_| console::is_served(&rules, self.ends, headers)) {
            if target.streams() {
                self.wire.lets_go();
            }
            let service = self.clone();
            return Either::Right(Box::pin(async move {
                let request = request.map(|body| Arriving::new(body, service.wire.clone(), false));
                let seen = (&*rules, service.ends);
                Ok(answer(console::serve(&service.door, &service.wire, seen, target, request).await))
            }));
        }
        if route == Some(Endpoint::Metrics) && metrics::are_open(&rules, headers) {
            let (door, method) = (self.door.clone(), request.method().clone());
            return Either::Right(Box::pin(async move {
                let served = only_read(&method, metrics::metrics(&door.router).await);
                Ok(answer(served.unwrap_or_else(Refusal::into_response)))
            }));
        }
        let is_closed = route.is_some_and(|route| !route.is_open());
        // Where no token is needed, a connection is proven only by the work of sending a request, so the request must
        // arrive whole.
        let needs_all = rules.authentication.wants_peer();
        let (asked, mut rules) = match self.ask(rules, headers) {
            (AuthProgress::Done(Err(refused)), _) if !route.is_some_and(Endpoint::is_open) => {
                return at_once(answer(Refusal::from(refused).into_response()));
            }
            asked => asked,
        };
        if route.is_some_and(|route| route.streams(request.method())) {
            self.wire.lets_go();
        }
        let is_known = matches!(asked, AuthProgress::Done(Ok(_)));
        if is_closed && is_known && !needs_all {
            self.wire.proves();
        }
        let service = self.clone();
        Either::Right(Box::pin(async move {
            let proves = is_closed && is_known && needs_all;
            let request = request.map(|body| Arriving::new(body, service.wire.clone(), proves));
            let asker = match asked {
                // A health check does not wait for an issuer.
                _ if route == Some(Endpoint::Healthz) => None,
                AuthProgress::Done(asker) => Some(asker),
                AuthProgress::Pending(pending) => {
                    let known;
                    (known, rules) = service.known(pending, rules, request.headers()).await;
                    if is_closed && known.is_ok() {
                        service.wire.proves();
                    }
                    Some(known)
                }
            };
            let (door, wire) = (&service.door, &service.wire);
            // Nearly every request ends here, at its handler: each function in between would move it once more.
            let served = match (route, asker) {
                #[cfg(feature = "cluster")]
                (Some(Endpoint::Mcp | Endpoint::Messages), Some(Ok(proven))) if door.cluster.is_some() => {
                    Box::pin(clustered((door, &rules), wire, route, proven, request)).await
                }
                (Some(Endpoint::Mcp), Some(Ok(proven))) => {
                    match chosen::choose(&rules, Endpoint::of(request.uri().path()).1, request.headers(), &proven) {
                        Ok(identity) if request.method() == Method::POST => {
                            post::post(door, wire, &Asker { proven, identity }, request).await
                        }
                        Ok(identity) => Box::pin(mcp(door, wire, &Asker { proven, identity }, request)).await,
                        Err(refused) => Err(refused),
                    }
                }
                (route, asker) => Box::pin(serve((door, &rules), wire, route, asker, request)).await,
            };
            Ok(answer(served.unwrap_or_else(Refusal::into_response)))
        }))
    }
}

impl Service {
    /// Authenticates a request, and returns the access rules that were applied. The connection records the principal,
    /// so that it ends when the proof no longer holds.
    fn ask(&self, mut rules: Arc<Now>, headers: &HeaderMap) -> (AuthProgress, Arc<Now>) {
        loop {
            let asked = rules.authentication.authenticate(headers, self.ends.peer);
            if let AuthProgress::Done(Ok(proven)) = &asked {
                self.wire.carries(&proven.principal);
            }
            let now = self.door.rules();
            if Arc::ptr_eq(&now, &rules) {
                return (asked, rules);
            }
            rules = now;
        }
    }

    /// Finishes an authentication that must fetch keys first. The result is by the access rules that hold when it is
    /// done, which are returned, too.
    async fn known(&self, mut asker: PendingAuth, mut rules: Arc<Now>, headers: &HeaderMap) -> (AuthResult, Arc<Now>) {
        loop {
            let known = asker.await;
            if let Ok(proven) = &known {
                self.wire.carries(&proven.principal);
            }
            let now = self.door.rules();
            if Arc::ptr_eq(&now, &rules) {
                return (known, rules);
            }
            match self.ask(now, headers) {
                (AuthProgress::Done(known), now) => return (known, now),
                (AuthProgress::Pending(again), now) => (asker, rules) = (again, now),
            }
        }
    }
}

/// Returns as whose a request is counted.
fn door_of(route: Option<Endpoint>) -> counts::Door {
    match route {
        Some(Endpoint::Sse | Endpoint::Messages) => counts::Door::Sse,
        _ => counts::Door::Http,
    }
}

/// Removes the body from a response to HEAD.
fn cut(response: Response, head_only: bool) -> Response {
    if head_only { response.map(|_| Body::Empty) } else { response }
}

/// Serves a request for a session, if other replicas may have it.
#[cfg(feature = "cluster")]
async fn clustered(
    (door, rules): (&Arc<Door>, &Now),
    wire: &HttpWire,
    route: Option<Endpoint>,
    proven: Proven,
    request: Request,
) -> Result<Response, Refusal> {
    let Some(cluster) = &door.cluster else { return Err(Refusal::busy("shutting down")) };
    if route == Some(Endpoint::Messages) {
        return match cluster.message(door, wire, &proven, request).await {
            Step::Here(request) => serve((door, rules), wire, route, Some(Ok(proven)), request).await,
            Step::Done(served) => served,
        };
    }
    let identity = chosen::choose(rules, Endpoint::of(request.uri().path()).1, request.headers(), &proven)?;
    let asker = Asker { proven, identity };
    match cluster.session(door, wire, &asker, request).await {
        Step::Here(request) if request.method() == Method::POST => post::post(door, wire, &asker, request).await,
        Step::Here(request) => mcp(door, wire, &asker, request).await,
        Step::Done(served) => served,
    }
}

/// Serves a request at any path but `/mcp`.
async fn serve(
    (door, rules): (&Arc<Door>, &Now),
    wire: &HttpWire,
    route: Option<Endpoint>,
    asker: Option<AuthResult>,
    request: Request,
) -> Result<Response, Refusal> {
    let Some(asker) = asker else { return only_read(request.method(), answer::text([], "ok\n")) };
    match (route, &door.sse, asker) {
        (Some(Endpoint::Readyz), _, asker) => only_read(request.method(), readyz(door, asker.is_ok())),
        (_, _, Err(refused)) => Err(refused.into()),
        (Some(Endpoint::Metrics), _, Ok(_)) if metrics::are_served(rules) => {
            only_read(request.method(), metrics::metrics(&door.router).await)
        }
        (Some(Endpoint::Sse), Some(table), Ok(proven)) => match *request.method() {
            Method::GET => {
                let path = Endpoint::of(request.uri().path()).1;
                chosen::choose(rules, path, request.headers(), &proven)
                    .and_then(|identity| sse::get(door, table, &Asker { proven, identity }, request.headers(), wire))
            }
            // A client that tries Streamable HTTP first learns from this status that it is not served at this path.
            _ => Err(Refusal::only("GET")),
        },
        (Some(Endpoint::Messages), Some(table), Ok(proven)) => match *request.method() {
            Method::POST => sse::post(door, table, &proven, request).await,
            _ => Err(Refusal::only("POST")),
        },
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing here; the endpoint is /mcp")),
    }
}

/// Serves a request at `/mcp` that is no POST.
pub(super) async fn mcp(
    door: &Arc<Door>,
    wire: &HttpWire,
    asker: &Asker,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _body) = request.into_parts();
    match head.method {
        Method::GET => get::get(door, asker, &head.headers, wire).await,
        Method::DELETE => get::delete(door, &asker.identity, &head.headers).await,
        _ if door.eras == Eras::Modern => Err(Refusal::post_only()),
        _ => Err(Refusal::method()),
    }
}

/// Answers GET and HEAD, and refuses other methods.
fn only_read(method: &Method, answer: Response) -> Result<Response, Refusal> {
    match *method {
        Method::GET => Ok(answer),
        Method::HEAD => Ok(cut(answer, true)),
        _ => Err(Refusal::only("GET, HEAD")),
    }
}

/// Returns 200 once every required server is ready or will never be, and 503 before. Only authenticated callers see
/// which servers are not ready.
fn readyz(door: &Door, known: bool) -> Response {
    let servers = door.router.manager().states();
    let required = servers.iter().filter(|server| server.required);
    let (status, text) = readiness(
        required.map(|server| (server.name.as_str(), server.state, server.why.as_deref().unwrap_or_default())),
    );
    let first = |text: &str| text.split_inclusive('\n').next().unwrap_or_default().to_owned();
    let mut answer = answer::text([], if known { text } else { first(&text) });
    *answer.status_mut() = status;
    answer
}

/// Returns the status and text of `/readyz` for the required servers, each given by name, state, and the reason for the
/// state.
fn readiness<'a>(required: impl Iterator<Item = (&'a str, StateName, &'a str)>) -> (StatusCode, String) {
    let mut waiting = String::new();
    let mut failed = String::new();
    for (name, state, why) in required {
        let text = match state {
            // A lazy server is as ready as it gets before its first call.
            StateName::Connected | StateName::Idle => continue,
            StateName::Failed | StateName::Disabled => &mut failed,
            _ => &mut waiting,
        };
        let colon = if why.is_empty() { "" } else { ": " };
        // Writing to a string cannot fail. Text from a server is escaped.
        let _ = writeln!(text, "{name}: {state}{colon}{}", why.escape_debug());
    }
    if waiting.is_empty() {
        return (StatusCode::OK, format!("ready\n{failed}"));
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for required servers\n{waiting}{failed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h83_the_routes_are_these() {
        let paths = ROUTES.map(|(path, _)| path);
        let known = ["/mcp", "/sse", "/messages", "/healthz", "/readyz", "/metrics"];
        assert_eq!(paths, known, "a new route must only read");
        let open: Vec<_> = ROUTES.iter().filter(|(_, route)| route.is_open()).map(|(path, _)| *path).collect();
        assert_eq!(open, ["/healthz", "/readyz"], "served without a token");
    }

    #[test]
    fn a_path_may_name_a_view() {
        for (path, route, view) in [
            ("/mcp", Some(Endpoint::Mcp), None),
            ("/mcp/review", Some(Endpoint::Mcp), Some("review")),
            ("/sse/review", Some(Endpoint::Sse), Some("review")),
            ("/mcp/", None, None),
            ("/mcp/a/b", None, None),
            ("/messages/review", None, None),
            ("/mcpx", None, None),
        ] {
            assert_eq!(Endpoint::of(path), (route, view), "{path}");
        }
    }

    #[test]
    fn ready_or_failed_for_good() {
        const WAITING: &str = "waiting for required servers\n";
        let cases: [(&[_], u16, &str); 6] = [
            (&[], 200, "ready\n"),
            (&[StateName::Connected, StateName::Idle], 200, "ready\n"),
            (&[StateName::Failed], 200, "ready\nfiles: failed: no\\nway\n"),
            (&[StateName::Connecting], 503, "files: connecting: no\\nway\n"),
            (&[StateName::Reconnecting, StateName::Connected], 503, "files: reconnecting: no\\nway\n"),
            (
                &[StateName::Failed, StateName::Unauthorized],
                503,
                "files: unauthorized: no\\nway\nfiles: failed: no\\nway\n",
            ),
        ];
        for (states, status, text) in cases {
            let (got, body) = readiness(states.iter().map(|state| ("files", *state, "no\nway")));
            assert_eq!((got.as_u16(), body.strip_prefix(WAITING).unwrap_or(&body)), (status, text), "{states:?}");
        }
    }
}
