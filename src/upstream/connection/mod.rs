//! One connection, from its opening to its loss: matches responses to waiting requests, and finds the call that any
//! other message from the server belongs to.
//!
//! **Invariant:** messages are passed on without waiting, so one slow client never stops a server's reader. The table
//! of waiting requests is behind a plain lock that is never held across an `await`: a separate task that owns it would
//! cost each call two wake-ups. If the table is full, a request is refused at once. If several clients share the
//! connection, each gets at most half of `pendingPerServer`.

mod asks;
mod callers;
mod flood;
mod lasting;
mod receive;
mod say;
mod take;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handshake::{Cache, Peer};
use super::inbox::{Inbox, Item};
use super::terms::{Owner, Terms};
use super::{Nature, Relay, modern};
use crate::lineage::Lineage;
use crate::lock::lock;
use crate::protocol::{Message, Method, ProtocolVersion, Raw, RequestId};
use crate::registry::{Caps, Kind, Offer};
use crate::transport::{self, Announcer, Http, Memory, Pipe, Sse};
use asks::Asks;
pub(super) use callers::Binding;
use callers::Callers;
use flood::Flood;
use lasting::Lasting;
pub(super) use receive::{kinds_of, read_memory, read_pipe};
use say::Speech;

/// The sending side of a transport.
#[derive(Clone, Debug)]
pub(super) enum Link {
    Pipe(Pipe),
    Http(Arc<Http>),
    Sse(Arc<Sse>),
    Memory(Memory),
}

/// What a new connection is created from.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) server: Arc<str>,
    pub(super) announcer: Announcer,
    pub(super) link: Link,
    pub(super) relay: Relay,
    pub(super) binding: Arc<Binding>,
    /// The roots that answer the server's `roots/list`, if known.
    pub(super) roots: Arc<Mutex<Option<Raw>>>,
    pub(super) client_info: Raw,
    pub(super) caps: Caps,
    pub(super) pending_cap: usize,
    /// The maximum bytes of outgoing messages that are queued over HTTP.
    pub(super) queue: usize,
    /// The maximum nesting depth of the server's messages.
    pub(super) depth: usize,
    /// The host's own JSON keys (`mcp-host/…`) that the server may use in answers: none, except for the user's own
    /// daemon.
    pub(super) stays: &'static [&'static str],
    /// The number of clients that use the lease.
    pub(super) users: Arc<AtomicUsize>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) nature: Nature,
    /// Asks the server whether a revision that it just refused still holds, and ends the refused request.
    pub(super) renew: Renew,
}

/// An async function of a connection and the id of one of its requests.
pub(super) type Renew = fn(Arc<Connection>, u64) -> BoxFuture<'static, ()>;

/// One connection to one server.
#[derive(Debug)]
pub(crate) struct Connection {
    parts: Parts,
    /// The link that replaced the first one, if that turned out to be the wrong transport (`infer.rs`).
    instead: OnceLock<Link>,
    table: Mutex<Table>,
    salt: RandomState,
    peer: OnceLock<Peer>,
    /// A number that no other connection has.
    serial: u64,
    /// How often the server said that a list has changed.
    changes: AtomicU64,
    /// The lists that the server says have changed, one bit per kind.
    dirty: AtomicU8,
    dirtied: Notify,
    answered: AtomicBool,
    told_served: AtomicBool,
    /// The number of answered client requests.
    served: AtomicU64,
    gone: AtomicBool,
    /// Outgoing messages other than requests.
    speech: Speech,
    /// The most recent tool list, for the headers that its tools require.
    offer: ArcSwapOption<Offer>,
    /// The caching hints of each list, and when that list was requested.
    caches: Mutex<[Option<(Cache, Instant)>; 4]>,
}

#[derive(Debug, Default)]
struct Table {
    count: u64,
    /// The requests in flight, oldest first: when the connection is lost, they fail in this order.
    waiting: BTreeMap<u64, Waiting>,
    /// The clients that have called here.
    callers: Callers,
    /// Requests that were answered with a task.
    lasting: BTreeMap<u64, Lasting>,
    /// The server's questions that have no answer yet.
    asks: Asks,
    /// Change streams (`subscriptions/listen`) that the server has not yet acknowledged.
    acknowledgements: HashMap<u64, oneshot::Sender<Raw>>,
    /// Recent resource updates: URI, stream, time.
    updates: Vec<(String, Option<u64>, Instant)>,
    flood: Flood,
    lost: Option<transport::Error>,
}

