//! One life of a transport: which request waits for which answer, and which call a message of the server belongs to.
//!
//! **Invariant:** a message is handed on without waiting, so one slow client never stops a server's reader. The table
//! of waiting requests is behind a plain lock that is never held across an `await`: a task of its own for it would cost
//! each call two wake-ups. No request waits for a place in the table; where several clients use the lease, none gets
//! more than half of `pendingPerServer`.

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
use say::Speech;

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
    pub(super) announcer: Announcer,
    pub(super) wire: Wire,
    pub(super) relay: Relay,
    pub(super) binding: Arc<Binding>,
    /// The roots of the lease, where they are known.
    pub(super) roots: Arc<Mutex<Option<Raw>>>,
    pub(super) client_info: Raw,
    pub(super) caps: Caps,
    pub(super) pending_cap: usize,
    /// Bytes that may wait to be said over HTTP.
    pub(super) queue: usize,
    /// How deep its messages may nest.
    pub(super) depth: usize,
    /// The keys under `mcp-host/` that its server may use in answers.
    pub(super) stays: &'static [&'static str],
    /// How many clients use the lease.
    pub(super) users: Arc<AtomicUsize>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) nature: Nature,
    /// Asks whether a revision still holds that the server has just refused, and ends that request.
    pub(super) renew: Renew,
}

/// Work on a connection over one of its requests.
pub(super) type Renew = fn(Arc<Connection>, u64) -> BoxFuture<'static, ()>;

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
    told_served: AtomicBool,
    /// Requests of clients that were answered.
    served: AtomicU64,
    gone: AtomicBool,
    /// What is said beside requests.
    speech: Speech,
    /// What the server listed last, for the headers that it wants of its tools.
    offer: ArcSwapOption<Offer>,
    /// What it said of keeping each list, and since when.
    caches: Mutex<[Option<(Cache, Instant)>; 4]>,
}

#[derive(Debug, Default)]
struct Table {
    count: u64,
    /// Oldest first: in that order they are told that all is lost.
    waiting: BTreeMap<u64, Waiting>,
    /// The clients that have called here.
    callers: Callers,
    /// Requests that were answered with a task.
    lasting: BTreeMap<u64, Lasting>,
    /// Questions of the server that have no answer yet.
    asks: Asks,
    /// Listens whose first word is waited for.
    acknowledgements: HashMap<u64, oneshot::Sender<Raw>>,
    /// Resources that changed a moment ago, and which stream said so.
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
    /// Its answer is about the revision itself.
    is_probe: bool,
    is_listen: bool,
    /// It wants log lines; without that a modern server says none during it.
    wants_logs: bool,
    /// The task that it waits for the result of.
    task: Option<String>,
    /// Its answer may be a task.
    lasts: bool,
}

/// The bit of "something changed", for each of the lists.
pub(super) const TOOLS: u8 = 1;
pub(super) const PROMPTS: u8 = 2;
pub(super) const RESOURCES: u8 = 4;

