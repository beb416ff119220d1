//! POST: one message from a client. The HTTP handler's own future serves the request, and the form of the response is
//! decided late: JSON if the answer comes first, an event stream otherwise. The stream opens at once only if the server
//! may ask questions (send the client requests) and the client can resume a stream.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::answer::{self, Body, Refusal, Response as HttpResponse};
use super::body::Request as HttpRequest;
use super::event_id::{Asked, Label};
use super::outlet::Outlet;
use super::replay::{From, Record};
use super::session::Use;
use super::stream::{DECIDE, Events, Source};
use super::wires::HttpWire;
use super::{Asker, Door, SESSION, body, headers, stateless};
use crate::downstream::classify::{self, Eras, Route};
use crate::protocol::{ErrorObject, Malformed, Message, Method, ProtocolVersion, Request, RequestId, Response, batch};
use crate::router::{Client, Identity, Mailbox, Via};

/// Resolves to the answer to a request, or to the answers to all requests in a batch.
type Replies = Pin<Box<dyn Future<Output = Vec<Response>> + Send>>;

/// Serves a POST.
pub(super) async fn post(
    door: &Arc<Door>,
    wire: &HttpWire,
    asker: &Asker,
    request: HttpRequest,
) -> Result<HttpResponse, Refusal> {
    let (principal, identity) = (&asker.proven.principal, &asker.identity);
    let (head, body) = request.into_parts();
    #[cfg(feature = "cluster")]
    let uri = head.uri;
    let headers = head.headers;
    body::check_type(&headers)?;
    body::check_accept(&headers, &["application/json", "text/event-stream"])?;
    let bytes = body::read(body, door.router.limits().body, principal, &door.bodies).await?;
    let version = headers::version(&headers);
    let message = match Message::parse_within(&bytes, door.router.limits().depth) {
        Ok(message) => message,
        Err(malformed) => {
            return match batch(&bytes).filter(|_| door.eras != Eras::Modern) {
                Some(items) => self::items(door, identity, &headers, &items, wire).await,
                None => Err(malformed.into()),
            };
        }
    };
    let id = match &message {
        Message::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    let about = |refusal: Refusal| refusal.about(id.clone());
    // Responses and cancellations still pass: they free room.
    if id.is_some() && door.router.clients().is_full() {
        return Err(about(Refusal::busy("too many requests at once (host.limits.pending)")));
    }
    let route = classify::route(message, version, door.eras);
    match route.map_err(|error| about(Refusal::judged(error)))? {
        Route::Session(message) => session(door, identity, &headers, message, wire).await.map_err(about),
        Route::Stateless(request, envelope) => {
            wire.lets_go();
            #[cfg(feature = "cluster")]
            if let Some(cluster) = &door.cluster
                && let Some(served) =
                    Box::pin(cluster.stateless(door, wire, asker, (&uri, &headers), (&bytes, &request))).await
            {
                return served;
            }
            stateless::serve(door, asker, &headers, request, envelope, wire).await
        }
        // Over HTTP a client withdraws a modern request by closing its stream, so the notification has no effect.
        Route::Notice(_) => Ok(answer::accepted()),
    }
}

/// Handles a message that belongs to a session, or opens one.
async fn session(
    door: &Arc<Door>,
    identity: &Identity,
    headers: &HeaderMap,
    message: Message,
    wire: &HttpWire,
) -> Result<HttpResponse, Refusal> {
    let message = match message {
        // Whatever session id the client sends, `initialize` opens a new session with an id of ours.
        Message::Request(request) if request.method == Method::Initialize => {
            return initialize(door, identity, &request, wire).await;
        }
        message => message,
    };
    let in_use = door.session(identity, headers).await?;
    let client = &in_use.session().client;
    match message {
        Message::Request(request) => {
            in_use.session().note_use();
            door.check_room()?;
            return Ok(call(door, in_use, headers, request, wire).await);
        }
        Message::Notification(notice) => door.router.notify(client, notice),
        Message::Response(response) => {
            in_use.session().note_use();
            client.answer(response);
        }
    }
    Ok(answer::accepted())
}

async fn initialize(
    door: &Arc<Door>,
    identity: &Identity,
    request: &Request,
    wire: &HttpWire,
) -> Result<HttpResponse, Refusal> {
    let about = |refusal: Refusal| refusal.about(Some(request.id.clone()));
    if door.stopping.is_cancelled() {
        return Err(about(Refusal::busy("shutting down")));
    }
    let life = door.session_life();
    door.handles.ready(life).await;
    let place = door.reserve(&identity.principal).map_err(about)?;
    let id = Some(request.id.clone());
    let account = door.router.queues().account();
    let outlet = wire.outlet(&account);
    let (client, result) = match door.router.open(identity.clone(), request.params.as_ref(), account) {
        Ok(opened) => opened,
        Err(error) => return Ok(answer::json(outlet.pieces(Response { id, outcome: Err(error) }.frame()))),
    };
    let made = door.handles.make(&client, life);
    let value = made.ok().and_then(|made| Some((HeaderValue::try_from(&made.text).ok()?, made)));
    let Some((value, made)) = value else {
        tracing::error!("no randomness for a session id");
        door.router.clients().close(&client);
        return Err(about(Refusal::busy("no session id could be created")));
    };
    let mut response = answer::json(outlet.pieces(Response { id, outcome: Ok(result) }.frame()));
    let digest = door.sessions.digest(value.as_bytes());
    response.headers_mut().insert(SESSION, value);
    door.router.clients().roster().welcome(&client, Via::Http);
    drop(door.sessions.add((digest, made.origin, 0), place, client));
    Ok(response)
}

/// A call whose response has not started. If this is dropped, the call continues as a task: a lost connection does not
/// cancel a request (2025-11-25, transports). No event id was sent, so the client cannot come back for the answer.
struct Undecided {
    answer: Option<(Replies, Use)>,
    tasks: TaskTracker,
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if let Some((answer, in_use)) = self.answer.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let work = async move {
                answer.await;
                drop(in_use);
            };
            self.tasks.spawn_on(work, &runtime);
        }
    }
}

