//! The running calls of a client that hears all of them on one way: the one stream of an HTTP+SSE session.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::call::{Call, Progress, Step};
use crate::protocol::{Message, Request};
use crate::router::{Client, Router};

/// Calls that are driven together. Dropped, they are cancelled.
#[derive(Default)]
pub(super) struct Calls(FuturesUnordered<Step>);

impl Calls {
    /// Begins a call.
    pub(super) fn begin(&self, router: &Router, client: &Arc<Client>, request: Request) {
        let leg = client.leg(router.limits());
        let id = request.id.clone();
        let answer = Box::pin(router.request(client, request, &leg));
        self.0.push(Call::new(id, leg, answer).step());
    }

    /// The next thing to write: of one call all messages before its answer. `None` when no call is running.
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
