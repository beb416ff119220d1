//! HTTP+SSE, the transport of MCP revision 2024-11-05, for clients that know nothing newer. GET `/sse` opens a session,
//! and its event stream carries everything to the client, answers included. The client sends messages by POST to the
//! address in the stream's first event.
//!
//! The stream's response body owns the session and drives its calls, so that all end together, however the stream ends.
//! Client and host may negotiate any revision with a handshake.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Fuse, FusedFuture as _, FutureExt as _};
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body, Refusal, Response as HttpResponse};
use super::body::Request as HttpRequest;
use super::outlet::Outlet;
use super::rules::Change;
use super::session::SessionPlace;
use super::stream::{COMMENT, KEEP_ALIVE};
use super::wires::HttpWire;
use super::{Asker, Door, body, chosen, headers};
use crate::boot::Boot;
use crate::downstream::authentication::Proven;
use crate::downstream::calls::Calls;
use crate::downstream::classify::{self, Eras, Route};
use crate::hex;
use crate::lock::lock;
use crate::protocol::{ErrorObject, Frame, Message, Method, ProtocolVersion, Request, Response, batch, code};
use crate::queues::Account;
use crate::router::{Claims, Client, Identity, Principal, Via};
#[cfg(feature = "otel")]
use crate::traced::Origin;

/// How long a client may take from its GET to `initialize`.
const HELLO: Duration = Duration::from_secs(60);
/// How many messages from a client may wait while its stream is not read. Their bytes are limited by
/// `host.limits.clientQueue`.
const WAITING: usize = 256;
/// How long a client whose queue is over its limit may read nothing before its messages are refused.
const BEHIND: Duration = Duration::from_secs(2);

/// The id of such a session: 256 random bits, written in hex. It is worth nothing once the stream has ended.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key([u8; KEY]);

/// The bytes of such an id.
const KEY: usize = 32;

/// The open sessions.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<HashMap<Key, Arc<SseEntry>>>);

/// The part of a session that POST requests use. The table holds it.
#[derive(Debug)]
struct SseEntry {
    /// Its id, of which spans tell a hash.
    #[cfg(feature = "otel")]
    key: Key,
    /// The owner. When the proof expires, no new request starts, and the stream ends once the running ones are
    /// answered.
    proven: Proven,
    /// Who the session belongs to, and the view that it uses.
    identity: Identity,
    said: mpsc::Sender<Said>,
    /// The bytes that wait in `said`.
    bytes: AtomicUsize,
    /// The router's client, once `initialize` was answered.
    client: OnceLock<Arc<Client>>,
    /// The account that counts the bytes waiting for the client.
    account: Account,
    end: CancellationToken,
}

/// A message of the client on its way to the session's stream.
#[derive(Debug)]
struct Said {
    /// The bytes that it takes.
    size: usize,
    message: Message,
    /// Where it comes from, if spans are made.
    #[cfg(feature = "otel")]
    origin: Option<Box<Origin>>,
}

/// A session, owned by its stream's response body.
struct SseSession {
    door: Arc<Door>,
    key: Key,
    entry: Arc<SseEntry>,
    said: mpsc::Receiver<Said>,
    calls: Calls,
    outlet: Outlet,
    /// The pieces of the event being written.
    pieces: VecDeque<Bytes>,
    tick: Interval,
    over: Fuse<BoxFuture<'static, ()>>,
    opened: Instant,
    _place: SessionPlace,
}

