//! One running request at a door: what it says before its answer, and the answer, in the order in which they are written.

use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::protocol::{Message, Outcome, RequestId, Response};
use crate::router::Mailbox;

/// What the router makes of a request; `None` where no answer is due.
pub(super) type Answer = Pin<Box<dyn Future<Output = Option<Outcome>> + Send>>;
/// The next thing that a call has to be written.
pub(super) type Step = Pin<Box<dyn Future<Output = Progress> + Send>>;

/// A running request. Dropped, it is cancelled.
pub(super) struct Call {
    id: RequestId,
    leg: Arc<Mailbox>,
    answer: Answer,
    /// What the answer is, while messages before it are still to be written.
    outcome: Option<Option<Outcome>>,
    /// Whether the leg may get more.
    open: bool,
    /// Cancelled once its client wants nothing more of it.
    withdrawn: Option<CancellationToken>,
}

/// What a call has to be written.
pub(super) enum Progress {
    /// A message, and the call that goes on.
    Message(Message, Box<Call>),
    /// It is over.
    Done(Ending),
}

/// How a call is over.
pub(super) struct Ending {
    /// Its answer, if one is due.
    pub(super) response: Option<Response>,
    /// Its id, if it could be withdrawn so far.
    pub(super) withdrawable: Option<RequestId>,
}

impl Call {
    /// A request with this id, which is answered by `answer`, and by messages in `leg` before.
    pub(super) fn new(id: RequestId, leg: Arc<Mailbox>, answer: Answer) -> Box<Self> {
        Box::new(Self { id, leg, answer, outcome: None, open: true, withdrawn: None })
    }

    /// The same where the answer is there already, if it is.
    #[cfg(feature = "server")]
    pub(super) fn answered(mut self: Box<Self>, outcome: Option<Option<Outcome>>) -> Box<Self> {
        self.outcome = outcome;
        self
    }

    /// The same, until the token is cancelled: then nothing more is written, not even what waits.
    pub(super) fn until(mut self: Box<Self>, withdrawn: CancellationToken) -> Box<Self> {
        self.withdrawn = Some(withdrawn);
        self
    }

    /// The next thing to write.
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
