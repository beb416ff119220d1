//! What is agreed on with a server of the modern era, agreed on anew when it says that it no longer holds.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, TOOLS};
use super::era::{self, Verdict};
use super::inbox::Item;
use super::listing;
use super::terms::Terms;
use crate::protocol::Method;
use crate::transport::Error;

/// It is asked about its revision for that long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server refused the revision of a request (`-32022`): whether it still speaks it, is asked. If so the request may be
/// sent again; if not, the connection is over, and the next one begins with the question of the era.
pub(super) async fn revision(connection: Arc<Connection>, id: u64) {
    let discover = connection.open(connection.next_id(), &Method::Discover, None, &Terms::host());
    let answer = tokio::time::timeout(PATIENCE, discover.outcome()).await;
    let verdict = era::verdict(answer.unwrap_or(Err(Error::Broken)));
    connection.finish(id, Item::Lost(Error::Renegotiated));
    if !matches!(verdict, Verdict::Modern(_)) {
        connection.lose(&Error::Malformed("it no longer speaks the revision that was agreed on".to_owned()));
    }
}

/// The server says that headers are not those that its tool wants (`-32020`): its list is read anew.
pub(super) async fn headers(connection: &Arc<Connection>) {
    if let Ok(offer) = listing::tools(connection, connection.caps()).await {
        connection.keep_offer(Arc::new(offer));
    }
    // The others are told in due course.
    connection.mark(TOOLS);
}
