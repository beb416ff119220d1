//! A request of ours that a server is working on: waits for the answer, hands on what comes before it, keeps the clocks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::Mailbox;
use super::answer::Failure;
use super::client::Client;
use super::missed::Said;
use super::park::Parked;
use super::question::{self, log};
use super::tasks;
use crate::adapt;
use crate::manager::Server;
use crate::protocol::{Message, Method, Notification, Outcome, Raw, RequestId};
use crate::transport;
use crate::upstream::{Ask, Connection, Exchange, Item, Upstream, Vigil};

/// Where what a call has to say before its answer goes.
pub(super) enum Toward<'a> {
    /// To the stream of the one request that it serves.
    Leg(Leg<'a>),
    /// To the request that waits for it at the moment, if one does: the call of a client without a session.
    Parked(Arc<Parked>),
}

/// The stream of one request.
pub(super) struct Leg<'a> {
    client: &'a Arc<Client>,
    leg: &'a Arc<Mailbox>,
    progress: Rising,
    /// The task that all of it belongs to, as the client knows it.
    task: Option<Arc<str>>,
}

/// Progress under the client's own token: values that do not increase are dropped.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// The client's token, as JSON.
    pub(super) token: Option<Raw>,
    last: Option<f64>,
}

/// The stream of a request whose call goes on in a task of its own, and what was said on it of progress.
pub(super) struct Handover {
    pub(super) leg: Arc<Mailbox>,
    pub(super) progress: Rising,
}

/// By so much a sign of life of our own is more than what was said before it.
const TICK: f64 = 1e-6;

/// Why there is no answer.
pub(super) enum Attempt {
    /// The transport lost the request or its answer.
    Lost(transport::Error),
    Failed(Failure),
}

/// What is kept of a call while it runs.
pub(super) struct Running<'a, 'b> {
    pub(super) toward: &'a mut Toward<'b>,
    pub(super) server: &'a Arc<Server>,
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) answered: Option<Arc<Notify>>,
    /// How long it may be silent.
    pub(super) idle: Duration,
    /// How long a person may take to answer.
    pub(super) patience: Duration,
    /// Nothing of it may run longer.
    pub(super) end: Instant,
    pub(super) vigil: &'a Vigil,
}

impl Rising {
    pub(super) fn new(token: Option<Raw>) -> Self {
        Self { token, last: None }
    }

    /// The same, under that token if it has none yet.
    pub(super) fn under(self, token: Option<Raw>) -> Self {
        Self { token: self.token.or(token), ..self }
    }

    /// The same without the message that the token came in: for what is kept longer than the call.
    pub(super) fn detached(self) -> Self {
        Self { token: self.token.as_ref().map(Raw::detached), ..self }
    }

    /// How much it holds.
    pub(super) fn weight(&self) -> usize {
        self.token.as_ref().map_or(0, |token| token.as_bytes().len())
    }

    /// The notification to send, if one is due.
    pub(super) fn step(&mut self, params: &Raw) -> Option<Message> {
        let token = self.token.as_ref()?;
        let value = params.member("progress").and_then(|value| value.read::<f64>().ok());
        self.last = Some(value.filter(|value| self.last.is_none_or(|last| *value > last))?);
        let params = Some(adapt::notice(params.clone()).with_member("progressToken", token.as_bytes()));
        Some(Message::Notification(Notification { method: Method::Progress, params }))
    }

    /// A sign of life between two rounds of questions: many clients give up on a call that is silent for a minute. It rises
    /// by so little that what the server says next is more; one that has said nothing yet may begin with 0.
    pub(super) fn tick(&mut self) -> Option<Message> {
        let next = match self.last {
            None => -TICK,
            Some(last) if last < 0.0 => last + TICK.min(last / -2.0),
            Some(last) => (last + TICK).max(last.next_up()),
        };
        self.step(&Raw::trusted(format!(r#"{{"progressToken":0,"progress":{next}}}"#).into()))
    }
}

impl Leg<'_> {
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        self.leg
    }

    /// Leaves the stream to whoever serves it from now on.
    pub(super) fn hand_over(&mut self) -> Handover {
        Handover { leg: self.leg.clone(), progress: std::mem::take(&mut self.progress) }
    }
}

impl<'a> Toward<'a> {
    /// To the stream of a request.
    pub(super) fn leg(client: &'a Arc<Client>, leg: &'a Arc<Mailbox>) -> Self {
        Self::Leg(Leg { client, leg, progress: Rising::default(), task: None })
    }

