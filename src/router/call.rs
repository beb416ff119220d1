//! One request of a client on its way through a server: sent under another id and name, with everything translated that
//! comes back, until there is one answer.
//!
//! A server may come back from a loss as one of another era. So nothing that depends on both eras outlives a
//! connection: which of the four ways the call takes, whether it runs as a task, how a resource is watched. A call that
//! was not parked on one connection is parked on the next if it has to be, and keeps its clocks, its slot, and its
//! repeats ([`Course`]). `Error::fate` says what became of a request, [`Repeats`] whether it is sent again.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::Failure;
use super::changed::{changed, shown_before};
use super::client::Client;
use super::clocks::Clocks;
use super::driver::{Next, Stage};
use super::forward::{Course, Forward};
#[cfg(feature = "server")]
use super::invite::Invited;
use super::parked::Table;
use super::plan::Plan;
use super::reach::Reached;
use super::relay::{relay_questions, visits_required};
use super::route::{One, Route};
use super::running::{Attempt, Running};
use super::toward::{Handover, Toward};
use super::verdict::{Bench, Verdict};
use super::wanted::Wanted;
use super::{Mailbox, Router};
use crate::adapt;
use crate::answered::{Answered, NoResult, reworded};
use crate::config;
use crate::manager::{Asked, Server, Slot, Stay};
use crate::protocol::{Edits, ErrorObject, Method, Outcome, ProtocolVersion, Raw};
use crate::transport;
use crate::upstream::{Connection, Exchange, Terms, Upstream};

impl Router {
    /// Routes a request, unless a door has done that, and serves it where it belongs.
    pub(super) async fn dispatch(
        &self,
        client: &Arc<Client>,
        wanted: Wanted,
        route: Option<Route>,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let route = match route {
            Some(route) => route,
            None => self.route(client, wanted.what, &wanted.name).await.map_err(|lost| lost.of(&wanted))?,
        };
        match route {
            Route::Own(tool) => tool.call(self, client, wanted.params).await,
            Route::One(one) => self.to_one(client, one, wanted, leg).await,
            Route::Every => self.to_every(client, &wanted, leg).await,
        }
    }

    /// Serves a request that one server answers.
    async fn to_one(&self, client: &Arc<Client>, one: One, mut wanted: Wanted, leg: &Arc<Mailbox>) -> Answered {
        let (name, task) = (std::mem::take(&mut wanted.name), wanted.task.take());
        let limits = leg.limits().clone();
        match wanted.method {
            Method::ToolsCall => {
                let mut forward = Forward::new(one, wanted, limits);
                self.plan_task(client, &mut forward, &name, task.as_ref()).await;
                self.forward(client, forward, leg).await
            }
            Method::ResourcesRead => self.read_resource(client, Forward::new(one, wanted, limits), &name, leg).await,
            Method::ResourcesSubscribe => self.subscribe(client, &one, &name, leg).await,
            Method::Complete => self.complete(client, Forward::new(one, wanted, limits), leg).await,
            _ => self.forward(client, Forward::new(one, wanted, limits), leg).await,
        }
    }

    /// Serves a request that every server has a part in.
    async fn to_every(&self, client: &Arc<Client>, wanted: &Wanted, leg: &Mailbox) -> Answered {
        Ok(match wanted.method {
            Method::SetLevel => self.set_level(client, &wanted.params)?,
            _ => self.list(client, &wanted.method, &wanted.params, leg.limits()).await?,
        })
    }

    /// Sends a request to a server and brings its answer back.
    pub(super) async fn forward(&self, client: &Arc<Client>, mut forward: Forward, leg: &Arc<Mailbox>) -> Answered {
        leg.concerns(&forward.server, &forward.target);
        forward.shown = shown_before(self.manager(), client, &forward);
        if client.revision().is_modern() && forward.method.may_ask() {
            return self.forward_modern(client, forward, leg).await;
        }
        self.carry(client, &forward, &mut Toward::leg(client, leg)).await
    }

    /// Sends a request and brings its answer back.
    pub(super) async fn carry(&self, client: &Arc<Client>, forward: &Forward, toward: &mut Toward<'_>) -> Answered {
        let server = &forward.server;
        let calling = server.calling();
        let slot = slot(&self.0.parked, client, server).await.map_err(|failure| failure.of(server))?;
        self.go_on(client, forward, toward, Course::begin(&server.config, calling, slot)).await
    }

