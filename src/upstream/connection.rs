//! One life of a transport: who waits for which answer, and whose call a message of the server belongs to.
//!
//! **Invariant:** what arrives is handed on without waiting for anybody, so one slow client never stops a server's reader.
//! The table of waiting requests is behind a plain lock that is never held across an `await`: a task of its own for it
//! would cost each call two wake-ups.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::{Ask, Exchange, Inbox, Item, Owner, Terms};
use super::handshake::Peer;
use super::{Relay, Relayed, drive};
use crate::protocol::{
    ErrorObject, Frame, Message, Method, Notification, Outcome, ProgressToken, Raw, Request, RequestId, Response,
};
use crate::transport::HANG_UP;
use crate::transport::{self, Http, Memory, Pipe, Sse};

/// How messages leave.
#[derive(Clone, Debug)]
pub(super) enum Wire {
    Pipe(Pipe),
    Http(Arc<Http>),
    Sse(Arc<Sse>),
    Memory(Memory),
}

/// What a connection is made with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) server: Arc<str>,
    pub(super) wire: Wire,
    pub(super) relay: Relay,
    pub(super) binding: Arc<OnceLock<Owner>>,
    pub(super) opened_for: Owner,
    pub(super) pending_cap: usize,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// One connection to one server.
#[derive(Debug)]
pub(crate) struct Connection {
    parts: Parts,
    /// The wire that took the place of the first one, which turned out not to be the server's (`infer.rs`).
    instead: OnceLock<Wire>,
    table: Mutex<Table>,
    salt: RandomState,
    peer: OnceLock<Peer>,
    /// Which lists the server says have changed, one bit a kind.
    dirty: AtomicU8,
    dirtied: Notify,
    answered: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    count: u64,
    waiting: HashMap<u64, Waiting>,
    /// Questions of the server that have no answer yet, and the exchange that each went to.
    asks: HashMap<RequestId, Option<u64>>,
    lost: Option<transport::Error>,
}

#[derive(Debug)]
struct Waiting {
    inbox: Arc<Inbox>,
    owner: Owner,
    may_ask: bool,
    sessionless: bool,
}

/// Questions without an answer that one server may have.
const ASKS: usize = 256;
/// The bit of "something changed", for each of the lists.
pub(super) const TOOLS: u8 = 1;
pub(super) const PROMPTS: u8 = 2;
pub(super) const RESOURCES: u8 = 4;