    /// The same for a request about a task.
    pub(super) fn about(self, task: &Arc<str>) -> Self {
        match self {
            Self::Leg(leg) => Self::Leg(Leg { task: Some(task.clone()), ..leg }),
            parked @ Self::Parked(_) => parked,
        }
    }

    /// Under which token the client hears of progress.
    pub(super) fn set_token(&mut self, token: Option<Raw>) {
        if let Self::Leg(leg) = self
            && leg.progress.token.is_none()
        {
            leg.progress.token = token;
        }
    }

    /// What was said of progress so far; nothing of it is said here any more.
    pub(super) fn take_progress(&mut self) -> Rising {
        match self {
            Self::Leg(leg) => std::mem::take(&mut leg.progress),
            Self::Parked(_) => Rising::default(),
        }
    }

    /// Waits for something else, and hands on what the server says of its request meanwhile.
    pub(super) async fn hear_until<T>(
        &mut self,
        server: &Server,
        exchange: &mut Exchange,
        other: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                item = exchange.next() => match item {
                    Item::Progress(params) => self.progress(&params),
                    Item::Log(params) => self.log(server, &params),
                    Item::Ask(_) | Item::HangUp(_) | Item::Withdrawn(_) | Item::Done(_) | Item::Lost(_) => {}
                },
                done = &mut other => return done,
            }
        }
    }

    fn progress(&mut self, params: &Raw) {
        match self {
            Self::Leg(Leg { leg, progress, .. }) => {
                if let Some(message) = progress.step(params) {
                    leg.put(message);
                }
            }
            Self::Parked(parked) => parked.tell(Said::Progress(params.clone())),
        }
    }

    /// Shows the client that its call lives.
    pub(super) fn tick(&mut self) {
        if let Self::Leg(Leg { leg, progress, .. }) = self
            && let Some(message) = progress.tick()
        {
            leg.put(message);
        }
    }

    fn log(&self, server: &Server, params: &Raw) {
        match self {
            Self::Leg(Leg { client, leg, .. }) => log(client, leg, server, params),
            Self::Parked(parked) => parked.tell(Said::Log(params.clone())),
        }
    }

    /// Puts a question of the server to the client.
    fn ask(&self, call: u64, ask: Ask, running: (&Arc<Server>, &Arc<Upstream>, &Arc<Notify>)) {
        let (server, upstream, answered) = running;
        match self {
            Self::Leg(Leg { client, leg, task, .. }) => {
                let ask = match task {
                    Some(task) => tasks::question_of(ask, task),
                    None => ask,
                };
                question::put(client, server, upstream, ask, Some((call, leg)), Some(answered.clone()));
            }
            Self::Parked(parked) => parked.ask(upstream, ask),
        }
    }

    fn is_asked(&self, call: u64) -> bool {
        match self {
            Self::Leg(Leg { client, .. }) => client.is_asked(call),
            Self::Parked(parked) => parked.is_asked(),
        }
    }

    fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        match self {
            Self::Leg(Leg { client, .. }) => client.withdraw(connection, id),
            Self::Parked(parked) => parked.withdraw(connection, id),
        }
    }

    /// Nobody answered in time; false if the call is to end with that.
    fn give_up_asking(&self, call: u64) -> bool {
        match self {
            Self::Leg(Leg { client, .. }) => {
                client.drop_asks(call, question::unanswered);
                true
            }
            Self::Parked(parked) => {
                parked.expire();
                false
            }
        }
    }
}

