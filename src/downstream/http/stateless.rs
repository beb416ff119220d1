//! A modern request (since 2026-07-28, without a session), served by the HTTP handler's own future. A client that
//! disconnects cancels its request.
//!
//! The form of the response is decided late: JSON whose HTTP status fits the error, or an event stream if a message
//! precedes the answer or the answer takes long.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body, Refusal, Response as HttpResponse};
use super::outlet::Outlet;
use super::stream::{COMMENT, DECIDE, KEEP_ALIVE};
use super::wires::HttpWire;
use super::{Asker, Door, headers};
use crate::downstream::authentication::Proven;
use crate::downstream::call::{PendingOutcome, Progress, RunningCall, Step};
use crate::downstream::classify::Envelope;
use crate::protocol::{Message, Method, Outcome, Request, Response, code};
use crate::router::{Mailbox, Via};

/// Serves the request.
pub(super) async fn serve(
    door: &Arc<Door>,
    asker: &Asker,
    headers: &HeaderMap,
    request: Request,
    envelope: Envelope,
    wire: &HttpWire,
) -> Result<HttpResponse, Refusal> {
    let (proven, id) = (&asker.proven, request.id.clone());
    let about = |refusal: Refusal| refusal.about(Some(id.clone()));
    headers::check(headers, &request).map_err(|error| about(Refusal::judged(error)))?;
    if door.stopping.is_cancelled() {
        return Err(about(Refusal::busy("shutting down")));
    }
    door.check_room().map_err(about)?;
    let client = door
        .router
        .pool()
        .get_from(asker.identity.clone(), &envelope.capabilities, envelope.affinity.as_deref(), envelope.info.as_ref())
        .map_err(|error| about(Refusal::busy(&error.message)))?;
    let routed = door.router.look_up(&client, request);
    let request = &routed.request;
    headers::check_arguments(headers, request, &routed.param_headers())
        .map_err(|error| about(Refusal::judged(error)))?;
    let roster = door.router.clients().roster();
    let sender = roster.seen(&proven.principal, envelope.info.as_ref(), &request.method, Via::Http);
    let at_once = request.method == Method::Listen;
    let served_elsewhere = request.method.may_ask() || request.method == Method::Complete;
    let account = door.router.queues().account();
    let outlet = wire.outlet(&account);
    let leg = Mailbox::of_modern(door.router.limits(), account, envelope.level.as_deref(), sender);
    #[cfg(feature = "otel")]
    super::origin::note(door.router.observer(), headers, (None, &id), &leg);
    let closing = door.stopping.child_token();
    let mut answer = door.router.stateless(&client, routed, &leg, &closing);
    if at_once && proven.has_end() {
        answer = while_proven(proven.clone(), answer, closing);
    }
    let mut outcome = None;
    tokio::select! {
        biased;
        done = &mut answer => outcome = Some(done),
        () = leg.ready() => {}
        () = sleep(DECIDE), if !at_once => {}
    }
    let early = leg.try_next();
    match outcome {
        Some(Some(outcome)) if early.is_none() => {
            let status = status(&outcome, served_elsewhere);
            Ok(json(&Response { id: Some(id), outcome }, status, &outlet))
        }
        // Only at a shutdown does a request get no answer while its client waits.
        Some(None) => Err(about(Refusal::busy("shutting down"))),
        outcome => {
            let call = RunningCall::new(id, leg.clone(), answer).answered(outcome);
            Ok(stream(call, leg, early, outlet))
        }
    }
}

/// Ends a change stream (`subscriptions/listen`) when its client's proof of authentication expires. The client listens
/// again with another token.
fn while_proven(proven: Proven, mut answer: PendingOutcome, closing: CancellationToken) -> PendingOutcome {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = proven.over() => closing.cancel(),
            answered = &mut answer => return answered,
        }
        answer.await
    })
}

/// Returns a response with the answer as JSON.
fn json(response: &Response, status: StatusCode, outlet: &Outlet) -> HttpResponse {
    let mut answer = answer::json(outlet.pieces(response.frame()));
    *answer.status_mut() = status;
    answer
}

/// Returns the HTTP status for an answer: 200, except for a few errors. With `served_elsewhere`, servers serve the
/// method, so one that does not know it causes no 404.
fn status(outcome: &Outcome, served_elsewhere: bool) -> StatusCode {
    match outcome.as_ref().map_err(|error| error.code) {
        Err(code::METHOD_NOT_FOUND) if !served_elsewhere => StatusCode::NOT_FOUND,
        Err(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// An event stream in progress.
struct Flow {
    /// The next step of the call; `None` once its answer is sent.
    step: Option<Step>,
    leg: Arc<Mailbox>,
    outlet: Outlet,
    /// The pieces to write before the next step.
    pieces: VecDeque<Bytes>,
    /// When a comment is due, to show that the connection is alive.
    alive: Instant,
}

fn stream(call: Box<RunningCall>, leg: Arc<Mailbox>, early: Option<Message>, outlet: Outlet) -> HttpResponse {
    let (step, alive) = (Some(call.step()), Instant::now() + KEEP_ALIVE);
    let mut flow = Flow { step, leg, outlet, pieces: VecDeque::new(), alive };
    match early {
        Some(message) => flow.put(&message),
        // The comment shows the client an open stream before there is anything to send.
        None => flow.pieces.push_back(COMMENT),
    }
    let pieces = futures_util::stream::unfold(flow, |mut flow| async move {
        let piece = flow.next().await?;
        Some((piece, flow))
    });
    answer::events(Body::stream(pieces))
}

impl Flow {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                self.alive = Instant::now() + KEEP_ALIVE;
                return Some(piece);
            }
            let step = self.step.as_mut()?;
            let progress = tokio::select! {
                biased;
                progress = step => progress,
                () = sleep_until(self.alive) => {
                    self.pieces.push_back(COMMENT);
                    continue;
                }
            };
            self.step = None;
            match progress {
                // The client did not read its call's messages, and some were dropped: the stream would have a gap.
                _ if self.leg.overflowed() => return None,
                Progress::Message(message, call) => {
                    self.step = Some(call.step());
                    self.put(&message);
                }
                Progress::Done(ending) => self.put(&Message::Response(ending.response?)),
            }
        }
    }

    fn put(&mut self, message: &Message) {
        self.outlet.event(&mut self.pieces, b"data: ", Some(message.frame().on_one_line()));
    }
}
