//! Moves the subscriptions of a session when its client is switched to another connection (lease) of the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::client::{Client, Subscription};
use crate::manager::Server;
use crate::protocol::Theirs;
use crate::upstream::Upstream;

/// How long a request waits for subscriptions to move. Those that are left are tried again before the next request.
const PATIENCE: Duration = Duration::from_secs(2);

impl Client {
    /// Subscribes on the client's current lease to what an earlier lease was subscribed to. This happens before a
    /// request goes to that lease, so that no change caused by the request is missed.
    ///
    /// # Cancel safety
    /// A dropped wait leaves the rest to the next request.
    pub(super) async fn watch_anew(&self, server: &Server, upstream: &Arc<Upstream>) {
        let left = self.left_elsewhere(server, upstream);
        if !left.is_empty() {
            // Boxed, since every call passes here, and few have anything to move.
            Box::pin(self.move_here(left, server, upstream)).await;
        }
    }

    /// Returns the client's subscriptions at this server that are on another lease and have to move to this one.
    fn left_elsewhere(&self, server: &Server, upstream: &Upstream) -> Vec<(Arc<str>, Subscription)> {
        let is_left = |old: &Subscription| {
            let is_over = || old.upstream.is_stopped() || !server.is_in_era(&old.upstream, &self.who);
            // Subscriptions on a newer lease stay there: this call started earlier, and runs on the older lease.
            let is_older = || old.upstream.id < upstream.id;
            old.server == server.id && old.upstream.id != upstream.id && (is_older() || is_over())
        };
        self.watched(|all| {
            all.iter().filter(|(_, old)| is_left(old)).map(|(uri, old)| (uri.clone(), old.clone())).collect()
        })
    }

    async fn move_here(&self, left: Vec<(Arc<str>, Subscription)>, server: &Server, upstream: &Arc<Upstream>) {
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
