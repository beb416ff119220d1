//! One request to a server and everything that comes back for it: progress, log lines, questions, last the outcome.
//!
//! Dropping an [`Exchange`] before its outcome cancels the request at the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::connection::Connection;
use super::inbox::{Inbox, Item};
use crate::protocol::Outcome;
use crate::transport;

/// The work that brings the answer of a request over HTTP; pipes have a reader of their own.
pub(super) type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One request under way.
pub(crate) struct Exchange {
    pub(super) id: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) drive: Option<Drive>,
    /// Nothing more comes, or nobody is to be told that it is given up.
    pub(super) over: bool,
}

impl Exchange {
    /// The next item; after `Done` or `Lost` there is none, and asking again waits for ever, but for the progress of a task
    /// that it is answered with.
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

    /// Lets go of a request that was answered with a task. What the server says of it from now on it says on its own.
    pub(crate) fn let_last(&self) {
        self.connection.let_last(self.id, &self.inbox);
    }

    /// Lets what the server says of a request that was answered with a task come with another one, from what waits on.
    pub(crate) fn goes_on_in(&self, other: &Self) {
        self.connection.goes_on_in(self.id, &self.inbox, &other.inbox);
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
