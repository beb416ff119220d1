//! The stdio door: one client, one message per line, on our own stdin and stdout or any pair of pipes.
//!
//! One task reads, drives the calls, and writes, so that a small call wakes no other task. The bytes waiting to be
//! written are bounded: above the limit, the door takes no messages from calls, mailbox, or client. Start reading at
//! [`serve`].

#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only a daemon has guests"))]
mod guest;
mod standard;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use self::guest::Guest;
use super::call::{Ending, PendingOutcome, Progress, RunningCall, Step};
use super::classify::{self, Envelope, Eras, Header, OURS, Route};
use super::outbox::Outbox;
use crate::protocol::lines::{ENDLESS, Line, Lines};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, ProtocolVersion, Request, RequestId, Response, Theirs, batch, code,
};
use crate::queues::Account;
use crate::router::{Client, ClientStay, Identity, Mailbox, Principal, Router};

/// The number of waiting bytes that triggers a write even though more may be ready.
const BATCH: usize = 64 * 1024;
/// How long answers may take to be written after the last call ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long calls in flight may take after the end of the input: the client may be a script that waits for their
/// answers.
const LAST_CALLS: Duration = Duration::from_millis(2500);
/// How many sets of client capabilities one pipe may present before the oldest may be forgotten.
const PLACES: usize = 16;
/// Counts pipes, so that each gets its own affinity word (`classify.rs`).
static PIPES: AtomicU64 = AtomicU64::new(0);

/// Serves the client on our own stdin and stdout until stdin ends, stdout breaks, or `stop`.
///
/// # Errors
/// When reading or writing fails, except when the other side disconnects.
pub(crate) async fn serve_process(router: Router, eras: Eras, stop: CancellationToken) -> io::Result<()> {
    let (input, output) = standard::pipes();
    serve(router, eras, input, output, stop).await
}

/// Serves a client that connected through this daemon's socket. At `stop`, the client learns how many of its messages
/// were taken here: the others are for another daemon.
///
/// # Errors
/// As [`serve`].
#[cfg(feature = "server")]
pub(crate) async fn serve_guest<R, W>(
    router: Router,
    eras: Eras,
    guest: Guest,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let origin = Origin { asked: guest.asked, guest: Some(guest) };
    open(router, eras, origin, input, output, stop).await
}

/// Serves one client on a pair of pipes until the input ends, the output breaks, or `stop`. After the end of the input,
/// running calls have [`LAST_CALLS`] to finish (`docs/hazards.md` H106); after `stop`, as long as the limits say; if
/// the output breaks, they are canceled.
///
/// # Errors
/// When reading or writing fails, except when the other side disconnects.
pub(crate) async fn serve<R, W>(
    router: Router,
    eras: Eras,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    open(router, eras, Origin::default(), input, output, stop).await
}

/// Like [`serve`], serves a client that another host served before and sent requests with ids up to `asked`.
///
/// # Errors
/// As [`serve`].
#[cfg(unix)]
pub(crate) async fn serve_on<R, W>(
    router: Router,
    eras: Eras,
    asked: u64,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    open(router, eras, Origin { guest: None, asked }, input, output, stop).await
}

/// What is known about a client before its first message.
#[derive(Default)]
struct Origin {
    /// The client's state as a guest, if it connected through the daemon's socket.
    guest: Option<Guest>,
    /// The highest request id that another host used for a question (a request to the client).
    asked: u64,
}

async fn open<R, W>(
    router: Router,
    eras: Eras,
    origin: Origin,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let Origin { guest, asked } = origin;
    let identity =
        guest.as_ref().map_or_else(|| Identity::by_default(Principal::local()), |guest| guest.identity.clone());
    let account = router.queues().account();
    let pipe = format!("{OURS}pipe {}", PIPES.fetch_add(1, Ordering::Relaxed));
    let mut door = Door {
        lines: Lines::new(router.limits().body),
        room: router.limits().client_queue,
        session: Session {
            router,
            eras,
            identity,
            guest,
            asked,
            client: None,
            out: Outbox::new(account.share()),
            account,
            pipe,
            calls: FuturesUnordered::new(),
            places: VecDeque::new(),
            stateless: HashMap::new(),
            listens: CancellationToken::new(),
            stop: stop.clone(),
        },
        input,
        hears: true,
        output,
    };
    let end = door.run(&stop).await;
    let (router, pipe) = (door.session.router.clone(), door.session.pipe.clone());
    let result = door.finish(end).await;
    router.pool().leave(&pipe);
    result
}

struct Door<R, W> {
    lines: Lines,
    /// How many bytes may wait to be written before the door takes no more messages.
    room: usize,
    session: Session,
    input: R,
    /// Whether the client may still send messages.
    hears: bool,
    output: W,
}

