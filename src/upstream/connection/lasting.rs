//! Requests that were answered with a task: what their server says under their progress token goes on for as long as the task
//! does (2025-11-25, tasks, "Task Progress Notifications"). To whoever made the request while it has not let go of it; else up,
//! as what a server says on its own.

use std::sync::Arc;

use super::super::Relayed;
use super::super::inbox::{Inbox, Item};
use super::Connection;
use crate::adapt::task::LONGEST_ID;
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
    /// Nobody holds that request any more, unless it lasts without. What goes with it is dropped by the caller, who has
    /// let go of the table: a question that nobody has heard answers itself.
    #[must_use]
    pub(super) fn let_go(&mut self, id: u64) -> Option<Lasting> {
        let held = self.lasting.get(&id).is_some_and(|lasting| lasting.inbox.is_some());
        if held { self.lasting.remove(&id) } else { None }
    }

    /// A request is answered; if that is a task, its token is still good. The oldest one, if it is one too many, is dropped
    /// by the caller as in [`Self::let_go`].
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
            // A token that is none of ours, or not any more (`docs/hazards.md` H53).
            None => {
                drop(table);
                self.drop_one("progress of nothing");
            }
        }
    }

    /// The task is over.
    pub(super) fn lasts_no_longer(&self, task: &str) {
        let mut table = self.lock();
        let of_it = |(id, lasting): (&u64, &Lasting)| (lasting.task == task).then_some(*id);
        let ids: Vec<u64> = table.lasting.iter().filter_map(of_it).collect();
        let gone: Vec<Lasting> = ids.iter().filter_map(|id| table.lasting.remove(id)).collect();
        drop(table);
        drop(gone);
    }
    /// Lets go of a request that was answered with a task.
    pub(in crate::upstream) fn let_last(self: &Arc<Self>, id: u64, inbox: &Inbox) {
        let mut table = self.lock();
        let Some(lasting) = table.lasting.get_mut(&id) else { return };
        lasting.inbox = None;
        let task = lasting.task.clone();
        let mut others = Vec::new();
        // Under the lock: what comes behind it waits for that.
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

    /// Lets what the server says of a request that was answered with a task come with another one, from what waits on.
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
