//! One client's request on its way to a server and back. It is sent under another request id and under the server's own
//! name for the target; everything that comes back is translated, until there is one answer.
//!
//! A server that was lost may come back in another era (legacy, with sessions, or modern, without). So every decision
//! that depends on the eras of both sides is made again for each connection: which of the four paths of `mod.rs` the
//! call takes, whether it runs as a task, how a resource is watched. A call that was not parked on one connection is
//! parked on the next if necessary. Its deadlines, its slot, and its count of retries stay ([`Course`]). `Error::fate`
//! says what became of a lost request, `Repeats` whether it is sent again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Mailbox;
use super::answer::Failure;
use super::beating::beating;
use super::changed::{changed, shown_before};
use super::client::{Client, Guard};
use super::clients::Clients;
use super::clocks::Clocks;
use super::driver::{Next, Stage};
use super::finish::Finish;
use super::forward::{Course, Forward, outgoing};
use super::heart::Wait;
#[cfg(feature = "server")]
use super::invite::{Invitations, Invited};
use super::joined::Joined;
use super::judge::{ToAsk, judge};
use super::limit::admit;
use super::own::limits;
use super::park::ParkedCalls;
use super::parked::{Parked, Table};
use super::permission::Permissions;
use super::plan::Plan;
use super::reach::{Connector, Hold, Reached};
use super::relay::{Continuation, relay_questions, visits_required};
use super::route::Wanted;
use super::running::{Attempt, Running};
use super::state::Sealer;
use super::tasks::Tasks;
use super::toward::{Handover, Toward};
#[cfg(any(feature = "validate", test))]
use super::valid::{check_arguments, check_result};
use super::verdict::{Bench, Verdict};
use crate::answered::{Answered, NoResult, reworded};
use crate::config;
use crate::counts::{Awaited, Count};
use crate::manager::{Asked, Manager, Server, Slot, Slots, Ticket, Writing};
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw};
use crate::registry::Entry;
use crate::transport;
use crate::upstream::{Connection, Exchange, Terms, Upstream};

/// Forwards clients' requests to servers, and brings the answers back.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) manager: Manager,
    pub(super) clients: Arc<Clients>,
    pub(super) connector: Arc<Connector>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) parked: ParkedCalls,
    pub(super) permissions: Permissions,
    #[cfg(feature = "server")]
    pub(super) invitations: Invitations,
    pub(super) sealer: Arc<Sealer>,
    pub(super) finish: Arc<Finish>,
    pub(super) joined: Arc<Joined>,
}

impl Forwarder {
    /// Returns where the messages go that a request's server sends before its answer: into `leg`, the mailbox of the
    /// request.
    pub(super) fn toward<'a>(&self, client: &'a Arc<Client>, forward: &Forward, leg: &'a Arc<Mailbox>) -> Toward<'a> {
        // A client that wants progress says so in `_meta`.
        let heartbeat = if forward.meta.is_some() { self.manager.heartbeat() } else { Duration::ZERO };
        Toward::leg(client, leg).beating(heartbeat)
    }

    /// Reports whether a request of a client without a session continues a request about which the client was asked.
    pub(super) fn goes_on(&self, client: &Client, wanted: &Wanted) -> bool {
        client.revision().is_modern() && self.sealer.continues(client.bound(), &wanted.method, &wanted.params)
    }

    /// Sends a request to its server and returns the answer. What the server says before it goes into `leg`, the
    /// mailbox of the request.
    pub(super) async fn forward(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: Box<Forward>,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let mut toward = self.toward(client, &forward, leg);
        self.forward_on(client, forward, leg, &mut toward).await
    }