/// The client, its running calls, and the bytes waiting for it.
struct Session {
    router: Router,
    eras: Eras,
    identity: Identity,
    /// The state of a client that connected through the daemon's socket.
    guest: Option<Guest>,
    /// The highest request id that another host used for a question to this client: our ids start above it.
    asked: u64,
    /// The client of the session, after `initialize`. Modern requests need no session.
    client: Option<Arc<Client>>,
    out: Outbox,
    /// The account that counts the bytes waiting for the client.
    account: Account,
    /// The affinity word of this pipe's modern requests: all of them belong to one conversation.
    pipe: String,
    calls: FuturesUnordered<Step>,
    /// Keeps the router's clients behind modern requests as long as the pipe: one, unless the capabilities change.
    places: VecDeque<ClientStay>,
    /// Cancellation tokens that withdraw the running modern requests.
    stateless: HashMap<RequestId, CancellationToken>,
    /// The parent of the tokens that withdraw change streams (`subscriptions/listen`), which do not end by themselves.
    listens: CancellationToken,
    stop: CancellationToken,
}

/// Why serving a client ended.
enum End {
    /// The client closed our input, and may still read.
    Closed,
    /// The client reads no more. Holds the error, if it did not simply disconnect.
    Gone(io::Result<()>),
    /// A line exceeded every limit without ending, so nothing after it can be parsed.
    Endless,
    /// The client read too slowly: the waiting bytes are dropped, perhaps in the middle of a message.
    Cut,
    /// We were told to stop.
    Stopped,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Door<R, W> {
    async fn run(&mut self, stop: &CancellationToken) -> End {
        loop {
            self.session.advance();
            let session = &mut self.session;
            let has_room = session.out.len() < self.room;
            let account = session.account.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                () = account.cut(), if !session.out.is_empty() => return End::Cut,
                written = session.out.write_to(&mut self.output), if !session.out.is_empty() => {
                    if let Err(error) = written {
                        return End::Gone(broken(error));
                    }
                }
                Some(progress) = session.calls.next(), if has_room => session.take(progress),
                message = mail(session.client.as_ref()), if has_room => match message {
                    Some(message) => session.out.push(message.frame()),
                    None => {
                        tracing::warn!("client reads no messages; its session ends");
                        return End::Gone(Ok(()));
                    }
                },
                read = self.input.read_buf(self.lines.space()), if has_room => match read {
                    Ok(0) => return End::Closed,
                    Ok(_) => {
                        while let Some(line) = self.lines.next() {
                            if line == Line::Endless {
                                return End::Endless;
                            }
                            session.line(line);
                        }
                    }
                    Err(error) => return End::Gone(broken(error)),
                }
            }
        }
    }

