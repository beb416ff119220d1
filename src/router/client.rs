//! One client: its abilities, its requests in flight, and the questions put to it (requests from servers to the client,
//! and those of mcp-host itself).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Mailbox;
use super::level::{DEFAULT_LEVEL, LEVELS, Level};
use super::presence::{Named, Presence};
use crate::config::Limits;
use crate::manager::{self, Chosen, Claims, Principal, Who};
use crate::protocol::{Profile, ProtocolVersion, Raw, RequestId, meta};
use crate::queues::Account;
use crate::registry::Catalog;
use crate::upstream::{Ask, Owner, Terms, Upstream};

/// What a client declares when it connects, or with its first request.
#[derive(Debug)]
pub(crate) struct Abilities {
    pub(crate) revision: ProtocolVersion,
    /// The kinds of questions that it can be asked.
    pub(crate) profile: Profile,
    /// Those of its `capabilities.extensions` that mcp-host passes on to servers.
    pub(crate) extensions: Option<Raw>,
}

/// How much a client holds.
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Its requests in flight.
    pub(super) requests: usize,
    /// The questions put to it that it has not answered yet.
    pub(super) questions: usize,
    /// Its change streams (`subscriptions/listen`).
    pub(super) listens: usize,
    /// Resources that it watches.
    pub(super) watched: usize,
}

/// One client: a session, all requests without a session that count as one client (`modern.rs`), or the program that
/// embeds the host.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) who: Who,
    /// The principal that this client's handles are bound to: its own one, combined with the view. `None` if the view
    /// makes no difference. Behind a pointer, since few clients use a view and each session costs memory.
    bound: Option<Box<Principal>>,
    revision: ProtocolVersion,
    /// Those of its `capabilities.extensions` that mcp-host passes on to servers.
    extensions: Option<Raw>,
    mailbox: Mailbox,
    state: Mutex<State>,
    pub(super) named: Named,
    presence: Presence,
}

#[derive(Debug, Default)]
pub(super) struct State {
    running: BTreeMap<RequestId, Running>,
    pub(super) asked: BTreeMap<u64, OpenQuestion>,
    pub(super) asked_so_far: u64,
    /// How many change streams and doors keep it from being closed as idle.
    places: u32,
    listens: u32,
    /// How many resources its change streams watch.
    watched: u32,
    level: Option<Level>,
    /// For each server id: the lease, and the server's stamp (a change counter) when the lease was given.
    pub(super) leases: Vec<(usize, Arc<Upstream>, u64)>,
    /// Its roots; `None` until it has told them.
    pub(super) roots: Option<Arc<manager::Told>>,
    /// The state of asking it for its roots; `None` before the first time. Kept behind a pointer, since few clients are
    /// asked and each session costs memory.
    pub(super) asking: Option<Arc<Asking>>,
    /// Whether it is known to be one conversation although it has no session (`mcp-host/affinity`). Then its roots hold
    /// for all its requests.
    pub(super) is_apart: bool,
    /// Whether the embedding program is this client.
    pub(super) is_embedding: bool,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    pub(super) seen: Option<LastView>,
    pub(super) told: Option<ToldCatalogs>,
    /// The catalogs that it may be reading page by page, and when it got each first page.
    pub(super) begun: Box<[(Instant, Arc<Catalog>)]>,
    pub(super) closed: bool,
}

/// The state of asking a client for its roots.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Held while the client is asked.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Whether its roots changed and it is about to be asked for the new ones.
    pub(super) has_others: AtomicBool,
}

#[derive(Debug)]
struct Running {
    cancel: CancellationToken,
    leg: Arc<Mailbox>,
}

/// A question (a request to the client) that waits for the client's answer.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) ask: Ask,
    /// The call that it belongs to, by the id of the request to the server; `None` for a question outside of calls.
    pub(super) call: Option<u64>,
    /// Whether mcp-host itself asks, in its own words.
    pub(super) is_of_host: bool,
    pub(super) answered: Option<Arc<Notify>>,
    pub(super) leg: Option<Arc<Mailbox>>,
}

