//! The state of parked calls (`park.rs`): for each, the requests that wait for it, its server's questions, and the
//! results of its rounds. Each time the client is sent away with questions, a new round begins. This file also decides
//! which calls end when other calls need what they hold while their clients are away (`docs/hazards.md` H101).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::missed::{Audience, CallNotice, Live};
use super::rising::Rising;
use super::state::expired;
use super::{Mailbox, question, roots};
use crate::answered::Answered;
use crate::config::Limits;
use crate::manager::{Parking, Principal, Server, Told, Waiting, Who, share};
use crate::protocol::{ErrorObject, Method, Profile, ProtocolVersion, Raw, RequestId, Theirs, object};
use crate::queues::{Account, Share};
#[cfg(feature = "otel")]
use crate::traced::Traced;
use crate::upstream::{Ask, Connection, Upstream};

/// All parked calls, by number.
#[derive(Debug, Default)]
pub(super) struct Table {
    calls: Mutex<BTreeMap<u64, Arc<Parked>>>,
    pub(super) count: AtomicU64,
    /// How many parked calls have reached their server so far.
    begun: watch::Sender<u64>,
}

/// One call of a client without a session at a server with sessions.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) number: u64,
    pub(super) principal: Principal,
    /// The principal to which the state that its client keeps is bound, combined with the view.
    pub(super) bound: Principal,
    pub(super) digest: String,
    pub(super) server: Arc<Server>,
    /// The number of the question whose yes allowed the call; `None` if no person was asked.
    pub(super) permit: Option<u64>,
    /// The kinds of questions that its client can be asked.
    pub(super) declared: Profile,
    /// The client that it runs for, whose lease (connection) it uses.
    pub(super) who: Who,
    pub(super) inner: Mutex<Inner>,
    /// Wakes the requests that attend: there are new questions, or the answer has come.
    pub(super) news: Notify,
    /// Wakes the call: the client has answered a question.
    pub(super) answered: Arc<Notify>,
    pub(super) cancel: CancellationToken,
    /// Counts the bytes kept for the client while it is away.
    pub(super) account: Account,
    /// The limits for the call, from the config as it was when the call began.
    pub(super) limits: Arc<Limits>,
    /// The place in a trace of the request that began it.
    #[cfg(feature = "otel")]
    pub(super) traced: Option<Arc<Traced>>,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// The bytes of `open`, `results`, and `answered`.
    pub(super) share: Share,
    /// The requests that attend it now, and the messages that came while none did.
    pub(super) audience: Audience,
    pub(super) attending: usize,
    /// How often the client was sent away with questions.
    pub(super) round: u32,
    /// The last round whose answers the client has brought.
    resumed: u32,
    /// The questions that are not answered yet, by their keys in `inputRequests`.
    pub(super) open: BTreeMap<String, Ask>,
    /// All such keys used so far.
    keys: HashSet<String>,
    /// The answers that the first request brought unasked, by the keys that it expects the questions to have.
    pub(super) early: Option<Raw>,
    /// When the first of the questions came that the client has not been sent away with; `None` if there are none.
    pub(super) since: Option<Instant>,
    /// When the client was last sent away with questions.
    pub(super) away: Option<Instant>,
    /// The results of the last rounds, with the number of each round.
    pub(super) results: VecDeque<(u32, Answered)>,
    pub(super) answered: Option<Answered>,
    /// The lease that it runs on, once it has one.
    pub(super) upstream: Option<Arc<Upstream>>,
}

/// How many rounds' results are kept for a client that did not receive them.
const KEPT: usize = 2;

impl Table {
    /// Returns the number of parked calls.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Records that a call runs on this lease now.
    pub(super) fn runs_on(&self, parked: &Parked, upstream: &Arc<Upstream>) {
        parked.lock().upstream = Some(upstream.clone());
        self.begun.send_modify(|count| *count += 1);
    }

    /// Returns a channel that changes when another call has reached its server.
    pub(super) fn watch_begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// Reports whether a call on this lease waits for a client that is away. A call that needs the lease to itself
    /// should not wait for it, since a person takes too long.
    pub(super) fn is_held_by_nobody(&self, upstream: &Arc<Upstream>) -> bool {
        self.all().iter().any(|parked| parked.is_on(upstream) && parked.lock().waits())
    }

