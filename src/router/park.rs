//! Parked calls: a server with a session asks something while it works for a client without one (`docs/bridging.md` 5.2).
//!
//! The request of the client is answered with the questions (`input_required`) and ends; the call goes on here, waiting. The
//! client's next request brings the answers, which go to the server as the answers to its own requests, and is from then on
//! the one that the call serves. **Invariant:** no answer reaches a server twice, and each round of a call has one result,
//! however often the client asks for it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Failure;
use super::call::{Course, Forward};
use super::client::{Client, Guard};
use super::missed::{Audience, Live, Said};
use super::question;
use super::running::{Handover, Rising, Toward};
use super::state::{State, expired};
use super::{Mailbox, Router, relay, roots};
use crate::answered::{Answered, NoResult};
use crate::manager::{Principal, Server, Told, Who};
use crate::protocol::{ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, RequestId, Theirs, object};
use crate::queues::{Account, Share};
use crate::upstream::{Ask, Connection, Upstream};

/// All calls that are served here, by number.
#[derive(Debug, Default)]
pub(super) struct Table {
    calls: Mutex<BTreeMap<u64, Arc<Parked>>>,
    count: AtomicU64,
    /// Counts the calls that have reached their server.
    begun: watch::Sender<u64>,
}

/// One call of a client without a session at a server with one.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) number: u64,
    pub(super) principal: Principal,
    digest: String,
    pub(super) server: Arc<Server>,
    /// What its client can be asked.
    declared: Profile,
    /// The client whose lease it runs on.
    who: Who,
    inner: Mutex<Inner>,
    /// For whoever attends: questions, or the answer.
    news: Notify,
    /// For the call: the client has answered.
    answered: Arc<Notify>,
    pub(super) cancel: CancellationToken,
    /// What is kept for the client while it is away.
    account: Account,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// That of `open`, `results` and `answered`.
    share: Share,
    /// The requests that it serves now, and what was said while it served none.
    audience: Audience,
    attending: usize,
    /// How often the client was sent away with questions.
    round: u32,
    /// Up to this round the client has come back.
    resumed: u32,
    /// Questions without an answer, by key.
    open: BTreeMap<String, Ask>,
    /// Every key that was given.
    keys: HashSet<String>,
    /// Answers that the first request brought unasked, by the keys that it expects.
    early: Option<Raw>,
    /// When the first question came that the client has not been sent away with.
    since: Option<Instant>,
    /// When the client was sent away last.
    pub(super) away: Option<Instant>,
    /// What became of the last rounds.
    results: VecDeque<(u32, Answered)>,
    answered: Option<Answered>,
    /// The lease, as long as roots may be kept for it.
    upstream: Option<Arc<Upstream>>,
}

/// Servers ask several things side by side: that long after the first one more are gathered.
const GATHER: Duration = Duration::from_millis(25);
/// Results of rounds that are kept for a client that did not get them.
const KEPT: usize = 2;
/// How long the last result is kept.
const LINGER: Duration = Duration::from_secs(30);

impl Router {
    /// Lets a call that may ask its client go on in a task of its own, and serves the request that began it.
    pub(super) async fn park(
        &self,
        client: &Arc<Client>,
        forward: Forward,
        course: Course,
        Handover { leg, progress }: Handover,
    ) -> Answered {
        let table = &self.0.parked;
        let limit = self.limits().parked;
        if table.lock().len() >= limit {
            return Err(Failure::parked(limit).of_host());
        }
        let number = table.count.fetch_add(1, Ordering::Relaxed) + 1;
        // It holds its client, which has no session to be held by.
        let id = RequestId::Text(format!("parked {number}").into());
        let Ok(guard) = client.begin(&id, &leg, self.limits().pending_per_client) else {
            let limit = self.limits().pending_per_client;
            return Err(Failure::client_limit(limit).of_host());
        };
        let account = self.account();
        let parked = Arc::new(Parked {
            number,
            principal: client.principal().clone(),
            digest: forward.digest().to_owned(),
            server: forward.server.clone(),
            declared: forward.server.declared(client.profile()),
            who: client.who_with(forward.roots.clone()),
            inner: Mutex::new(Inner::of(&account)),
            news: Notify::new(),
            answered: Arc::default(),
            cancel: CancellationToken::new(),
            account,
        });
        table.lock().insert(number, parked.clone());
        // A server with a session does not know them: they may be answers to what it has not asked yet.
        parked.lock().early = forward.params.member("inputResponses");
        let attending = parked.enter(0, client, &leg, progress.under(forward.token()));
        self.0.tasks.spawn(serve(self.clone(), client.clone(), (forward, course), parked.clone(), guard));
        self.attend(&parked, 0, attending).await
    }

