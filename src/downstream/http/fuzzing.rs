//! What the fuzzers see of the door.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::outlet::Wire;
use super::routes::Service;
use super::session::{Caps, Sessions};
use super::{headers, sse};
use crate::downstream::authentication::Authentication;
use crate::downstream::classify::Eras;
use crate::downstream::guard::Guard;
use crate::router::Router;

/// What the value of a header stands for.
pub(crate) fn decode(value: &str) -> Option<Cow<'_, str>> {
    headers::decode(value)
}

/// Whether a door at port 8808 that allows nobody more lets such a request in.
pub(crate) fn admits(host: &[u8], origin: Option<&[u8]>, target: Option<&[u8]>) -> bool {
    let mut heads = HeaderMap::new();
    let Ok(host) = HeaderValue::from_bytes(host) else { return false };
    heads.insert(HOST, host);
    match origin.map(HeaderValue::from_bytes) {
        Some(Ok(origin)) => drop(heads.insert(ORIGIN, origin)),
        Some(Err(_)) => return false,
        None => {}
    }
    let Ok(uri) = Uri::try_from(target.unwrap_or(b"/mcp")) else { return false };
    Guard::new(8808, &[], &[]).check(&uri, &heads).is_ok()
}

/// A door without a listener, at what would be port 8808.
#[derive(Debug)]
pub(crate) struct Door(Arc<super::Door>);

impl Door {
    pub(crate) fn new(router: Router) -> Self {
        let limits = router.limits();
        let caps = Caps { all: limits.sessions, of_one: limits.sessions_per_principal };
        let sessions = Sessions::new(caps, limits.session_idle);
        Self(Arc::new(super::Door {
            guard: Guard::new(8808, &[], &[]),
            authentication: Authentication::None,
            sessions,
            sse: Some(sse::Table::default()),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            eras: Eras::Both,
            router,
        }))
    }

    /// Serves one connection to its end.
    pub(crate) fn serve(&self, stream: DuplexStream) -> impl Future<Output = ()> + Send + use<> {
        let wire = Wire::default();
        let service = Service::new(Arc::clone(&self.0), wire.clone(), Arc::default());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(super::HEADER_TIME)
            .max_header_size(super::HEADER_BYTES)
            .max_buf_size(super::BUFFER)
            .serve_connection(TokioIo::new(stream), service);
        async move {
            // Errors are the client's.
            tokio::select! {
                _ = connection => {}
                () = wire.0.cancelled() => {}
            }
        }
    }
}
