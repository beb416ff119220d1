//! Tasks that a client without a session listens for (2026-07-28, `taskIds`): asked about here as often as their servers
//! want, and told when something has changed. Whether servers tell by themselves is up to them; asking is always right.

use std::sync::Arc;

use futures_util::future::join_all;

use super::registry::{Registry, Task};
use crate::adapt::task::{self, Status};
use crate::manager::Manager;
use crate::protocol::{Method, Raw, object};
use crate::router::client::Client;
use crate::router::state::Sealer;
use crate::router::{Mailbox, Router};

/// Tasks of one listen.
const WATCHED: usize = 64;

impl Registry {
    /// The tasks with these ids that the client knows.
    pub(in crate::router) fn watched(
        &self,
        sealer: &Sealer,
        manager: &Manager,
        client: &Client,
        ids: &[String],
    ) -> Vec<Arc<Task>> {
        ids.iter().take(WATCHED).filter_map(|id| self.known(sealer, manager, client, id).ok()).collect()
    }
}

impl Router {
    /// Tells `put` how far the tasks are with each change, until all are over.
    pub(in crate::router) async fn watch_tasks(
        &self,
        client: &Arc<Client>,
        tasks: &[Arc<Task>],
        leg: &Arc<Mailbox>,
        put: impl Fn(Raw),
    ) {
        join_all(tasks.iter().map(|task| self.watch_task(client, task, leg, &put))).await;
    }

    async fn watch_task(&self, client: &Arc<Client>, task: &Task, leg: &Arc<Mailbox>, put: impl Fn(Raw)) {
        let params = task::renamed(&Raw::empty_object(), &task.handle);
        let mut last = (Status::Working, Vec::new());
        // A task that is not known any more has no news.
        while let Ok(told) = self.task(client, &Method::TasksGet, Some(params.clone()), leg).await {
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
    /// Its id as the client knows it.
    pub(in crate::router) fn handle(&self) -> &str {
        &self.handle
    }
}