    /// Goes on with a call: the client brings answers.
    pub(super) async fn resume(
        &self,
        client: &Arc<Client>,
        (number, round): (u64, u32),
        forward: &Forward,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let parked = self.0.parked.lock().get(&number).cloned();
        let parked = parked.filter(|parked| parked.principal == *client.principal()).ok_or_else(expired)?;
        let answers = parked.take(round, forward.params.member("inputResponses"))?;
        let attending = parked.enter(round, client, leg, Rising::new(forward.token()));
        let upstream = parked.lock().upstream.clone().filter(|_| leg.level().is_some());
        if let Some(upstream) = upstream {
            self.apply_level(&parked.server, &upstream);
            upstream.level_told().await;
        }
        for (ask, value) in answers {
            if ask.method == Method::RootsList {
                parked.keep_roots(client, &value);
            }
            ask.answer(Ok(value));
        }
        parked.answered.notify_one();
        self.attend(&parked, round, attending).await
    }

    /// Waits for the result of a round.
    async fn attend(&self, parked: &Arc<Parked>, round: u32, mut attending: Attending) -> Answered {
        loop {
            let news = parked.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.result_of(parked, round) {
                Look::Result(answered) => {
                    attending.over = true;
                    return answered;
                }
                Look::Gathering(until) => {
                    tokio::select! {
                        biased;
                        () = news => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
                Look::Nothing => news.await,
            }
        }
    }

    fn result_of(&self, parked: &Arc<Parked>, round: u32) -> Look {
        // Before the call is locked: the others are locked to be counted.
        self.0.parked.make_way(&parked.principal, parked.number, self.limits().parked_per_principal);
        let mut inner = parked.lock();
        if let Some((_, answered)) = inner.results.iter().find(|(of, _)| *of == round) {
            return Look::Result(answered.clone());
        }
        if inner.round != round {
            return Look::Result(Err(expired().into()));
        }
        if let Some(answered) = inner.answered.take() {
            inner.share.take(weight(&answered));
            inner.keep(round, answered.clone());
            return Look::Result(answered);
        }
        let Some(since) = inner.since else { return Look::Nothing };
        if since + GATHER > Instant::now() {
            return Look::Gathering(since + GATHER);
        }
        let answered = self.input_required(parked, &inner).map_err(NoResult::from);
        inner.round += 1;
        inner.since = None;
        inner.audience.send_away();
        inner.away = Some(Instant::now());
        inner.keep(round, answered.clone());
        drop(inner);
        parked.news.notify_waiters();
        Look::Result(answered)
    }

    /// The result that sends the client away with the open questions.
    fn input_required(&self, parked: &Parked, inner: &Inner) -> Outcome {
        let limits = self.limits();
        let state = State::Parked { call: parked.number, round: inner.round + 1 };
        let sealed = self.seal_state(&parked.principal, state, &parked.digest, limits.answer)?;
        let open = inner.open.iter();
        Ok(relay::input_required(open.map(|(key, ask)| (&**key, &ask.method, ask.params.as_ref())), &sealed))
    }

    /// The call runs on this lease now.
    pub(super) fn runs_on(&self, parked: &Parked, upstream: &Arc<Upstream>) {
        parked.lock().upstream = Some(upstream.clone());
        self.0.parked.begun.send_modify(|count| *count += 1);
    }

    /// Tells when another call has reached its server.
    pub(super) fn parked_begin(&self) -> watch::Receiver<u64> {
        self.0.parked.begun.subscribe()
    }

    /// Whether the lane of this lease is held by a call whose client is away: a person takes longer than a call should wait.
    pub(super) fn is_held_by_nobody(&self, upstream: &Arc<Upstream>) -> bool {
        let calls: Vec<Arc<Parked>> = self.0.parked.lock().values().cloned().collect();
        calls.iter().any(|parked| parked.is_on(upstream) && parked.lock().waits())
    }

    /// A server withdraws a question that it did not put during a call.
    pub(super) fn withdraw_beside(&self, connection: &Arc<Connection>, id: &RequestId) {
        let calls: Vec<Arc<Parked>> = self.0.parked.lock().values().cloned().collect();
        calls.iter().for_each(|parked| parked.withdraw(connection, id));
        self.0.known_tasks.withdraw(connection, id);
    }

    /// A call of this lease that a question may be attached to which came outside of any: the only one there is.
    pub(super) fn parked_on(&self, upstream: &Arc<Upstream>) -> Option<Arc<Parked>> {
        let calls = self.0.parked.lock();
        let mut on = calls.values().filter(|parked| parked.is_on(upstream));
        let first = on.next()?;
        on.next().is_none().then(|| first.clone())
    }
}

enum Look {
    Result(Answered),
    Gathering(Instant),
    Nothing,
}

/// The task of one call. Its type is named, since a call comes here from within itself.
fn serve(
    router: Router,
    client: Arc<Client>,
    (forward, course): (Forward, Course),
    parked: Arc<Parked>,
    guard: Guard,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let stop = router.0.stop.clone();
        let mut work = pin!(async {
            let answered = router.go_on(&client, &forward, &mut Toward::Parked(parked.clone()), course).await;
            parked.end(answered);
            // A client that was sent away may not get the last result, and ask for it again; whoever was not cannot.
            let patience = {
                let inner = parked.lock();
                match (inner.round, inner.attending) {
                    (0, _) => return,
                    (_, 0) => router.limits().answer,
                    _ => LINGER,
                }
            };
            tokio::time::sleep(patience).await;
        });
        tokio::select! {
            biased;
            // Before its work: its lease may end with it.
            () = parked.cancel.cancelled() => {}
            () = &mut work => {}
            () = parked.account.cut() => {}
            () = guard.cancelled() => {}
            () = stop.cancelled() => {}
        }
        router.0.parked.lock().remove(&parked.number);
        // What the server still waits for is answered before its call is cancelled.
        parked.expire();
        parked.end(Err(expired().into()));
    })
}

