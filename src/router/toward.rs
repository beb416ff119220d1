//! Where the messages that a call sends before its answer go: to the stream of its request or, for a parked call, to
//! the request that waits for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::heart::Wait;
use super::missed::CallNotice;
use super::parked::Parked;
use super::question::{self, log};
use super::rising::Rising;
use super::{Mailbox, put};
use crate::config::Limits;
use crate::counts::Count;
use crate::manager::Server;
use crate::protocol::{Raw, RequestId};
#[cfg(feature = "otel")]
use crate::traced::Traced;
use crate::upstream::{Ask, Connection, Exchange, Item, Upstream};

/// Where the messages that a call sends before its answer go.
pub(super) enum Toward<'a> {
    /// To the stream of the call's only request.
    Leg(Leg<'a>),
    /// To the request that waits at the moment for this parked call, if one does.
    Parked(Arc<Parked>),
}

/// The stream of one request (its leg), and what is needed to write to it.
pub(super) struct Leg<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) leg: &'a Arc<Mailbox>,
    progress: Rising,
    /// The id, as the client knows it, of the task that the request is about.
    task: Option<Arc<str>>,
}

/// The stream of a request whose call is being parked, and the progress sent on it so far.
pub(super) struct Handover {
    pub(super) leg: Arc<Mailbox>,
    pub(super) progress: Rising,
}

impl Leg<'_> {
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        self.leg
    }

    /// Hands the stream over to a parked call.
    pub(super) fn hand_over(&mut self) -> Handover {
        Handover { leg: self.leg.clone(), progress: std::mem::take(&mut self.progress) }
    }
}

impl<'a> Toward<'a> {
    /// Sends messages to the stream of a request.
    pub(super) fn leg(client: &'a Arc<Client>, leg: &'a Arc<Mailbox>) -> Self {
        Self::Leg(Leg { client, leg, progress: Rising::default(), task: None })
    }

    /// Sets after how much silence the client gets a heartbeat (`heart.rs`); never, if that is 0.
    pub(super) fn beating(self, every: Duration) -> Self {
        match self {
            Self::Leg(leg) => Self::Leg(Leg { progress: leg.progress.beating(every), ..leg }),
            parked @ Self::Parked(_) => parked,
        }
    }

    /// Says that the request is about a task, so that the task's questions name it.
    pub(super) fn about(self, task: &Arc<str>) -> Self {
        match self {
            Self::Leg(leg) => Self::Leg(Leg { task: Some(task.clone()), ..leg }),
            parked @ Self::Parked(_) => parked,
        }
    }