    /// The same with a call that is on its way; it is sent once more where that is safe (`docs/hazards.md` H57).
    pub(super) async fn go_on(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        mut course: Course,
    ) -> Answered {
        loop {
            let asked = forward.server.asks();
            let failure = match self.attempt(client, forward, toward, &mut course).await {
                Ok(answered) => {
                    // Asked in vain, it may have failed for that: once more, where it is asked what it can answer, or nothing.
                    let more = forward.server.asks() != asked && has_failed(&answered) && course.repeats.lost;
                    if more && forward.is_safe_twice() {
                        course.repeats.lost = false;
                        continue;
                    }
                    return answered;
                }
                Err(Stop::Refused(error)) => return Err(error.into()),
                Err(Stop::Park(over)) => return self.park(client, forward.clone(), course, over).await,
                Err(Stop::Attempt(Attempt::Failed(failure))) if course.repeats.lost => failure,
                // It was sent, and its answer lost, before there was no connection any more.
                Err(Stop::Attempt(Attempt::Failed(failure))) => failure.after_a_loss(),
                Err(Stop::Attempt(Attempt::Lost(error))) => {
                    if course.repeats.allow(&error, || forward.is_safe_twice()) {
                        // Whoever is to notice that the connection is over has a turn.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Failure::lost(&error)
                }
            };
            #[cfg(feature = "server")]
            match Box::pin(self.invite(client, forward, toward, &mut course, &failure)).await {
                Invited::Nobody => {}
                Invited::Asked(outcome) => return Ok(outcome?),
                Invited::SignedIn => continue,
            }
            return Err(failure.of(&forward.server));
        }
    }

    /// Sends the call to a lease, round by round, until it has its answer there or cannot have it.
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
                Verdict::Over(outcome) => self.0.finish.adapted(client, forward, version, outcome),
                Verdict::TaskOver(result) => {
                    let answered = self.0.finish.adapted(client, forward, version, Ok(result));
                    reworded(answered, |outcome| self.task_over_at_once(client, forward, outcome))
                }
                Verdict::Task(result) => {
                    let lease = (&on.upstream, &on.connection);
                    let made = (&mut exchange, &result);
                    let created = self.task_created(client, (forward, plan), lease, toward, made).await?;
                    reworded(created, |created| self.0.finish.adapted(client, forward, version, created))
                }
                Verdict::Visits(error) => {
                    server.note_asked(Asked::ELICITATION, None);
                    visits_required(&self.0.sealer, client, forward, error)
                }
                Verdict::Relay(result) => relay_questions(&self.0.sealer, client, forward, &result),
                Verdict::Ask(result) => match ask(client, forward, toward, course, (&on, id, &result)).await? {
                    Next::Again(params) => {
                        course.answers = Some(params);
                        continue;
                    }
                    Next::Over(outcome) => outcome.map_err(NoResult::from),
                },
                Verdict::Malformed(what) => return Err(Attempt::Failed(Failure::malformed(&what)).into()),
            });
        }
    }

    /// Gets the lease that the call runs on, and decides how it runs there.
    async fn board(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        course: &mut Course,
    ) -> Result<On, Stop> {
        let server = &forward.server;
        let Reached { upstream, connection, lane, stay } =
            self.reach(client, server, toward, forward.roots.as_ref()).await?;
        if let Some(failure) = changed(forward, &upstream) {
            return Err(Attempt::Failed(failure).into());
        }
        let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        let plan = judge(client, forward, toward, &connection, course)?;
        let mut terms = plan.dress(terms(client, server, toward));
        // A session has one level; where requests say theirs, the most verbose one under way counts.
        if client.revision().is_modern() && !version.is_modern() && client.level().is_some() {
            self.0.clients.apply_level(server, &upstream);
        }
        upstream.level_told().await;
        terms.turn = Some(upstream.turn());
        let who = client.who_with(forward.roots.clone().or_else(|| client.roots()));
        if !version.is_modern() && !self.manager().suits(server, &upstream, &who) {
            // Meanwhile another client's server was told the roots of that one.
            client.drop_lease(server.id);
            return Err(Attempt::Lost(transport::Error::Unwritten).into());
        }
        Ok(On { upstream, connection, version, plan, terms, _lane: lane, _stay: stay })
    }

    /// Sends the call once, with what the client has answered so far, and waits for what the server answers.
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
        toward.set_token(token);
        let mut exchange = connection.open(id, &forward.method, Some(&params), &on.terms);
        let (idle, patience) = (server.config.call_timeout, forward.limits.answer);
        let clocks = Clocks::start(Instant::now(), idle, patience, course.end);
        let vigil = self.manager().vigil();
        let mut running = Running { toward, server, upstream, connection, answered: None, clocks, vigil };
        let outcome = running.wait(id, &mut exchange).await;
        course.end = running.clocks.end();
        Ok(Round { id, exchange, outcome: outcome? })
    }
}

/// A slot of the server, where it has `maxConcurrent`.
async fn slot(parked: &Table, client: &Client, server: &Server) -> Result<Option<Slot>, Failure> {
    let Some(slots) = &server.slots else { return Ok(None) };
    let wait = server.config.queue_timeout;
    if slots.is_full() {
        parked.make_room(server, client.principal());
    }
    slots.take(client.owner(), wait).await.map(Some).ok_or_else(|| Failure::queue(wait))
}