/// A resource that the client subscribed to: the server, the server's own URI, and the lease that the subscription is
/// on.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) server: usize,
    pub(super) raw: Arc<str>,
    pub(super) upstream: Arc<Upstream>,
}

/// The client's last view of the catalog.
#[derive(Clone, Debug)]
pub(super) struct LastView {
    pub(super) generation: u64,
    pub(super) view: manager::View,
    /// Whether, by then, every server had listed or its waiting time was over.
    pub(super) settled: bool,
    /// When it expires even if nothing has changed, since a decision on how tools are listed is only valid for a while.
    pub(super) until: Option<Instant>,
}

/// For each kind of list, the catalog from which the client last got the list or a notification of its change.
pub(super) type ToldCatalogs = [Arc<Catalog>; 4];

impl State {
    pub(super) fn may_watch(&self, uri: &str, limit: usize) -> bool {
        self.subscriptions.contains_key(uri) || self.subscriptions.len() + (self.watched as usize) < limit
    }
}

impl Client {
    pub(super) fn new(who: Who, bound: Principal, abilities: Abilities, mailbox: Mailbox, named: Named) -> Self {
        let Abilities { revision, extensions, .. } = abilities;
        let bound = (bound != who.principal).then(|| Box::new(bound));
        Self {
            who,
            bound,
            revision,
            extensions,
            mailbox,
            state: Mutex::default(),
            named,
            presence: Presence::default(),
        }
    }

    /// Returns those of its `capabilities.extensions` that mcp-host passes on to servers.
    #[cfg(feature = "server")]
    pub(super) fn extensions(&self) -> Option<&Raw> {
        self.extensions.as_ref()
    }

    /// Returns the principal to which handles are bound that are valid only in this client's view.
    pub(super) fn bound(&self) -> &Principal {
        self.bound.as_deref().unwrap_or(&self.who.principal)
    }

    /// Returns the view that it uses.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only doors ask"))]
    pub(crate) fn chosen(&self) -> &Chosen {
        &self.who.view.name
    }

    /// Returns those claims of its access token that rules read.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only doors ask"))]
    pub(crate) fn claims(&self) -> &Claims {
        &self.who.claims
    }

    /// Returns the protocol revision agreed in the handshake, or without a handshake the one that its requests state.
    #[must_use]
    pub(crate) fn revision(&self) -> ProtocolVersion {
        self.revision
    }

    /// Reports whether it declared any kind of question that it can be asked.
    #[must_use]
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn can_be_asked(&self) -> bool {
        !self.who.profile.asks_nothing()
    }

    /// Notes that the embedding program is this client.
    pub(crate) fn embeds(&self) {
        self.state().is_embedding = true;
    }

    /// Reports whether the embedding program is this client.
    pub(super) fn is_embedding(&self) -> bool {
        self.state().is_embedding
    }

