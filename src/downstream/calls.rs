//! The running calls of an HTTP+SSE session, whose one stream carries the messages and answers of all of them.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::call::{Progress, RunningCall, Step};
use crate::protocol::{Message, Request};
use crate::router::{Client, Mailbox, Router};

/// Calls that are driven together. Dropping this cancels them.
#[derive(Default)]
pub(super) struct Calls(FuturesUnordered<Step>);

impl Calls {
    /// Starts a call. `leg` gets the messages that come before its answer.
    pub(super) fn begin(&self, router: &Router, client: &Arc<Client>, request: Request, leg: Arc<Mailbox>) {
        let id = request.id.clone();
        let answer = Box::pin(router.request(client, request, &leg));
        self.0.push(RunningCall::new(id, leg, answer).step());
    }

    /// Waits for the next message to write; `None` when no call is running. A call's messages precede its answer.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<Message> {
        loop {
            match self.0.next().await? {
                Progress::Message(message, call) => {
                    self.0.push(call.step());
                    return Some(message);
                }
                Progress::Done(ending) => {
                    if let Some(response) = ending.response {
                        return Some(Message::Response(response));
                    }
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
