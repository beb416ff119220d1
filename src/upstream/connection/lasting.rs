//! Requests that were answered with a task: progress under their progress token continues as long as the task does
//! (2025-11-25, tasks, "Task Progress Notifications"). It goes to the exchange of the request while that exists; else
//! it is relayed, like other messages that belong to no exchange.

use std::sync::Arc;

use super::super::Relayed;
use super::super::inbox::{Inbox, Item};
use super::Connection;
use crate::adapt::task::LONGEST_ID;
use crate::counts::Count;
use crate::protocol::Raw;

/// The maximum number of such requests per connection; the oldest are forgotten.
const LASTING: usize = 1024;

/// A request that was answered with a task.
#[derive(Debug)]
pub(super) struct Lasting {
    /// The server's id of the task.
    task: String,
    /// The inbox of the request's exchange, while that exists.
    inbox: Option<Arc<Inbox>>,
}

impl super::Table {
    /// Removes a request whose exchange was dropped, unless it was detached before. The caller drops the result after
    /// releasing the table, because an undelivered question in it answers itself, which takes the lock.
    #[must_use]
    pub(super) fn let_go(&mut self, id: u64) -> Option<Lasting> {
        let held = self.lasting.get(&id).is_some_and(|lasting| lasting.inbox.is_some());
        if held { self.lasting.remove(&id) } else { None }
    }

    /// Keeps the progress token of a request that is answered with a task. Returns the oldest entry if there are too
    /// many; the caller drops it as in [`Self::let_go`].
    #[must_use]
    pub(super) fn answer_lasts(&mut self, id: u64, inbox: &Arc<Inbox>, item: &Item) -> Option<Lasting> {
        let Item::Done(Ok(result)) = item else { return None };
        let task = result.member("task")?.text("taskId").filter(|task| task.len() <= LONGEST_ID)?;
        let oldest = if self.lasting.len() >= LASTING { self.lasting.pop_first() } else { None };
        self.lasting.insert(id, Lasting { task, inbox: Some(inbox.clone()) });
        oldest.map(|(_, lasting)| lasting)
    }
}

impl Connection {
    /// Routes a progress notification by its token; `None` is a token that cannot be ours.
    pub(super) fn receive_progress(self: &Arc<Self>, token: Option<u64>, params: Raw) {
        let table = self.lock();
        // Under the lock: otherwise the answer might be taken first, and the progress would never be read.
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
            // The token is not ours, or no longer in use (`docs/hazards.md` H53).
            None => {
                drop(table);
                self.drop_one("progress of no known request", Count::DroppedNotification);
            }
        }
    }

    /// Forgets the requests that were answered with a task that is over.
    pub(super) fn lasts_no_longer(&self, task: &str) {
        let mut table = self.lock();
        let of_it = |(id, lasting): (&u64, &Lasting)| (lasting.task == task).then_some(*id);
        let ids: Vec<u64> = table.lasting.iter().filter_map(of_it).collect();
        let gone: Vec<Lasting> = ids.iter().filter_map(|id| table.lasting.remove(id)).collect();
        drop(table);
        drop(gone);
    }

    /// Detaches a request that was answered with a task.
    pub(in crate::upstream) fn let_last(self: &Arc<Self>, id: u64, inbox: &Inbox) {
        let mut table = self.lock();
        let Some(lasting) = table.lasting.get_mut(&id) else { return };
        lasting.inbox = None;
        let task = lasting.task.clone();
        let mut others = Vec::new();
        // Under the lock, so that later progress cannot overtake these items.
        while let Some(item) = inbox.pop() {
            match item {
                Item::Progress(params) => self.relay(Relayed::Progress { task: task.clone(), params }),
                other => others.push(other),
            }
        }
        drop(table);
        // A question among them answers itself, which takes the lock.
        drop(others);
    }

    /// Redirects messages about a request that was answered with a task into the inbox `other`, including those still
    /// queued.
    pub(in crate::upstream) fn goes_on_in(&self, id: u64, inbox: &Inbox, other: &Arc<Inbox>) {
        let mut table = self.lock();
        if let Some(lasting) = table.lasting.get_mut(&id) {
            lasting.inbox = Some(other.clone());
        }
        while let Some(item) = inbox.pop() {
            other.put(item);
        }
    }
}