    /// Returns the mailbox of the call's only request; `None` if the call is parked.
    pub(super) fn mailbox(&self) -> Option<&'a Arc<Mailbox>> {
        match self {
            Self::Leg(leg) => Some(leg.leg),
            Self::Parked(_) => None,
        }
    }

    /// Returns the place of the call in a trace, if it has one.
    #[cfg(feature = "otel")]
    pub(super) fn traced(&self) -> Option<Arc<Traced>> {
        match self {
            Self::Leg(leg) => leg.leg.subject()?.traced().cloned(),
            Self::Parked(parked) => parked.traced.clone(),
        }
    }

    /// Returns the limits for the call.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            Self::Leg(leg) => leg.leg.limits(),
            Self::Parked(parked) => &parked.limits,
        }
    }

    /// Sets the progress token under which the client gets progress, unless one is set already.
    pub(super) fn set_token(&mut self, token: Option<Raw>) {
        if let Self::Leg(leg) = self
            && leg.progress.token.is_none()
        {
            leg.progress.token = token;
        }
    }

    /// Says that progress comes from another server from now on.
    pub(super) fn another_server(&mut self) {
        if let Self::Leg(leg) = self {
            leg.progress.another_server();
        }
    }

    /// Takes the progress state out. From now on no progress is sent to this stream.
    pub(super) fn take_progress(&mut self) -> Rising {
        match self {
            Self::Leg(leg) => std::mem::take(&mut leg.progress),
            Self::Parked(_) => Rising::default(),
        }
    }

    /// Waits for `other`. Meanwhile passes on the progress and log messages that the server sends for its request
    /// (`exchange`), and sends heartbeats.
    pub(super) async fn hear_until<T>(
        &mut self,
        server: &Server,
        exchange: &mut Exchange,
        other: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(other);
        loop {
            let beat = self.next_beat();
            tokio::select! {
                biased;
                item = exchange.next() => match item {
                    Item::Progress(params) => self.progress(&params),
                    Item::Log(params) => self.log(server, &params),
                    Item::Ask(_) | Item::HangUp(_) | Item::Withdrawn(_) | Item::Done(_) | Item::Lost(_) => {}
                },
                done = &mut other => return done,
                () = sleep_until(beat.unwrap_or_else(Instant::now)), if beat.is_some() => {
                    self.beat(server, Wait::Server);
                }
            }
        }
    }

    /// Passes on a progress notification from the server.
    pub(super) fn progress(&mut self, params: &Raw) {
        match self {
            Self::Leg(Leg { leg, progress, .. }) => {
                if let Some(subject) = leg.subject() {
                    subject.progress(params);
                }
                if let Some(message) = progress.step(params) {
                    leg.put(message);
                }
            }
            Self::Parked(parked) => {
                #[cfg(feature = "otel")]
                if let Some(traced) = &parked.traced {
                    traced.event("progress");
                }
                parked.tell(CallNotice::Progress(params.clone()));
            }
        }
    }

    /// Sends progress of mcp-host itself, to show the client that its call is alive.
    pub(super) fn tick(&mut self) {
        if let Self::Leg(Leg { leg, progress, .. }) = self
            && let Some(message) = progress.tick()
        {
            leg.put(message);
        }
    }

    /// Starts the clock of the heartbeats, unless it runs. Returns when the next one is due; `None` if there are none.
    pub(super) fn start_heart(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Leg(leg) => leg.progress.start_heart(now),
            // The requests that attend a parked call have heartbeats of their own.
            Self::Parked(_) => None,
        }
    }

    /// Returns when the next heartbeat is due; `None` if the clock does not run.
    pub(super) fn next_beat(&self) -> Option<Instant> {
        match self {
            Self::Leg(leg) => leg.progress.next_beat(),
            Self::Parked(_) => None,
        }
    }

    /// Sends a heartbeat, if one is due now.
    pub(super) fn beat(&mut self, server: &Server, wait: Wait) {
        if let Self::Leg(Leg { leg, progress, .. }) = self
            && let Some(message) = progress.beat(&server.config.name, wait)
        {
            server.counts().one(Count::Heartbeats);
            leg.put(message);
        }
    }

    /// Returns the parked call that the messages go to, if they do.
    pub(super) fn parked(&self) -> Option<&Arc<Parked>> {
        match self {
            Self::Leg(_) => None,
            Self::Parked(parked) => Some(parked),
        }
    }

    /// Passes on a log message from the server.
    pub(super) fn log(&self, server: &Server, params: &Raw) {
        match self {
            Self::Leg(Leg { client, leg, .. }) => log(client, leg, server, params),
            Self::Parked(parked) => parked.tell(CallNotice::Log(params.clone())),
        }
    }

    /// Puts a question from the server to the client.
    pub(super) fn ask(&self, call: u64, ask: Ask, running: (&Arc<Server>, &Arc<Upstream>, &Arc<Notify>)) {
        let (server, upstream, answered) = running;
        match self {
            Self::Leg(Leg { client, leg, task, .. }) => {
                if let Some(subject) = leg.subject() {
                    subject.was_asked();
                }
                let ask = match task {
                    Some(task) => question::of_task(ask, task),
                    None => ask,
                };
                put::put(client, server, upstream, ask, Some((call, leg)), Some(answered.clone()));
            }
            Self::Parked(parked) => {
                #[cfg(feature = "otel")]
                if let Some(traced) = &parked.traced {
                    traced.event("question");
                }
                parked.ask(upstream, ask);
            }
        }
    }

    /// Reports whether the client has open questions of the call.
    pub(super) fn is_asked(&self, call: u64) -> bool {
        match self {
            Self::Leg(Leg { client, .. }) => client.is_asked(call),
            Self::Parked(parked) => parked.is_asked(),
        }
    }

    /// Takes back a question that the server withdrew.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        match self {
            Self::Leg(Leg { client, .. }) => client.withdraw(connection, id),
            Self::Parked(parked) => parked.withdraw(connection, id),
        }
    }

    /// Gives up the questions that no person answered in time, and answers them to the server. Returns false if the
    /// call ends, too.
    pub(super) fn give_up_asking(&self, call: u64) -> bool {
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
