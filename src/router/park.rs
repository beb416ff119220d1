//! Parked calls: a server with sessions asks something while it works for a client without a session
//! (`docs/bridging.md` 5.2).
//!
//! The client's request is answered with the questions (`input_required`) and ends, while the call waits here. The
//! client's next request brings the answers, which go to the server as responses to its own requests. From then on that
//! next request gets what the call brings. **Invariant:** no answer reaches a server twice, and each round of a call
//! has one result, however often the client asks for it.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Failure;
use super::background::Background;
use super::client::{Client, Guard};
use super::clients::Clients;
use super::forward::Forward;
use super::parked::{Attending, Inner, Parked, Table, weight};
use super::rising::Rising;
use super::state::{Sealer, State, expired};
use super::toward::Handover;
use super::{Mailbox, relay};
use crate::answered::{Answered, NoResult};
use crate::protocol::{Method, Outcome, RequestId};
use crate::queues::Queues;

/// How long mcp-host waits for further questions after the first one, since servers ask several things concurrently.
const GATHER: Duration = Duration::from_millis(25);
/// How long a call's last result is kept if a request is there to take it.
const LINGER: Duration = Duration::from_secs(30);

/// Parks calls, and leads requests that bring answers to the call that they continue.
#[derive(Debug)]
pub(super) struct ParkedCalls {
    pub(super) table: Arc<Table>,
    pub(super) clients: Arc<Clients>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) queues: Queues,
    pub(super) background: Background,
}

impl ParkedCalls {
    /// Parks a call. The request that began it waits for (*attends*) it first. The returned guard counts the call as a
    /// request in flight, which keeps the client from being closed as idle.
    pub(super) fn begin(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        Handover { leg, progress }: Handover,
    ) -> Result<(Arc<Parked>, Guard, Attending), NoResult> {
        let limits = forward.limits.clone();
        let limit = limits.parked;
        if self.table.lock().len() >= limit {
            return Err(Failure::parked(limit).of_host());
        }
        let number = self.table.count.fetch_add(1, Ordering::Relaxed) + 1;
        // The call is registered as a request of its client, which has no session to keep it open.
        let id = RequestId::Text(format!("parked {number}").into());
        let Ok(guard) = client.begin(&id, &leg, limits.pending_per_client) else {
            return Err(Failure::client_limit(limits.pending_per_client).of_host());
        };
        let account = self.queues.account();
        #[cfg(feature = "otel")]
        let traced = leg.subject().and_then(|subject| subject.traced().cloned());
        #[cfg(feature = "otel")]
        if let Some(traced) = &traced {
            traced.is_parked();
        }
        let parked = Arc::new(Parked {
            number,
            principal: client.principal().clone(),
            bound: client.bound().clone(),
            digest: forward.digest().to_owned(),
            server: forward.server.clone(),
            permit: forward.permit,
            declared: forward.server.declared(&client.who),
            who: client.who_with(forward.roots.clone()),
            inner: Mutex::new(Inner::of(&account)),
            news: Notify::new(),
            answered: Arc::default(),
            cancel: CancellationToken::new(),
            account,
            limits,
            #[cfg(feature = "otel")]
            traced,
        });
        self.table.lock().insert(number, parked.clone());
        // A server with sessions does not know this member. It may hold answers to questions that the server has not
        // asked yet.
        parked.lock().early = forward.params.member("inputResponses");
        let attending = parked.enter(0, client, &leg, progress.under(forward.token()));
        Ok((parked, guard, attending))
    }

    /// Returns the number of the question whose yes allowed a parked call; `None` if no person was asked, or the call
    /// is gone.
    pub(super) fn permit_of(&self, number: u64) -> Option<u64> {
        self.table.lock().get(&number)?.permit
    }

