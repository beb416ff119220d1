//! Tasks that a client without a session listens for (2026-07-28, `taskIds`). They are polled as often as their servers
//! want, and told when something has changed. Servers may or may not send status unprompted; polling always works.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Tasks;
use super::registry::Task;
use crate::adapt::task::{self, Status};
use crate::protocol::{Method, Raw, object};
use crate::router::Mailbox;
use crate::router::client::Client;

/// The most tasks of one listen.
const WATCHED: usize = 64;

impl Tasks {
    /// Returns the tasks with these ids that the client knows.
    pub(in crate::router) fn watched(&self, client: &Client, ids: &[String]) -> Vec<Arc<Task>> {
        ids.iter().take(WATCHED).filter_map(|id| self.known(client, id).ok()).collect()
    }

    /// Calls `put` with each change of the tasks, until all are over.
    pub(in crate::router) async fn watch(
        &self,
        client: &Arc<Client>,
        tasks: &[Arc<Task>],
        leg: &Arc<Mailbox>,
        put: impl Fn(Raw),
    ) {
        join_all(tasks.iter().map(|task| self.watch_one(client, task, leg, &put))).await;
    }

    async fn watch_one(&self, client: &Arc<Client>, task: &Task, leg: &Arc<Mailbox>, put: impl Fn(Raw)) {
        let params = task::renamed(&Raw::empty_object(), &task.handle);
        let mut last = (Status::Working, Vec::new());
        // A task that is no longer known has no news.
        while let Ok(told) = self.serve(client, &Method::TasksGet, Some(params.clone()), leg).await {
            let status = Status::of(&told);
            let asked = told.value_of("inputRequests").and_then(object).unwrap_or_default();
            let now = (status, asked.into_iter().map(|(key, _)| key.into_owned()).collect());
            if now != last {
                last = now;
                put(told.without_member("resultType").without_member("_meta"));
            }
            if status.is_terminal() {
                return;
            }
            tokio::time::sleep(task::poll_interval(&told)).await;
        }
    }
}

impl Task {
    /// Returns its id for the client.
    pub(in crate::router) fn handle(&self) -> &str {
        &self.handle
    }
}