    /// Ends its subscription to a resource, if it has one.
    pub(crate) fn unwatch(&self, uri: &str) {
        if let Some(subscription) = self.watched(|all| all.remove(uri)) {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
    }

    /// Returns the mailbox for messages that belong to none of its requests.
    #[must_use]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Returns the account that counts the bytes waiting for it.
    #[must_use]
    pub(crate) fn account(&self) -> &Account {
        self.mailbox.account()
    }

    /// Makes a mailbox for one of its requests (the request's leg). These limits hold for the request.
    #[must_use]
    pub(crate) fn leg(&self, limits: Arc<Limits>) -> Arc<Mailbox> {
        Arc::new(Mailbox::new(limits, self.account().clone()).of_request())
    }

    /// Returns the name and version that it gave for itself, each `None` if not given. They are shown to people, never
    /// trusted.
    pub(super) fn named(&self) -> (Option<&str>, Option<&str>) {
        self.named.parts()
    }

    /// Returns the name and version that the sender of a request gave for itself. Without a session, each request states
    /// them in its `_meta`.
    pub(super) fn name_of(&self, meta: Option<&Raw>) -> (Option<String>, Option<String>) {
        let info = meta.filter(|_| self.revision.is_modern()).and_then(|meta| meta.member(meta::CLIENT_INFO));
        match info {
            Some(info) => (info.text("name"), info.text("version")),
            None => {
                let (name, version) = self.named();
                (name.map(str::to_owned), version.map(str::to_owned))
            }
        }
    }

    /// Returns what people see of its session.
    pub(super) fn presence(&self) -> &Presence {
        &self.presence
    }

    pub(super) fn owner(&self) -> Owner {
        self.who.owner
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.who.principal
    }

    /// Returns the kinds of questions that it can be asked.
    pub(super) fn profile(&self) -> Profile {
        self.who.profile
    }

    /// Reports whether it declared that extension and mcp-host passes the extension on.
    pub(super) fn declares(&self, extension: &str) -> bool {
        self.extensions.as_ref().is_some_and(|extensions| extensions.member(extension).is_some())
    }

    /// Returns what a server learns about the client with a request on this leg.
    pub(super) fn terms(&self, leg: &Mailbox) -> Terms {
        // A client with a session that set no log level gets the default level.
        let level = if self.revision.is_modern() { leg.level() } else { Some(self.level().unwrap_or(DEFAULT_LEVEL)) };
        let level = level.and_then(|level| LEVELS.get(usize::from(level)).copied());
        Terms {
            owner: self.owner(),
            profile: self.who.profile,
            extensions: self.extensions.clone(),
            level,
            sessionless: self.revision.is_modern(),
            lasts: false,
            account: Some(leg.account().clone()),
            has_fixed_roots: false,
            turn: None,
        }
    }

    /// Reports whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Reports whether it is idle: it has no requests in flight, no change stream, and no door that keeps it.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.running.is_empty() && state.places == 0
    }

    /// Returns the number of its requests in flight.
    pub(super) fn requests(&self) -> usize {
        self.state().running.len()
    }

    /// Reports whether none of its requests is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.state().running.is_empty()
    }

    /// Counts its requests, questions, change streams, and watched resources.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn counts(&self) -> Counts {
        let state = self.state();
        Counts {
            requests: state.running.len(),
            questions: state.asked.len(),
            listens: state.listens as usize,
            watched: state.subscriptions.len() + state.watched as usize,
        }
    }

    /// Returns how many questions wait for its answer.
    #[cfg(test)]
    pub(super) fn questions(&self) -> usize {
        self.state().asked.len()
    }

    /// Registers a request, until the guard is dropped.
    ///
    /// # Errors
    /// When its id is in use, the client has too many requests, or the client is gone.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: &RequestId,
        leg: &Arc<Mailbox>,
        limit: usize,
    ) -> Result<Guard, RequestRefused> {
        let mut state = self.state();
        if state.closed {
            return Err(RequestRefused::Closed);
        }
        if state.running.contains_key(id) {
            return Err(RequestRefused::IdInUse);
        }
        if state.running.len() >= limit {
            return Err(RequestRefused::Limit);
        }
        let cancel = CancellationToken::new();
        state.running.insert(id.clone(), Running { cancel: cancel.clone(), leg: leg.clone() });
        drop(state);
        Ok(Guard { client: self.clone(), id: id.clone(), cancel })
    }

    /// Registers a change stream, until the returned value is dropped. Returns `None` if the client has `limit` already
    /// or is gone.
    pub(super) fn listen(self: &Arc<Self>, limit: usize) -> Option<Listen> {
        let mut state = self.state();
        if state.closed || state.listens as usize >= limit {
            return None;
        }
        state.listens += 1;
        drop(state);
        Some(Listen { place: self.stay(), watched: 0 })
    }

    /// Keeps the client from being closed as idle, until the returned value is dropped.
    pub(crate) fn stay(self: &Arc<Self>) -> ClientStay {
        self.state().places += 1;
        ClientStay(self.clone())
    }

    pub(super) fn cancel(&self, id: &RequestId) {
        if let Some(running) = self.state().running.get(id) {
            running.cancel.cancel();
        }
    }

    /// Cancels its requests, drops its questions, and closes its mailbox. Returns its subscriptions, for the caller to
    /// end.
    pub(super) fn close(&self) -> Vec<Subscription> {
        let mut state = self.state();
        state.closed = true;
        for running in state.running.values() {
            running.cancel.cancel();
        }
        let asked = std::mem::take(&mut state.asked);
        let subscriptions = std::mem::take(&mut state.subscriptions).into_values().collect();
        state.leases = Vec::new();
        state.seen = None;
        state.told = None;
        state.begun = Box::default();
        drop(state);
        drop(asked);
        self.mailbox.close();
        subscriptions
    }

    /// Returns the legs of its requests in flight for which this holds.
    #[cfg(feature = "server")]
    pub(super) fn legs(&self, is_wanted: impl Fn(&Mailbox) -> bool) -> Vec<Arc<Mailbox>> {
        let state = self.state();
        state.running.values().map(|running| &running.leg).filter(|leg| is_wanted(leg)).cloned().collect()
    }

    /// Returns the leg of one of its requests in flight, if there are any.
    pub(super) fn any_leg(&self) -> Option<Arc<Mailbox>> {
        self.state().running.values().next().map(|running| running.leg.clone())
    }

    /// Returns the least severe log level that it wants: the one its session set or, without a session, the most
    /// verbose one of its requests in flight.
    pub(super) fn level(&self) -> Option<Level> {
        let state = self.state();
        if !self.revision.is_modern() {
            return state.level;
        }
        state.running.values().filter_map(|running| running.leg.level()).min()
    }

    pub(super) fn set_level(&self, level: Level) {
        self.state().level = Some(level);
    }

    /// Notes that another daemon, which served this client before, sent it questions with ids up to `asked`. New
    /// questions get higher ids, so that a late answer to an old question matches no new one.
    pub(crate) fn has_asked(&self, asked: u64) {
        let mut state = self.state();
        state.asked_so_far = state.asked_so_far.max(asked);
    }

    /// Reports whether it wants a log line of that level on that leg. Since 2026-07-28 each request states its level;
    /// before, the session had one.
    pub(super) fn wants(&self, level: &str, leg: &Mailbox) -> bool {
        let level = LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len());
        let least = if self.revision.is_modern() { leg.level() } else { Some(self.level().unwrap_or(DEFAULT_LEVEL)) };
        least.is_some_and(|least| level >= usize::from(least))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether `uri` names the resource `whole`, or a part of it (a path below it).
