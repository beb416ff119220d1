//! One running request at a door (a transport that clients use). It yields the request's messages and its answer in the
//! order in which the door must write them. The mailbox of one request's messages is called its leg.

use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::protocol::{Message, Outcome, RequestId, Response};
use crate::router::Mailbox;

/// The router's answer to a request; `None` if no answer is due.
pub(super) type PendingOutcome = Pin<Box<dyn Future<Output = Option<Outcome>> + Send>>;
/// Resolves to the next thing that a call has to write.
pub(super) type Step = Pin<Box<dyn Future<Output = Progress> + Send>>;

/// A running request. Dropping this cancels the request.
pub(super) struct RunningCall {
    id: RequestId,
    leg: Arc<Mailbox>,
    answer: PendingOutcome,
    /// The router's answer once it is there (the inner `None`: no answer is due). Messages that precede it may still be
    /// unwritten.
    outcome: Option<Option<Outcome>>,
    /// Whether the leg may get more messages.
    open: bool,
    /// Canceled once the client wants nothing more from the request.
    withdrawn: Option<CancellationToken>,
}

/// The next thing that a call has to write.
pub(super) enum Progress {
    /// A message to write, and the call, which continues.
    Message(Message, Box<RunningCall>),
    /// The call has ended.
    Done(Ending),
}

/// How a call ended.
pub(super) struct Ending {
    /// The call's answer, if one is due.
    pub(super) response: Option<Response>,
    /// The request's id, if the call could be withdrawn until now.
    pub(super) withdrawable: Option<RequestId>,
}

impl RunningCall {
    /// Creates a call for the request with this id: messages arrive in `leg`, then `answer` resolves.
    pub(super) fn new(id: RequestId, leg: Arc<Mailbox>, answer: PendingOutcome) -> Box<Self> {
        Box::new(Self { id, leg, answer, outcome: None, open: true, withdrawn: None })
    }

    /// Sets the router's answer, if it is already there.
    #[cfg(feature = "server")]
    pub(super) fn answered(mut self: Box<Self>, outcome: Option<Option<Outcome>>) -> Box<Self> {
        self.outcome = outcome;
        self
    }

    /// Lets the client withdraw the call: once this cancellation token is canceled, nothing more is written, not even
    /// waiting messages.
    pub(super) fn until(mut self: Box<Self>, withdrawn: CancellationToken) -> Box<Self> {
        self.withdrawn = Some(withdrawn);
        self
    }

    /// Returns a future that waits for the next thing to write.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        Box::pin(async move {
            while self.outcome.is_none() {
                tokio::select! {
                    biased;
                    () = cancelled(self.withdrawn.as_ref()) => self.outcome = Some(None),
                    message = self.leg.next(), if self.open => match message {
                        Some(message) => return Progress::Message(message, self),
                        None => self.open = false,
                    },
                    outcome = &mut self.answer => self.outcome = Some(outcome),
                }
            }
            let wanted = !self.withdrawn.as_ref().is_some_and(CancellationToken::is_cancelled);
            if wanted && let Some(message) = self.leg.try_next() {
                return Progress::Message(message, self);
            }
            let id = self.id;
            let withdrawable = self.withdrawn.map(|_| id.clone());
            let outcome = self.outcome.flatten().filter(|_| wanted);
            Progress::Done(Ending { response: outcome.map(|outcome| Response { id: Some(id), outcome }), withdrawable })
        })
    }
}

async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}
