//! One client: what it can do, what it is doing, what it was asked.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Mailbox;
use super::gauges::Counts;
use super::level::{DEFAULT_LEVEL, LEVELS, Level};
use super::named::Named;
use super::presence::Presence;
use crate::manager::{self, Principal, Who};
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId};
use crate::queues::Account;
use crate::registry::{Catalog, Kind};
use crate::upstream::{Ask, Connection, Owner, Terms, Upstream};

/// One downstream session, or the program that embeds the host.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) who: Who,
    revision: ProtocolVersion,
    /// Its `capabilities.extensions`, as far as we carry them.
    extensions: Option<Raw>,
    mailbox: Mailbox,
    state: Mutex<State>,
    named: Named,
    presence: Presence,
}

#[derive(Debug, Default)]
pub(super) struct State {
    running: BTreeMap<RequestId, Running>,
    asked: BTreeMap<u64, Asked>,
    asked_so_far: u64,
    /// Streams of changes and doors that need it to stay.
    places: u32,
    listens: u32,
    /// Resources that its streams of changes watch.
    watched: u32,
    level: Option<Level>,
    /// Each with the stamp of its server at which it was given.
    pub(super) leases: Vec<(usize, Arc<Upstream>, u64)>,
    /// The roots that it told, once it was asked for them.
    pub(super) roots: Option<Arc<manager::Told>>,
    /// How it is asked for them. Few clients are, and each session counts.
    pub(super) asking: Option<Arc<Asking>>,
    /// It is one conversation for sure, though it has no session: what it told once is good for all that it asks.
    pub(super) is_apart: bool,
    /// The embedding program is this client.
    is_embedding: bool,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    seen: Option<Seen>,
    told: Option<Told>,
    /// Lists of several pages whose first one it was given, and when.
    begun: Box<[(Instant, Arc<Catalog>)]>,
    pub(super) closed: bool,
}

/// How a client is asked for its roots.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Held while it is.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// It has others and is about to be asked for them.
    pub(super) has_others: AtomicBool,
}

#[derive(Debug)]
struct Running {
    cancel: CancellationToken,
    leg: Arc<Mailbox>,
}

/// A question that waits for the client's answer.
#[derive(Debug)]
struct Asked {
    ask: Ask,
    /// The exchange that it belongs to.
    call: Option<u64>,
    answered: Option<Arc<Notify>>,
    leg: Option<Arc<Mailbox>>,
}

/// A watched resource: whose it is, and under which URI there.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) server: usize,
    pub(super) raw: Arc<str>,
    pub(super) upstream: Arc<Upstream>,
}

/// What the client saw last.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) generation: u64,
    pub(super) view: manager::View,
    /// Every server has listed or had its time.
    pub(super) settled: bool,
}

/// The catalog that each of its lists was of when the client was told of it last, by kind.
pub(super) type Told = [Arc<Catalog>; 4];

/// A list that was begun is kept that long for whoever reads it page by page,
const KEPT: Duration = Duration::from_secs(5 * 60);
/// and so many of them.
const BEGUN: usize = 4;
impl State {
    pub(super) fn may_watch(&self, uri: &str, limit: usize) -> bool {
        self.subscriptions.contains_key(uri) || self.subscriptions.len() + (self.watched as usize) < limit
    }
}

impl Client {
    pub(super) fn new(
        who: Who,
        revision: ProtocolVersion,
        extensions: Option<Raw>,
        mailbox: Mailbox,
        named: Named,
    ) -> Self {
        Self { who, revision, extensions, mailbox, state: Mutex::default(), named, presence: Presence::default() }
    }

    /// The agreed revision; that of its requests where there is no handshake.
    #[must_use]
    pub(crate) fn revision(&self) -> ProtocolVersion {
        self.revision
    }

    /// Whether there is anything that servers may ask of it.
    #[must_use]
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn can_be_asked(&self) -> bool {
        !self.who.profile.asks_nothing()
    }

    /// Notes that the embedding program is this client.
    pub(crate) fn embeds(&self) {
        self.state().is_embedding = true;
    }

    /// Whether the embedding program is this client.
    #[cfg(feature = "server")]
    pub(super) fn is_embedding(&self) -> bool {
        self.state().is_embedding
    }

