//! Resources of a client with a session, watched again when another lease serves the client.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::client::{Client, Subscription};
use crate::manager::Server;
use crate::protocol::Theirs;
use crate::upstream::Upstream;

/// How long a request waits for resources to be watched again. The rest is tried before the next request.
const PATIENCE: Duration = Duration::from_secs(2);

impl Client {
    /// Makes the client's current lease watch what an earlier one watched. This happens before a request goes there, so
    /// that no change by the request is missed.
    ///
    /// # Cancel safety
    /// A dropped wait leaves the rest to the next request.
    pub(super) async fn watch_anew(&self, server: &Server, upstream: &Arc<Upstream>) {
        let is_left = |old: &Subscription| {
            let is_over = || old.upstream.is_stopped() || !server.is_in_era(&old.upstream, &self.who);
            // Resources watched on a newer lease stay there: this call started earlier, on the older one.
            let is_older = || old.upstream.id < upstream.id;
            old.server == server.id && old.upstream.id != upstream.id && (is_older() || is_over())
        };
        let left: Vec<(Arc<str>, Subscription)> = self.watched(|all| {
            all.iter().filter(|(_, old)| is_left(old)).map(|(uri, old)| (uri.clone(), old.clone())).collect()
        });
        let end = Instant::now() + PATIENCE;
        for (uri, old) in left {
            let over = match timeout_at(end, upstream.subscribe(&old.raw)).await {
                Ok(Ok(Ok(_))) => {
                    let new = Subscription { upstream: upstream.clone(), ..old.clone() };
                    // The client may have unsubscribed, or another of its requests may have been faster.
                    self.watched(|all| match all.get_mut(&uri) {
                        Some(now) if now.upstream.id == old.upstream.id => Some(std::mem::replace(now, new)),
                        _ => Some(new),
                    })
                }
                Ok(Ok(Err(error))) => {
                    let (label, why) = (&*server.label, Theirs(&error.message));
                    tracing::warn!(server = label, "not watched over its new connection: {}: {why}", Theirs(&uri));
                    self.watched(|all| {
                        let is_it = all.get(&uri).is_some_and(|now| now.upstream.id == old.upstream.id);
                        if is_it { all.remove(&uri) } else { None }
                    })
                }
                Ok(Err(_)) | Err(_) => None,
            };
            if let Some(over) = over {
                over.upstream.unwant_uri(&over.raw);
            }
        }
    }
}
