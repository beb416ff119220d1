//! A request that a server is working on: this waits for the answer, passes on what the server sends before it, and
//! enforces the deadlines.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::answer::Failure;
use super::clocks::{Clocks, Late, Sign};
use super::heart::Wait;
use super::put::AskGuard;
use super::toward::{Leg, Toward};
#[cfg(feature = "otel")]
use crate::answered::Kind;
use crate::manager::Server;
use crate::protocol::{Outcome, Raw, meta};
use crate::transport;
use crate::upstream::{Connection, Exchange, Item, Upstream, Vigil};

/// Why an attempt brought no answer.
pub(super) enum Attempt {
    /// The transport lost the request or its answer.
    Lost(transport::Error),
    Failed(Failure),
}

#[cfg(feature = "otel")]
impl Attempt {
    /// Returns the kind of failure that it is.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Lost(error) => Failure::lost(error).kind(),
            Self::Failed(failure) => failure.kind(),
        }
    }
}

/// A call while it runs on one connection.
pub(super) struct Running<'a, 'b> {
    pub(super) toward: &'a mut Toward<'b>,
    pub(super) server: &'a Arc<Server>,
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) connection: &'a Arc<Connection>,
    /// Woken when the client has answered a question; `None` until the server has asked something.
    pub(super) answered: Option<Arc<Notify>>,
    pub(super) clocks: Clocks,
    /// How long the call may take in all.
    pub(super) most: Duration,
    pub(super) vigil: &'a Vigil,
}

/// What wakes a call.
enum Heard {
    Item(Item),
    /// The client has answered a question.
    Answer,
    /// The deadline passed.
    Due,
}

impl Running<'_, '_> {
    /// Waits for the answer to request `id`, and passes on what the server sends before it. The time for `callTimeout`
    /// restarts with each progress notification and stands still while a person is asked. One timer serves the
    /// deadlines and the heartbeats, so a call needs no second one.
    pub(super) async fn wait(&mut self, id: u64, exchange: &mut Exchange) -> Result<Outcome, Attempt> {
        let mut awake = self.vigil.mark();
        let timer = tokio::time::sleep_until(self.wake());
        tokio::pin!(timer);
        let _asks = match self.toward {
            Toward::Leg(Leg { client, .. }) => AskGuard::new(client, id),
            Toward::Parked(parked) => AskGuard::Parked(parked.clone(), self.connection.clone()),
        };
        loop {
            let wake = self.wake();
            if timer.deadline() != wake {
                timer.as_mut().reset(wake);
            }
            let answered = self.answered.clone();
            let heard = tokio::select! {
                biased;
                item = exchange.next() => Heard::Item(item),
                () = notified(answered.as_deref()) => Heard::Answer,
                () = &mut timer => Heard::Due,
            };
            match heard {
                Heard::Item(Item::Done(outcome)) => return Ok(outcome),
                Heard::Item(Item::Lost(error)) => return Err(Attempt::Lost(error)),
                Heard::Item(item) => self.hand_on(id, item),
                Heard::Answer => {
                    self.step(id, Sign::Settled);
                }
                Heard::Due if Instant::now() < self.clocks.due() => self.beat(id),
                Heard::Due => {
                    let (slept, now) = self.vigil.slept_since(awake);
                    if slept.is_zero() {
                        self.late(id)?;
                    } else {
                        awake = now;
                        self.step(id, Sign::Slept(slept));
                    }
                }
            }
        }
    }

    /// Returns when the call must act next: at its deadline, or for a heartbeat.
    fn wake(&self) -> Instant {
        let due = self.clocks.due();
        self.toward.next_beat().map_or(due, |beat| beat.min(due))
    }

    fn beat(&mut self, id: u64) {
        let wait = if self.toward.is_asked(id) { Wait::Person } else { Wait::Server };
        self.toward.beat(self.server, wait);
    }

    /// Passes on one message that the server sends before its answer.
    fn hand_on(&mut self, id: u64, item: Item) {
        match item {
            Item::Progress(params) => {
                // A heartbeat of the user's own daemon does not show that the server behind it is alive.
                if !self.server.config.daemon || !is_heartbeat(&params) {
                    self.step(id, Sign::Progress);
                }
                self.toward.progress(&params);
            }
            Item::Log(params) => self.toward.log(self.server, &params),
            Item::Ask(ask) => {
                let answered = match self.toward {
                    Toward::Parked(parked) => parked.answered().clone(),
                    Toward::Leg(_) => self.answered.clone().unwrap_or_default(),
                };
                self.answered = Some(answered.clone());
                self.toward.ask(id, ask, (self.server, self.upstream, &answered));
                self.step(id, Sign::Asked);
            }
            Item::HangUp(retry) => {
                if let Toward::Leg(Leg { leg, .. }) = self.toward {
                    leg.hang_up(retry);
                }
            }
            Item::Withdrawn(ask) => {
                self.toward.withdraw(self.connection, &ask);
                self.step(id, Sign::Settled);
            }
            // These end the wait.
            Item::Done(_) | Item::Lost(_) => {}
        }
    }

    fn step(&mut self, id: u64, sign: Sign) -> Option<Late> {
        self.clocks.step(Instant::now(), sign, self.toward.is_asked(id))
    }

    /// Handles a passed deadline. Returns `Ok` if the call goes on, since only its open questions were given up.
    fn late(&mut self, id: u64) -> Result<(), Attempt> {
        let failure = match self.step(id, Sign::Due) {
            None => return Ok(()),
            Some(Late::Silent) => Failure::timeout(self.clocks.idle(), "callTimeout"),
            Some(Late::End) => Failure::timeout(self.most, "maxCallTime"),
            Some(Late::Unanswered) => {
                if self.toward.give_up_asking(id) {
                    self.step(id, Sign::Settled);
                    return Ok(());
                }
                Failure::nobody_answered(self.clocks.patience())
            }
        };
        Err(Attempt::Failed(failure))
    }
}

/// Reports whether progress is a heartbeat of another mcp-host process. Only the user's own daemon can send one.
fn is_heartbeat(params: &Raw) -> bool {
    params.member("_meta").is_some_and(|own| own.member(meta::HEARTBEAT).is_some())
}

async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}