pub(crate) fn is_part(uri: &str, whole: &str) -> bool {
    let rest = uri.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || whole.ends_with('/'))
}

/// Keeps a client from being closed as idle until dropped.
#[derive(Debug)]
pub(crate) struct ClientStay(Arc<Client>);

impl ClientStay {
    /// Reports whether it keeps that client.
    pub(crate) fn is_of(&self, client: &Arc<Client>) -> bool {
        Arc::ptr_eq(&self.0, client)
    }
}

impl Drop for ClientStay {
    fn drop(&mut self) {
        self.0.state().places -= 1;
    }
}

/// One open change stream. The client no longer counts it once this is dropped.
#[derive(Debug)]
pub(super) struct Listen {
    place: ClientStay,
    watched: u32,
}

impl Listen {
    /// Adds `count` resources to those that the stream watches. Returns false, and adds none, if its client would watch
    /// more than `limit`.
    pub(super) fn watch(&mut self, count: usize, limit: usize) -> bool {
        let mut state = self.place.0.state();
        let all = count.saturating_add(state.watched as usize).saturating_add(state.subscriptions.len());
        let Some(count) = u32::try_from(count).ok().filter(|_| all <= limit) else { return false };
        state.watched += count;
        self.watched += count;
        true
    }
}

impl Drop for Listen {
    fn drop(&mut self) {
        let mut state = self.place.0.state();
        state.listens -= 1;
        state.watched -= self.watched;
    }
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestRefused {
    IdInUse,
    /// The client has too many requests in flight.
    Limit,
    /// All clients together have too many requests in flight.
    Load,
    /// The principal has half of all requests that may be in flight, and others have clients, too.
    Share,
    Closed,
}

/// One request in flight. The client no longer counts it once this is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    client: Arc<Client>,
    id: RequestId,
    cancel: CancellationToken,
}

impl Guard {
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.client.state().running.remove(&self.id);
    }
}