/// Characters of what a server calls its version.
const VERSION: usize = 200;

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
            told_served: AtomicBool::new(false),
            served: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            speech: Speech::default(),
            offer: ArcSwapOption::empty(),
            caches: Mutex::default(),
        })
    }

    /// What the server said of itself; `None` before the handshake is done.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    /// Whether each request says of itself who sends it, and what may be asked meanwhile.
    pub(crate) fn is_modern(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.version.is_modern())
    }

    /// Reads what the server said.
    pub(super) fn read(&self, bytes: &bytes::Bytes) -> Result<Message, crate::protocol::Malformed> {
        Message::passing(bytes, self.parts.depth)
    }

    pub(super) fn caps(&self) -> Caps {
        self.parts.caps
    }

    /// From now on tools get the headers of that list.
    pub(super) fn keep_offer(&self, offer: Arc<Offer>) {
        self.offer.store(Some(offer));
    }

    pub(super) fn keep_cache(&self, kind: Kind, cache: Cache, since: Instant) {
        lock(&self.caches)[kind as usize] = Some((cache, since));
    }

    /// How long a list of a modern server is still good, and for whom; `None` for one of the legacy era, which says nothing.
    /// A list whose time is over is read anew for the next one who asks, unless the server tells what changes.
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

    /// The headers of a request to a server of the modern era.
    pub(super) fn heads(&self, method: &Method, params: &Raw) -> modern::Heads {
        let version = self.peer.get().map_or(ProtocolVersion::LATEST_MODERN, |peer| peer.version);
        let offer = self.offer.load();
        let tool = match method {
            Method::ToolsCall => params.value_of("name").and_then(crate::protocol::raw::string),
            _ => None,
        };
        let wanted = match (&*offer, &tool) {
            (Some(offer), Some(tool)) => offer.param_headers(tool),
            _ => &[],
        };
        modern::heads(method, params, version, wanted)
    }

    /// The server has said who it is.
    ///
    /// # Errors
    /// When it is this very host.
    pub(super) fn shake_done(&self, peer: Peer) -> Result<(), transport::Error> {
        if peer.host.is_some() && peer.host.as_ref() == self.lineage().id() {
            return Err(transport::Error::Itself);
        }
        match self.wire() {
            Wire::Http(http) => http.agree(peer.version),
            Wire::Sse(sse) => sse.agree(peer.version),
            Wire::Pipe(_) | Wire::Memory(_) => {}
        }
        let _ = self.peer.set(peer);
        Ok(())
    }

    pub(super) fn wire(&self) -> &Wire {
        self.instead.get().unwrap_or(&self.parts.wire)
    }

    /// Goes on over another wire, before anything is under way; once.
    pub(super) fn change_wire(&self, wire: Wire) {
        let _ = self.instead.set(wire);
    }

    /// The server's name in the log.
    pub(super) fn label(&self) -> &str {
        &self.parts.server
    }

    /// A number from 0 to 1.
    pub(super) fn chance(&self) -> f64 {
        (self.parts.nature.chance)()
    }

    /// Which host this is.
    pub(super) fn lineage(&self) -> &Lineage {
        &self.parts.nature.lineage
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

    /// Whether any request of a client was answered.
    pub(crate) fn has_served(&self) -> bool {
        self.served() > 0
    }

    /// How many requests of clients were answered.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Whether a request of a client is the first one here that was answered; asked once.
    pub(crate) fn is_first_answer(&self) -> bool {
        !self.told_served.swap(true, Ordering::Relaxed)
    }

    /// What its server calls its version, as far as it is kept.
    pub(crate) fn server_version(&self) -> Option<String> {
        let version = self.peer.get()?.info.text("version")?;
        Some(version.chars().take(VERSION).collect())
    }

    /// Whether a request was answered with a task that may go on.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.lock().lasting.is_empty()
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
        match &self.parts.wire {
            Wire::Http(_) => true,
            Wire::Memory(memory) => memory.tells_whose(),
            Wire::Pipe(_) | Wire::Sse(_) => false,
        }
    }

    /// Why it is gone, if it is.
    pub(crate) fn lost(&self) -> Option<transport::Error> {
        self.lock().lost.clone()
    }

    /// Whether it is gone: what is opened on it is lost at once.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the server may say several things at once: only 2025-03-26 has that.
    pub(super) fn takes_batches(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.version == ProtocolVersion::V2025_03_26)
    }

    /// How much of what it said was dropped: answers that nobody waits for, notifications over the rate.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().flood.dropped()
    }

    /// Requests without an answer, those of the host itself aside.
    pub(crate) fn running(&self) -> usize {
        self.lock().waiting.values().filter(|waiting| waiting.owner != Owner::HOST).count()
    }

    /// Questions of the server without an answer.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(crate) fn questions(&self) -> usize {
        self.lock().asks.len()
    }

    /// Whether the lease is another client's, or was and is for others than before.
    fn is_taken_from(&self, terms: &Terms) -> bool {
        if terms.owner == Owner::HOST || self.is_modern() {
            return false;
        }
        let is_anothers = self.parts.binding.get().is_some_and(|bound| bound != terms.owner);
        is_anothers || terms.turn.is_some_and(|turn| turn != self.parts.binding.turn())
    }

    /// Makes the lease that client's, if no other has ever called here.
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

    /// That client has gone.
    pub(super) fn forget_caller(&self, owner: Owner) {
        self.lock().callers.forget(owner);
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

    /// What the server will grant to a listen under that id, which is opened next.
    pub(super) fn expect_acknowledgement(&self, id: u64) -> oneshot::Receiver<Raw> {
        let (sender, receiver) = oneshot::channel();
        self.lock().acknowledgements.insert(id, sender);
        receiver
    }

    /// Counts a request in that is sent next, unless it is not to be.
    ///
    /// # Errors
    /// Why it is not to be sent.
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
            // What the host itself asks is to be told why; for all others it is enough that nothing has left.
            Some(error) if terms.owner == Owner::HOST => Some(error.clone()),
            Some(_) => Some(transport::Error::Unwritten),
            // It has become another client's in this moment: nothing leaves, and the call goes elsewhere.
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

    /// A request that was counted in could not be sent.
    pub(super) fn unsent(self: &Arc<Self>, id: u64, error: &transport::Error) {
        if *error == transport::Error::Unwritten {
            // It takes nothing any more, and its end is on its way: until then nobody is to be given it again.
            self.gone.store(true, Ordering::Release);
        }
        self.finish(id, Item::Lost(error.clone()));
        self.failed(error);
    }

    /// Why no more may wait: there are too many, or too many of one client where others want to be served, too.
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

    /// The params of a request to a server of the modern era.
    pub(super) fn stamp(&self, params: Option<&Raw>, terms: &Terms) -> Raw {
        let version = self.peer.get().map_or(ProtocolVersion::LATEST_MODERN, |peer| peer.version);
        modern::stamp(params, terms, &self.parts.client_info, version)
    }

    /// An error that means more than its own request: the server is not there, or has forgotten us. Nothing more is sent
    /// here. What it says of one request says nothing of the others: those that are under way have a way of their own, and
    /// may be answered yet (`docs/hazards.md` H30).
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

    /// The connection is gone: everybody who waits for something on it is told.
    pub(super) fn lose(self: &Arc<Self>, error: &transport::Error) {
        let (waiting, asks) = {
            let mut table = self.lock();
            if table.lost.is_some() && matches!(self.wire(), Wire::Http(_)) {
                self.parts.stop.cancel();
                return;
            }
            table.lost.get_or_insert_with(|| error.clone());
            self.gone.store(true, Ordering::Release);
            table.acknowledgements.clear();
            (std::mem::take(&mut table.waiting), table.asks.take())
        };
        self.withdraw_all(asks);
        // What was queued and not written, the server has not seen; what is queued in good order still goes out.
        let unwritten = match self.wire() {
            Wire::Pipe(pipe) if *error != transport::Error::Closed => pipe.abandon(),
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

    /// Requests of clients without an answer, questions without one, and listens not acknowledged.
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

/// Ids of probes are text, which none of the ids of the session that may follow is.
const PROBE_ID: &str = "discover-";

/// The id of a request as it goes out.
pub(super) fn rpc_id(id: u64, is_probe: bool) -> RequestId {
    if is_probe {
        return RequestId::Text(format!("{PROBE_ID}{id}").into());
    }
    RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX))
}
