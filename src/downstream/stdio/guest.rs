//! A client that connects through the daemon's socket: a process of the same user that forwards its own client's
//! messages.
//!
//! Such a client outlives the daemon. A daemon that stops tells it how many of its messages were taken; the client
//! passes the others to the next daemon, so that none is lost and none is handled twice.

use tokio_util::sync::CancellationToken;

use crate::protocol::{Message, Method, Notification, Raw};
use crate::router::Principal;

/// The principal and the progress of a guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) principal: Principal,
    /// The highest id of a question that an earlier daemon asked it.
    pub(crate) asked: u64,
    /// Ends its running requests, with answers.
    pub(super) ending: CancellationToken,
    /// How many messages were taken.
    taken: u64,
    /// Whether it was told to send later messages elsewhere.
    left: bool,
}

/// The notification that tells it to leave.
const LEAVING: &str = "notifications/mcp-host/leaving";

impl Guest {
    pub(crate) fn new(principal: Principal, asked: u64) -> Self {
        Self { principal, asked, ending: CancellationToken::new(), taken: 0, left: false }
    }

    /// Counts one more message; returns false if it is no longer taken.
    pub(super) fn takes(&mut self) -> bool {
        if !self.left {
            self.taken += 1;
        }
        !self.left
    }

    /// Takes no more messages; returns the notification that says so.
    pub(super) fn leave(&mut self) -> Notification {
        self.left = true;
        let params = Raw::from_value(&serde_json::json!({ "taken": self.taken }));
        Notification { method: Method::parse(LEAVING), params: Some(params) }
    }
}

/// Reports whether a message belongs to a call that was already taken: the answer to its question, or its cancellation.
pub(super) fn is_of_a_call(message: &Message) -> bool {
    match message {
        Message::Response(_) => true,
        Message::Notification(notice) => notice.method == Method::Cancelled,
        Message::Request(_) => false,
    }
}
