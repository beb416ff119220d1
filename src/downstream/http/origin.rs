//! Where a request comes from, as its span says: the trace that a header of its HTTP request names, a hash of its session,
//! and its id. Nothing is read unless spans are made.

use http::HeaderMap;
use sha2::{Digest as _, Sha256};

use super::session::Session;
use crate::hex;
use crate::observe::Observer;
use crate::protocol::{RequestId, TraceParent};
use crate::router::Mailbox;
use crate::traced::Origin;

/// How many bytes of the hash of a session's id are told.
const TOLD: usize = 16;

/// Notes it in the mailbox of the request.
pub(super) fn note(
    observer: &Observer,
    headers: &HeaderMap,
    (session, id): (Option<&Session>, &RequestId),
    leg: &Mailbox,
) {
    if observer.traces() {
        let parent = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(TraceParent::parse);
        // Whoever has the id itself can use the session.
        let hashed = |session: &Session| hex::encode(&Sha256::digest(session.key.to_string())[..TOLD]);
        leg.comes_from(Origin { parent, session: session.map(hashed), id: Some(id.to_string()) });
    }
}