    /// Does the same as [`Self::forward`] for a request whose client may have got progress already.
    pub(super) async fn forward_on(
        self: &Arc<Self>,
        client: &Arc<Client>,
        mut forward: Box<Forward>,
        leg: &Arc<Mailbox>,
        toward: &mut Toward<'_>,
    ) -> Answered {
        leg.concerns(&forward.server, &forward.target, forward.listed.entry());
        if forward.method == Method::ToolsCall {
            let shown = forward.listed.entry().map(Entry::name);
            leg.tally().calls(self.manager.record().counts(), &forward.target, shown);
        }
        if self.manager.limits_tools() {
            forward.own = limits(&self.manager, client, &forward)?;
        }
        #[cfg(any(feature = "validate", test))]
        let validates = self.manager.validates();
        // Clients are held to the schema that they see, so this check comes before presets and the server's own names.
        #[cfg(any(feature = "validate", test))]
        if validates {
            Box::pin(check_arguments(&self.manager, client, &forward)).await?;
        }
        forward.arrange()?;
        forward.shown = shown_before(&self.manager, client, &forward);
        let to_ask = judge(&self.manager, client, &forward, leg)?;
        if client.revision().is_modern()
            && forward.method.may_ask()
            && let Some(result) = self.take_up(client, &mut forward, (leg, to_ask.as_ref()), toward).await?
        {
            return Ok(result);
        }
        let ticket = admit(&self.manager, client, &forward, toward).await?;
        if let Some(to_ask) = &to_ask {
            let permitting = self.permissions.permit(client, &forward, toward, to_ask);
            if let Some(question) = Box::pin(permitting).await? {
                return Ok(question);
            }
            forward.permit = self.permissions.spend(client, &forward, to_ask)?.or(forward.permit);
        }
        let answered = if self.manager.answers().is_on() {
            Box::pin(self.kept(client, &forward, toward, ticket)).await
        } else {
            let course = self.course(client, &forward, toward, (ticket, None)).await?;
            self.go_on(client, &forward, toward, course).await
        };
        #[cfg(any(feature = "validate", test))]
        if let (true, Ok(result)) = (validates, &answered) {
            Box::pin(check_result(&self.manager, client, &forward, result)).await?;
        }
        answered
    }

    /// Waits for a slot of the server, and runs the call.
    pub(super) async fn run(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        counted: (Option<Ticket>, Option<Writing>),
    ) -> Answered {
        let course = self.course(client, forward, toward, counted).await?;
        self.go_on(client, forward, toward, course).await
    }

    /// Waits for a slot of the server, and begins the course of a call.
    async fn course(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        counted: (Option<Ticket>, Option<Writing>),
    ) -> Result<Course, NoResult> {
        let server = &forward.server;
        let calling = server.calling();
        let mut held = [None, None];
        // The slot of the tool comes first: a call that waits for it must not hold a slot of the server that a call of
        // another tool could use.
        for (held, slots) in held.iter_mut().zip([forward.tool_slots(), server.slots.as_ref()]) {
            let Some(slots) = slots else { continue };
            let waiting = pin!(slot(&self.parked.table, client, (server, slots)));
            let slot = beating(toward, forward, Wait::Turn, waiting).await;
            *held = Some(slot.map_err(|failure| failure.of(server))?);
        }
        Ok(Course::begin(forward, calling, held, counted))
    }

    /// Takes up a request of a client without a session, during which the server may ask the client something. The
    /// request is a new one, or one that brings the client's answers. Returns its result if it goes to no server.
    async fn take_up(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: &mut Forward,
        (leg, to_ask): (&Arc<Mailbox>, Option<&ToAsk>),
        toward: &mut Toward<'_>,
    ) -> Result<Option<Raw>, NoResult> {
        match forward.open_state(&self.sealer, client)? {
            Continuation::Ready => {}
            Continuation::Parked { call, round } => {
                if let Some(to_ask) = to_ask {
                    self.permissions.still(client, forward, to_ask, self.parked.permit_of(call))?;
                }
                let _away = leg.tally().away(Awaited::Server);
                let leg = (leg, toward.take_progress());
                return Box::pin(self.parked.resume(client, (call, round), forward, leg)).await.map(Some);
            }
            Continuation::Over(outcome) => return Ok(Some(outcome?)),
            Continuation::Permission { ask, rule } => {
                self.permissions.answered(forward, leg, (ask, &rule))?;
                forward.start_afresh();
            }
            Continuation::Person { ask, rule } => {
                self.permissions.was_shown(forward, leg, (ask, &rule))?;
                forward.start_afresh();
                forward.saw_page = true;
            }
            #[cfg(feature = "server")]
            Continuation::SignIn { invitation, why } => {
                let answered = Box::pin(self.invitations.answered(client, forward, invitation, why));
                if let Some(answered) = beating(toward, forward, Wait::Person, pin!(answered)).await {
                    return answered.map(Some);
                }
                forward.start_afresh();
            }
        }
        // The client is asked for permission first: its roots would not survive that.
        if to_ask.is_some_and(|to_ask| !self.permissions.has_yes(client, forward, to_ask)) {
            return Ok(None);
        }
        Ok(forward.ask_for_roots(&self.sealer, client)?)
    }

