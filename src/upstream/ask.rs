//! A question of a server, on its way to a client and back: it is answered once, whatever becomes of it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::protocol::{ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, RequestId};

/// A question of a server to the client: a request of a session, or an entry of an `input_required` result. Dropped
/// unanswered, it is answered with an error.
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<Raw>,
    back: Option<Back>,
    fold: Option<Fold>,
    revision: ProtocolVersion,
}

/// Turns a client's answer into one that the server understands.
pub(crate) type Fold = Box<dyn FnOnce(Outcome) -> Outcome + Send>;

/// The server that asked, as far as its question has to do with it.
pub(crate) trait Asker: Send + Sync {
    /// What it calls its version.
    fn version(&self) -> Option<String>;

    /// Whether it still waits for the answer to that question.
    fn waits_for(&self, question: &RequestId) -> bool;

    /// Tells it the answer, if it still waits.
    fn answer(self: Arc<Self>, question: &RequestId, outcome: Outcome);
}

/// Where the answer to a question goes.
enum Back {
    /// To the server, as a response.
    Server(Arc<dyn Asker>),
    /// To whoever gathers the answers for a retry.
    Gatherer(oneshot::Sender<Outcome>),
}

impl Ask {
    /// A question of a server of that revision.
    pub(super) fn new(
        id: RequestId,
        method: Method,
        params: Option<Raw>,
        revision: ProtocolVersion,
        asker: Arc<dyn Asker>,
    ) -> Self {
        Self { id, method, params, back: Some(Back::Server(asker)), fold: None, revision }
    }

    /// A question whose answer somebody here waits for.
    pub(crate) fn gathered(
        key: &str,
        revision: ProtocolVersion,
        method: Method,
        params: Option<Raw>,
    ) -> (Self, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let id = RequestId::Text(key.into());
        (Self { id, method, params, back: Some(Back::Gatherer(sender)), fold: None, revision }, receiver)
    }

    /// The question put in other words; `fold` turns the answer to them back.
    pub(crate) fn put(mut self, params: Option<Raw>, fold: Fold) -> Self {
        self.params = params;
        self.fold = match self.fold.take() {
            // What was put in other words before is turned back last.
            Some(first) => Some(Box::new(move |outcome| first(fold(outcome)))),
            None => Some(fold),
        };
        self
    }

    /// The revision that it is put in.
    pub(crate) fn revision(&self) -> ProtocolVersion {
        self.revision
    }

    /// Whether somebody here gathers the answers, rather than a server that waits for its response.
    pub(crate) fn is_gathered(&self) -> bool {
        matches!(self.back, Some(Back::Gatherer(_)))
    }

    /// Whether a client with that profile can answer any such question.
    pub(super) fn is_for(&self, profile: Profile) -> bool {
        match self.method {
            Method::RootsList => profile.has(Profile::ROOTS),
            Method::CreateMessage => profile.has(Profile::SAMPLING),
            Method::Elicit => profile.has(Profile::ELICITATION_FORM) || profile.has(Profile::ELICITATION_URL),
            _ => false,
        }
    }

    /// What the server that asks calls its version.
    pub(crate) fn server_version(&self) -> Option<String> {
        match &self.back {
            Some(Back::Server(asker)) => asker.version(),
            Some(Back::Gatherer(_)) | None => None,
        }
    }

    /// Hands the client's answer to whoever asked.
    pub(crate) fn answer(mut self, outcome: Outcome) {
        self.give(outcome);
    }

    fn give(&mut self, outcome: Outcome) {
        let outcome = match self.fold.take() {
            Some(fold) => fold(outcome),
            None => outcome,
        };
        match self.back.take() {
            Some(Back::Server(asker)) => asker.answer(&self.id, outcome),
            // A gatherer that is gone wants nothing.
            Some(Back::Gatherer(sender)) => drop(sender.send(outcome)),
            None => {}
        }
    }

    /// How much it holds.
    pub(crate) fn weight(&self) -> usize {
        128 + self.params.as_ref().map_or(0, |params| params.as_bytes().len())
    }

    /// Whether this is question `id` of that connection.
    pub(crate) fn is(&self, connection: &Arc<impl Asker>, id: &RequestId) -> bool {
        self.is_on(connection) && self.id == *id
    }

    /// Whether it was put on that connection.
    pub(crate) fn is_on(&self, connection: &Arc<impl Asker>) -> bool {
        let mine = Arc::as_ptr(connection);
        matches!(&self.back, Some(Back::Server(asker)) if std::ptr::addr_eq(Arc::as_ptr(asker), mine))
    }

    /// Whether whoever asked still waits for an answer.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(&self.back, Some(Back::Server(asker)) if !asker.waits_for(&self.id))
    }

    /// Forgets the question: its server wants no answer any more.
    pub(crate) fn forget(mut self) {
        self.back = None;
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.give(Err(ErrorObject::internal("the client is gone")));
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ask({} {})", self.method, self.id)
    }
}
