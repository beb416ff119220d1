//! One request to a server: sends it over any transport, and collects everything that comes back for it: progress, log
//! lines, questions (requests from the server), and finally the outcome.
//!
//! Dropping an [`Exchange`] before its outcome cancels the request at the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::connection::{Connection, Link, rpc_id};
use super::drive;
use super::inbox::{Inbox, Item};
use super::terms::Terms;
use crate::protocol::{Frame, Message, Method, Outcome, Raw, Request};
use crate::transport;

/// The future that fetches the response to a request over HTTP; a pipe is read by a task instead.
pub(super) type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One request in flight.
pub(crate) struct Exchange {
    pub(super) id: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) drive: Option<Drive>,
    /// Whether the exchange has ended, or must not be cancelled on drop.
    pub(super) over: bool,
}

impl Connection {
    /// Sends a request under an id from [`Connection::next_id`].
    pub(crate) fn open(self: &Arc<Self>, id: u64, method: &Method, params: Option<&Raw>, terms: &Terms) -> Exchange {
        let inbox = Arc::new(Inbox::of(terms.account.as_ref()));
        // Neither kind of handshake request is ever cancelled (2025-11-25, cancellation).
        let over = matches!(method, Method::Initialize | Method::Discover);
        let mut exchange = Exchange { id, connection: self.clone(), inbox: inbox.clone(), drive: None, over };
        let is_probe = *method == Method::Discover;
        let modern = is_probe || self.is_modern();
        let stamped = modern.then(|| self.stamp(params, terms));
        let params = stamped.as_ref().or(params);
        if let Err(error) = self.enter(id, method, params, terms, inbox.clone()) {
            exchange.over = true;
            inbox.put(Item::Lost(error));
            return exchange;
        }
        let rpc_id = rpc_id(id, is_probe);
        let sent = match self.link() {
            Link::Pipe(pipe) => pipe.request(id, Frame::request(&rpc_id, method, params)),
            Link::Memory(memory) => {
                memory.send(Message::Request(Request { id: rpc_id, method: method.clone(), params: params.cloned() }))
            }
            Link::Http(http) => {
                let frame = Frame::request(&rpc_id, method, params);
                if let Some(params) = stamped {
                    let post = drive::Post { frame, method: method.clone(), params };
                    exchange.drive = Some(Box::pin(drive::modern_request(self.clone(), http.clone(), id, post)));
                    return exchange;
                }
                exchange.drive = Some(Box::pin(drive::request(self.clone(), http.clone(), id, frame)));
                Ok(())
            }
            Link::Sse(sse) => {
                drive::post(self, sse, id, Frame::request(&rpc_id, method, params));
                Ok(())
            }
        };
        if let Err(error) = sent {
            self.unsent(id, &error);
        }
        exchange
    }
}

impl Exchange {
    /// Returns the next item. After `Done` or `Lost` it waits forever, unless the request was answered with a task:
    /// then it still returns progress of that task.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
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

    /// Detaches a request that was answered with a task: from now on, progress of the task is relayed like other
    /// messages that belong to no exchange.
    pub(crate) fn let_last(&self) {
        self.connection.let_last(self.id, &self.inbox);
    }

    /// Redirects further messages about a request that was answered with a task to the exchange `other`, including
    /// those that are still queued.
    pub(crate) fn goes_on_in(&self, other: &Self) {
        self.connection.goes_on_in(self.id, &self.inbox, &other.inbox);
    }

    /// Returns the outcome and discards every item before it.
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