    /// Runs a call until there is an answer. A call whose connection is lost is sent again where that is safe
    /// (`docs/hazards.md` H57).
    ///
    /// Here and in what this calls, the rare paths are boxed: they would make the future of every call several times as
    /// large, and each caller moves it.
    async fn go_on(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        mut course: Course,
    ) -> Answered {
        loop {
            let asked = forward.server.asks();
            let failure = match self.attempt(client, forward, toward, &mut course).await {
                Ok(answered) => {
                    // The call may have failed because the server asked something and got no answer. It is sent once
                    // more, on a lease where the client can answer, or where the server is told that the client cannot
                    // be asked.
                    let more = forward.server.asks() != asked && has_failed(&answered) && course.repeats.lost;
                    if more && forward.is_safe_twice() {
                        forward.server.counts().one(Count::Repeats);
                        course.repeats.lost = false;
                        continue;
                    }
                    return answered;
                }
                Err(Stop::Refused(error)) => return Err(error.into()),
                Err(Stop::Park(over)) => {
                    return Box::pin(self.park(client, forward.clone(), course, *over)).await;
                }
                Err(Stop::Attempt(Attempt::Failed(failure))) if course.repeats.lost => failure,
                // The request was sent before, and its answer was lost with the connection.
                Err(Stop::Attempt(Attempt::Failed(failure))) => failure.after_a_loss(),
                Err(Stop::Attempt(Attempt::Lost(error))) => {
                    if course.repeats.allow(&error, || forward.is_safe_twice()) {
                        forward.server.counts().one(Count::Repeats);
                        // The tasks that notice the loss of the connection get a turn.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Failure::lost(&error)
                }
            };
            #[cfg(feature = "server")]
            match Box::pin(self.invitations.invite(client, forward, toward, &mut course, &failure)).await {
                Invited::Nobody => {}
                Invited::Asked(outcome) => {
                    self.permissions.give_back(forward);
                    return Ok(outcome?);
                }
                Invited::SignedIn => continue,
            }
            if !failure.is_sent() {
                course.was_not_sent();
                self.permissions.give_back(forward);
            }
            return Err(failure.of(&forward.server));
        }
    }

    /// Parks a call whose server may ask: moves the call into a Tokio task of its own. Then waits for the first result,
    /// which answers the client's request.
    async fn park(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: Forward,
        course: Course,
        over: Handover,
    ) -> Answered {
        let leg = over.leg.clone();
        let (parked, guard, attending) = self.parked.begin(client, &forward, over)?;
        let task = run_parked(self.clone(), client.clone(), (forward, course), parked.clone(), guard);
        self.parked.background.spawn_whole(task);
        let _away = leg.tally().away(Awaited::Server);
        self.parked.attend(&parked, 0, attending).await
    }

    /// Runs the call on one lease, round by round, until it is answered or fails. One round is one request to the
    /// server.
    async fn attempt(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        course: &mut Course,
    ) -> Result<Answered, Stop> {
        let on = self.board(client, forward, toward, course).await?;
        let (server, plan, version) = (&forward.server, on.plan, on.version);
        let bench = Bench { method: &forward.method, plan, server: version, client: client.revision() };
        loop {
            let Round { id, mut exchange, outcome } = self.round(client, forward, toward, course, &on).await?;
            if !version.is_modern() {
                server.note_answer(&on.upstream, &on.connection);
            }
            return Ok(match bench.judge(outcome) {
                Verdict::Over(outcome) => {
                    if let Some(heard) = &forward.heard {
                        heard.note((&on.upstream, &on.connection), version, &outcome);
                    }
                    self.finish.adapted(client, forward, version, outcome)
                }
                Verdict::TaskOver(result) => {
                    let answered = self.finish.adapted(client, forward, version, Ok(result));
                    reworded(answered, |outcome| self.tasks.over_at_once(client, forward, outcome))
                }
                Verdict::Task(result) => {
                    let lease = (&on.upstream, &on.connection);
                    let made = (&mut exchange, &result);
                    let created = Box::pin(self.tasks.created(client, (forward, plan), lease, toward, made)).await?;
                    reworded(created, |created| self.finish.adapted(client, forward, version, created))
                }
                Verdict::Visits(error) => {
                    server.note_asked(Asked::ELICITATION, None);
                    visits_required(&self.sealer, client, forward, error)
                }
                Verdict::Relay(result) => {
                    server.note_asked_by_result();
                    relay_questions(&self.sealer, client, forward, &result)
                }
                Verdict::Ask(result) => {
                    server.note_asked_by_result();
                    match Box::pin(ask(client, forward, toward, course, (&on, id, &result))).await? {
                        Next::Again(params) => {
                            course.answers = Some(params);
                            continue;
                        }
                        Next::Over(outcome) => outcome.map_err(NoResult::from),
                    }
                }
                Verdict::Malformed(what) => return Err(Attempt::Failed(Failure::malformed(&what)).into()),
            });
        }
    }

    /// Gets a lease (connection) for the call, and decides how the call runs on it.
    async fn board(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        course: &mut Course,
    ) -> Result<On, Stop> {
        let server = &forward.server;
        let parked = toward.parked().cloned();
        let connecting = self.connector.connect_call(client, forward, parked.as_ref());
        let Reached { upstream, connection, lane, hold } =
            beating(toward, forward, Wait::Server, pin!(connecting)).await?;
        if let Some(failure) = changed(forward, &upstream) {
            return Err(Attempt::Failed(failure).into());
        }
        let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        let plan = suit(client, forward, toward, &connection, course)?;
        let mut terms = plan.dress(terms(client, server, toward));
        // A legacy session has one log level. Modern requests each state their own, so the most verbose level in flight
        // is set.
        if client.revision().is_modern() && !version.is_modern() && client.level().is_some() {
            self.clients.apply_level(server, &upstream);
        }
        upstream.level_told().await;
        terms.turn = Some(upstream.turn());
        let who = client.who_with(forward.roots.clone().or_else(|| client.roots()));
        if !version.is_modern() && !self.manager.suits(server, &upstream, &who) {
            // Meanwhile the server was told another client's roots on this lease.
            client.drop_lease(server.id);
            return Err(Attempt::Lost(transport::Error::Unwritten).into());
        }
        Ok(On { upstream, connection, version, plan, terms, _lane: lane, _hold: hold })
    }

    /// Sends the request once, with the client's answers so far, and waits for the server's answer.
    async fn round(
        &self,
        client: &Client,
        forward: &Forward,
        toward: &mut Toward<'_>,
        course: &mut Course,
        on: &On,
    ) -> Result<Round, Attempt> {
        let On { upstream, connection, .. } = on;
        let (server, id) = (&forward.server, connection.next_id());
        let eras = (client.revision().is_modern(), on.version.is_modern());
        let (params, token) = outgoing(forward, course.answers.as_ref(), eras, id);
        #[cfg(feature = "otel")]
        let (params, trail) = super::trail::begin(params, toward, forward, connection, (on.version, id));
        toward.set_token(token);
        course.is_sent();
        let mut exchange = connection.open(id, &forward.method, Some(&params), &on.terms);
        let (idle, patience) = (forward.call_timeout(), forward.limits.answer);
        let now = Instant::now();
        let clocks = Clocks::start(now, idle, patience, course.end);
        toward.start_heart(now);
        let vigil = self.manager.vigil();
        let most = forward.max_call_time();
        let mut running = Running { toward, server, upstream, connection, answered: None, clocks, most, vigil };
        let outcome = running.wait(id, &mut exchange).await;
        let clocks = running.clocks;
        course.end = clocks.end();
        #[cfg(feature = "otel")]
        super::trail::end(trail, &outcome);
        if let Some(leg) = toward.mailbox() {
            let over = Instant::now();
            let person = clocks.person(over);
            leg.tally().was_away(Awaited::Server, over.duration_since(now).saturating_sub(person));
            if !person.is_zero() {
                leg.tally().was_away(Awaited::Person, person);
            }
        }
        Ok(Round { id, exchange, outcome: outcome? })
    }
}

/// Returns the future that runs a parked call. It is boxed, since otherwise the future of a call would contain itself.
fn run_parked(
    calls: Arc<Forwarder>,
    client: Arc<Client>,
    (forward, course): (Forward, Course),
    parked: Arc<Parked>,
    guard: Guard,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut toward = Toward::Parked(parked.clone());
        let work = pin!(calls.go_on(&client, &forward, &mut toward, course));
        calls.parked.run(&parked, &guard, work).await;
    })
}