    /// Takes back a question that a server withdraws by a message outside of calls.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        self.all().iter().for_each(|parked| parked.withdraw(connection, id));
    }

    /// Returns the call on this lease if there is exactly one. Then a question that names no call may be attached to
    /// it.
    pub(super) fn only_on(&self, upstream: &Arc<Upstream>) -> Option<Arc<Parked>> {
        let calls = self.lock();
        let mut on = calls.values().filter(|parked| parked.is_on(upstream));
        let first = on.next()?;
        on.next().is_none().then(|| first.clone())
    }

    /// Returns how many calls of one principal wait for a client that is away, for the principal with the most.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn most_of_one(&self) -> usize {
        let calls: Vec<Arc<Parked>> = self.all();
        let mut counts: HashMap<&Principal, usize> = HashMap::new();
        for call in calls.iter().filter(|call| call.lock().waits()) {
            *counts.entry(&call.principal).or_default() += 1;
        }
        counts.into_values().max().unwrap_or_default()
    }

    /// Makes room for one more call of the principal (call number `but`) to wait for its client. If `limit` calls wait
    /// already, the one that has waited longest ends, since its client has most likely abandoned it.
    pub(super) fn make_way(&self, principal: &Principal, but: u64, limit: usize) {
        let calls: Vec<Arc<Parked>> =
            self.lock().values().filter(|call| call.number != but && call.principal == *principal).cloned().collect();
        let waiting: Vec<(Instant, Arc<Parked>)> = calls
            .into_iter()
            .filter_map(|call| {
                let away = {
                    let inner = call.lock();
                    inner.away.filter(|_| inner.waits())
                };
                away.map(|away| (away, call))
            })
            .collect();
        if waiting.len() >= limit
            && let Some((_, oldest)) = waiting.iter().min_by_key(|(away, _)| *away)
        {
            tracing::warn!("more calls wait for answers than may (host.limits.parkedPerPrincipal): the oldest ends");
            oldest.cancel.cancel();
        }
    }

    /// Frees slots (`maxConcurrent`) of the server for a call of the principal. If another principal's waiting calls
    /// hold more than half of the slots, the oldest of them end.
    pub(super) fn make_room(&self, server: &Server, principal: &Principal) {
        let calls: Vec<Arc<Parked>> =
            self.lock().values().filter(|call| call.server.id == server.id).cloned().collect();
        let mut of_each: HashMap<&Principal, Vec<(Instant, &Arc<Parked>)>> = HashMap::new();
        for call in calls.iter().filter(|call| call.principal != *principal) {
            if let Some((_, away)) = call.lock().left_at() {
                of_each.entry(&call.principal).or_default().push((away, call));
            }
        }
        let share = share(server.config.max_concurrent);
        for waiting in of_each.values_mut().filter(|waiting| waiting.len() > share) {
            tracing::warn!(
                "another client waits for a slot (maxConcurrent): the calls that waited longest for answers end"
            );
            waiting.sort_by_key(|(away, _)| *away);
            let over = waiting.len() - share;
            waiting.iter().take(over).for_each(|(_, call)| call.cancel.cancel());
        }
    }

    fn all(&self) -> Vec<Arc<Parked>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Parked>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parking for Table {
    fn waiting(&self) -> HashMap<u64, Waiting> {
        let calls: Vec<Arc<Parked>> = self.all();
        let mut all: HashMap<u64, Waiting> = HashMap::new();
        for (lease, away) in calls.iter().filter_map(|call| call.lock().left_at()) {
            let on = all.entry(lease).or_insert(Waiting { calls: 0, since: away });
            on.calls += 1;
            on.since = on.since.max(away);
        }
        all
    }

    fn end(&self, lease: u64) {
        let calls: Vec<Arc<Parked>> = self.all();
        let on = |call: &&Arc<Parked>| call.lock().left_at().is_some_and(|(on, _)| on == lease);
        calls.iter().filter(on).for_each(|call| call.cancel.cancel());
    }
}

impl Parked {
    /// Lets a request attend the call. The request gets the messages that the client has missed and those that come
    /// from now on, unless it only asks again for the result of an earlier round.
    pub(super) fn enter(
        self: &Arc<Self>,
        round: u32,
        client: &Arc<Client>,
        leg: &Arc<Mailbox>,
        progress: Rising,
    ) -> Attending {
        let mut inner = self.lock();
        inner.attending += 1;
        if inner.round == round {
            let live = Live { client: client.clone(), leg: leg.clone(), progress };
            inner.audience.enter(&self.server, live);
        }
        Attending { parked: self.clone(), leg: leg.clone(), over: false }
    }