/// Serves GET `/sse`.
pub(super) fn get(
    door: &Arc<Door>,
    table: &Table,
    asker: &Asker,
    headers: &HeaderMap,
    wire: &HttpWire,
) -> Result<HttpResponse, Refusal> {
    let Asker { proven, identity } = asker;
    body::check_accept(headers, &["text/event-stream"])?;
    check_version(headers)?;
    if door.stopping.is_cancelled() {
        return Err(Refusal::busy("shutting down"));
    }
    let place = door.reserve(&proven.principal)?;
    let key = Key::mint().map_err(|error| {
        tracing::error!(%error, "no randomness for a session id");
        Refusal::busy("no session id could be created")
    })?;
    let (sender, said) = mpsc::channel(WAITING);
    let account = door.router.queues().account();
    let outlet = wire.outlet(&account);
    let entry = Arc::new(SseEntry {
        #[cfg(feature = "otel")]
        key: key.clone(),
        proven: proven.clone(),
        identity: identity.clone(),
        said: sender,
        bytes: AtomicUsize::new(0),
        client: OnceLock::new(),
        account,
        end: CancellationToken::new(),
    });
    table.lock().insert(key.clone(), Arc::clone(&entry));
    let now = Instant::now();
    let mut tick = interval_at(now + KEEP_ALIVE, KEEP_ALIVE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let home = door.home();
    let first = format!("event: endpoint\ndata: /messages?sessionId={home}{key}\n\n");
    let session = SseSession {
        door: Arc::clone(door),
        key,
        entry,
        said,
        calls: Calls::default(),
        outlet,
        pieces: VecDeque::from([first.into()]),
        tick,
        over: proven.clone().over().boxed().fuse(),
        opened: now,
        _place: place,
    };
    let pieces = stream::unfold(session, |mut session| async move {
        let piece = session.next().await?;
        Some((piece, session))
    });
    Ok(answer::events(Body::stream(pieces)))
}

/// Serves POST `/messages`.
pub(super) async fn post(
    door: &Arc<Door>,
    table: &Table,
    proven: &Proven,
    request: HttpRequest,
) -> Result<HttpResponse, Refusal> {
    let principal = &proven.principal;
    let (head, body) = request.into_parts();
    body::check_type(&head.headers)?;
    check_version(&head.headers)?;
    let entry = table.find(head.uri.query(), principal, &chosen::claims(&door.rules(), proven))?;
    chosen::check(&head.headers, &entry.identity.view.name)?;
    let bytes = body::read(body, door.router.limits().body, principal, &door.bodies).await?;
    let message = match Message::parse_within(&bytes, door.router.limits().depth) {
        Ok(message) => message,
        Err(malformed) => {
            let items = batch(&bytes).ok_or(malformed)?;
            return entry.put_all(door, &head.headers, &items);
        }
    };
    let id = match &message {
        Message::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    // Only the legacy era is served here: a message that claims a revision without sessions belongs at `/mcp`.
    let route = classify::route(message, headers::version(&head.headers), Eras::Legacy);
    let route = route.map_err(|error| Refusal::judged(error).about(id))?;
    let Route::Session(message) = route else { return Ok(answer::accepted()) };
    entry.put(said(door, (&head.headers, &entry), bytes.len(), message), door.router.limits().client_queue)?;
    Ok(answer::accepted())
}

/// Makes a message that came with these headers ready for the stream of its session.
#[cfg_attr(not(feature = "otel"), allow(unused_variables, reason = "only spans say where a request comes from"))]
fn said(door: &Door, (headers, entry): (&HeaderMap, &SseEntry), size: usize, message: Message) -> Said {
    #[cfg(feature = "otel")]
    let origin = match &message {
        Message::Request(request) => {
            super::origin::of(door.router.observer(), headers, Some(entry.key.to_string().as_bytes()), &request.id)
        }
        Message::Notification(_) | Message::Response(_) => None,
    };
    Said {
        size,
        message,
        #[cfg(feature = "otel")]
        origin: origin.map(Box::new),
    }
}

fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    classify::check_legacy(headers::version(headers)).map_err(Refusal::judged)
}

/// Returns the session that a URL's query names.
fn named(query: Option<&str>) -> Option<&str> {
    query.unwrap_or_default().split('&').find_map(|member| member.strip_prefix("sessionId="))
}

/// Returns the replica that has the session which a URL's query names.
#[cfg(feature = "cluster")]
pub(super) fn home_of(query: Option<&str>) -> Option<Boot> {
    Boot::before(named(query)?.as_bytes(), 2 * KEY).map(|(home, _)| home)
}

impl Table {
    /// Returns the session that a URL's query names, if the session belongs to the principal with these claims.
    fn find(&self, query: Option<&str>, principal: &Principal, claims: &Claims) -> Result<Arc<SseEntry>, Refusal> {
        let Some(id) = named(query) else {
            let reason = "`sessionId` is missing: open /sse first and post to the address that its first event names";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
        };
        let table = self.lock();
        // In a cluster, the replica stands before the key; the key alone is what nobody can guess.
        let id = id.as_bytes();
        let key = Boot::before(id, 2 * KEY).map_or(id, |(_, key)| key);
        let entry = Key::parse(key).and_then(|key| table.get(&key));
        let is_its = |entry: &&Arc<SseEntry>| {
            entry.proven.principal == *principal && entry.identity.claims == *claims && !entry.account.is_cut()
        };
        entry.filter(is_its).cloned().ok_or_else(gone)
    }

    /// Ends the sessions whose clients do not read (`docs/hazards.md` H49). If a client reads nothing at all, its
    /// stream is not polled and cannot notice that itself.
    pub(super) fn sweep(&self, door: &Door) {
        let slow = |client: &&Arc<Client>| client.mailbox().overflowed();
        let entries: Vec<Arc<SseEntry>> = self.lock().values().cloned().collect();
        for entry in entries {
            if let Some(client) = entry.client.get().filter(slow) {
                tracing::warn!("client takes no messages; its session ends");
                door.router.clients().close(client);
                entry.end.cancel();
            }
        }
    }

    /// Ends the sessions whose owner's proof no longer holds after a change of the access rules, or whose view its owner may no longer use.
    pub(super) fn end_unless_kept(&self, change: &Change) {
        let keeps = |entry: &SseEntry| {
            let principal = &entry.proven.principal;
            change.keeps(principal) && change.keeps_view(principal, &entry.identity.view.name)
        };
        for entry in self.lock().values().filter(|entry| !keeps(entry)) {
            entry.end.cancel();
        }
    }

    /// Ends every session.
    pub(super) fn end_all(&self) {
        for entry in self.lock().values() {
            entry.end.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<SseEntry>>> {
        lock(&self.0)
    }
}

impl Key {
    /// Creates a new id.
    fn mint() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Parses an id; `None` if the text is no id.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY];
        hex::decode(text, &mut bytes)?;
        // An id has only one spelling: in lower case.
        (!text.iter().any(u8::is_ascii_uppercase)).then_some(Self(bytes))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Key {
    /// Shows only the first digits, which tell sessions apart: the whole id is its client's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", hex::encode(&self.0[..2]))
    }
}

fn gone() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such session (any more): open /sse again")
}

impl SseEntry {
    /// Hands the messages of a batch to the session's stream, one by one (2025-03-26).
    fn put_all(&self, door: &Door, headers: &HeaderMap, items: &[Bytes]) -> Result<HttpResponse, Refusal> {
        let is_fine = |client: &&Arc<Client>| client.revision() == ProtocolVersion::V2025_03_26;
        if self.client.get().filter(is_fine).is_none() {
            return Err(Refusal::judged(classify::no_batches()));
        }
        let messages = classify::batch(items, headers::version(headers)).map_err(Refusal::judged)?;
        // The stream cannot report the error for a malformed message, so the whole batch is refused before any of it
        // runs.
        let messages = messages.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (message, size) in messages.into_iter().zip(items.iter().map(Bytes::len)) {
            self.put(said(door, (headers, self), size, message), door.router.limits().client_queue)?;
        }
        Ok(answer::accepted())
    }

    /// Hands a message to the session's stream, unless more than `room` bytes would wait.
    fn put(&self, said: Said, room: usize) -> Result<(), Refusal> {
        // Responses and cancellations help running requests to finish, so they pass even when the proof has expired.
        let begins = matches!(said.message, Message::Request(_));
        if self.end.is_cancelled() || (begins && self.proven.is_over()) {
            return Err(gone());
        }
        let size = said.size;
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        let put = if (before > 0 && before + size > room) || self.account.is_behind(room, BEHIND) {
            Err(Refusal::busy("the stream of this session is not read"))
        } else {
            self.said.try_send(said).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => Refusal::busy("the stream of this session is not read"),
                mpsc::error::TrySendError::Closed(_) => gone(),
            })
        };
        if put.is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
        }
        put
    }
}