/// Judges a call by the connection that it runs on now: the one before may have been of another era. What becomes of it
/// as a task.
fn judge(
    client: &Client,
    forward: &Forward,
    toward: &mut Toward<'_>,
    connection: &Connection,
    course: &mut Course,
) -> Result<Plan, Stop> {
    if connection.is_modern() {
        // A client with a session has no business with answers; the first request has none.
        if !client.revision().is_modern() {
            course.answers.get_or_insert_with(Raw::empty_object);
        }
    } else if forward.answers || course.driver.has_asked() {
        // The answers that the client gave go nowhere now, and what came before them is not done twice.
        return Err(Attempt::Failed(Failure::lost(&transport::Error::Broken)).into());
    } else if client.revision().is_modern()
        && forward.method.may_ask()
        && !forward.server.declared(client.profile()).asks_nothing()
        && let Toward::Leg(leg) = toward
    {
        // The server asks by requests of its own, and this client is asked by results: the call must wait without it.
        return Err(Stop::Park(leg.hand_over()));
    }
    forward.task.at(&forward.server, connection).map_err(Stop::Refused)
}

/// What a request says of its client.
fn terms(client: &Client, server: &Server, toward: &Toward<'_>) -> Terms {
    let mut terms = match toward {
        Toward::Leg(leg) => client.terms(leg.mailbox()),
        Toward::Parked(parked) => Terms { account: Some(parked.account().clone()), ..client.terms(client.mailbox()) },
    };
    terms.profile = server.declared(terms.profile);
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
    /// The server's revision.
    version: ProtocolVersion,
    plan: Plan,
    terms: Terms,
    _lane: Option<OwnedSemaphorePermit>,
    _stay: Option<Stay>,
}

/// A call that was sent once, and what came of that.
struct Round {
    id: u64,
    exchange: Exchange,
    outcome: Outcome,
}

/// Puts the questions in a server's result to a client with a session; what the call goes on with.
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
    let next = course.driver.round(&stage, result, &forward.params).await.map_err(Attempt::Failed)?;
    // The clock stops while a person is asked.
    course.end += asked.elapsed();
    Ok(next)
}

/// Why a call does not go on as it was.
enum Stop {
    Attempt(Attempt),
    /// It cannot be had as it was asked for.
    Refused(ErrorObject),
    /// It must go on in a task of its own.
    Park(Handover),
}

impl From<Attempt> for Stop {
    fn from(attempt: Attempt) -> Self {
        Self::Attempt(attempt)
    }
}

/// Members of params that only servers without a session know.
const ANSWERS: [&str; 2] = ["inputResponses", "requestState"];

/// The params as they go out: raw names, our progress token, and none of the protocol's own keys in `_meta`. Also the
/// client's progress token. `answers`: the params with answers to a server without a session in. `modern`: whether the
/// client is of that era, and whether the server is.
fn outgoing(forward: &Forward, answers: Option<&Raw>, modern: (bool, bool), id: u64) -> (Raw, Option<Raw>) {
    let (params, token) = dressed(forward, modern == (false, false), id);
    let params = match answers {
        Some(answers) => ANSWERS.iter().fold(params, |params, name| match answers.member(name) {
            Some(value) => params.with_member(name, value.as_bytes()),
            None => params.without_member(name),
        }),
        None if modern == (true, false) && params.members(ANSWERS).iter().any(Option::is_some) => {
            ANSWERS.iter().fold(params, |params, name| params.without_member(name))
        }
        None => params,
    };
    // A server without a session decides by itself what runs as a task.
    let params = if modern.1 && forward.task != Plan::Theirs { params.without_member("task") } else { params };
    (params, token)
}

/// The params under the server's own name for the target, with our progress token in their `_meta`.
fn dressed(forward: &Forward, both_legacy: bool, id: u64) -> (Raw, Option<Raw>) {
    let mut edits = Edits::new(&forward.params);
    if forward.named.string().as_deref() != Some(&*forward.target) {
        edits.replace_part(&forward.named, Raw::from_value(&*forward.target).as_bytes().to_vec());
    }
    // A call has our own watchdog, which progress feeds.
    let always = forward.method == Method::ToolsCall;
    match &forward.meta {
        None if always => edits.append("_meta", format!(r#"{{"progressToken":{id}}}"#).as_bytes()),
        Some(meta) if meta.is_object() => {
            let token = meta.member("progressToken");
            let ours = (always || token.is_some()).then(|| id.to_string());
            match adapt::request_meta(Some(meta), ours.as_deref(), both_legacy, trace) {
                Some(new) if new == *meta => {}
                Some(new) => edits.replace_part(meta, new.as_bytes().to_vec()),
                None => edits.remove(forward.params.as_value(), "_meta"),
            }
            return (edits.apply(), token);
        }
        _ => {}
    }
    (edits.apply(), None)
}

fn trace() -> adapt::Trace {
    let mut bytes = [0; 24];
    // Without randomness the ids are poor, and nothing else.
    let _ = getrandom::fill(&mut bytes);
    adapt::Trace::from_random(bytes)
}