    /// Takes the answers that a request brings and pairs them with their questions. Returns none if another request
    /// brought this round's answers before.
    pub(super) fn take(&self, round: u32, responses: Option<Raw>) -> Result<Vec<(Ask, Raw)>, ErrorObject> {
        let mut inner = self.lock();
        if round > inner.round {
            return Err(expired());
        }
        let mut answers = Vec::new();
        if round < inner.round || inner.resumed >= round {
            return Ok(answers);
        }
        let responses = responses.unwrap_or_else(Raw::empty_object);
        let wrong = |what: &str| ErrorObject::invalid_params(format!("`inputResponses` {what}"));
        let given = object(responses.as_value()).ok_or_else(|| wrong("is no object"))?;
        for (key, value) in &given {
            if !value.get().starts_with('{') {
                return Err(wrong(&format!("{:?} is no object", Theirs(key))));
            }
        }
        for (key, value) in given {
            if let Some(ask) = inner.close(&key) {
                answers.push((ask, Raw::part(responses.bytes(), value)));
            }
        }
        inner.resumed = round;
        // Questions that the request did not answer are asked again.
        inner.since = (!inner.open.is_empty()).then(Instant::now);
        Ok(answers)
    }

    /// Takes a question from the server: answers it at once if possible, otherwise keeps it for the client.
    pub(super) fn ask(&self, upstream: &Arc<Upstream>, mut ask: Ask) {
        let wish = question::wished_key(&mut ask);
        let Some(ask) = roots::for_whom_has_none(&self.server, upstream, &self.who, ask) else { return };
        let Some(ask) = question::judge(&self.server, self.declared, ask) else { return };
        if let (Method::RootsList, Some(roots)) = (&ask.method, self.roots_on(upstream)) {
            return ask.answer(Ok(roots));
        }
        let Some(ask) = question::reword(&self.server, ask, ProtocolVersion::LATEST_MODERN) else { return };
        let mut inner = self.lock();
        inner.upstream.get_or_insert_with(|| upstream.clone());
        let profile = inner.audience.profile().unwrap_or(self.declared);
        if let Err(error) = question::permit(profile, &ask.method, ask.params.as_ref()) {
            drop(inner);
            return ask.answer(Err(error));
        }
        if let Some(wish) = &wish
            && let Some(answer) = inner.early.as_ref().and_then(|early| early.member(wish)).filter(Raw::is_object)
        {
            inner.keys.insert(wish.clone());
            drop(inner);
            return ask.answer(Ok(answer));
        }
        let key = inner.key(wish);
        inner.share.add(ask.weight());
        inner.open.insert(key, ask);
        inner.since.get_or_insert_with(Instant::now);
        drop(inner);
        self.news.notify_waiters();
    }

