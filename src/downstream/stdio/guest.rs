//! A client that came to the socket of a daemon: a process of the same user that passes on what its own client says.
//!
//! Such a client outlives the daemon. When the daemon stops it is told how many of its messages the daemon has taken; it
//! gives the others to the next daemon, so none is lost and none is done twice.

use tokio_util::sync::CancellationToken;

use crate::protocol::{Message, Method, Notification, Raw};
use crate::router::Principal;

/// Who it is, and what it was told.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) principal: Principal,
    /// The highest id of a question that an earlier daemon put to it.
    pub(crate) asked: u64,
    /// Ends what still runs for it, with answers.
    pub(super) ending: CancellationToken,
    /// Messages that were taken.
    taken: u64,
    /// Whether it was told to go elsewhere with what it says from then on.
    left: bool,
}

/// What it is told then.
const LEAVING: &str = "notifications/mcp-host/leaving";

impl Guest {
    pub(crate) fn new(principal: Principal, asked: u64) -> Self {
        Self { principal, asked, ending: CancellationToken::new(), taken: 0, left: false }
    }

    /// Whether one more message is taken.
    pub(super) fn takes(&mut self) -> bool {
        if !self.left {
            self.taken += 1;
        }
        !self.left
    }

    /// Takes no more; what it is told.
    pub(super) fn leave(&mut self) -> Notification {
        self.left = true;
        let params = Raw::from_value(&serde_json::json!({ "taken": self.taken }));
        Notification { method: Method::parse(LEAVING), params: Some(params) }
    }
}

/// Whether it belongs to a call that was taken before: the answer to a question of it, or its end.
pub(super) fn is_of_a_call(message: &Message) -> bool {
    match message {
        Message::Response(_) => true,
        Message::Notification(notice) => notice.method == Method::Cancelled,
        Message::Request(_) => false,
    }
}