/// Handles a batch: its requests run concurrently, and one response has all answers (2025-03-26).
async fn items(
    door: &Arc<Door>,
    identity: &Identity,
    headers: &HeaderMap,
    items: &[Bytes],
    wire: &HttpWire,
) -> Result<HttpResponse, Refusal> {
    let messages = classify::batch(items, headers::version(headers)).map_err(Refusal::judged)?;
    let in_use = door.session(identity, headers).await?;
    let client = &in_use.session().client;
    if client.revision() != ProtocolVersion::V2025_03_26 {
        return Err(Refusal::judged(classify::no_batches()));
    }
    in_use.session().note_use();
    let leg = client.leg(door.router.limits());
    let outlet = wire.outlet(leg.account());
    let mut calls = Vec::new();
    let mut malformed = Vec::new();
    for message in messages {
        match message {
            Ok(Message::Request(request)) => {
                let leg = Mailbox::of_batch(&leg);
                noted(door, headers, &request.id, &leg);
                calls.push(reply(door, client, request, &leg));
            }
            Ok(Message::Notification(notice)) => door.router.notify(client, notice),
            Ok(Message::Response(response)) => client.answer(response),
            Err(Malformed { id, code, reason }) => {
                malformed.push(Response { id, outcome: Err(ErrorObject::new(code, reason)) });
            }
        }
    }
    if calls.is_empty() && malformed.is_empty() {
        return Ok(answer::accepted());
    }
    let replies = Box::pin(async move {
        let answered = join_all(calls).await;
        malformed.into_iter().chain(answered.into_iter().flatten()).collect()
    });
    Ok(serve(door, (in_use, leg, None), outlet, replies, Shape::Array).await)
}

async fn call(door: &Arc<Door>, in_use: Use, headers: &HeaderMap, request: Request, wire: &HttpWire) -> HttpResponse {
    let client = &in_use.session().client;
    let leg = client.leg(door.router.limits());
    noted(door, headers, &request.id, &leg);
    let outlet = wire.outlet(leg.account());
    // A call that asks a person takes time: a stream opened at once has an event id, with which the client can come
    // back for the answer.
    let at_once = request.method.may_ask() && client.can_be_asked() && can_return(client);
    let asked = Some(Asked::of(&request.method, &request.id));
    let reply = reply(door, client, request, &leg);
    let replies = Box::pin(async move { reply.await.into_iter().collect() });
    let shape = if at_once { Shape::Stream } else { Shape::Single };
    serve(door, (in_use, leg, asked), outlet, replies, shape).await
}

/// Notes where a request comes from, if spans are made.
#[cfg_attr(not(feature = "otel"), allow(unused_variables, reason = "this build makes none"))]
fn noted(door: &Door, headers: &HeaderMap, id: &RequestId, leg: &Mailbox) {
    #[cfg(feature = "otel")]
    {
        let session = headers.get(&SESSION).map(HeaderValue::as_bytes);
        super::origin::note(door.router.observer(), headers, (session, id), leg);
    }
}

/// Resolves to the answer to one request; `None` if none is due.
fn reply(
    door: &Door,
    client: &Arc<Client>,
    request: Request,
    leg: &Arc<Mailbox>,
) -> impl Future<Output = Option<Response>> + Send + use<> {
    let id = request.id.clone();
    // The future is large, and each future around it would hold it twice.
    let answer = Box::pin(door.router.request(client, request, leg));
    async move { answer.await.map(|outcome| Response { id: Some(id), outcome }) }
}

