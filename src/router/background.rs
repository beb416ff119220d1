//! Tasks (Tokio's, not MCP's) of the router that belong to no client's request, or outlive the request that began them.

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks that end with the router. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Background {
    /// Spawns a task that is dropped when the router stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        // Boxed: the runtime's code for a task is compiled once for each type of future.
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task that is never dropped halfway: it must watch [`Background::stop`] and end by itself.
    /// [`Background::end`] waits for it.
    pub(super) fn spawn_whole(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Returns the token that is cancelled when the router stops.
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
