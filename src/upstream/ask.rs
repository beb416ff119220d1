//! A question (a request from a server to a client) on its way to the client and back. It is answered exactly once,
//! unless the server withdraws it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::counts::{Count, ServerCounts};
use crate::protocol::{ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, RequestId};

/// A question from a server to a client: a request in a session, or an entry of an `input_required` result. A question
/// that is dropped unanswered is answered with an error.
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<Raw>,
    back: Option<Back>,
    /// The counters of the server that asks; `None` if the host itself asks.
    counts: Option<Arc<ServerCounts>>,
    fold: Option<Fold>,
    revision: ProtocolVersion,
}

/// Converts a client's answer into one that the server understands.
pub(crate) type Fold = Box<dyn FnOnce(Outcome) -> Outcome + Send>;

/// The part of a connection that a question needs.
pub(crate) trait Asker: Send + Sync {
    /// Returns the server's version string.
    fn version(&self) -> Option<String>;

    /// Reports whether the server still waits for the answer to that question.
    fn waits_for(&self, question: &RequestId) -> bool;

    /// Sends the answer, if the server still waits for it.
    fn answer(self: Arc<Self>, question: &RequestId, outcome: Outcome);

    /// Returns the server's counters.
    fn counts(&self) -> &Arc<ServerCounts>;
}

/// Where the answer goes.
enum Back {
    /// To the server, as a response.
    Server(Arc<dyn Asker>),
    /// To the task that gathers all answers and then retries the request.
    Gatherer(oneshot::Sender<Outcome>),
}

/// How a question ended.
#[derive(Clone, Copy)]
enum AskEnd {
    Answered,
    Refused,
    Expired,
}

impl AskEnd {
    /// Returns the counter for a question of this kind that ended this way; `None` if such questions are not counted.
    fn count(self, method: &Method) -> Option<Count> {
        Some(match (method, self) {
            (Method::Elicit, Self::Answered) => Count::ElicitationAnswered,
            (Method::Elicit, Self::Refused) => Count::ElicitationRefused,
            (Method::Elicit, Self::Expired) => Count::ElicitationExpired,
            (Method::CreateMessage, Self::Answered) => Count::SamplingAnswered,
            (Method::CreateMessage, Self::Refused) => Count::SamplingRefused,
            (Method::CreateMessage, Self::Expired) => Count::SamplingExpired,
            (Method::RootsList, Self::Answered) => Count::RootsAnswered,
            (Method::RootsList, Self::Refused) => Count::RootsRefused,
            (Method::RootsList, Self::Expired) => Count::RootsExpired,
            _ => return None,
        })
    }
}

impl Ask {
    /// Creates a question from a server that speaks `revision`.
    pub(super) fn new(
        id: RequestId,
        method: Method,
        params: Option<Raw>,
        revision: ProtocolVersion,
        asker: Arc<dyn Asker>,
    ) -> Self {
        let counts = Some(asker.counts().clone());
        Self { id, method, params, back: Some(Back::Server(asker)), counts, fold: None, revision }
    }

    /// Creates a question whose answer goes to the returned receiver.
    pub(crate) fn gathered(
        key: &str,
        revision: ProtocolVersion,
        method: Method,
        params: Option<Raw>,
    ) -> (Self, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let id = RequestId::Text(key.into());
        let back = Some(Back::Gatherer(sender));
        (Self { id, method, params, back, counts: None, fold: None, revision }, receiver)
    }

    /// Counts the question for the server that asks it.
    pub(crate) fn of(self, counts: &Arc<ServerCounts>) -> Self {
        let mut ask = self;
        ask.counts = Some(counts.clone());
        ask
    }

    /// Replaces the params of the question; `fold` converts the answer back.
    pub(crate) fn put(mut self, params: Option<Raw>, fold: Fold) -> Self {
        self.params = params;
        self.fold = match self.fold.take() {
            // Conversions undo the rephrasings in reverse order.
            Some(first) => Some(Box::new(move |outcome| first(fold(outcome)))),
            None => Some(fold),
        };
        self
    }

    /// The protocol revision that the question is written in.
    pub(crate) fn revision(&self) -> ProtocolVersion {
        self.revision
    }

    /// Whether the answer is gathered here rather than sent to a waiting server.
    pub(crate) fn is_gathered(&self) -> bool {
        matches!(self.back, Some(Back::Gatherer(_)))
    }

    /// Whether a client with that profile can answer questions of this kind.
    pub(super) fn is_for(&self, profile: Profile) -> bool {
        match self.method {
            Method::RootsList => profile.has(Profile::ROOTS),
            Method::CreateMessage => profile.has(Profile::SAMPLING),
            Method::Elicit => profile.has(Profile::ELICITATION_FORM) || profile.has(Profile::ELICITATION_URL),
            _ => false,
        }
    }

    /// The version string of the server that asks; `None` if it is unknown or the answer is gathered here.
    pub(crate) fn server_version(&self) -> Option<String> {
        match &self.back {
            Some(Back::Server(asker)) => asker.version(),
            Some(Back::Gatherer(_)) | None => None,
        }
    }

    /// Delivers the client's answer.
    pub(crate) fn answer(mut self, outcome: Outcome) {
        let end = if outcome.is_ok() { AskEnd::Answered } else { AskEnd::Refused };
        self.give(outcome, end);
    }

    /// Answers in the client's place, since nobody answered in time.
    pub(crate) fn expire(mut self, outcome: Outcome) {
        self.give(outcome, AskEnd::Expired);
    }

    /// Answers in the client's place, since no client may be asked.
    pub(crate) fn refuse(mut self, outcome: Outcome) {
        self.give(outcome, AskEnd::Refused);
    }

    fn give(&mut self, outcome: Outcome, end: AskEnd) {
        if self.back.is_some()
            && let (Some(counts), Some(count)) = (&self.counts, end.count(&self.method))
        {
            counts.one(count);
        }
        let outcome = match self.fold.take() {
            Some(fold) => fold(outcome),
            None => outcome,
        };
        match self.back.take() {
            Some(Back::Server(asker)) => asker.answer(&self.id, outcome),
            // A gatherer that is gone no longer wants the answer.
            Some(Back::Gatherer(sender)) => drop(sender.send(outcome)),
            None => {}
        }
    }

    /// The approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        128 + self.params.as_ref().map_or(0, |params| params.as_bytes().len())
    }

    /// Whether this is question `id` of that connection.
    pub(crate) fn is(&self, connection: &Arc<impl Asker>, id: &RequestId) -> bool {
        self.is_on(connection) && self.id == *id
    }

    /// Whether that connection asked this question.
    pub(crate) fn is_on(&self, connection: &Arc<impl Asker>) -> bool {
        let mine = Arc::as_ptr(connection);
        matches!(&self.back, Some(Back::Server(asker)) if std::ptr::addr_eq(Arc::as_ptr(asker), mine))
    }

    /// Whether the asker still waits for an answer.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(&self.back, Some(Back::Server(asker)) if !asker.waits_for(&self.id))
    }

    /// Discards the question without an answer: its server withdrew it.
    pub(crate) fn forget(mut self) {
        self.back = None;
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.give(Err(ErrorObject::internal("the client is gone")), AskEnd::Refused);
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ask({} {})", self.method, self.id)
    }
}