/// The form of the response if the answer comes before any other message.
enum Shape {
    /// One JSON object.
    Single,
    /// One JSON array.
    Array,
    /// An event stream opens at once. An answer that is already there is still sent as JSON.
    Stream,
}

/// Serves what is asked in a session; `asked` is what, unless it is a batch.
async fn serve(
    door: &Arc<Door>,
    (in_use, leg, asked): (Use, Arc<Mailbox>, Option<Asked>),
    outlet: Outlet,
    replies: Replies,
    shape: Shape,
) -> HttpResponse {
    let at_once = matches!(shape, Shape::Stream);
    let mut replied: Option<Vec<Response>> = None;
    let mut undecided = Undecided { answer: Some((replies, in_use)), tasks: door.tasks.clone() };
    if let Some((replies, _)) = &mut undecided.answer {
        tokio::select! {
            biased;
            done = replies => replied = Some(done),
            () = leg.ready() => {}
            () = std::future::ready(()), if at_once => {}
            () = tokio::time::sleep(DECIDE) => {}
        }
    }
    let Some((replies, in_use)) = undecided.answer.take() else { return answer::accepted() };
    let early = leg.try_next();
    match (replied, shape) {
        (Some(mut replied), Shape::Single | Shape::Stream) if early.is_none() => match replied.pop() {
            Some(response) => answer::json(outlet.pieces(response.frame())),
            // The client withdrew the request, so no answer is due. An event stream may end without an answer; JSON may
            // not be empty.
            None => answer::events(Body::Empty),
        },
        (Some(replied), Shape::Array) if early.is_none() && !replied.is_empty() => {
            answer::json_array(&replied, &outlet)
        }
        (replied, _) => stream(door, StreamedCall { leg, early, replies, replied, in_use, asked }, outlet),
    }
}

/// A call that is answered with an event stream.
struct StreamedCall {
    leg: Arc<Mailbox>,
    /// The first message, if it was already taken.
    early: Option<Message>,
    replies: Replies,
    /// The answers, if they are already known.
    replied: Option<Vec<Response>>,
    in_use: Use,
    /// The request; `None` if there are several.
    asked: Option<Asked>,
}

fn stream(door: &Arc<Door>, call: StreamedCall, outlet: Outlet) -> HttpResponse {
    let session = call.in_use.session();
    let label = call.asked.as_ref().map(Label::of).unwrap_or_default();
    let record = session.call_stream(label, door.router.limits().client_queue);
    let Ok(reader) = record.read(From::Untaken) else { return answer::events(Body::Empty) };
    reader.is_on(outlet.wire());
    let can_return = can_return(&session.client);
    if can_return {
        record.push(None);
    }
    let in_use = call.in_use.again();
    let work = Box::pin(call.drive(Arc::clone(door), EndOnDrop(record), can_return));
    let events = Events::new(reader, Source::Call(work, door.tasks.clone()), in_use, outlet);
    answer::events(Body::record(events))
}

/// Reports whether the client can resume a stream, which starts with an event without data. Clients with older
/// revisions take that event for a broken message.
fn can_return(client: &Client) -> bool {
    client.revision() >= ProtocolVersion::V2025_11_25
}

/// Ends the stream of this record when dropped.
struct EndOnDrop(Arc<Record>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl StreamedCall {
    /// Writes the call's messages into its stream, and the answer last.
    async fn drive(mut self, door: Arc<Door>, ending: EndOnDrop, can_return: bool) {
        let record = &ending.0;
        if let Some(message) = self.early.take() {
            record.push(Some(message.frame().on_one_line()));
        }
        let replied = match self.replied.take() {
            Some(replied) => replied,
            None => match self.wait(record, can_return).await {
                Ok(replied) => replied,
                Err(Overflowed) => {
                    door.cut_off(self.in_use.session());
                    return;
                }
            },
        };
        while let Some(message) = self.leg.try_next() {
            record.push(Some(message.frame().on_one_line()));
        }
        for response in replied {
            record.push(Some(response.frame().on_one_line()));
        }
    }

    async fn wait(&mut self, record: &Record, can_return: bool) -> Result<Vec<Response>, Overflowed> {
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                () = self.leg.ready(), if open => {
                    let mut quiet = true;
                    while let Some(message) = self.leg.try_next() {
                        quiet = false;
                        record.push(Some(message.frame().on_one_line()));
                    }
                    if let Some(retry) = self.leg.take_hang_up() {
                        quiet = false;
                        if can_return {
                            record.hang_up(retry);
                        }
                    }
                    if self.leg.overflowed() {
                        return Err(Overflowed);
                    }
                    open = !quiet;
                }
                replied = &mut self.replies => return Ok(replied),
            }
        }
    }
}

/// The client did not read its call's messages, so some were dropped.
struct Overflowed;