/// Waits for a slot of the server.
async fn slot(parked: &Table, client: &Client, (server, slots): (&Server, &Slots)) -> Result<Slot, Failure> {
    let wait = server.config.queue_timeout;
    if slots.is_full() {
        parked.make_room(server, client.principal());
    }
    slots.take(client.owner(), wait).await.ok_or_else(|| Failure::queue(wait))
}

/// Decides how the call runs on this connection, since the connection before may have been of another era. The returned
/// plan says whether it runs as a task.
fn suit(
    client: &Client,
    forward: &Forward,
    toward: &mut Toward<'_>,
    connection: &Connection,
    course: &mut Course,
) -> Result<Plan, Stop> {
    if connection.is_modern() {
        // A client with a session puts no `inputResponses` into its request, so the first round has none.
        if !client.revision().is_modern() {
            course.answers.get_or_insert_with(Raw::empty_object);
        }
    } else if forward.answers || course.driver.has_asked() {
        // A legacy connection cannot take the client's answers, and the work that led to the questions must not be done
        // twice.
        return Err(Attempt::Failed(Failure::lost(&transport::Error::Broken)).into());
    } else if client.revision().is_modern()
        && forward.method.may_ask()
        && !forward.server.declared(&client.who).asks_nothing()
        && let Toward::Leg(leg) = toward
    {
        // The server asks by requests of its own, and this client can be asked only by results: the call has to wait
        // here while the client is away.
        return Err(Stop::Park(leg.hand_over().into()));
    }
    forward.task.at(&forward.server, connection).map_err(Stop::Refused)
}

