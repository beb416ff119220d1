//! The running calls of a client that hears all of them on one way: a pipe, or the one stream of an HTTP+SSE session.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::protocol::{Message, Outcome, Request, RequestId, Response};
use crate::router::{Client, Mailbox, Router};

/// Calls that are driven together. Dropped, they are cancelled.
#[derive(Default)]
pub(super) struct Calls(FuturesUnordered<Step>);

type Answer = Pin<Box<dyn Future<Output = Option<Outcome>> + Send>>;
type Step = Pin<Box<dyn Future<Output = Progress> + Send>>;

/// A running call.
struct Call {
    id: RequestId,
    leg: Arc<Mailbox>,
    answer: Answer,
    /// What the answer is, while messages before it are still to be written.
    outcome: Option<Option<Outcome>>,
    /// Whether the leg may get more.
    open: bool,
}

/// What a call has to be written.
enum Progress {
    /// A message, and the call that goes on.
    Message(Message, Box<Call>),
    /// Its answer, if one is due.
    Done(Option<Response>),
}

impl Calls {
    /// Begins a call.
    pub(super) fn begin(&mut self, router: &Router, client: &Arc<Client>, request: Request) {
        let leg = router.leg();
        let id = request.id.clone();
        let answer = Box::pin(router.request(client, request, &leg));
        self.0.push(Box::new(Call { id, leg, answer, outcome: None, open: true }).step());
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
                Progress::Done(Some(response)) => return Some(Message::Response(response)),
                Progress::Done(None) => {}
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Call {
    /// The next thing to write.
    fn step(mut self: Box<Self>) -> Step {
        Box::pin(async move {
            while self.outcome.is_none() {
                tokio::select! {
                    biased;
                    message = self.leg.next(), if self.open => match message {
                        Some(message) => return Progress::Message(message, self),
                        None => self.open = false,
                    },
                    outcome = &mut self.answer => self.outcome = Some(outcome),
                }
            }
            if let Some(message) = self.leg.try_next() {
                return Progress::Message(message, self);
            }
            let id = self.id;
            Progress::Done(self.outcome.flatten().map(|outcome| Response { id: Some(id), outcome }))
        })
    }
}