    /// Ends its subscription to a resource, if it has one.
    pub(crate) fn unwatch(&self, uri: &str) {
        if let Some(subscription) = self.watched(|all| all.remove(uri)) {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
    }

    /// What belongs to none of its requests.
    #[must_use]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// What waits for it.
    #[must_use]
    pub(crate) fn account(&self) -> &Account {
        self.mailbox.account()
    }

    /// What it calls itself and which version it says it is, where it has said so; shown, never believed.
    pub(super) fn named(&self) -> (Option<&str>, Option<&str>) {
        self.named.parts()
    }

    /// Its session, as people see it.
    pub(super) fn presence(&self) -> &Presence {
        &self.presence
    }

    pub(super) fn owner(&self) -> Owner {
        self.who.owner
    }

    pub(super) fn principal(&self) -> &Principal {
        &self.who.principal
    }

    /// What it can be asked.
    pub(super) fn profile(&self) -> Profile {
        self.who.profile
    }

    /// Whether it declared that extension, and we carry it.
    pub(super) fn declares(&self, extension: &str) -> bool {
        self.extensions.as_ref().is_some_and(|extensions| extensions.member(extension).is_some())
    }

    /// What a request says of it to a server.
    pub(super) fn terms(&self, leg: &Mailbox) -> Terms {
        // Whoever has a session and said nothing hears what such servers say by default.
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

    /// Whether it has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether nothing is under way for it.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.running.is_empty() && state.places == 0
    }

    /// Requests of it that are being served.
    pub(super) fn requests(&self) -> usize {
        self.state().running.len()
    }

    /// Whether it waits for no answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.state().running.is_empty()
    }

    /// What it holds.
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

    /// Questions that wait for its answer.
    #[cfg(test)]
    pub(super) fn questions(&self) -> usize {
        self.state().asked.len()
    }

