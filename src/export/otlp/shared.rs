//! A handle to the task that sends, for the listener.

use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::lock::lock;

/// How long a host that shuts down waits for the last request.
const LAST: Duration = Duration::from_secs(5);

/// A handle to the task that sends, for the listener.
#[derive(Debug)]
pub(super) struct Shared {
    task: Mutex<Option<JoinHandle<()>>>,
    stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(task: JoinHandle<()>, stop: CancellationToken) -> Self {
        Self { task: Mutex::new(Some(task)), stop }
    }

    /// Lets the task send what is left, and waits for at most [`LAST`].
    pub(super) async fn finish(&self) {
        self.stop.cancel();
        let task = lock(&self.task).take();
        if let Some(mut task) = task
            && timeout(LAST, &mut task).await.is_err()
        {
            tracing::warn!("the collector of host.otel does not answer: the last spans are lost");
            task.abort();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