impl Connection {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            instead: OnceLock::new(),
            table: Mutex::default(),
            salt: RandomState::new(),
            peer: OnceLock::new(),
            dirty: AtomicU8::new(0),
            dirtied: Notify::new(),
            answered: AtomicBool::new(false),
        })
    }

    /// What the server said of itself; `None` before the handshake is done.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    pub(super) fn shake_done(&self, peer: Peer) {
        match self.wire() {
            Wire::Http(http) => http.agree(peer.version),
            Wire::Sse(sse) => sse.agree(peer.version),
            Wire::Pipe(_) | Wire::Memory(_) => {}
        }
        let _ = self.peer.set(peer);
    }

    pub(super) fn wire(&self) -> &Wire {
        self.instead.get().unwrap_or(&self.parts.wire)
    }

    /// Goes on over another wire, before anything is under way; once.
    pub(super) fn change_wire(&self, wire: Wire) {
        let _ = self.instead.set(wire);
    }

    pub(super) fn stop_token(&self) -> &CancellationToken {
        &self.parts.stop
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.parts.tasks
    }

    /// Whether any request but the handshake was answered.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// The process behind it, where there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self.wire() {
            Wire::Pipe(pipe) => pipe.pid(),
            Wire::Http(_) | Wire::Sse(_) | Wire::Memory(_) => None,
        }
    }

    /// Whether what the server asks says by the stream it comes on during which request it is asked.
    pub(crate) fn tells_whose(&self) -> bool {
        matches!(self.parts.wire, Wire::Http(_) | Wire::Memory(_))
    }

    /// Why it is gone, if it is.
    pub(crate) fn lost(&self) -> Option<transport::Error> {
        self.lock().lost.clone()
    }

    /// Requests without an answer, those of the host itself aside.
    pub(crate) fn running(&self) -> usize {
        self.lock().waiting.values().filter(|waiting| waiting.owner != Owner::HOST).count()
    }

    /// Whether all requests without an answer are this client's, those of the host itself aside.
    pub(super) fn serves_only(&self, owner: Owner) -> bool {
        self.lock().waiting.values().all(|waiting| waiting.owner == owner || waiting.owner == Owner::HOST)
    }

    /// A new request id: never used before on this connection, and not to be guessed from the ones before. It serves as
    /// the progress token of that request too.
    pub(crate) fn next_id(&self) -> u64 {
        let mut table = self.lock();
        table.count += 1;
        let count = table.count;
        drop(table);
        // Stays below 2^53, so that JavaScript reads it exactly.
        (count << 20) | (self.salt.hash_one(count) & 0xf_ffff)
    }

    /// Sends a request under an id of [`Connection::next_id`].
    pub(crate) fn open(self: &Arc<Self>, id: u64, method: &Method, params: Option<&Raw>, terms: &Terms) -> Exchange {
        let inbox = Arc::new(Inbox::default());
        let mut exchange = Exchange { id, connection: self.clone(), inbox: inbox.clone(), drive: None, over: false };
        {
            let mut table = self.lock();
            let refused = match &table.lost {
                Some(error) => Some(error.clone()),
                None if table.waiting.len() >= self.parts.pending_cap => {
                    Some(transport::Error::Overloaded(self.parts.pending_cap))
                }
                None => None,
            };
            if let Some(error) = refused {
                drop(table);
                exchange.over = true;
                inbox.put(Item::Lost(error));
                return exchange;
            }
            table.waiting.insert(
                id,
                Waiting { inbox, owner: terms.owner, may_ask: method.may_ask(), sessionless: terms.sessionless },
            );
        }
        let rpc_id = number(id);
        let sent = match self.wire() {
            Wire::Pipe(pipe) => pipe.send(Frame::request(&rpc_id, method, params)),
            Wire::Memory(memory) => {
                memory.send(Message::Request(Request { id: rpc_id, method: method.clone(), params: params.cloned() }))
            }
            Wire::Http(http) => {
                let frame = Frame::request(&rpc_id, method, params);
                exchange.drive = Some(Box::pin(drive::request(self.clone(), http.clone(), id, frame)));
                Ok(())
            }
            Wire::Sse(sse) => {
                drive::post(self, sse, Some(id), Frame::request(&rpc_id, method, params));
                Ok(())
            }
        };
        if let Err(error) = sent {
            self.finish(id, Item::Lost(error));
        }
        exchange
    }

    /// Sends a notification; over HTTP in a task, so that nobody waits for it.
    pub(crate) fn notify(self: &Arc<Self>, method: Method, params: Option<Raw>) {
        self.say(Message::Notification(Notification { method, params }));
    }

    /// Sends a notification that must arrive before anything that is sent later.
    pub(super) async fn say_first(self: &Arc<Self>, method: Method) -> Result<(), transport::Error> {
        let notice = Notification { method, params: None };
        match self.wire() {
            Wire::Http(http) => http.post(notice.frame()).await.map(drop),
            Wire::Sse(sse) => sse.post(notice.frame()).await.map(drop),
            Wire::Pipe(_) | Wire::Memory(_) => {
                self.say(Message::Notification(notice));
                Ok(())
            }
        }
    }

    pub(super) fn respond(self: &Arc<Self>, id: &RequestId, outcome: Outcome) {
        if self.lock().asks.remove(id).is_some() {
            self.say(Message::Response(Response { id: Some(id.clone()), outcome }));
        }
    }

    fn say(self: &Arc<Self>, message: Message) {
        let result = match self.wire() {
            Wire::Pipe(pipe) => pipe.send(message.frame()),
            Wire::Memory(memory) => memory.send(message),
            Wire::Http(http) => {
                let (http, connection) = (http.clone(), self.clone());
                self.parts.tasks.spawn(async move {
                    if let Err(error) = http.post(message.frame()).await {
                        connection.failed(&error);
                    }
                });
                Ok(())
            }
            Wire::Sse(sse) => {
                drive::post(self, sse, None, message.frame());
                Ok(())
            }
        };
        if let Err(error) = result {
            tracing::debug!(server = &*self.parts.server, "not sent: {error}");
        }
    }

    /// An error that means more than its own request: the server is not there, or has forgotten us.
    pub(super) fn failed(self: &Arc<Self>, error: &transport::Error) {
        use transport::Error as E;
        if matches!(error, E::SessionEnded | E::Unreachable { .. } | E::Unauthorized { .. }) {
            self.lose(error);
        }
    }

    /// The connection is gone: everybody who waits is told.
    pub(super) fn lose(&self, error: &transport::Error) {
        let waiting = {
            let mut table = self.lock();
            if table.lost.is_some() {
                return;
            }
            table.lost = Some(error.clone());
            table.asks.clear();
            std::mem::take(&mut table.waiting)
        };
        for entry in waiting.into_values() {
            entry.inbox.put(Item::Lost(error.clone()));
        }
        self.parts.stop.cancel();
    }

    /// One message of the server. `origin` is the exchange on whose stream it came, where there is one.
    pub(super) fn receive(self: &Arc<Self>, origin: Option<u64>, message: Message) {
        match message {
            Message::Response(response) => self.receive_response(response),
            Message::Notification(notice) => self.receive_notification(origin, notice),
            Message::Request(request) => self.receive_request(origin, request),
        }
    }

    fn receive_response(&self, response: Response) {
        let Some(RequestId::Number(id)) = response.id else {
            if let Err(error) = response.outcome {
                tracing::warn!(
                    server = &*self.parts.server,
                    code = error.code,
                    "an error about no request: {}",
                    error.message
                );
            }
            return;
        };
        if let Ok(id) = u64::try_from(id) {
            self.finish(id, Item::Done(response.outcome));
        }
    }

    /// Ends a request; only the first end counts.
    pub(super) fn finish(&self, id: u64, item: Item) {
        let entry = self.lock().waiting.remove(&id);
        if let Some(entry) = entry {
            if self.peer.get().is_some() && matches!(item, Item::Done(_)) {
                self.answered.store(true, Ordering::Relaxed);
            }
            entry.inbox.put(item);
        }
    }

    /// Whether the request still waits.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.lock().waiting.contains_key(&id)
    }

    fn receive_notification(self: &Arc<Self>, origin: Option<u64>, notice: Notification) {
        let params = notice.params.unwrap_or_else(Raw::empty_object);
        match notice.method {
            Method::Progress => {
                let token = params.member("progressToken").and_then(|token| token.read::<ProgressToken>().ok());
                if let Some(inbox) = token.and_then(|token| self.inbox_of(&token)) {
                    inbox.put(Item::Progress(params));
                }
            }
            Method::LogMessage => match self.correlate(origin, false) {
                Whose::Exchange(_, _, inbox) => inbox.put(Item::Log(params)),
                Whose::Nobody => self.relay(Relayed::Log(params)),
                Whose::Unclear => {
                    tracing::debug!(server = &*self.parts.server, "a log line that may be anybody's: {params}")
                }
            },
            Method::Cancelled => self.withdraw(&params),
            Method::ToolsListChanged => self.mark(TOOLS),
            Method::PromptsListChanged => self.mark(PROMPTS),
            Method::ResourcesListChanged => self.mark(RESOURCES),
            Method::ResourceUpdated => self.relay(Relayed::Updated(params)),
            Method::ElicitationComplete => self.relay(Relayed::ElicitationComplete(params)),
            Method::TaskStatus | Method::TaskNews => self.relay(Relayed::Task(params)),
            Method::Other(name) if matches!(self.wire(), Wire::Memory(_)) && *name == *HANG_UP => self.hang_up(&params),
            other => tracing::debug!(server = &*self.parts.server, "unknown notification {other}"),
        }
    }

    fn hang_up(&self, params: &Raw) {
        let token = params.member("progressToken").and_then(|token| token.read::<ProgressToken>().ok());
        let retry = params.member("retry").and_then(|retry| retry.read::<u64>().ok()).unwrap_or_default();
        if let Some(inbox) = token.and_then(|token| self.inbox_of(&token)) {
            inbox.put(Item::HangUp(std::time::Duration::from_millis(retry)));
        }
    }

    fn mark(&self, kind: u8) {
        self.dirty.fetch_or(kind, Ordering::Relaxed);
        self.dirtied.notify_one();
    }

    /// Waits until the server says that lists have changed; tells which, once.
    pub(super) async fn changed(&self) -> u8 {
        loop {
            match self.dirty.swap(0, Ordering::Relaxed) {
                0 => self.dirtied.notified().await,
                kinds => return kinds,
            }
        }
    }

    fn receive_request(self: &Arc<Self>, origin: Option<u64>, request: Request) {
        let Request { id, method, params } = request;
        {
            let mut table = self.lock();
            if table.asks.contains_key(&id) || table.asks.len() >= ASKS {
                drop(table);
                tracing::warn!(
                    server = &*self.parts.server,
                    "a question with an id in use, or one of too many: dropped"
                );
                return;
            }
            table.asks.insert(id.clone(), None);
        }
        match method {
            Method::Ping => self.respond(&id, Ok(Raw::empty_object())),
            Method::RootsList | Method::CreateMessage | Method::Elicit => {
                let ask = Ask::new(id.clone(), method, params, self.clone());
                match self.correlate(origin, true) {
                    Whose::Exchange(exchange, owner, inbox) => {
                        self.bind(owner);
                        self.lock().asks.insert(id, Some(exchange));
                        inbox.put(Item::Ask(ask));
                    }
                    Whose::Nobody => {
                        self.bind(self.parts.opened_for);
                        self.relay(Relayed::Ask { ask, unclear: false });
                    }
                    Whose::Unclear => {
                        self.bind(self.parts.opened_for);
                        self.relay(Relayed::Ask { ask, unclear: true });
                    }
                }
            }
            other => self.respond(&id, Err(ErrorObject::method_not_found(other.as_str()))),
        }
    }

    /// From the first question on the lease belongs to one client.
    fn bind(&self, owner: Owner) {
        if owner != Owner::HOST {
            let _ = self.parts.binding.set(owner);
        }
    }

    fn withdraw(self: &Arc<Self>, params: &Raw) {
        let Some(id) = params.member("requestId").and_then(|id| id.read::<RequestId>().ok()) else { return };
        let (exchange, inbox) = {
            let mut table = self.lock();
            let Some(exchange) = table.asks.remove(&id) else { return };
            (exchange, exchange.and_then(|exchange| Some(table.waiting.get(&exchange)?.inbox.clone())))
        };
        match (exchange, inbox) {
            (_, Some(inbox)) => inbox.put(Item::Withdrawn(id)),
            (None, None) => self.relay(Relayed::Withdrawn(id)),
            (Some(_), None) => {}
        }
    }

    /// Which call a message belongs to (`bridging.md` 5.1): the stream it came on; else the only client with calls under
    /// way, by its latest. Two clients with calls under way: unclear, and never guessed.
    fn correlate(&self, origin: Option<u64>, asks: bool) -> Whose {
        let table = self.lock();
        if let Some(id) = origin {
            match table.waiting.get(&id) {
                Some(entry) if entry.owner == Owner::HOST => {}
                Some(entry) => return Whose::Exchange(id, entry.owner, entry.inbox.clone()),
                // Its call is over: it is no other's.
                None => return Whose::Unclear,
            }
        }
        let mut found: Option<(u64, &Waiting)> = None;
        for (id, entry) in &table.waiting {
            if entry.owner == Owner::HOST || (asks && !entry.may_ask) {
                continue;
            }
            match found {
                Some((_, other)) if other.owner != entry.owner || entry.sessionless => return Whose::Unclear,
                Some((other, _)) if other > *id => {}
                _ => found = Some((*id, entry)),
            }
        }
        match found {
            Some((id, entry)) => Whose::Exchange(id, entry.owner, entry.inbox.clone()),
            None => Whose::Nobody,
        }
    }

    fn inbox_of(&self, token: &ProgressToken) -> Option<Arc<Inbox>> {
        let RequestId::Number(token) = token else { return None };
        Some(self.lock().waiting.get(&u64::try_from(*token).ok()?)?.inbox.clone())
    }

    pub(super) fn close_exchange(self: &Arc<Self>, id: u64, cancel: bool) {
        let waited = self.lock().waiting.remove(&id).is_some();
        if waited && cancel {
            let params = format!(r#"{{"requestId":{id},"reason":"the caller no longer waits"}}"#);
            self.notify(Method::Cancelled, Some(Raw::trusted(params.into())));
        }
    }

    fn relay(self: &Arc<Self>, what: Relayed) {
        // A full relay means that the host itself is behind: the news is dropped, a question answers itself.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.parts.relay.try_send(self, what) {
            tracing::warn!(server = &*self.parts.server, "news dropped: too many at once");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Whose {
    Exchange(u64, Owner, Arc<Inbox>),
    Nobody,
    Unclear,
}

pub(super) fn number(id: u64) -> RequestId {
    RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX))
}
