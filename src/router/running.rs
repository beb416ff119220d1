//! A request of ours that a server is working on: waits for the answer, hands on what comes before it, keeps the clocks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::answer::Failure;
use super::ask_guard::AskGuard;
use super::toward::{Leg, Toward};
use crate::manager::Server;
use crate::protocol::Outcome;
use crate::transport;
use crate::upstream::{Connection, Exchange, Item, Upstream, Vigil};

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

fn reset(clock: std::pin::Pin<&mut Sleep>, limit: Duration, end: Instant) {
    clock.reset((Instant::now() + limit).min(end));
}

async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}