    /// Returns the account that counts what is kept for its client.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn answered(&self) -> &Arc<Notify> {
        &self.answered
    }

    pub(super) fn is_asked(&self) -> bool {
        !self.lock().open.is_empty()
    }

    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        let asks = self.lock().take_back(|ask| ask.is(connection, id));
        for ask in asks {
            ask.forget();
            self.answered.notify_one();
        }
    }

    /// Drops the questions that came over a connection on which the call no longer runs.
    pub(super) fn leaves(&self, connection: &Arc<Connection>) {
        let asks = self.lock().take_back(|ask| ask.is_on(connection));
        drop(asks);
    }

    /// Passes on a message about the call: to the request that attends now or, if there is none, to the next one.
    pub(super) fn tell(&self, said: CallNotice) {
        self.lock().audience.tell(&self.server, said);
    }

    /// Answers the server's open questions as unanswered: the client did not come back.
    pub(super) fn expire(&self) {
        let asks = self.lock().take_back(|_| true);
        asks.into_iter().for_each(question::unanswered);
    }

    /// Ends the call with its answer.
    pub(super) fn end(&self, answered: Answered) {
        let mut inner = self.lock();
        inner.since = None;
        // A result that no request has taken yet is not replaced.
        let over = inner.answered.is_some() || inner.results.iter().any(|(round, _)| *round == inner.round);
        if !over {
            inner.share.add(weight(&answered));
            inner.answered = Some(answered);
        }
        let open = inner.take_back(|_| true);
        drop(inner);
        drop(open);
        self.news.notify_waiters();
    }

    /// Keeps the roots that the client has answered with.
    pub(super) fn keep_roots(&self, client: &Client, roots: &Raw) {
        let (upstream, told) = (self.lock().upstream.clone(), Told::read(roots));
        if client.is_one_conversation() {
            client.keep_roots(Some(told.clone()));
        }
        if let Some(upstream) = &upstream {
            self.server.told_roots(upstream, &told, &self.who);
        }
    }

    /// Returns the roots that the server can be told without asking the client, or `None` if the client must be asked.
    /// These are the lease's roots, if known; no roots if several clients have called on the lease; else the roots that
    /// came with the call.
    fn roots_on(&self, upstream: &Upstream) -> Option<Raw> {
        if let Some(roots) = upstream.roots() {
            return Some(roots);
        }
        let is_shared = !upstream.is_only(self.who.owner);
        let told = if is_shared { Some(Told::nothing()) } else { self.who.roots.clone() };
        told.map(|told| told.result().clone())
    }

    /// Reports whether it runs on that lease and is not over.
    pub(super) fn is_on(&self, upstream: &Arc<Upstream>) -> bool {
        let inner = self.lock();
        inner.answered.is_none() && inner.upstream.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, upstream))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Makes the state of a new call.
    pub(super) fn of(account: &Account) -> Self {
        Self {
            share: account.share(),
            audience: Audience::of(account),
            attending: 0,
            round: 0,
            resumed: 0,
            open: BTreeMap::new(),
            keys: HashSet::new(),
            early: None,
            since: None,
            away: None,
            results: VecDeque::new(),
            answered: None,
            upstream: None,
        }
    }

    /// Reports whether it waits for a client that is away. A call that is over is kept for a while, but waits for no
    /// client.
    pub(super) fn waits(&self) -> bool {
        self.audience.is_away() && !self.open.is_empty()
    }

    /// If it waits for a client that is away, returns the number of its lease and since when it waits.
    pub(super) fn left_at(&self) -> Option<(u64, Instant)> {
        let upstream = self.upstream.as_ref().filter(|_| self.waits() && self.answered.is_none())?;
        Some((upstream.id, self.away?))
    }

    /// Removes and returns the questions that `which` selects.
    pub(super) fn take_back(&mut self, which: impl Fn(&Ask) -> bool) -> Vec<Ask> {
        let keys: Vec<String> = self.open.iter().filter(|(_, ask)| which(ask)).map(|(key, _)| key.clone()).collect();
        let taken = keys.iter().filter_map(|key| self.close(key)).collect();
        if self.open.is_empty() {
            self.since = None;
        }
        taken
    }

    /// Removes and returns one question.
    fn close(&mut self, key: &str) -> Option<Ask> {
        let ask = self.open.remove(key)?;
        self.share.take(ask.weight());
        Some(ask)
    }

    /// Returns a key for a question that this call has not used yet: `wish` if possible.
    fn key(&mut self, wish: Option<String>) -> String {
        let numbered = |count: usize| format!("i{count}");
        let mut key = wish.unwrap_or_else(|| numbered(self.keys.len() + 1));
        let mut count = self.keys.len();
        while !self.keys.insert(key.clone()) {
            count += 1;
            key = numbered(count);
        }
        key
    }

    /// Keeps the result of a round, for requests that ask for it again.
    pub(super) fn keep(&mut self, round: u32, answered: Answered) {
        if self.results.len() >= KEPT
            && let Some((_, oldest)) = self.results.pop_front()
        {
            self.share.take(weight(&oldest));
        }
        self.share.add(weight(&answered));
        self.results.push_back((round, answered));
    }
}

/// Returns the bytes that an answer holds.
pub(super) fn weight(answered: &Answered) -> usize {
    answered.as_ref().map_or(0, |result| result.as_bytes().len())
}

/// A request that attends the call. If the last one is dropped before it has its result, the call is cancelled: the
/// client no longer wants it.
pub(super) struct Attending {
    parked: Arc<Parked>,
    pub(super) leg: Arc<Mailbox>,
    /// Whether the request has got its result.
    pub(super) over: bool,
}

impl Drop for Attending {
    fn drop(&mut self) {
        let mut inner = self.parked.lock();
        inner.attending -= 1;
        inner.audience.leave(&self.leg);
        if !self.over && inner.attending == 0 {
            self.parked.cancel.cancel();
        }
    }
}
