//! Makes one request to a server for all equal requests in flight (`joined.rs`), and caches its answer (`cache.rs`).
//!
//! The shared request runs in a task of its own, since it may outlive the request that started it. What the server
//! sends before its answer goes into a mailbox of that task. From there, progress goes to all waiting requests, each
//! under its own token; questions and log lines go to the first request only. If the server asks something, all other
//! requests are sent on their own. The same happens if the shared request never reached the server, or became a task.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::Mailbox;
use super::answer::Failure;
use super::cache::Wish;
use super::call::Forwarder;
use super::client::Client;
use super::forward::Forward;
use super::heard::Heard;
use super::heart::Wait;
use super::joined::{Ended, Lead, Seat};
use super::toward::Toward;
use crate::answered::{Answered, Kind, NoResult};
use crate::counts::{Awaited, Count};
use crate::manager::Ticket;
use crate::protocol::{Message, Method, Notification, Raw};

/// The one request that is sent for all waiting requests.
struct Shared {
    client: Arc<Client>,
    forward: Forward,
    heard: Arc<Heard>,
    /// The stream of the request that started it.
    first: Arc<Mailbox>,
    ticket: Option<Ticket>,
    wish: Wish,
    /// Whether it may change what its server answers.
    writes: bool,
}

impl Forwarder {
    /// Asks the server. If `joins` is true and an equal request is in flight, waits for its answer instead.
    pub(super) async fn share(
        self: &Arc<Self>,
        client: &Arc<Client>,
        (forward, writes): (&Forward, bool),
        toward: &mut Toward<'_>,
        (wish, joins): (Wish, bool),
        mut ticket: Option<Ticket>,
    ) -> Answered {
        let Toward::Leg(leg) = &*toward else { return self.run(client, forward, toward, (ticket, None)).await };
        let (leg, first) = (leg.mailbox().clone(), leg.mailbox().clone());
        let (mut seat, lead) = self.joined.sit(&wish.key, joins);
        forward.server.counts().one(if lead.is_some() { Count::CacheMiss } else { Count::CacheJoined });
        if let Some(lead) = lead {
            let heard = Arc::<Heard>::default();
            let (client, forward) = (client.clone(), for_all(forward, &heard));
            let shared = Shared { client, forward, heard, first, ticket: ticket.take(), wish, writes };
            self.parked.background.spawn(Box::pin(self.clone().lead(shared, lead)));
        }
        let ended = {
            let _away = leg.tally().away(Awaited::Server);
            wait(forward, toward, &mut seat).await
        };
        match ended {
            Ended::With(answered) => answered,
            Ended::Said(version, outcome) => self.finish.adapted(client, forward, version, outcome),
            Ended::Alone => {
                drop(seat);
                let own = writes.then(|| self.writing(forward));
                self.run(client, forward, toward, (ticket, own)).await
            }
        }
    }

    /// Makes the shared request, until it is answered or no request waits for it any more.
    async fn lead(self: Arc<Self>, shared: Shared, mut lead: Lead) {
        let Shared { client, forward, heard, first, ticket, wish, writes } = shared;
        let tap = Mailbox::new(first.limits().clone(), first.account().clone()).of_request().with_level(first.level());
        let tap = Arc::new(tap);
        let mut toward = Toward::leg(&client, &tap);
        let writing = writes.then(|| self.writing(&forward));
        let answered = {
            let mut call = pin!(self.run(&client, &forward, &mut toward, (ticket, writing)));
            loop {
                tokio::select! {
                    biased;
                    () = lead.left() => return,
                    Some(message) = tap.next() => if !pass(message, &first, &mut lead) { return },
                    answered = &mut call => break answered,
                }
            }
        };
        while let Some(message) = tap.try_next() {
            pass(message, &first, &mut lead);
        }
        // An earlier attempt may have got an answer before this failure.
        let is_failed = matches!(&answered, Err(NoResult::Failed(failed)) if failed.kind != Kind::Malformed);
        let said = heard.take().filter(|_| !is_failed && !lead.is_asked);
        let others = match (&said, &answered) {
            (Some(said), _) => Ended::Said(said.version, said.outcome.clone()),
            (None, Err(NoResult::Failed(failed))) if failed.sent => Ended::With(Err(failed.clone().into())),
            _ => Ended::Alone,
        };
        if let (Some(said), Ok(_)) = (&said, &answered) {
            wish.keep(&self.manager, said);
        }
        lead.end(answered, &others);
    }

    /// Notes that a call is about to be sent that may change what its server answers to calls of other tools.
    fn writing(&self, forward: &Forward) -> crate::manager::Writing {
        self.manager.answers().writing(forward.server.id, Some(Arc::from(&*forward.target)))
    }
}

/// Waits for the outcome. Meanwhile passes progress on, and sends heartbeats.
async fn wait(forward: &Forward, toward: &mut Toward<'_>, seat: &mut Seat) -> Ended {
    toward.set_token(forward.token());
    let Seat { progress, end, .. } = seat;
    loop {
        let beat = toward.start_heart(Instant::now());
        tokio::select! {
            biased;
            Some(params) = progress.recv() => toward.progress(&params),
            // The channel closes without an outcome only if mcp-host shuts down.
            ended = &mut *end => return ended.unwrap_or_else(|_| Ended::With(Err(Failure::cut_off().of_host()))),
            () = sleep_until(beat.unwrap_or_else(Instant::now)), if beat.is_some() => {
                toward.beat(&forward.server, Wait::Server);
            }
        }
    }
}

/// Passes on one message that came before the answer. Returns false if nobody is there whom the server could ask.
fn pass(message: Message, first: &Mailbox, lead: &mut Lead) -> bool {
    match message {
        Message::Notification(Notification { method: Method::Progress, params: Some(params) }) => lead.tell(&params),
        message => {
            if matches!(message, Message::Request(_)) {
                lead.asks();
                if !lead.has_first() {
                    return false;
                }
            }
            if lead.has_first() {
                first.put(message);
            }
        }
    }
    true
}

/// Returns the request to send for all. It asks for progress, since a request that joins may want some.
fn for_all(forward: &Forward, heard: &Arc<Heard>) -> Forward {
    let mut forward = forward.clone();
    forward.heard = Some(heard.clone());
    let own = forward.meta.clone().filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    if own.member("progressToken").is_none() {
        let own = own.with_member("progressToken", b"0");
        forward.params = forward.params.with_member("_meta", own.as_bytes());
        forward.reopen();
    }
    forward
}
