//! GET opens a session's standalone stream (for messages outside of calls), or resumes a stream whose connection broke.
//! DELETE ends a session.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::answer::{self, Body, Refusal, Response};
use super::event_id::{Asked, EventId};
use super::replay::{self, From, Reader, Record};
use super::session::{STANDALONE, Session, Use};
use super::stream::{Events, Source, Work};
use super::wires::HttpWire;
use super::{Asker, Door, body, headers};
use crate::downstream::authentication::Proven;
use crate::downstream::classify::{self, Eras};
use crate::protocol::{self, Message, Method, ProtocolVersion};
use crate::router::{Handshake, Identity};

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Serves a GET.
pub(super) async fn get(
    door: &Arc<Door>,
    asker: &Asker,
    headers: &HeaderMap,
    wire: &HttpWire,
) -> Result<Response, Refusal> {
    let proven = &asker.proven;
    body::check_accept(headers, &["text/event-stream"])?;
    check_version(door, headers)?;
    let in_use = door.session(&asker.identity, headers).await?;
    if door.stopping.is_cancelled() {
        return Err(Refusal::busy("shutting down"));
    }
    in_use.session().note_use();
    match body::single(headers, &LAST_EVENT)? {
        Some(value) => resume(door, in_use, value, proven, wire),
        None => open(door, in_use, proven, wire),
    }
}

/// Opens the standalone stream.
fn open(door: &Arc<Door>, in_use: Use, proven: &Proven, wire: &HttpWire) -> Result<Response, Refusal> {
    if in_use.session().is_back() {
        door.router.clients().renew_lists(&in_use.session().client);
    }
    let record = standalone_record(door, in_use.session());
    let reader = record.read(From::Untaken).map_err(refuse)?;
    if in_use.session().client.revision() >= ProtocolVersion::V2025_11_25 {
        record.push(None);
    }
    Ok(standalone(door, in_use, &record, reader, proven, wire))
}

/// Serves a DELETE.
pub(super) async fn delete(door: &Door, identity: &Identity, headers: &HeaderMap) -> Result<Response, Refusal> {
    check_version(door, headers)?;
    let in_use = door.session(identity, headers).await?;
    door.end(in_use.session());
    Ok(answer::bare(StatusCode::NO_CONTENT))
}

/// Refuses requests whose header names a revision without sessions, where GET and DELETE do not exist.
fn check_version(door: &Door, headers: &HeaderMap) -> Result<(), Refusal> {
    let version = headers::version(headers);
    if door.eras == Eras::Modern || (door.eras == Eras::Both && classify::is_modern(version)) {
        return Err(Refusal::post_only());
    }
    classify::check_legacy(version).map_err(Refusal::judged)
}

/// Resumes a stream after the last event that the client saw. Only streams of the caller's own session are searched, so
/// an event id of another client is unknown. Streams end with the life of their session: in the next life, a stream for
/// messages outside of calls is replaced by a new one, and a request without an answer gets an error.
fn resume(
    door: &Arc<Door>,
    in_use: Use,
    last_event: &HeaderValue,
    proven: &Proven,
    wire: &HttpWire,
) -> Result<Response, Refusal> {
    let unknown = || refuse(replay::ReadRefused::Unknown);
    let last = last_event.to_str().ok().and_then(EventId::parse).ok_or_else(unknown)?;
    if last.life != in_use.session().life {
        return match &last.asked {
            _ if last.stream == STANDALONE => open(door, in_use, proven, wire),
            Some(asked) => Ok(lost(door, &in_use, asked, wire)),
            None => Err(unknown()),
        };
    }
    let record = in_use.session().stream(&last).ok_or_else(unknown)?;
    let reader = record.read(From::After(last.event)).map_err(refuse)?;
    if last.stream == STANDALONE {
        return Ok(standalone(door, in_use, &record, reader, proven, wire));
    }
    let outlet = wire.outlet(in_use.session().client.account());
    Ok(answer::events(Body::record(Events::new(reader, Source::None, in_use, outlet).with_comment())))
}

/// Answers a request of an earlier life of the session, which ended before it was answered (`docs/hazards.md` H57).
fn lost(door: &Door, in_use: &Use, asked: &Asked, wire: &HttpWire) -> Response {
    let client = &in_use.session().client;
    let method = if asked.is_call { Method::ToolsCall } else { Method::ResourcesRead };
    let outcome = Handshake::lost(&door.router, client, &method);
    let response = Message::Response(protocol::Response { id: Some(asked.id.clone()), outcome });
    let mut pieces = VecDeque::new();
    wire.outlet(client.account()).event(&mut pieces, b"data: ", Some(response.frame().on_one_line()));
    answer::events(Body::stream(stream::iter(pieces)))
}

fn standalone_record(door: &Door, session: &Session) -> Arc<Record> {
    session.standalone(door.router.limits().client_queue)
}

fn standalone(
    door: &Arc<Door>,
    in_use: Use,
    record: &Arc<Record>,
    reader: Reader,
    proven: &Proven,
    wire: &HttpWire,
) -> Response {
    let work = deliver(Arc::clone(door), in_use.again(), Arc::clone(record));
    let outlet = wire.outlet(in_use.session().client.account());
    let events = Events::new(reader, Source::Mailbox(work), in_use, outlet).with_comment();
    answer::events(Body::record(events.until(proven)))
}

/// Moves the session's messages from its mailbox into the stream.
fn deliver(door: Arc<Door>, in_use: Use, record: Arc<Record>) -> Work {
    Box::pin(async move {
        let session = in_use.session();
        let mailbox = session.client.mailbox();
        let _reader = mailbox.read();
        while let Some(message) = mailbox.next().await {
            record.push(Some(message.frame().on_one_line()));
        }
        record.end();
        if mailbox.overflowed() {
            door.cut_off(session);
        }
    })
}

fn refuse(why: replay::ReadRefused) -> Refusal {
    match why {
        replay::ReadRefused::Taken => {
            Refusal::new(StatusCode::CONFLICT, "this stream is already open on another connection")
        }
        replay::ReadRefused::Unknown => {
            Refusal::new(StatusCode::BAD_REQUEST, "`Last-Event-ID` names no event of this session that is still kept")
        }
    }
}