impl Table {
    /// How many there are.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Parked>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parked {
    /// A request comes to attend the call. It hears of it from now on, and what the client has missed, unless it only asks for
    /// the result of an earlier round again.
    fn enter(self: &Arc<Self>, round: u32, client: &Arc<Client>, leg: &Arc<Mailbox>, progress: Rising) -> Attending {
        let mut inner = self.lock();
        inner.attending += 1;
        if inner.round == round {
            let live = Live { client: client.clone(), leg: leg.clone(), progress };
            inner.audience.enter(&self.server, live);
        }
        Attending { parked: self.clone(), leg: leg.clone(), over: false }
    }

    /// Takes the answers that a request brings, unless another brought those of this round before.
    fn take(&self, round: u32, responses: Option<Raw>) -> Result<Vec<(Ask, Raw)>, ErrorObject> {
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
        // What was not answered is asked again.
        inner.since = (!inner.open.is_empty()).then(Instant::now);
        Ok(answers)
    }

    /// The server asks something.
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

    /// What is kept for its client.
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

    /// The call runs on this connection no longer: what was asked there is put to nobody any more.
    pub(super) fn leaves(&self, connection: &Arc<Connection>) {
        let asks = self.lock().take_back(|ask| ask.is_on(connection));
        drop(asks);
    }

    /// The server says something of the call: to whoever attends, or to whoever comes next.
    pub(super) fn tell(&self, said: Said) {
        self.lock().audience.tell(&self.server, said);
    }

    /// Nobody came back: the server is told.
    pub(super) fn expire(&self) {
        let asks = self.lock().take_back(|_| true);
        asks.into_iter().for_each(question::unanswered);
    }

    /// The call is over.
    fn end(&self, answered: Answered) {
        let mut inner = self.lock();
        inner.since = None;
        // A result that nobody has taken yet stays.
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

    fn keep_roots(&self, client: &Client, roots: &Raw) {
        let (upstream, told) = (self.lock().upstream.clone(), Told::read(roots));
        if client.is_one_conversation() {
            client.keep_roots(Some(told.clone()));
        }
        if let Some(upstream) = &upstream {
            self.server.told_roots(upstream, &told, &self.who);
        }
    }

    /// The roots that a server is told without asking: those of the lease; none where several clients have called; those of
    /// the call where a lease of its client's own serves several conversations.
    fn roots_on(&self, upstream: &Upstream) -> Option<Raw> {
        if let Some(roots) = upstream.roots() {
            return Some(roots);
        }
        let is_shared = !upstream.is_only(self.who.owner);
        let told = if is_shared { Some(Told::nothing()) } else { self.who.roots.clone() };
        told.map(|told| told.result().clone())
    }

    fn is_on(&self, upstream: &Arc<Upstream>) -> bool {
        let inner = self.lock();
        inner.answered.is_none() && inner.upstream.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, upstream))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn of(account: &Account) -> Self {
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

    /// Whether it waits for a client that is away. A call that is over stays for a while, and waits for nobody.
    pub(super) fn waits(&self) -> bool {
        self.audience.is_away() && !self.open.is_empty()
    }

    /// The lease on which it waits for a client that is away, and since when.
    pub(super) fn left_at(&self) -> Option<(u64, Instant)> {
        let upstream = self.upstream.as_ref().filter(|_| self.waits() && self.answered.is_none())?;
        Some((upstream.id, self.away?))
    }

    /// Takes questions out that are not to be asked any more.
    fn take_back(&mut self, which: impl Fn(&Ask) -> bool) -> Vec<Ask> {
        let keys: Vec<String> = self.open.iter().filter(|(_, ask)| which(ask)).map(|(key, _)| key.clone()).collect();
        let taken = keys.iter().filter_map(|key| self.close(key)).collect();
        if self.open.is_empty() {
            self.since = None;
        }
        taken
    }

    /// Takes a question out.
    fn close(&mut self, key: &str) -> Option<Ask> {
        let ask = self.open.remove(key)?;
        self.share.take(ask.weight());
        Some(ask)
    }

    /// A key that this call has not used yet.
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

    fn keep(&mut self, round: u32, answered: Answered) {
        if self.results.len() >= KEPT
            && let Some((_, oldest)) = self.results.pop_front()
        {
            self.share.take(weight(&oldest));
        }
        self.share.add(weight(&answered));
        self.results.push_back((round, answered));
    }
}

fn weight(answered: &Answered) -> usize {
    answered.as_ref().map_or(0, |result| result.as_bytes().len())
}

/// A request that waits for the call. When the last one goes before its result, the client no longer wants the call.
struct Attending {
    parked: Arc<Parked>,
    leg: Arc<Mailbox>,
    over: bool,
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
