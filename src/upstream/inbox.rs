//! The messages that come back for one request, and the queue where they wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::ask::Ask;
use crate::lock::lock;
use crate::protocol::{Outcome, Raw, RequestId};
use crate::queues::{Account, Share};
use crate::transport;

/// A message that comes back for a request.
#[derive(Debug)]
pub(crate) enum Item {
    /// The params of a progress notification, under our own progress token.
    Progress(Raw),
    /// The params of a log message.
    Log(Raw),
    /// A question: a request from the server to the client.
    Ask(Ask),
    /// A server in this process asks to close the stream of its call for a while.
    HangUp(std::time::Duration),
    /// The server withdraws a question.
    Withdrawn(RequestId),
    /// The answer; no item follows it.
    Done(Outcome),
    /// The reason why there is no answer; no item follows it.
    Lost(transport::Error),
}

impl Item {
    fn is_droppable(&self) -> bool {
        matches!(self, Self::Progress(_) | Self::Log(_))
    }

    /// The approximate memory use in bytes.
    fn weight(&self) -> usize {
        let raw = match self {
            Self::Progress(params) | Self::Log(params) => Some(params),
            Self::Ask(ask) => return ask.weight(),
            Self::Done(outcome) => outcome.as_ref().ok(),
            Self::HangUp(_) | Self::Withdrawn(_) | Self::Lost(_) => None,
        };
        128 + raw.map_or(0, |raw| raw.as_bytes().len())
    }
}

/// The queue of one request's items. Putting an item in never waits.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The bytes of droppable items.
    droppable: usize,
    share: Option<Share>,
}

/// The number of queued items from which on progress and log lines are dropped: their reader is slower than the server.
const ITEMS: usize = 256;
/// The bytes of queued progress and log lines above which more of them are dropped.
const DROPPABLE: usize = 1 << 20;

impl Inbox {
    /// Creates an empty inbox whose items are charged to `account`, if there is one.
    pub(super) fn of(account: Option<&Account>) -> Self {
        let share = account.map(Account::share);
        Self { queue: Mutex::new(Queue { share, ..Queue::default() }), news: Notify::new() }
    }

    pub(super) fn put(&self, item: Item) {
        let mut queue = self.lock();
        let size = item.weight();
        if item.is_droppable() {
            let full = queue.items.len() >= ITEMS || queue.droppable + size > DROPPABLE;
            if full && !queue.items.is_empty() {
                return;
            }
            queue.droppable += size;
        }
        if let Some(share) = &mut queue.share {
            share.add(size);
        }
        queue.items.push_back(item);
        drop(queue);
        self.news.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Item> {
        let mut queue = self.lock();
        let item = queue.items.pop_front()?;
        let size = item.weight();
        if item.is_droppable() {
            queue.droppable -= size;
        }
        if let Some(share) = &mut queue.share {
            share.take(size);
        }
        Some(item)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}
