//! Work of the router that belongs to no request, or outlives the request that began it.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs tasks until the router stops; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Background {
    /// Runs a task that is dropped when the router stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Runs a task that ends by itself once the router stops. [`Background::end`] waits for it.
    pub(super) fn spawn_whole(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Cancelled when the router stops.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Stops the router's tasks, and waits until they have ended.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
