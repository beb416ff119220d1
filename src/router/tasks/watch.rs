//! Tasks for which a client without a session opened a change stream (2026-07-28, `taskIds`). mcp-host polls them as
//! often as their servers want, and tells the client when something has changed. Servers may or may not send the status
//! unasked; polling always works.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Tasks;
use super::registry::Task;
use crate::adapt::task::{self, Status};
use crate::protocol::{Method, Raw, object};
use crate::router::Mailbox;
use crate::router::client::Client;

/// The most tasks that one change stream may watch.
const WATCHED: usize = 64;

impl Tasks {
    /// Returns those of the tasks with these ids that belong to the client's principal.
    pub(in crate::router) fn watched(&self, client: &Client, ids: &[String]) -> Vec<Arc<Task>> {
        ids.iter().take(WATCHED).filter_map(|id| self.known(client, id).ok()).collect()
    }

    /// Calls `put` with a task's new state after each change, until all tasks are over.
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
        // A task that is no longer known does not change any more.
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
    /// Returns the id by which the client knows it.
    pub(in crate::router) fn handle(&self) -> &str {
        &self.handle
    }
}
