//! One request to a server and everything that comes back for it: progress, log lines, questions, last the outcome.
//!
//! Dropping an [`Exchange`] before its outcome cancels the request at the server.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::connection::Connection;
use crate::protocol::{ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, RequestId};
use crate::queues::{Account, Share};
use crate::transport;

/// Whom a request is made for: a client, or the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// The host itself.
    pub(crate) const HOST: Self = Self(0);
}

/// What a request says of whoever it is made for. A server of the modern era is told with each request; one of the
/// legacy era was told in the handshake of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) owner: Owner,
    /// What may be asked during the request.
    pub(crate) profile: Profile,
    /// The client's `capabilities.extensions`, as far as we carry them.
    pub(crate) extensions: Option<Raw>,
    /// From which level on log lines are wanted.
    pub(crate) level: Option<&'static str>,
    /// The client has no session: two requests of it may be those of two conversations, and are never mistaken for one.
    pub(crate) sessionless: bool,
    /// Its progress token is good for as long as the task that it is answered with.
    pub(crate) lasts: bool,
    /// What comes back counts for that account as long as nobody takes it.
    pub(crate) account: Option<Account>,
    /// The config tells its roots: a question for them is not put to the client.
    pub(crate) has_fixed_roots: bool,
    /// The turn of the lease at which it was for this client ([`super::Upstream::turn`]); it is not sent at another.
    pub(crate) turn: Option<u64>,
}

impl Terms {
    /// The host asks for itself: nobody can be asked anything.
    pub(crate) fn host() -> Self {
        Self {
            owner: Owner::HOST,
            profile: Profile::EMPTY,
            extensions: None,
            level: None,
            sessionless: false,
            lasts: false,
            account: None,
            has_fixed_roots: false,
            turn: None,
        }
    }

    /// What may be put to the client itself.
    pub(super) fn asks_client(&self) -> Profile {
        if self.has_fixed_roots { self.profile.without(Profile::ROOTS) } else { self.profile }
    }
}

/// What comes back for a request.
#[derive(Debug)]
pub(crate) enum Item {
    /// The params of a progress notification, with our token in.
    Progress(Raw),
    /// The params of a log line.
    Log(Raw),
    /// The server asks the client something.
    Ask(Ask),
    /// A server in this process wants the stream of its call closed for a while.
    HangUp(std::time::Duration),
    /// The server withdraws a question.
    Withdrawn(RequestId),
    /// The answer. Last.
    Done(Outcome),
    /// There will be no answer. Last.
    Lost(transport::Error),
}

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

/// Where the answer to a question goes.
enum Back {
    /// To the server, as a response.
    Server(Arc<Connection>),
    /// To whoever gathers the answers for a retry.
    Gatherer(oneshot::Sender<Outcome>),
}

impl Ask {
    pub(super) fn new(id: RequestId, method: Method, params: Option<Raw>, connection: Arc<Connection>) -> Self {
        let revision = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        Self { id, method, params, back: Some(Back::Server(connection)), fold: None, revision }
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
            Some(Back::Server(connection)) => connection.server_version(),
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
            Some(Back::Server(connection)) => connection.respond(&self.id, outcome),
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
    pub(crate) fn is(&self, connection: &Arc<Connection>, id: &RequestId) -> bool {
        self.is_on(connection) && self.id == *id
    }

    /// Whether it was put on that connection.
    pub(crate) fn is_on(&self, connection: &Arc<Connection>) -> bool {
        matches!(&self.back, Some(Back::Server(mine)) if Arc::ptr_eq(mine, connection))
    }

    /// Whether whoever asked still waits for an answer.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(&self.back, Some(Back::Server(connection)) if !connection.waits_for_answer(&self.id))
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

/// Where the items of one request wait. Putting one in never waits.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Bytes of what may be dropped.
    droppable: usize,
    share: Option<Share>,
}

/// Progress and log lines over this are dropped: their reader is slower than their server.
const ITEMS: usize = 256;
const DROPPABLE: usize = 1 << 20;

impl Inbox {
    /// An empty one, whose items count for that account.
    pub(super) fn of(account: Option<&Account>) -> Self {
        let share = account.map(Account::share);
        Self { queue: Mutex::new(Queue { share, ..Queue::default() }), news: Notify::new() }
    }

    pub(super) fn put(&self, item: Item) {
        let mut queue = self.lock();
        let size = item.weight();
        if item.is_droppable() {
            let full = queue.items.len() >= ITEMS || queue.droppable + size > DROPPABLE;
            if full && !queue.items.is_empty() {
                return;
            }
            queue.droppable += size;
        }
        if let Some(share) = &mut queue.share {
            share.add(size);
        }
        queue.items.push_back(item);
        drop(queue);
        self.news.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Item> {
        let mut queue = self.lock();
        let item = queue.items.pop_front()?;
        let size = item.weight();
        if item.is_droppable() {
            queue.droppable -= size;
        }
        if let Some(share) = &mut queue.share {
            share.take(size);
        }
        Some(item)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Item {
    fn is_droppable(&self) -> bool {
        matches!(self, Self::Progress(_) | Self::Log(_))
    }

    /// How much it holds.
    fn weight(&self) -> usize {
        let raw = match self {
            Self::Progress(params) | Self::Log(params) => Some(params),
            Self::Ask(ask) => return ask.weight(),
            Self::Done(outcome) => outcome.as_ref().ok(),
            Self::HangUp(_) | Self::Withdrawn(_) | Self::Lost(_) => None,
        };
        128 + raw.map_or(0, |raw| raw.as_bytes().len())
    }
}

/// The work that brings the answer of a request over HTTP; pipes have a reader of their own.
pub(super) type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One request under way.
pub(crate) struct Exchange {
    pub(super) id: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) drive: Option<Drive>,
    /// Nothing more comes, or nobody is to be told that it is given up.
    pub(super) over: bool,
}

impl Exchange {
    /// The next item; after `Done` or `Lost` there is none, and asking again waits for ever, but for the progress of a task
    /// that it is answered with.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Item {
        loop {
            if let Some(item) = self.inbox.pop() {
                self.over |= matches!(item, Item::Done(_) | Item::Lost(_));
                return item;
            }
            match &mut self.drive {
                Some(drive) => {
                    tokio::select! {
                        biased;
                        () = drive => self.drive = None,
                        () = self.inbox.news.notified() => {}
                    }
                }
                None => self.inbox.news.notified().await,
            }
        }
    }

    /// The outcome, whatever comes before it dropped.
    pub(crate) async fn outcome(mut self) -> Result<Outcome, transport::Error> {
        loop {
            match self.next().await {
                Item::Done(outcome) => return Ok(outcome),
                Item::Lost(error) => return Err(error),
                Item::Progress(_) | Item::Log(_) | Item::Ask(_) | Item::HangUp(_) | Item::Withdrawn(_) => {}
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.close_exchange(self.id, !self.over);
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("id", &self.id).finish_non_exhaustive()
    }
}
