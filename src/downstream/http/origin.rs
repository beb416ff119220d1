//! The origin of a request, for its span: the trace that a header of its HTTP request names, a hash of its session's
//! id, and its own id. Nothing is read unless spans are made.

use http::HeaderMap;

use crate::observe::Observer;
use crate::protocol::{RequestId, TraceParent};
use crate::router::Mailbox;
use crate::traced::{Origin, hashed};

/// Notes the origin of a request in its mailbox.
pub(super) fn note(
    observer: &Observer,
    headers: &HeaderMap,
    (session, id): (Option<&[u8]>, &RequestId),
    leg: &Mailbox,
) {
    if let Some(origin) = of(observer, headers, session, id) {
        leg.comes_from(origin);
    }
}

/// Returns the origin of a request; `None` if no spans are made.
pub(super) fn of(observer: &Observer, headers: &HeaderMap, session: Option<&[u8]>, id: &RequestId) -> Option<Origin> {
    if !observer.traces() {
        return None;
    }
    let parent = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(TraceParent::parse);
    // The session's id is hashed, because whoever has it can use the session.
    Some(Origin { parent, session: session.map(hashed), id: Some(id.to_string()) })
}