    /// Notes a request; `None` if its id is in use or the client is gone.
    pub(super) fn begin(self: &Arc<Self>, id: &RequestId, leg: &Arc<Mailbox>, limit: usize) -> Result<Guard, Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.running.contains_key(id) {
            return Err(Refused::IdInUse);
        }
        if state.running.len() >= limit {
            return Err(Refused::Limit);
        }
        let cancel = CancellationToken::new();
        state.running.insert(id.clone(), Running { cancel: cancel.clone(), leg: leg.clone() });
        drop(state);
        Ok(Guard { client: self.clone(), id: id.clone(), cancel })
    }

    /// Notes that a stream of changes is open, while the answer lives; `None` if there are too many.
    pub(super) fn listen(self: &Arc<Self>, limit: usize) -> Option<Listen> {
        let mut state = self.state();
        if state.closed || state.listens as usize >= limit {
            return None;
        }
        state.listens += 1;
        drop(state);
        Some(Listen { place: self.stay(), watched: 0 })
    }

    /// Keeps it from being let go as idle, while the answer lives.
    pub(crate) fn stay(self: &Arc<Self>) -> Place {
        self.state().places += 1;
        Place(self.clone())
    }

    pub(super) fn cancel(&self, id: &RequestId) {
        if let Some(running) = self.state().running.get(id) {
            running.cancel.cancel();
        }
    }

    /// Ends everything that it does; says which resources it watched.
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

    /// Puts a question of a server to the client, on the stream of the call it belongs to or on the general one.
    pub(super) fn ask(&self, ask: Ask, call: Option<(u64, &Arc<Mailbox>)>, answered: Option<Arc<Notify>>) {
        self.put_question(ask, call.map(|(call, _)| call), call.map(|(_, leg)| leg.clone()), answered);
    }

    fn put_question(&self, mut ask: Ask, call: Option<u64>, leg: Option<Arc<Mailbox>>, answered: Option<Arc<Notify>>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.asked_so_far += 1;
        let id = state.asked_so_far;
        let request = Message::Request(Request {
            id: RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX)),
            method: ask.method.clone(),
            // From here on the mailbox has them, and counts them; nobody needs them for the answer.
            params: ask.params.take(),
        });
        state.asked.insert(id, Asked { ask, call, answered, leg: leg.clone() });
        drop(state);
        match leg {
            Some(leg) => leg.put(request),
            None => self.mailbox.put(request),
        }
    }

    /// The same of a question of the host itself, under a number of its own.
    pub(super) fn ask_beside(&self, ask: Ask, number: u64, leg: Option<Arc<Mailbox>>) {
        self.put_question(ask, Some(number), leg, None);
    }

    /// The client answered a question.
    pub(super) fn answer(&self, id: &RequestId, outcome: Outcome) {
        let RequestId::Number(id) = id else { return };
        let asked = u64::try_from(*id).ok().and_then(|id| self.state().asked.remove(&id));
        if let Some(asked) = asked {
            asked.ask.answer(outcome);
            if let Some(answered) = asked.answered {
                answered.notify_one();
            }
        }
    }

    /// The server withdrew a question.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        self.take_back(|asked| asked.ask.is(connection, id), Ask::forget);
    }

    /// The call is over or nobody answers: its questions are taken back.
    pub(super) fn drop_asks(&self, call: u64, answer: impl Fn(Ask)) {
        self.take_back(|asked| asked.call == Some(call), answer);
    }

    fn take_back(&self, which: impl Fn(&Asked) -> bool, answer: impl Fn(Ask)) {
        let taken: Vec<(u64, Asked)> = {
            let mut state = self.state();
            let ids: Vec<u64> = state.asked.iter().filter(|(_, asked)| which(asked)).map(|(id, _)| *id).collect();
            ids.into_iter().filter_map(|id| Some((id, state.asked.remove(&id)?))).collect()
        };
        for (id, asked) in taken {
            let params = Some(Raw::trusted(format!(r#"{{"requestId":{id}}}"#).into()));
            let notice = Message::Notification(Notification { method: Method::Cancelled, params });
            match &asked.leg {
                Some(leg) => leg.put(notice),
                None => self.mailbox.put(notice),
            }
            answer(asked.ask);
        }
    }

    /// Whether questions of that call wait for an answer.
    pub(super) fn is_asked(&self, call: u64) -> bool {
        self.state().asked.values().any(|asked| asked.call == Some(call))
    }

    /// A stream of one of its running requests.
    pub(super) fn any_leg(&self) -> Option<Arc<Mailbox>> {
        self.state().running.values().next().map(|running| running.leg.clone())
    }

    /// From which level on it wants log lines: what its session said, or the most verbose of its requests now.
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

    /// Questions with ids up to that one were put to it by another daemon: ours get ids above, so that an answer to one of
    /// those fits none.
    pub(crate) fn has_asked(&self, asked: u64) {
        let mut state = self.state();
        state.asked_so_far = state.asked_so_far.max(asked);
    }

    /// Whether a log line of that level is for it, on that leg: since 2026-07-28 each request says what it wants, before
    /// that the session did.
    pub(super) fn wants(&self, level: &str, leg: &Mailbox) -> bool {
        let level = LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len());
        let least = if self.revision.is_modern() { leg.level() } else { Some(self.level().unwrap_or(DEFAULT_LEVEL)) };
        least.is_some_and(|least| level >= usize::from(least))
    }

    pub(super) fn seen(&self) -> Option<Seen> {
        self.state().seen.clone()
    }

    /// Whether no list of its would wait for servers.
    pub(super) fn is_settled(&self) -> bool {
        self.state().seen.as_ref().is_some_and(|seen| seen.settled)
    }

    pub(super) fn keep_seen(&self, seen: Seen) {
        let mut state = self.state();
        if !state.closed {
            state.seen = Some(seen);
        }
    }

    /// Notes what a list told it. That says nothing of its other lists, which may be of an earlier catalog.
    pub(super) fn tell(&self, kind: Kind, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        let told = state.told.get_or_insert_with(|| std::array::from_fn(|_| catalog.clone()));
        told[kind as usize] = catalog.clone();
    }

    /// What it was told last, if it ever asked.
    pub(super) fn told(&self) -> Option<Told> {
        self.state().told.clone()
    }

    /// Notes that it is told of all that has changed up to this catalog.
    pub(super) fn catch_up(&self, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if let Some(told) = &mut state.told {
            told.fill(catalog.clone());
        }
    }

    /// Notes that it was given the first page of a list that has more.
    pub(super) fn begin_list(&self, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if state.closed || state.begun.last().is_some_and(|(_, last)| Arc::ptr_eq(last, catalog)) {
            return;
        }
        let old = state.begun.len().saturating_sub(BEGUN - 1);
        let kept = std::mem::take(&mut state.begun).into_iter().skip(old);
        state.begun = kept.chain([(Instant::now(), catalog.clone())]).collect();
    }

    /// The lists that it may still be reading, page by page; the newest first.
    pub(super) fn begun_lists(&self) -> Vec<Arc<Catalog>> {
        let mut state = self.state();
        if state.begun.iter().any(|(at, _)| at.elapsed() >= KEPT) {
            let begun = std::mem::take(&mut state.begun).into_iter();
            state.begun = begun.filter(|(at, _)| at.elapsed() < KEPT).collect();
        }
        state.begun.iter().rev().map(|(_, catalog)| catalog.clone()).collect()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a URI names that resource, or a part of it.
pub(crate) fn is_part(uri: &str, whole: &str) -> bool {
    let rest = uri.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || whole.ends_with('/'))
}

/// The client stays while this lives.
#[derive(Debug)]
pub(crate) struct Place(Arc<Client>);

impl Place {
    /// Whether it is that client's.
    pub(crate) fn is_of(&self, client: &Arc<Client>) -> bool {
        Arc::ptr_eq(&self.0, client)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.state().places -= 1;
    }
}

/// A stream of changes is open while this lives.
#[derive(Debug)]
pub(super) struct Listen {
    place: Place,
    watched: u32,
}

impl Listen {
    /// Notes that it watches so many resources; false if its client would watch more than `limit`.
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

/// Why a request is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    IdInUse,
    /// This client has too many.
    Limit,
    /// There are too many in all.
    Load,
    /// Too many of all are of its principal.
    Share,
    Closed,
}

/// A request is running while this lives.
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