    /// Ends the session, and writes the answers that are still due.
    async fn finish(mut self, end: End) -> io::Result<()> {
        let patience = self.session.router.limits().drain;
        let mut last_words = LAST_WORDS;
        let result = match end {
            End::Closed => {
                self.hears = false;
                last_words = patience;
                self.session.listens.cancel();
                let _ = timeout(LAST_CALLS, self.drain()).await;
                // Calls that are unanswered by now get no answer, as if the guest were its own host: the guest does not
                // make one up either.
                self.session.leave();
                Ok(())
            }
            End::Gone(result) => {
                self.hears = false;
                result
            }
            End::Endless => {
                self.hears = false;
                let cap = self.session.router.limits().body;
                let text = format!(
                    "the client sent more than {} bytes without ending its line; a message may have {cap} (host.limits.body)",
                    cap.saturating_mul(ENDLESS)
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            End::Cut => {
                self.session.calls = FuturesUnordered::new();
                self.session.out = Outbox::new(self.session.account.share());
                Ok(())
            }
            End::Stopped => {
                self.stopped(patience).await;
                Ok(())
            }
        };
        if let Some(client) = self.session.client.take() {
            self.session.router.clients().close(&client);
        }
        for withdrawn in self.session.stateless.values() {
            withdrawn.cancel();
        }
        let _ = timeout(last_words, self.drain()).await;
        result
    }

    /// Lets the running calls finish after we were told to stop, and ends those that take too long. Only this client's
    /// calls end if it is a guest: it may be the only one that leaves while others are still served.
    async fn stopped(&mut self, patience: Duration) {
        let ending = self.session.guest.as_ref().map(|guest| guest.ending.clone());
        if ending.is_some() {
            self.session.leave();
        } else {
            self.session.router.close_doors();
        }
        if timeout(patience, self.drain()).await.is_ok() {
            return;
        }
        if let Some(ending) = ending {
            ending.cancel();
            let _ = timeout(LAST_WORDS, self.drain()).await;
        } else {
            let router = self.session.router.clone();
            let _ = futures_util::future::join(router.end_requests(), timeout(LAST_WORDS, self.drain())).await;
        }
    }

    /// Lets the running calls finish, and writes everything. Messages are still read: the response to a question lets a
    /// call finish, and a new request is refused.
    async fn drain(&mut self) {
        let session = &mut self.session;
        let (mut writable, mut readable) = (true, self.hears);
        // A client that sends no more and no longer reads is gone.
        while (!session.calls.is_empty() && (writable || self.hears)) || (writable && !session.out.is_empty()) {
            session.advance();
            // A call that ended without an answer leaves nothing to wait for.
            if session.calls.is_empty() && (!writable || session.out.is_empty()) {
                break;
            }
            tokio::select! {
                written = session.out.write_to(&mut self.output), if writable && !session.out.is_empty() => {
                    // The calls finish even if nothing can be written.
                    writable = written.is_ok();
                }
                Some(progress) = session.calls.next() => session.take(progress),
                read = self.input.read_buf(self.lines.space()), if readable && session.out.len() < self.room => {
                    readable = matches!(read, Ok(1..));
                    while let Some(line) = self.lines.next() {
                        readable &= line != Line::Endless;
                        session.line(line);
                    }
                }
                else => {}
            }
        }
    }
}

impl Session {
    /// Takes the messages and answers that the calls have ready, so that one write carries them all.
    fn advance(&mut self) {
        while self.out.len() < BATCH
            && let Some(Some(progress)) = self.calls.next().now_or_never()
        {
            self.take(progress);
        }
    }

    fn take(&mut self, progress: Progress) {
        match progress {
            Progress::Message(message, call) => {
                self.out.push(message.frame());
                self.calls.push(call.step());
            }
            Progress::Done(Ending { response, withdrawable }) => {
                if let Some(id) = withdrawable {
                    self.stateless.remove(&id);
                }
                if let Some(response) = response {
                    self.say(&response, guest::ANSWERED);
                }
            }
        }
    }

    /// Tells a guest that its later messages are for another daemon.
    fn leave(&mut self) {
        if let Some(notice) = self.guest.as_mut().map(Guest::leave) {
            self.out.push(Message::Notification(notice).frame());
        }
    }

    fn line(&mut self, line: Line) {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            // A too long line was refused before it became endless, and reading stops with it.
            Line::Endless => return,
            Line::TooLong(_) => {
                if !self.guest.as_mut().is_none_or(Guest::takes) {
                    return;
                }
                let cap = self.router.limits().body;
                let reason = format!("a message has more than {cap} bytes");
                return self.refuse(None, ErrorObject::new(code::INVALID_REQUEST, reason));
            }
        };
        let heard = self.guest.as_mut().is_none_or(Guest::takes);
        let message = match Message::parse_within(&bytes, self.router.limits().depth) {
            Ok(message) => message,
            Err(_) if !heard => return,
            Err(malformed) => {
                return match batch(&bytes).filter(|_| self.eras != Eras::Modern) {
                    Some(items) => self.batch(&items),
                    None => self.refuse(malformed.id, ErrorObject::new(malformed.code, malformed.reason)),
                };
            }
        };
        if !heard && !guest::is_of_a_call(&message) {
            return;
        }
        let id = match &message {
            Message::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        match classify::route(message, Header::None, self.eras) {
            Ok(Route::Session(message)) => self.message(message),
            Ok(Route::Stateless(request, envelope)) => self.stateless(request, &envelope),
            Ok(Route::Notice(notice)) => drop(self.withdraw(notice)),
            // Only a request gets an answer.
            Err(error) => {
                if id.is_some() {
                    self.refuse(id, error);
                }
            }
        }
    }

    /// Handles each message in a batch by itself; the answers may be sent separately (2025-03-26).
    fn batch(&mut self, items: &[Bytes]) {
        let is_fine = |client: &&Arc<Client>| client.revision() == ProtocolVersion::V2025_03_26;
        if self.client.as_ref().filter(is_fine).is_none() {
            return self.refuse(None, classify::no_batches());
        }
        let messages = match classify::batch(items, Header::None) {
            Ok(messages) => messages,
            Err(error) => return self.refuse(None, error),
        };
        for message in messages {
            match message {
                Ok(message) => self.message(message),
                Err(malformed) => self.refuse(malformed.id, ErrorObject::new(malformed.code, malformed.reason)),
            }
        }
    }

    /// Handles a message of the legacy era, which belongs to the session or opens it.
    fn message(&mut self, message: Message) {
        match (message, self.client.clone()) {
            (Message::Request(request), Some(client)) => self.request(&client, request),
            (Message::Request(request), None) => self.first(request),
            (Message::Notification(notice), client) => {
                if let (Some(notice), Some(client)) = (self.withdraw(notice), client) {
                    self.router.notify(&client, notice);
                }
            }
            (Message::Response(response), Some(client)) => client.answer(response),
            // Without a session, no question is open.
            (Message::Response(_), None) => {}
        }
    }

    /// Handles a modern request, whether or not there is also a session.
    fn stateless(&mut self, request: Request, envelope: &Envelope) {
        let id = request.id.clone();
        if self.stateless.contains_key(&id) {
            let text = format!("request id {} is in use by a request without an answer yet", Theirs(&id.to_string()));
            return self.refuse(Some(id), ErrorObject::new(code::INVALID_REQUEST, text));
        }
        let word = envelope.affinity.as_deref().unwrap_or(&self.pipe);
        let (pool, info) = (self.router.pool(), envelope.info.as_ref());
        let client = match pool.get_from(self.identity.clone(), &envelope.capabilities, Some(word), info) {
            Ok(client) => client,
            Err(error) => return self.refuse(Some(id), error),
        };
        if !self.places.iter().any(|place| place.is_of(&client)) {
            if self.places.len() >= PLACES {
                self.places.pop_front();
            }
            self.places.push_back(client.stay());
        }
        let sender = self.router.clients().roster().seen(
            &self.identity.principal,
            envelope.info.as_ref(),
            &request.method,
            guest::via(self.guest.as_ref()),
        );
        let level = envelope.level.as_deref();
        let leg = Mailbox::of_modern(self.router.limits(), self.account.clone(), level, sender);
        let is_listen = request.method == Method::Listen;
        let method = request.method.clone();
        let answer = self.router.stateless(&client, request, &leg, &self.stop);
        let answer = self.until_ended(&client, method, answer);
        let withdrawn = if is_listen { self.listens.child_token() } else { CancellationToken::new() };
        self.stateless.insert(id.clone(), withdrawn.clone());
        self.calls.push(RunningCall::new(id, leg, answer).until(withdrawn).step());
    }

    /// Withdraws the modern request that a notification cancels; returns any other notification.
    fn withdraw(&self, notice: Notification) -> Option<Notification> {
        if notice.method == Method::Cancelled
            && let Some(id) = notice.params.as_ref().and_then(|params| params.member("requestId")?.read().ok())
            && let Some(withdrawn) = self.stateless.get::<RequestId>(&id)
        {
            withdrawn.cancel();
            return None;
        }
        Some(notice)
    }

    /// Handles a request before there is a session.
    fn first(&mut self, request: Request) {
        let id = Some(request.id);
        let outcome = match request.method {
            Method::Ping => Ok(classify::pong()),
            Method::Initialize => {
                let opened = self.router.open(self.identity.clone(), request.params.as_ref(), self.account.clone());
                opened.map(|(client, result)| {
                    // Forgetting the guard means that the mailbox counts as read as long as the pipe's session lives.
                    std::mem::forget(client.mailbox().read());
                    self.router.clients().roster().welcome(&client, guest::via(self.guest.as_ref()));
                    client.has_asked(self.asked);
                    self.client = Some(client);
                    result
                })
            }
            method => Err(classify::not_initialized(method.as_str())),
        };
        self.say(&Response { id, outcome }, guest::ANSWERED);
    }

    fn request(&mut self, client: &Arc<Client>, request: Request) {
        if request.method == Method::Initialize {
            let error = ErrorObject::new(code::INVALID_REQUEST, "second `initialize`: this pipe already has a session");
            return self.refuse(Some(request.id), error);
        }
        let leg = client.leg(self.router.limits());
        let (id, method) = (request.id.clone(), request.method.clone());
        let answer = self.until_ended(client, method, Box::pin(self.router.request(client, request, &leg)));
        self.calls.push(RunningCall::new(id, leg, answer).step());
    }

    /// Wraps the answer to a guest's request, so that it resolves when the guest's requests are ended.
    fn until_ended(&self, client: &Arc<Client>, method: Method, answer: PendingOutcome) -> PendingOutcome {
        match &self.guest {
            Some(guest) => Box::pin(self.router.until(client, method, answer, guest.ending.clone())),
            None => answer,
        }
    }

    /// Writes an answer, and counts it with its status.
    fn say(&mut self, response: &Response, status: u16) {
        self.router.observer().counted().answered(guest::door(self.guest.as_ref()), status);
        self.out.push(response.frame());
    }

    fn refuse(&mut self, id: Option<RequestId>, error: ErrorObject) {
        self.say(&Response { id, outcome: Err(error) }, guest::REFUSED);
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

/// Turns an error that only means that the client disconnected into success.
fn broken(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WriteZero};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof | WriteZero => Ok(()),
        _ => Err(error),
    }
}
