//! The door first: leases that nobody waits for are started once the first list is written, or a moment later, one in each
//! turn of the runtime. A start of fifty processes at once would keep the client that asks for the first list waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::upstream::Upstream;

/// Leases that wait for their start.
#[derive(Debug, Default)]
pub(super) struct Starts {
    waiting: Mutex<VecDeque<Arc<Upstream>>>,
    news: Notify,
    /// Counts the lists that were answered.
    listed: watch::Sender<u64>,
}

/// A client that comes together with the host has asked for its list by then.
const DOOR: Duration = Duration::from_millis(20);

impl Starts {
    /// Starts it soon; whoever needs it before that starts it at once.
    pub(super) fn put(&self, upstream: Arc<Upstream>) {
        self.waiting().push_back(upstream);
        self.news.notify_one();
    }

    /// A list was answered. Its task writes it in the same turn.
    pub(super) fn listed(&self) {
        self.listed.send_modify(|count| *count += 1);
    }

    /// Waits until the next list is answered and written, or a moment.
    pub(super) async fn door(&self) {
        let mut listed = self.listed.subscribe();
        if tokio::time::timeout(DOOR, listed.changed()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// Starts what waits, until `stop`.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let all = async {
            loop {
                self.news.notified().await;
                self.door().await;
                while let Some(upstream) = self.next() {
                    upstream.begin();
                    // The runtime looks for what came in before it is the next one's turn.
                    tokio::task::yield_now().await;
                }
            }
        };
        stop.run_until_cancelled(all).await;
        self.waiting().clear();
    }

    fn next(&self) -> Option<Arc<Upstream>> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<Upstream>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
