//! Renegotiates with a modern server that no longer accepts the agreed revision or the headers of a tool call.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, TOOLS};
use super::era::{self, Verdict};
use super::inbox::Item;
use super::listing;
use super::terms::Terms;
use crate::protocol::Method;
use crate::transport::Error;

/// How long to wait for the server's answer about its revisions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Handles a refused revision (`-32022`) by asking the server whether it still speaks that revision. If so, the request
/// may be retried; if not, the connection ends, and the next one begins with era detection.
pub(super) async fn revision(connection: Arc<Connection>, id: u64) {
    let discover = connection.open(connection.next_id(), &Method::Discover, None, &Terms::host());
    let answer = tokio::time::timeout(PATIENCE, discover.outcome()).await;
    let verdict = era::verdict(answer.unwrap_or(Err(Error::Broken)));
    connection.finish(id, Item::Lost(Error::Renegotiated));
    if !matches!(verdict, Verdict::Modern(_)) {
        connection.lose(&Error::Malformed("it no longer speaks the revision that was agreed on".to_owned()));
    }
}

/// Rereads the tool list after the server refused the headers of a tool call (`-32020`).
pub(super) async fn headers(connection: &Arc<Connection>) {
    if let Ok(offer) = listing::tools(connection, connection.caps()).await {
        connection.keep_offer(Arc::new(offer));
    }
    // The other lists are reread, and changes reported, in due course.
    connection.mark(TOOLS);
}
