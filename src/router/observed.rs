//! Tells observers (`observe/mod.rs`) of each request: who sends it, and which server it goes to.

use std::sync::Arc;
#[cfg(feature = "server")]
use std::time::Duration;
use std::time::SystemTime;

use tokio::time::Instant;

use super::Mailbox;
use super::client::Client;
#[cfg(feature = "server")]
use super::clients::Clients;
use super::finish::Finish;
use super::presence::Via;
use crate::answered::{Answered, Failed};
use crate::counts::Reader;
use crate::manager::{Manager, Server};
use crate::observe::{Begun, Noted, Observed, Observer, Subject, is_call};
#[cfg(feature = "server")]
use crate::pieces::in_pieces;
use crate::protocol::{Outcome, Request};
use crate::registry::Entry;

/// How many clients or calls are gone through before other tasks get to run.
#[cfg(feature = "server")]
const PIECE: usize = 64;

/// Notes that a request begins. Dropping the returned value unfinished notes that the request was cancelled.
///
/// # Errors
/// When an observer forbids the request, because it could not record it.
pub(super) fn begin<'a>(
    observer: &'a Observer,
    client: &Client,
    request: &Request,
    leg: &'a Mailbox,
    now: Instant,
) -> Result<Observed<'a>, Failed> {
    begin_with(observer, client, (request, now), leg, (None, &mut None))
}

/// Does the same as [`begin`] for a call, and for a second request that mcp-host makes on behalf of the client's. `via`
/// says what made the call, if that was not the client itself.
///
/// # Errors
/// When an observer forbids the request, because it could not record it.
pub(super) fn begin_by<'a>(
    (observer, manager): (&'a Observer, &Manager),
    client: &Client,
    asked: (&Request, Instant),
    leg: &'a Mailbox,
    via: Option<&'static str>,
) -> Result<Observed<'a>, Failed> {
    let mut subject = None;
    let observed = begin_with(observer, client, asked, leg, (via, &mut subject))?;
    if let Some(subject) = subject {
        subject.is_in(|| client.who.view.name.name(&manager.settings()).into());
    }
    Ok(observed)
}

/// Notes that a request begins. If an observer wants details of it, `seen` gets the record that collects them.
fn begin_with<'a>(
    observer: &'a Observer,
    client: &Client,
    (request, now): (&Request, Instant),
    leg: &'a Mailbox,
    (via, seen): (Option<&'static str>, &mut Option<Arc<Subject>>),
) -> Result<Observed<'a>, Failed> {
    let params = request.params.as_ref();
    let (tally, bytes) = (leg.tally(), params.map_or(0, |params| params.as_bytes().len()));
    tally.begin(&request.method, is_call(&request.method), bytes, now);
    if leg.script().is_some() {
        tally.is_for(Reader::Script);
    } else if let Some(view) = client.who.view.name.chosen() {
        tally.is_for(Reader::View(view));
    }
    let noted = || {
        let (client, door) = who(client, leg);
        Noted { method: request.method.clone(), client, door, via }
    };
    observer.begin(&request.method, (tally, leg.passing()), noted, || {
        let (name, door) = who(client, leg);
        Begun {
            principal: client.principal().as_str(),
            client: name,
            door,
            at: SystemTime::now(),
            method: &request.method,
            params,
            subject: seen.insert(leg.observed()).clone(),
            via,
            parent: leg.script().map(|name| &**name),
            revision: Some(client.revision().as_str()),
            // Neither a fallback nor a call of a script has an id of its own, and a request without a session got a new
            // id here.
            id: (via != Some("fallback") && leg.script().is_none() && leg.sender().is_none()).then_some(&request.id),
            #[cfg(feature = "otel")]
            origin: leg.origin(),
        }
    })
}

/// Returns the name that the sender of a request gave for itself, and the door that it came through.
fn who(client: &Client, leg: &Mailbox) -> (Option<Arc<str>>, Option<&'static str>) {
    let (name, door) = match leg.sender() {
        Some(sender) => (sender.name.clone(), Some(sender.via)),
        None => (client.named.name().cloned(), client.presence().came().map(|(_, via)| via)),
    };
    (name, door.map(Via::as_str))
}

/// Serves a request that counts toward no limit on requests in flight, but is observed like all others. Returns the
/// answer for the door to write.
///
/// # Cancel safety
/// Dropping the future cancels the request.
pub(super) async fn beside(
    observer: Arc<Observer>,
    finish: Arc<Finish>,
    client: Arc<Client>,
    request: Request,
    leg: Arc<Mailbox>,
    answer: impl Future<Output = Answered> + Send,
) -> Option<Outcome> {
    let answered = match begin(&observer, &client, &request, &leg, Instant::now()) {
        Ok(observed) => {
            let answered = answer.await;
            observed.finish(Some(&answered));
            answered
        }
        Err(refused) => Err(refused.into()),
    };
    Some(finish.written(&client, &request.method, answered))
}

#[cfg(feature = "server")]
impl Clients {
    /// Tells the record, which has feeds now, of calls in flight that it does not know yet: those that have run for at
    /// least `age`, oldest first, `most` at most. Calls pay nothing for this, since their clients keep them anyway.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: a call that the record was not told of is found the next time.
    pub(crate) async fn tell_of_running(&self, most: usize, age: Duration) {
        let is_due = |leg: &Mailbox| {
            let has_age = leg.tally().begun().is_some_and(|begun| begun.elapsed() >= age);
            has_age && leg.tally().is_call() && leg.passing().is_untold()
        };
        let legs = in_pieces(&self.all(), PIECE, |client| client.legs(is_due)).await;
        let mut legs: Vec<Arc<Mailbox>> = legs.into_iter().flatten().collect();
        legs.sort_by_key(|leg| leg.tally().begun());
        legs.truncate(most);
        in_pieces(&legs, PIECE, |leg| self.record().join(leg.passing(), leg.tally(), &leg.observed())).await;
    }
}

impl Mailbox {
    /// Records that its request goes to `target` at that server, and how the server lists the target. Counts the
    /// request there, and tells an observer that wants to know.
    pub(super) fn concerns(&self, server: &Server, target: &Arc<str>, listed: Option<&Entry>) {
        self.tally().goes_to(server.counts());
        self.passing().is(&server.whose, target);
        if let Some(subject) = self.subject() {
            subject.is(&server.label, target, &server.scrubber);
            if let Some(entry) = listed {
                subject.is_pinned(|| server.pin_of(entry).to_string().into());
            }
        }
    }

    /// Records that its request gets a cached answer.
    pub(super) fn was_kept(&self) {
        self.passing().was_kept();
        if let Some(subject) = self.subject() {
            subject.was_kept();
        }
    }
}