/// Returns what the server learns about the client with this request.
fn terms(client: &Client, server: &Server, toward: &Toward<'_>) -> Terms {
    let mut terms = match toward {
        Toward::Leg(leg) => client.terms(leg.mailbox()),
        Toward::Parked(parked) => Terms { account: Some(parked.account().clone()), ..client.terms(client.mailbox()) },
    };
    terms.profile = server.declared(&client.who);
    terms.has_fixed_roots = !matches!(server.config.roots, config::Roots::Client);
    terms
}

fn has_failed(answered: &Answered) -> bool {
    let is_error = |result: &Raw| result.member("isError").is_some_and(|value| value.as_bytes() == b"true");
    answered.as_ref().map_or(true, is_error)
}

/// The lease that a call runs on, and how it runs there.
struct On {
    upstream: Arc<Upstream>,
    connection: Arc<Connection>,
    /// The protocol revision that the server speaks.
    version: ProtocolVersion,
    plan: Plan,
    terms: Terms,
    _lane: Option<OwnedSemaphorePermit>,
    _hold: Option<Hold>,
}

/// One request to the server for a call, and its outcome.
struct Round {
    id: u64,
    exchange: Exchange,
    outcome: Outcome,
}

/// Puts the questions in a server's result to a client with a session. Returns how the call goes on.
async fn ask(
    client: &Arc<Client>,
    forward: &Forward,
    toward: &mut Toward<'_>,
    course: &mut Course,
    (on, call, result): (&On, u64, &Raw),
) -> Result<Next, Attempt> {
    let Toward::Leg(leg) = &*toward else {
        return Err(Attempt::Failed(Failure::malformed("a question")));
    };
    let (leg, server, upstream) = (leg.mailbox().clone(), &forward.server, &on.upstream);
    let (method, patience) = (&forward.method, forward.limits.answer);
    let stage = Stage { client, leg: &leg, server, upstream, version: on.version, method, call, patience };
    toward.tick();
    let asked = Instant::now();
    let round = pin!(course.driver.round(&stage, result, &forward.params));
    let next = beating(toward, forward, Wait::Person, round).await.map_err(Attempt::Failed)?;
    // The time that a person takes does not count toward the deadline.
    course.end += asked.elapsed();
    Ok(next)
}

/// Why an attempt ended without an answer.
enum Stop {
    Attempt(Attempt),
    /// The client wants the call as a task, and the server runs none.
    Refused(ErrorObject),
    /// The call must be parked: it goes on in a Tokio task of its own.
    Park(Box<Handover>),
}

impl From<Attempt> for Stop {
    fn from(attempt: Attempt) -> Self {
        Self::Attempt(attempt)
    }
}
