//! Requests that were answered with a task: what their server says under their progress token goes on for as long as the task
//! does (2025-11-25, tasks, "Task Progress Notifications"). To whoever made the request while it has not let go of it; else up,
//! as what a server says on its own.

use std::sync::Arc;

use super::super::Relayed;
use super::super::exchange::{Exchange, Inbox, Item};
use super::Connection;
use crate::protocol::Raw;

/// So many are known of one connection; the oldest go.
const LASTING: usize = 1024;

/// One of them.
#[derive(Debug)]
pub(super) struct Lasting {
    /// What the server calls the task.
    task: String,
    /// Whose exchange it is, as long as there is one.
    inbox: Option<Arc<Inbox>>,
}

impl super::Table {
    /// Nobody holds that request any more, unless it lasts without.
    pub(super) fn let_go(&mut self, id: u64) {
        if self.lasting.get(&id).is_some_and(|lasting| lasting.inbox.is_some()) {
            self.lasting.remove(&id);
        }
    }

    /// A request is answered; if that is a task, its token is still good.
    pub(super) fn answer_lasts(&mut self, id: u64, inbox: &Arc<Inbox>, item: &Item) {
        let Item::Done(Ok(result)) = item else { return };
        let Some(task) = result.member("task").and_then(|task| task.text("taskId")) else { return };
        while self.lasting.len() >= LASTING {
            self.lasting.pop_first();
        }
        self.lasting.insert(id, Lasting { task, inbox: Some(inbox.clone()) });
    }
}

impl Connection {
    /// Progress under that token.
    pub(super) fn receive_progress(self: &Arc<Self>, token: Option<u64>, params: Raw) {
        let table = self.lock();
        // Put in under the lock: else its answer might be taken first, and nobody looks there any more.
        if let Some(waiting) = token.and_then(|token| table.waiting.get(&token)) {
            return waiting.inbox.put(Item::Progress(params));
        }
        match token.and_then(|token| table.lasting.get(&token)) {
            Some(Lasting { inbox: Some(inbox), .. }) => inbox.put(Item::Progress(params)),
            Some(Lasting { task, .. }) => {
                let told = Relayed::Progress { task: task.clone(), params };
                drop(table);
                self.relay(told);
            }
            // A token that is none of ours, or not any more (`hazards.md` H53).
            None => {
                drop(table);
                self.drop_one("progress of nothing");
            }
        }
    }

    /// The task is over.
    pub(super) fn lasts_no_longer(&self, task: &str) {
        self.lock().lasting.retain(|_, lasting| lasting.task != task);
    }
}

impl Exchange {
    /// Lets go of a request that was answered with a task. What the server says of it from now on it says on its own.
    pub(crate) fn let_last(&self) {
        let mut table = self.connection.lock();
        let Some(lasting) = table.lasting.get_mut(&self.id) else { return };
        lasting.inbox = None;
        let task = lasting.task.clone();
        // Under the lock: what comes behind it waits for that.
        while let Some(item) = self.inbox.pop() {
            if let Item::Progress(params) = item {
                self.connection.relay(Relayed::Progress { task: task.clone(), params });
            }
        }
    }

    /// Lets what the server says of a request that was answered with a task come with another one, from what waits on.
    pub(crate) fn goes_on_in(&self, other: &Self) {
        let mut table = self.connection.lock();
        if let Some(lasting) = table.lasting.get_mut(&self.id) {
            lasting.inbox = Some(other.inbox.clone());
        }
        while let Some(item) = self.inbox.pop() {
            other.inbox.put(item);
        }
    }
}