#[derive(Debug)]
struct Waiting {
    inbox: Arc<Inbox>,
    owner: Owner,
    may_ask: bool,
    sessionless: bool,
    /// Whether it is a `server/discover`, whose answer is about the revision itself.
    is_probe: bool,
    is_listen: bool,
    /// Whether the request asks for log lines; otherwise a modern server sends none during it.
    wants_logs: bool,
    /// The id of the task whose result the request waits for.
    task: Option<String>,
    /// Whether its progress token outlives it if it is answered with a task.
    lasts: bool,
}

/// The dirty bit of the tool list.
pub(super) const TOOLS: u8 = 1;
/// The dirty bit of the prompt list.
pub(super) const PROMPTS: u8 = 2;
/// The dirty bit of both resource lists.
pub(super) const RESOURCES: u8 = 4;

/// The maximum length of a server's version string, in characters.
const VERSION: usize = 200;

impl Connection {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            changes: AtomicU64::new(0),
            parts,
            instead: OnceLock::new(),
            table: Mutex::default(),
            salt: RandomState::new(),
            peer: OnceLock::new(),
            dirty: AtomicU8::new(0),
            dirtied: Notify::new(),
            answered: AtomicBool::new(false),
            told_served: AtomicBool::new(false),
            served: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            speech: Speech::default(),
            offer: ArcSwapOption::empty(),
            caches: Mutex::default(),
        })
    }

    /// The server's description of itself; `None` before the handshake is done.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    /// Whether the server is modern: each request describes its client and the questions allowed during it. False
    /// before the handshake is done.
    pub(crate) fn is_modern(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.version.is_modern())
    }

    /// Returns a value that differs for each connection, and changes whenever the server reports a changed list.
    pub(crate) fn epoch(&self) -> (u64, u64) {
        (self.serial, self.changes.load(Ordering::Relaxed))
    }

    /// Parses a message from the server.
    pub(super) fn read(&self, bytes: &bytes::Bytes) -> Result<Message, crate::protocol::Malformed> {
        Message::passing(bytes, self.parts.depth)
    }

    pub(super) fn caps(&self) -> Caps {
        self.parts.caps
    }

    /// From now on, tool calls get the headers that the tools in `offer` require.
    pub(super) fn keep_offer(&self, offer: Arc<Offer>) {
        self.offer.store(Some(offer));
    }

    pub(super) fn keep_cache(&self, kind: Kind, cache: Cache, since: Instant) {
        lock(&self.caches)[kind as usize] = Some((cache, since));
    }

    /// Returns how long a modern server's list is still valid, and whether it may be shared; `None` for a legacy
    /// server, which does not say, and before the list is read. An expired list is reread for the next client that
    /// asks, whatever the client's era, unless the server reports changes of that list.
    pub(crate) fn freshness(&self, kind: Kind) -> Option<Cache> {
        let peer = self.peer.get().filter(|peer| peer.version.is_modern())?;
        let (cache, since) = lock(&self.caches)[kind as usize]?;
        let left = Cache { ttl: cache.ttl.saturating_sub(since.elapsed()), ..cache };
        let (tells, bit) = match kind {
            Kind::Tools => (peer.offers.tools_changed, TOOLS),
            Kind::Prompts => (peer.offers.prompts_changed, PROMPTS),
            Kind::Resources | Kind::ResourceTemplates => (peer.offers.resources_changed, RESOURCES),
        };
        if left.ttl.is_zero() && !tells {
            self.mark(bit);
        }
        Some(left)
    }

    /// Returns the headers of a request to a modern server.
    pub(super) fn heads(&self, method: &Method, params: &Raw) -> modern::Heads {
        let version = self.peer.get().map_or(ProtocolVersion::LATEST_MODERN, |peer| peer.version);
        let offer = self.offer.load();
        let tool = match method {
            Method::ToolsCall => params.value_of("name").and_then(crate::protocol::value::string),
            _ => None,
        };
        let wanted = match (&*offer, &tool) {
            (Some(offer), Some(tool)) => offer.param_headers(tool),
            _ => &[],
        };
        modern::heads(method, params, version, wanted)
    }

    /// Records the peer after a handshake.
    ///
    /// # Errors
    /// When the server is this host itself.
    pub(super) fn shake_done(&self, peer: Peer) -> Result<(), transport::Error> {
        if peer.host.is_some() && peer.host.as_ref() == self.lineage().id() {
            return Err(transport::Error::Itself);
        }
        match self.link() {
            Link::Http(http) => http.agree(peer.version),
            Link::Sse(sse) => sse.agree(peer.version),
            Link::Pipe(_) | Link::Memory(_) => {}
        }
        let _ = self.peer.set(peer);
        Ok(())
    }

    pub(super) fn link(&self) -> &Link {
        self.instead.get().unwrap_or(&self.parts.link)
    }

    /// Returns a hash of the id that the server gave the session, if it did, for spans.
    #[cfg(feature = "otel")]
    pub(crate) fn session(&self) -> Option<String> {
        match self.link() {
            Link::Http(http) => http.session().map(|id| crate::traced::hashed(id.as_bytes())),
            _ => None,
        }
    }

    /// Switches to another link before any request is in flight; works once.
    pub(super) fn change_link(&self, link: Link) {
        let _ = self.instead.set(link);
    }

    /// The server's name in the log.
    pub(super) fn label(&self) -> &str {
        &self.parts.server
    }

    /// Returns a random number between 0 and 1.
    pub(super) fn chance(&self) -> f64 {
        (self.parts.nature.chance)()
    }

    /// The id of this host, and the hosts above it.
    pub(super) fn lineage(&self) -> &Lineage {
        &self.parts.nature.lineage
    }

    pub(super) fn stop_token(&self) -> &CancellationToken {
        &self.parts.stop
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.parts.tasks
    }

    /// Whether any request other than the handshake was answered.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Whether any client request was answered.
    pub(crate) fn has_served(&self) -> bool {
        self.served() > 0
    }

    /// The number of answered client requests.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Returns true on the first call only: the call for the first answered client request.
    pub(crate) fn is_first_answer(&self) -> bool {
        !self.told_served.swap(true, Ordering::Relaxed)
    }

    /// The server's version string, truncated.
    pub(crate) fn server_version(&self) -> Option<String> {
        let version = self.peer.get()?.info.text("version")?;
        Some(version.chars().take(VERSION).collect())
    }

    /// Whether a request was answered with a task that may still run.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.lock().lasting.is_empty()
    }

    /// The id of the server's process, if it has one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self.link() {
            Link::Pipe(pipe) => pipe.pid(),
            Link::Http(_) | Link::Sse(_) | Link::Memory(_) => None,
        }
    }

    /// Whether the stream on which a question comes identifies the request that the question belongs to.
    pub(crate) fn tells_whose(&self) -> bool {
        match &self.parts.link {
            Link::Http(_) => true,
            Link::Memory(memory) => memory.tells_whose(),
            Link::Pipe(_) | Link::Sse(_) => false,
        }
    }

    /// Why the connection is lost, if it is.
    pub(crate) fn lost(&self) -> Option<transport::Error> {
        self.lock().lost.clone()
    }

    /// Whether the connection is gone: new exchanges on it are lost at once.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the server may send batches: only 2025-03-26 allows it.
    pub(super) fn takes_batches(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.version == ProtocolVersion::V2025_03_26)
    }

    /// The number of dropped messages: answers without a waiting request, notifications over the rate limit.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().flood.dropped()
    }

    /// The number of client requests in flight.
    pub(crate) fn running(&self) -> usize {
        self.lock().waiting.values().filter(|waiting| waiting.owner != Owner::HOST).count()
    }

    /// The number of the server's questions that have no answer yet.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(crate) fn questions(&self) -> usize {
        self.lock().asks.len()
    }

    /// Whether the lease is bound to another client, or has become free since the request was admitted. Never true for
    /// the host's own requests or at a modern server.
    fn is_taken_from(&self, terms: &Terms) -> bool {
        if terms.owner == Owner::HOST || self.is_modern() {
            return false;
        }
        let is_anothers = self.parts.binding.get().is_some_and(|bound| bound != terms.owner);
        is_anothers || terms.turn.is_some_and(|turn| turn != self.parts.binding.turn())
    }

    /// Binds the lease to that client if no other client has ever called here. Returns false if it cannot be bound.
    pub(super) fn claim(&self, owner: Owner) -> bool {
        let table = self.lock();
        let alone = table.callers == Callers::None || table.callers.only() == Some(owner);
        alone && self.parts.binding.set(owner)
    }

    /// The only client that has called here.
    pub(super) fn only_caller(&self) -> Option<Owner> {
        self.lock().callers.only()
    }

    /// Whether no client has called here.
    pub(super) fn is_untouched(&self) -> bool {
        self.lock().callers == Callers::None
    }

    /// Records that a client is gone.
    pub(super) fn forget_caller(&self, owner: Owner) {
        self.lock().callers.forget(owner);
    }

    /// Whether all requests in flight belong to this client or the host itself.
    pub(super) fn serves_only(&self, owner: Owner) -> bool {
        self.lock().waiting.values().all(|waiting| waiting.owner == owner || waiting.owner == Owner::HOST)
    }

    /// Returns a new request id: unique on this connection, and not predictable from earlier ones. It also serves as
    /// the request's progress token.
    pub(crate) fn next_id(&self) -> u64 {
        let mut table = self.lock();
        table.count += 1;
        let count = table.count;
        drop(table);
        // Stays below 2^53, so that JavaScript reads it exactly.
        (count << 20) | (self.salt.hash_one(count) & 0xf_ffff)
    }

    /// Returns a receiver for the acknowledgement of the change stream that is opened next under `id`.
    pub(super) fn expect_acknowledgement(&self, id: u64) -> oneshot::Receiver<Raw> {
        let (sender, receiver) = oneshot::channel();
        self.lock().acknowledgements.insert(id, sender);
        receiver
    }

    /// Registers a request that is about to be sent.
    ///
    /// # Errors
    /// Why it must not be sent.
    pub(super) fn enter(
        &self,
        id: u64,
        method: &Method,
        params: Option<&Raw>,
        terms: &Terms,
        inbox: Arc<Inbox>,
    ) -> Result<(), transport::Error> {
        let (is_probe, is_listen) = (*method == Method::Discover, *method == Method::Listen);
        let mut table = self.lock();
        let refused = match &table.lost {
            // The host's own requests report the cause; for others it is enough to know that nothing was sent.
            Some(error) if terms.owner == Owner::HOST => Some(error.clone()),
            Some(_) => Some(transport::Error::Unwritten),
            // Another client has just taken the lease: nothing is sent, and the call goes elsewhere.
            None if self.is_taken_from(terms) => Some(transport::Error::Unwritten),
            None => self.overload(&table, terms.owner),
        };
        if let Some(error) = refused {
            return Err(error);
        }
        let (owner, sessionless) = (terms.owner, terms.sessionless);
        table.callers.note(owner, terms.asks_client());
        let may_ask = method.may_ask();
        let is_result = *method == Method::TasksResult;
        let task = params.filter(|_| is_result).and_then(|params| params.text("taskId"));
        let (wants_logs, lasts) = (terms.level.is_some(), terms.lasts);
        let entry = Waiting { inbox, owner, may_ask, sessionless, is_probe, is_listen, wants_logs, task, lasts };
        table.waiting.insert(id, entry);
        Ok(())
    }

    /// Ends a registered request that could not be sent.
    pub(super) fn unsent(self: &Arc<Self>, id: u64, error: &transport::Error) {
        if *error == transport::Error::Unwritten {
            // The connection is about to end: until then no caller may get it again.
            self.gone.store(true, Ordering::Release);
        }
        self.finish(id, Item::Lost(error.clone()));
        self.failed(error);
    }

    /// Checks the limits on requests in flight: in total, and per client if several clients share the lease. Returns the
    /// error if a limit is reached.
    fn overload(&self, table: &Table, owner: Owner) -> Option<transport::Error> {
        let (all, cap) = (table.waiting.len(), self.parts.pending_cap);
        if all >= cap {
            return Some(transport::Error::Busy(cap));
        }
        let half = cap.div_ceil(2);
        if all < half || owner == Owner::HOST || self.parts.users.load(Ordering::Relaxed) < 2 {
            return None;
        }
        let own = table.waiting.values().filter(|waiting| waiting.owner == owner).count();
        (own >= half).then_some(transport::Error::Share(half))
    }

    /// Returns the params of a request to a modern server, with the protocol's own members in `_meta`.
    pub(super) fn stamp(&self, params: Option<&Raw>, terms: &Terms) -> Raw {
        let version = self.peer.get().map_or(ProtocolVersion::LATEST_MODERN, |peer| peer.version);
        modern::stamp(params, terms, &self.parts.client_info, version)
    }

    /// Handles an error that concerns more than its own request: the server is unreachable, has forgotten the session,
    /// or wants credentials. Other errors are ignored. No further request is sent here. Other requests in flight travel
    /// separately and may still be answered (`docs/hazards.md` H30).
    pub(super) fn failed(self: &Arc<Self>, error: &transport::Error) {
        use transport::Error as E;
        if !error.wants_credentials()
            && !matches!(error, E::SessionEnded | E::SessionChanged | E::Unreachable { .. } | E::Untrusted { .. })
            && !matches!(error, E::Helper { .. } | E::Spawn { .. } | E::Exhausted { .. })
        {
            return;
        }
        let mut table = self.lock();
        let asks = table.lost.is_none().then(|| table.asks.take());
        table.lost.get_or_insert_with(|| error.clone());
        drop(table);
        self.withdraw_all(asks.unwrap_or_default());
        self.gone.store(true, Ordering::Release);
        self.parts.stop.cancel();
    }

    /// Ends the connection and fails everything that waits on it.
    pub(super) fn lose(self: &Arc<Self>, error: &transport::Error) {
        let (waiting, asks) = {
            let mut table = self.lock();
            if table.lost.is_some() && matches!(self.link(), Link::Http(_)) {
                self.parts.stop.cancel();
                return;
            }
            table.lost.get_or_insert_with(|| error.clone());
            self.gone.store(true, Ordering::Release);
            table.acknowledgements.clear();
            (std::mem::take(&mut table.waiting), table.asks.take())
        };
        self.withdraw_all(asks);
        // The server has not seen messages that were queued but not written; in an orderly close they still go out.
        let unwritten = match self.link() {
            Link::Pipe(pipe) if *error != transport::Error::Closed => pipe.abandon(),
            _ => Vec::new(),
        };
        for (id, entry) in waiting {
            let error = if unwritten.contains(&id) { transport::Error::Unwritten } else { error.clone() };
            entry.inbox.put(Item::Lost(error));
        }
        self.parts.stop.cancel();
    }

    pub(super) fn close_exchange(self: &Arc<Self>, id: u64, cancel: bool) {
        let waited = {
            let mut table = self.lock();
            if !table.acknowledgements.is_empty() {
                table.acknowledgements.remove(&id);
            }
            let gone = table.let_go(id);
            let waited = table.waiting.remove(&id).is_some();
            drop(table);
            drop(gone);
            waited
        };
        if waited && cancel {
            self.cancel(id, "the caller no longer waits");
        }
    }

    /// Counts client requests in flight, open questions, and unacknowledged listens.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> [usize; 3] {
        let running = self.running();
        let table = self.lock();
        [running, table.asks.len(), table.acknowledgements.len()]
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

/// The prefix of the ids of `server/discover` requests. They are text, so no id of a later session equals one.
const PROBE_ID: &str = "discover-";

/// Returns the JSON-RPC id of a request.
pub(super) fn rpc_id(id: u64, is_probe: bool) -> RequestId {
    if is_probe {
        return RequestId::Text(format!("{PROBE_ID}{id}").into());
    }
    RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX))
}
