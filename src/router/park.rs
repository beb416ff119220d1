//! Parked calls: a server with a session asks something while it works for a client without one (`docs/bridging.md` 5.2).
//!
//! The request of the client is answered with the questions (`input_required`) and ends; the call goes on here, waiting. The
//! client's next request brings the answers, which go to the server as the answers to its own requests, and is from then on
//! the one that the call serves. **Invariant:** no answer reaches a server twice, and each round of a call has one result,
//! however often the client asks for it.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Failure;
use super::client::{Client, Guard};
use super::forward::{Course, Forward};
use super::parked::{Attending, Inner, Parked, Table, weight};
use super::rising::Rising;
use super::state::{Sealer, State, expired};
use super::toward::{Handover, Toward};
use super::{Mailbox, Router, relay};
use crate::answered::{Answered, NoResult};
use crate::protocol::{Method, Outcome, RequestId};

/// Servers ask several things side by side: that long after the first one more are gathered.
const GATHER: Duration = Duration::from_millis(25);
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
        let limits = forward.limits.clone();
        let limit = limits.parked;
        if table.lock().len() >= limit {
            return Err(Failure::parked(limit).of_host());
        }
        let number = table.count.fetch_add(1, Ordering::Relaxed) + 1;
        // It holds its client, which has no session to be held by.
        let id = RequestId::Text(format!("parked {number}").into());
        let Ok(guard) = client.begin(&id, &leg, limits.pending_per_client) else {
            return Err(Failure::client_limit(limits.pending_per_client).of_host());
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
            limits,
        });
        table.lock().insert(number, parked.clone());
        // A server with a session does not know them: they may be answers to what it has not asked yet.
        parked.lock().early = forward.params.member("inputResponses");
        let attending = parked.enter(0, client, &leg, progress.under(forward.token()));
        self.0.tasks.spawn(serve(self.clone(), client.clone(), (forward, course), parked.clone(), guard));
        parked.attend(table, &self.0.sealer, 0, attending).await
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
            self.0.clients.apply_level(&parked.server, &upstream);
            upstream.level_told().await;
        }
        for (ask, value) in answers {
            if ask.method == Method::RootsList {
                parked.keep_roots(client, &value);
            }
            ask.answer(Ok(value));
        }
        parked.answered.notify_one();
        parked.attend(&self.0.parked, &self.0.sealer, round, attending).await
    }
}

impl Parked {
    /// Waits for the result of a round.
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
                Look::Nothing => news.await,
            }
        }
    }

    fn result_of(&self, table: &Table, sealer: &Sealer, round: u32) -> Look {
        // Before the call is locked: the others are locked to be counted.
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

    /// The result that sends the client away with the open questions.
    fn input_required(&self, sealer: &Sealer, inner: &Inner) -> Outcome {
        let state = State::Parked { call: self.number, round: inner.round + 1 };
        let sealed = sealer.seal_state(&self.principal, state, &self.digest, self.limits.answer)?;
        let open = inner.open.iter();
        Ok(relay::input_required(open.map(|(key, ask)| (&**key, &ask.method, ask.params.as_ref())), &sealed))
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
                    (_, 0) => parked.limits.answer,
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
