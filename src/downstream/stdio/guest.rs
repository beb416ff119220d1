//! A guest: a client that connects through the daemon's socket. It is a process of the same user that forwards its own
//! client's messages.
//!
//! A guest may outlive the daemon. A daemon that stops tells the guest how many of its messages it took; the guest
//! sends the others to the next daemon, so that none is lost and none is handled twice.

use tokio_util::sync::CancellationToken;

use crate::counts::Door;
use crate::protocol::{Message, Method, Notification, Raw};
use crate::router::{Identity, Via};

/// A guest's principal and view, and how far its messages were handled.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) identity: Identity,
    /// The highest request id that an earlier daemon used for a question (a request to the client).
    pub(crate) asked: u64,
    /// Ends the guest's running requests when canceled; each still gets an answer.
    pub(super) ending: CancellationToken,
    /// How many of the guest's messages this daemon took.
    taken: u64,
    /// Whether the guest was told to send later messages elsewhere.
    left: bool,
}

/// The notification that tells a guest to leave.
const LEAVING: &str = "notifications/mcp-host/leaving";

impl Guest {
    pub(crate) fn new(identity: Identity, asked: u64) -> Self {
        Self { identity, asked, ending: CancellationToken::new(), taken: 0, left: false }
    }

    /// Counts one more message; returns false if the guest was told to leave, so that the message is no longer taken.
    pub(super) fn takes(&mut self) -> bool {
        if !self.left {
            self.taken += 1;
        }
        !self.left
    }

    /// Takes no more messages from now on; returns the notification that says so.
    pub(super) fn leave(&mut self) -> Notification {
        self.left = true;
        let params = Raw::from_value(&serde_json::json!({ "taken": self.taken }));
        Notification { method: Method::parse(LEAVING), params: Some(params) }
    }
}

/// The statuses that answers have in the metrics: those that the HTTP door would give them.
pub(super) const ANSWERED: u16 = 200;
pub(super) const REFUSED: u16 = 400;

/// Returns the door that a client came through: the daemon's socket if it is a guest.
pub(super) fn via(guest: Option<&Guest>) -> Via {
    if guest.is_some() { Via::Socket } else { Via::Stdio }
}

/// Returns the door under which its requests are counted.
pub(super) fn door(guest: Option<&Guest>) -> Door {
    if guest.is_some() { Door::Socket } else { Door::Stdio }
}

/// Reports whether a message may belong to a call that was already taken: a response to a question, or a cancellation.
pub(super) fn is_of_a_call(message: &Message) -> bool {
    match message {
        Message::Response(_) => true,
        Message::Notification(notice) => notice.method == Method::Cancelled,
        Message::Request(_) => false,
    }
}