impl Running<'_, '_> {
    /// Waits for the answer, and hands on what comes before it. The clock of `callTimeout` starts anew with each progress
    /// and stops while a person is asked.
    pub(super) async fn wait(&mut self, id: u64, exchange: &mut Exchange) -> Result<Outcome, Attempt> {
        let idle = self.idle;
        let mut asked_at: Option<Instant> = None;
        let mut awake = self.vigil.mark();
        let clock = tokio::time::sleep_until((Instant::now() + idle).min(self.end));
        tokio::pin!(clock);
        let _asks = match self.toward {
            Toward::Leg(Leg { client, .. }) => AskGuard::new(client, id),
            Toward::Parked(parked) => AskGuard::Parked(parked.clone(), self.connection.clone()),
        };
        loop {
            let answered = self.answered.clone();
            let item = tokio::select! {
                biased;
                item = exchange.next() => item,
                () = notified(answered.as_deref()) => {
                    if !self.toward.is_asked(id) {
                        self.end += asked_at.take().map_or(Duration::ZERO, |at| at.elapsed());
                        reset(clock.as_mut(), idle, self.end);
                    }
                    continue;
                }
                () = &mut clock => {
                    // Time that was slept through is nobody's silence.
                    let (slept, now) = self.vigil.slept_since(awake);
                    if !slept.is_zero() {
                        awake = now;
                        self.end += slept;
                        let due = clock.deadline() + slept;
                        clock.as_mut().reset(due);
                        continue;
                    }
                    if !self.toward.is_asked(id) {
                        return Err(Attempt::Failed(self.too_late()));
                    }
                    if !self.toward.give_up_asking(id) {
                        return Err(Attempt::Failed(Failure::nobody_answered(self.patience)));
                    }
                    self.end += asked_at.take().map_or(Duration::ZERO, |at| at.elapsed());
                    reset(clock.as_mut(), idle, self.end);
                    continue;
                }
            };
            match item {
                Item::Progress(params) => {
                    if !self.toward.is_asked(id) {
                        reset(clock.as_mut(), idle, self.end);
                    }
                    self.toward.progress(&params);
                }
                Item::Log(params) => self.toward.log(self.server, &params),
                Item::Ask(ask) => {
                    let at = *asked_at.get_or_insert_with(Instant::now);
                    clock.as_mut().reset(at + self.patience);
                    let answered = match self.toward {
                        Toward::Parked(parked) => parked.answered().clone(),
                        Toward::Leg(_) => self.answered.clone().unwrap_or_default(),
                    };
                    self.answered = Some(answered.clone());
                    self.toward.ask(id, ask, (self.server, self.upstream, &answered));
                    if !self.toward.is_asked(id) {
                        asked_at = None;
                        reset(clock.as_mut(), idle, self.end);
                    }
                }
                Item::HangUp(retry) => {
                    if let Toward::Leg(Leg { leg, .. }) = self.toward {
                        leg.hang_up(retry);
                    }
                }
                Item::Withdrawn(ask) => {
                    self.toward.withdraw(self.connection, &ask);
                    if asked_at.is_some() && !self.toward.is_asked(id) {
                        // It is the server's time again.
                        self.end += asked_at.take().map_or(Duration::ZERO, |at| at.elapsed());
                        reset(clock.as_mut(), idle, self.end);
                    }
                }
                Item::Done(outcome) => return Ok(outcome),
                Item::Lost(error) => return Err(Attempt::Lost(error)),
            }
        }
    }

    /// Which of its clocks ran out.
    fn too_late(&self) -> Failure {
        let config = &self.server.config;
        if Instant::now() < self.end {
            Failure::timeout(config.call_timeout, "callTimeout")
        } else {
            Failure::timeout(config.max_call_time, "maxCallTime")
        }
    }
}

/// However a call ends, its open questions are taken back.
pub(super) enum AskGuard {
    /// Those of that call.
    Client(Arc<Client>, u64),
    /// Those of that connection.
    Parked(Arc<Parked>, Arc<Connection>),
}

impl AskGuard {
    pub(super) fn new(client: &Arc<Client>, call: u64) -> Self {
        Self::Client(client.clone(), call)
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        match self {
            Self::Client(client, call) => client.drop_asks(*call, drop),
            Self::Parked(parked, connection) => parked.leaves(connection),
        }
    }
}

fn reset(clock: std::pin::Pin<&mut Sleep>, limit: Duration, end: Instant) {
    clock.reset((Instant::now() + limit).min(end));
}

async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}
