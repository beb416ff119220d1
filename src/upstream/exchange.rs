//! One request to a server and everything that comes back for it: progress, log lines, questions, last the outcome.
//!
//! Dropping an [`Exchange`] before its outcome cancels the request at the server.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::connection::Connection;
use crate::protocol::{ErrorObject, Method, Outcome, Raw, RequestId};
use crate::transport;

/// Whom a request is made for: a client, or the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// The host itself.
    pub(crate) const HOST: Self = Self(0);
}

/// What comes back for a request.
#[derive(Debug)]
pub(crate) enum Item {
    /// The params of a progress notification, with our token in.
    Progress(Raw),
    /// The params of a log line.
    Log(Raw),
    /// The server asks the client something.
    Ask(Ask),
    /// A server in this process wants the stream of its call closed for a while.
    HangUp(std::time::Duration),
    /// The server withdraws a question.
    Withdrawn(RequestId),
    /// The answer. Last.
    Done(Outcome),
    /// There will be no answer. Last.
    Lost(transport::Error),
}

/// A request of the server to the client. Dropped unanswered, it is answered with an error.
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<Raw>,
    connection: Option<Arc<Connection>>,
}

impl Ask {
    pub(super) fn new(id: RequestId, method: Method, params: Option<Raw>, connection: Arc<Connection>) -> Self {
        Self { id, method, params, connection: Some(connection) }
    }

    /// Sends the client's answer to the server.
    pub(crate) fn answer(mut self, outcome: Outcome) {
        if let Some(connection) = self.connection.take() {
            connection.respond(&self.id, outcome);
        }
    }

    /// Whether this is question `id` of that connection.
    pub(crate) fn is(&self, connection: &Arc<Connection>, id: &RequestId) -> bool {
        self.connection.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, connection)) && self.id == *id
    }

    /// Forgets the question: its server wants no answer any more.
    pub(crate) fn forget(mut self) {
        self.connection = None;
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.respond(&self.id, Err(ErrorObject::internal("the client is gone")));
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ask({} {})", self.method, self.id)
    }
}

/// Where the items of one request wait. Putting one in never waits.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    items: Mutex<VecDeque<Item>>,
    news: Notify,
}

/// Progress and log lines over this are dropped: their reader is slower than their server.
const ITEMS: usize = 256;

impl Inbox {
    pub(super) fn put(&self, item: Item) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if items.len() >= ITEMS && matches!(item, Item::Progress(_) | Item::Log(_)) {
            return;
        }
        items.push_back(item);
        drop(items);
        self.news.notify_one();
    }

    fn pop(&self) -> Option<Item> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The work that brings the answer of a request over HTTP; pipes have a reader of their own.
pub(super) type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One request under way.
pub(crate) struct Exchange {
    pub(super) id: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) drive: Option<Drive>,
    pub(super) over: bool,
}

impl Exchange {
    /// The next item; after `Done` or `Lost` there is none, and asking again waits for ever.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Item {
        loop {
            if let Some(item) = self.inbox.pop() {
                self.over |= matches!(item, Item::Done(_) | Item::Lost(_));
                return item;
            }
            match &mut self.drive {
                Some(drive) => {
                    tokio::select! {
                        biased;
                        () = drive => self.drive = None,
                        () = self.inbox.news.notified() => {}
                    }
                }
                None => self.inbox.news.notified().await,
            }
        }
    }

    /// The outcome, whatever comes before it dropped.
    pub(crate) async fn outcome(mut self) -> Result<Outcome, transport::Error> {
        loop {
            match self.next().await {
                Item::Done(outcome) => return Ok(outcome),
                Item::Lost(error) => return Err(error),
                Item::Progress(_) | Item::Log(_) | Item::Ask(_) | Item::HangUp(_) | Item::Withdrawn(_) => {}
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.close_exchange(self.id, !self.over);
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("id", &self.id).finish_non_exhaustive()
    }
}
