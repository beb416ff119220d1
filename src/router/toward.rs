//! Where what a call has to say before its answer goes: to the stream of its request, or to whoever waits for it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::client::Client;
use super::missed::Said;
use super::parked::Parked;
use super::question::{self, log};
use super::rising::Rising;
use super::{Mailbox, put};
use crate::config::Limits;
use crate::manager::Server;
use crate::protocol::{Raw, RequestId};
use crate::upstream::{Ask, Connection, Exchange, Item, Upstream};

/// Where what a call has to say before its answer goes.
pub(super) enum Toward<'a> {
    /// To the stream of the one request that it serves.
    Leg(Leg<'a>),
    /// To the request that waits for it at the moment, if one does: the call of a client without a session.
    Parked(Arc<Parked>),
}

/// The stream of one request.
pub(super) struct Leg<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) leg: &'a Arc<Mailbox>,
    progress: Rising,
    /// The task that all of it belongs to, as the client knows it.
    task: Option<Arc<str>>,
}

/// The stream of a request whose call goes on in a task of its own, and what was said on it of progress.
pub(super) struct Handover {
    pub(super) leg: Arc<Mailbox>,
    pub(super) progress: Rising,
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

    /// The limits that hold for the call.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            Self::Leg(leg) => leg.leg.limits(),
            Self::Parked(parked) => &parked.limits,
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

    /// The server tells how far it is.
    pub(super) fn progress(&mut self, params: &Raw) {
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

    /// The server writes a log line.
    pub(super) fn log(&self, server: &Server, params: &Raw) {
        match self {
            Self::Leg(Leg { client, leg, .. }) => log(client, leg, server, params),
            Self::Parked(parked) => parked.tell(Said::Log(params.clone())),
        }
    }

    /// Puts a question of the server to the client.
    pub(super) fn ask(&self, call: u64, ask: Ask, running: (&Arc<Server>, &Arc<Upstream>, &Arc<Notify>)) {
        let (server, upstream, answered) = running;
        match self {
            Self::Leg(Leg { client, leg, task, .. }) => {
                let ask = match task {
                    Some(task) => question::of_task(ask, task),
                    None => ask,
                };
                put::put(client, server, upstream, ask, Some((call, leg)), Some(answered.clone()));
            }
            Self::Parked(parked) => parked.ask(upstream, ask),
        }
    }

    /// Whether the client has questions of the call.
    pub(super) fn is_asked(&self, call: u64) -> bool {
        match self {
            Self::Leg(Leg { client, .. }) => client.is_asked(call),
            Self::Parked(parked) => parked.is_asked(),
        }
    }

    /// The server wants no answer to a question any more.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        match self {
            Self::Leg(Leg { client, .. }) => client.withdraw(connection, id),
            Self::Parked(parked) => parked.withdraw(connection, id),
        }
    }

    /// Nobody answered in time; false if the call is to end with that.
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