impl SseSession {
    /// Returns the next piece of the stream; `None` when the session has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(piece);
            }
            // At a shutdown, and when the owner's proof expires, the client is disconnected once its calls are done.
            let stopping = self.door.stopping.is_cancelled();
            let over = self.over.is_terminated();
            if (stopping || over) && self.calls.is_empty() && self.said.is_empty() {
                return None;
            }
            let client = self.entry.client.get();
            tokio::select! {
                () = self.entry.end.cancelled() => return None,
                () = self.door.stopping.cancelled(), if !stopping => {}
                () = &mut self.over => {}
                () = tokio::time::sleep_until(self.opened + HELLO), if client.is_none() => return None,
                said = self.said.recv() => {
                    let said = said?;
                    self.entry.bytes.fetch_sub(said.size, Ordering::Relaxed);
                    self.take(said);
                }
                message = mail(client), if !over => match message {
                    Some(message) => self.write(message.frame()),
                    None => {
                        tracing::warn!("client reads no messages; its session ends");
                        return None;
                    }
                },
                Some(message) = self.calls.next() => self.write(message.frame()),
                _ = self.tick.tick() => return Some(COMMENT),
            }
        }
    }

    fn take(&mut self, said: Said) {
        match (said.message, self.entry.client.get()) {
            (Message::Request(request), Some(_)) if request.method == Method::Initialize => {
                let reason = "second `initialize`: this stream already has a session";
                let outcome = Err(ErrorObject::new(code::INVALID_REQUEST, reason));
                self.write(Response { id: Some(request.id), outcome }.frame());
            }
            (Message::Request(request), Some(client)) => {
                let leg = client.leg(self.door.router.limits());
                #[cfg(feature = "otel")]
                if let Some(origin) = said.origin {
                    leg.comes_from(*origin);
                }
                self.calls.begin(&self.door.router, client, request, leg);
            }
            (Message::Request(request), None) => self.first(request),
            (Message::Notification(notice), Some(client)) => self.door.router.notify(client, notice),
            (Message::Response(response), Some(client)) => client.answer(response),
            // Without a session, no request or question is open.
            (Message::Notification(_) | Message::Response(_), None) => {}
        }
    }

    /// Handles a request before `initialize` was answered.
    fn first(&mut self, request: Request) {
        let outcome = match request.method {
            Method::Ping => Ok(classify::pong()),
            Method::Initialize => {
                let identity = self.entry.identity.clone();
                let opened = self.door.router.open(identity, request.params.as_ref(), self.entry.account.clone());
                opened.map(|(client, result)| {
                    // Forgetting the guard means that the mailbox counts as read, by the stream, as long as the session
                    // lives.
                    std::mem::forget(client.mailbox().read());
                    self.door.router.clients().roster().welcome(&client, Via::Sse);
                    let _ = self.entry.client.set(client);
                    result
                })
            }
            method => Err(classify::not_initialized(method.as_str())),
        };
        self.write(Response { id: Some(request.id), outcome }.frame());
    }

    fn write(&mut self, frame: Frame) {
        self.outlet.event(&mut self.pieces, b"event: message\ndata: ", Some(frame.on_one_line()));
    }
}

/// Waits for the session's next message outside of calls (`None` if the client reads too slowly); forever if there is
/// no session.
async fn mail(client: Option<&Arc<Client>>) -> Option<Message> {
    match client {
        Some(client) => client.mailbox().next().await,
        None => std::future::pending().await,
    }
}

impl Drop for SseSession {
    fn drop(&mut self) {
        if let Some(table) = &self.door.sse {
            table.lock().remove(&self.key);
        }
        // Dropping the calls first lets servers learn that they are canceled before the client closes.
        self.calls = Calls::default();
        if let Some(client) = self.entry.client.get() {
            self.door.router.clients().close(client);
        }
    }
}