    /// Continues a parked call with the answers in the client's new request, and waits for the result of its next
    /// round.
    pub(super) async fn resume(
        &self,
        client: &Arc<Client>,
        (number, round): (u64, u32),
        forward: &Forward,
        (leg, progress): (&Arc<Mailbox>, Rising),
    ) -> Answered {
        let parked = self.table.lock().get(&number).cloned();
        let parked = parked.filter(|parked| parked.principal == *client.principal()).ok_or_else(expired)?;
        let answers = parked.take(round, forward.params.member("inputResponses"))?;
        let attending = parked.enter(round, client, leg, progress.under(forward.token()));
        let upstream = parked.lock().upstream.clone().filter(|_| leg.level().is_some());
        if let Some(upstream) = upstream {
            self.clients.apply_level(&parked.server, &upstream);
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

    /// Waits for the result of a round: the answer, or the next questions.
    pub(super) async fn attend(&self, parked: &Arc<Parked>, round: u32, attending: Attending) -> Answered {
        parked.attend(&self.table, &self.sealer, round, attending).await
    }

    /// Runs a parked call until it has ended and its last result has been kept long enough. `work` is the call itself.
    pub(super) async fn run(&self, parked: &Parked, guard: &Guard, work: Pin<&mut impl Future<Output = Answered>>) {
        let mut work = pin!(async {
            parked.end(work.await);
            // A client that was sent away with questions may miss the last result and ask for it again. A client that
            // never was cannot.
            let patience = {
                let inner = parked.lock();
                match (inner.round, inner.attending) {
                    (0, _) => return,
                    (_, 0) => parked.limits.answer,
                    _ => LINGER,
                }
            };
            tokio::time::sleep(patience).await;
        });
        tokio::select! {
            biased;
            // Checked before the work, since the lease that the work runs on may end with the cancellation.
            () = parked.cancel.cancelled() => {}
            () = &mut work => {}
            () = parked.account.cut() => {}
            () = guard.cancelled() => {}
            () = self.background.stop().cancelled() => {}
        }
        self.table.lock().remove(&parked.number);
        // Open questions of the server are answered before its call is cancelled.
        parked.expire();
        parked.end(Err(expired().into()));
    }
}

impl Parked {
    /// Waits for the result of a round: the answer, or the next questions.
    async fn attend(
        self: &Arc<Self>,
        table: &Table,
        sealer: &Sealer,
        round: u32,
        mut attending: Attending,
    ) -> Answered {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.result_of(table, sealer, round) {
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
                Look::Nothing => match self.beat(&attending) {
                    Some(due) => {
                        tokio::select! {
                            biased;
                            () = news => {}
                            () = tokio::time::sleep_until(due) => {}
                        }
                    }
                    None => news.await,
                },
            }
        }
    }

    /// Sends a heartbeat to the attending request, if one is due. Returns when its next one is due.
    fn beat(&self, attending: &Attending) -> Option<Instant> {
        self.lock().audience.beat(&attending.leg, &self.server)
    }

    fn result_of(&self, table: &Table, sealer: &Sealer, round: u32) -> Look {
        // This comes before this call is locked, since it locks the other calls to count them.
        table.make_way(&self.principal, self.number, self.limits.parked_per_principal);
        let mut inner = self.lock();
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
        let answered = self.input_required(sealer, &inner).map_err(NoResult::from);
        inner.round += 1;
        inner.since = None;
        inner.audience.send_away();
        inner.away = Some(Instant::now());
        inner.keep(round, answered.clone());
        drop(inner);
        self.news.notify_waiters();
        Look::Result(answered)
    }

    /// Returns the `input_required` result that sends the client away with the open questions.
    fn input_required(&self, sealer: &Sealer, inner: &Inner) -> Outcome {
        let state = State::Parked { call: self.number, round: inner.round + 1 };
        let sealed = sealer.seal_state(&self.bound, state, &self.digest, self.limits.answer)?;
        let open = inner.open.iter();
        Ok(relay::input_required(open.map(|(key, ask)| (&**key, &ask.method, ask.params.as_ref())), &sealed))
    }
}

enum Look {
    Result(Answered),
    Gathering(Instant),
    Nothing,
}
