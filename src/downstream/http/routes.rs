//! The routes, and the guard before them.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router as Routes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};

use super::answer::Refusal;
use super::{Door, get, post, sse};
use crate::downstream::classify::Eras;
use crate::downstream::guard::Guard;
use crate::upstream::StateName;

/// What a connection serves: nothing that the guard refuses.
#[derive(Clone, Debug)]
pub(super) struct Service {
    guard: Arc<Guard>,
    routes: TowerToHyperService<Routes>,
    used: Arc<AtomicBool>,
}

impl Service {
    pub(super) fn new(guard: Arc<Guard>, door: &Arc<Door>) -> Self {
        let routes = Routes::new()
            .route("/mcp", any(mcp))
            .route("/sse", any(stream))
            .route("/messages", any(messages))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .fallback(unknown)
            .with_state(Arc::clone(door));
        Self { guard, routes: TowerToHyperService::new(routes), used: Arc::default() }
    }

    /// The same service; it notes that it was used.
    pub(super) fn marking(self, used: Arc<AtomicBool>) -> Self {
        Self { used, ..self }
    }
}

type Routed = TowerToHyperServiceFuture<Routes, hyper::Request<Incoming>>;

impl hyper::service::Service<hyper::Request<Incoming>> for Service {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, Routed>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        self.used.store(true, Ordering::Relaxed);
        match self.guard.check(request.uri(), request.headers()) {
            Ok(()) => Either::Right(self.routes.call(request)),
            Err(refused) => Either::Left(ready(Ok(Refusal::new(refused.status, refused.reason).into_response()))),
        }
    }
}

async fn mcp(State(door): State<Arc<Door>>, request: Request) -> Response {
    let answer = match *request.method() {
        Method::POST => post::post(&door, request).await,
        Method::GET => get::get(&door, request.headers()),
        Method::DELETE => get::delete(&door, request.headers()),
        _ if door.eras == Eras::Modern => Err(Refusal::post_only()),
        _ => Err(Refusal::method()),
    };
    answer.unwrap_or_else(Refusal::into_response)
}

async fn stream(State(door): State<Arc<Door>>, request: Request) -> Response {
    let Some(table) = &door.sse else { return unknown().await };
    let answer = match *request.method() {
        Method::GET => sse::get(&door, table, request.headers()),
        // Clients that try Streamable HTTP first learn from this that it is not here.
        _ => Err(Refusal::only("GET")),
    };
    answer.unwrap_or_else(Refusal::into_response)
}

async fn messages(State(door): State<Arc<Door>>, request: Request) -> Response {
    let Some(table) = &door.sse else { return unknown().await };
    let answer = match *request.method() {
        Method::POST => sse::post(&door, table, request).await,
        _ => Err(Refusal::only("POST")),
    };
    answer.unwrap_or_else(Refusal::into_response)
}

async fn unknown() -> Response {
    Refusal::new(StatusCode::NOT_FOUND, "there is nothing here; the endpoint is /mcp").into_response()
}

/// The process lives.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Every required server is ready, or will never be.
async fn readyz(State(door): State<Arc<Door>>) -> (StatusCode, String) {
    let servers = door.router.status();
    readiness(servers.iter().filter(|server| server.required).map(|server| {
        let why = server.last_error.as_deref().or(server.waiting_for.as_deref());
        (server.name.as_str(), server.state, why.unwrap_or_default())
    }))
}

/// What `/readyz` says about the required servers: name, state and why.
fn readiness<'a>(required: impl Iterator<Item = (&'a str, StateName, &'a str)>) -> (StatusCode, String) {
    let mut waiting = String::new();
    let mut failed = String::new();
    for (name, state, why) in required {
        let text = match state {
            // A lazy server is as ready as it gets before somebody calls it.
            StateName::Connected | StateName::Idle => continue,
            StateName::Failed | StateName::Disabled => &mut failed,
            _ => &mut waiting,
        };
        let colon = if why.is_empty() { "" } else { ": " };
        // Writing to a string cannot fail. What a server said is shown escaped.
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
