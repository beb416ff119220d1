//! The parts of the HTTP door that the fuzzers use.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri, Version};
use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::event_id::{self, EventId, Label};
use super::handle::{self, Handles};
use super::receipt::Bodies;
use super::rules::Rules;
use super::session::{Caps, Sessions};
use super::wires::Wires;
use super::{connection, headers, sse};
use crate::downstream::admin::Run;
use crate::downstream::classify::Eras;
use crate::downstream::console::{Console, access::Access};
use crate::downstream::guard::{Guard, Own};
use crate::router::{Chosen, Router};

const OWN: Own = Own { port: 8808, default_port: 80 };

/// Decodes a header value, which may be base64.
pub(crate) fn decode(value: &str) -> Option<Cow<'_, str>> {
    headers::decode(value)
}

/// Reports whether a door at port 8808 without extra allowed hosts admits this request.
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
    Guard::new(OWN, &[], &[]).check(Version::HTTP_11, &uri, &heads).is_ok()
}

/// Reads the content of a session's id, and what it says about the client.
pub(crate) fn session(body: &[u8]) {
    for view in [Chosen::All, Chosen::named("review")] {
        handle::read(body, &view);
    }
}

/// Checks that the id of an event is read again as it was written.
pub(crate) fn event(text: &str) {
    let Some(read) = EventId::parse(text) else { return };
    let label = read.asked.as_ref().map(Label::of).unwrap_or_default();
    let written = event_id::write((read.life, read.stream), read.event, &label);
    assert_eq!(EventId::parse(&written), Some(read));
}

/// A door without a listener, which behaves as if at port 8808.
pub(crate) struct Door(Arc<super::Door>);

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    pub(crate) fn new(router: Router) -> Self {
        let limits = router.limits();
        let caps = Caps { all: limits.sessions, of_one: limits.sessions_per_principal };
        let sessions = Sessions::new(caps, limits.session_idle);
        let wires = Wires::default();
        Self(Arc::new(super::Door {
            rules: Rules::new(router.manager().clone(), SocketAddr::from(([127, 0, 0, 1], OWN.port)), None),
            bodies: Bodies::new(limits.bodies, wires.clone(), router.queues().clone()),
            wires,
            guests: super::Guests::default(),
            sessions,
            handles: Handles::new(Arc::default()),
            sse: Some(sse::Table::default()),
            tasks: TaskTracker::new(),
            streams: TaskTracker::new(),
            console: Console::new(router.clone(), Access::default(), Run::new(None), (None, CancellationToken::new())),
            stopping: CancellationToken::new(),
            eras: Eras::Both,
            router,
        }))
    }

    /// Serves one connection to its end.
    pub(crate) fn serve(&self, stream: DuplexStream) -> impl Future<Output = ()> + Send + use<> {
        connection::bare(Arc::clone(&self.0), stream)
    }
}
