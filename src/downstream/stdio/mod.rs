//! The stdio door: one client, a message a line, on our own stdin and stdout or any pair of pipes.
//!
//! One task reads, drives the calls and writes, so that a small call wakes nobody else. What waits to be written is
//! bounded: over the cap nothing more is taken from calls, mailbox or client. Start reading at [`serve`].

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
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use self::guest::Guest;
use super::call::{Answer, Call, Ending, Progress, Step};
use super::classify::{self, Envelope, Eras, Header, OURS, Route};
use super::outbox::Outbox;
use crate::protocol::lines::{ENDLESS, Line, Lines};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, ProtocolVersion, Request, RequestId, Response, Theirs, batch, code,
};
use crate::queues::Account;
use crate::router::{Client, ClientStay, Mailbox, Principal, Router, Via};

/// As soon as that much waits to be written it is written, though more may be ready.
const BATCH: usize = 64 * 1024;
/// How long answers may take to be written once every call is over.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long calls under way may take once the client has closed its side: it may be a script that waits for their answers.
const LAST_CALLS: Duration = Duration::from_millis(2500);
/// Sets of capabilities that one pipe may come with, before the oldest may be forgotten.
const PLACES: usize = 16;
/// Counts pipes, so that each has a word of its own.
static PIPES: AtomicU64 = AtomicU64::new(0);

/// Serves the client on our own stdin and stdout until stdin ends, stdout breaks or `stop`.
///
/// # Errors
/// When reading or writing fails in another way than by the end of the other side.
pub(crate) async fn serve_process(router: Router, eras: Eras, stop: CancellationToken) -> io::Result<()> {
    let (input, output) = standard::pipes();
    serve(router, eras, input, output, stop).await
}

/// The same for a client that has come to the socket of this daemon. At `stop` it is told how many of its messages are
/// answered here: the others are for another daemon.
///
/// # Errors
/// As [`serve`].
#[cfg(feature = "server")]
pub(crate) async fn serve_guest<R, W>(
    router: Router,
    eras: Eras,
    guest: Guest,
    (input, output): (R, W),
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let asked = guest.asked;
    open(router, eras, Some(guest), asked, (input, output), stop).await
}

/// Serves one client on a pair of pipes until the input ends, the output breaks or `stop`. After the end of the input its
/// running calls have [`LAST_CALLS`] to finish (`docs/hazards.md` H106), after `stop` as long as the limits say, and where
/// the output is broken they are cancelled.
///
/// # Errors
/// When reading or writing fails in another way than by the end of the other side.
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
    open(router, eras, None, 0, (input, output), stop).await
}

/// As [`serve`] for a client that another host served before: it was put questions with ids up to `asked`.
///
/// # Errors
/// As [`serve`].
#[cfg(unix)]
pub(crate) async fn serve_on<R, W>(
    router: Router,
    eras: Eras,
    asked: u64,
    (input, output): (R, W),
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    open(router, eras, None, asked, (input, output), stop).await
}

async fn open<R, W>(
    router: Router,
    eras: Eras,
    guest: Option<Guest>,
    asked: u64,
    (input, output): (R, W),
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let account = router.queues().account();
    let pipe = format!("{OURS}pipe {}", PIPES.fetch_add(1, Ordering::Relaxed));
    let mut door = Door {
        lines: Lines::new(router.limits().body),
        room: router.limits().client_queue,
        session: Session {
            router,
            eras,
            principal: guest.as_ref().map_or_else(Principal::local, |guest| guest.principal.clone()),
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
    /// Most bytes that wait to be written before nothing more is taken.
    room: usize,
    session: Session,
    input: R,
    /// Whether the client may still say something.
    hears: bool,
    output: W,
}

/// The client, what runs for it and what waits to be written to it.
struct Session {
    router: Router,
    eras: Eras,
    principal: Principal,
    /// What is special about a client that came to the socket of a daemon.
    guest: Option<Guest>,
    /// The highest id of a question that another host put to it: ours begin above.
    asked: u64,
    /// Who said `initialize`, if somebody did. Requests that speak for themselves need nobody to.
    client: Option<Arc<Client>>,
    out: Outbox,
    /// What waits for the client.
    account: Account,
    /// By which requests without a session are those of this pipe: all that comes through it is of one conversation.
    pipe: String,
    calls: FuturesUnordered<Step>,
    /// Who sends requests without a session: one client, unless its capabilities change. It stays as long as the pipe.
    places: VecDeque<ClientStay>,
    /// What withdraws the running requests without a session.
    stateless: HashMap<RequestId, CancellationToken>,
    /// Withdraws those among them that are streams of changes, which have no end of their own.
    listens: CancellationToken,
    stop: CancellationToken,
}

/// How a client's service came to its end.
enum End {
    /// It closed its side, and may still read.
    Closed,
    /// It takes nothing more.
    Gone(io::Result<()>),
    /// Its line has no end, so nothing that it says can be understood any more.
    Endless,
    /// It took too little of what was there for it: what waits is dropped, in the midst of a message maybe.
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
                written = write(&mut self.output, &mut session.out), if !session.out.is_empty() => {
                    if let Err(error) = written {
                        return End::Gone(broken(error));
                    }
                }
                Some(progress) = session.calls.next(), if has_room => session.take(progress),
                message = mail(session.client.as_ref()), if has_room => match message {
                    Some(message) => session.out.push(message.frame()),
                    None => {
                        tracing::warn!("client takes no messages; its session ends");
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

    /// Ends the session, and writes what is still due.
    async fn finish(mut self, end: End) -> io::Result<()> {
        let patience = self.session.router.limits().drain;
        let mut last_words = LAST_WORDS;
        let result = match end {
            End::Closed => {
                self.hears = false;
                last_words = patience;
                self.session.listens.cancel();
                let _ = timeout(LAST_CALLS, self.drain()).await;
                // What has no answer by now gets none, as at a host of its own: a guest makes up none either.
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

    /// Lets the running calls end after we were told to stop. Those of a guest end for themselves: it may be the only one that
    /// is to go, and others are served on.
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

    /// Lets the running calls end and writes everything. What is said meanwhile is heard: an answer to a question lets a
    /// call end, and a new request is refused.
    async fn drain(&mut self) {
        let session = &mut self.session;
        let (mut writable, mut readable) = (true, self.hears);
        // Who has closed its side and takes nothing more is gone.
        while (!session.calls.is_empty() && (writable || self.hears)) || (writable && !session.out.is_empty()) {
            session.advance();
            // A call that is over without an answer leaves nothing to wait for.
            if session.calls.is_empty() && (!writable || session.out.is_empty()) {
                break;
            }
            tokio::select! {
                written = write(&mut self.output, &mut session.out), if writable && !session.out.is_empty() => {
                    // The calls come to their end even if nobody hears of it.
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
    /// Takes what the calls have ready now, so that one write carries it all.
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
                    self.out.push(response.frame());
                }
            }
        }
    }

    /// Tells a guest that what it says from here on is for another daemon.
    fn leave(&mut self) {
        if let Some(notice) = self.guest.as_mut().map(Guest::leave) {
            self.out.push(Message::Notification(notice).frame());
        }
    }

    fn line(&mut self, line: Line) {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            // It was refused when it was too long, and whoever reads ends with it.
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

    /// A batch: each of its messages on its own, for answers may come singly (2025-03-26).
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

    /// A message of the session.
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
            // Nobody is there yet whom it could concern.
            (Message::Response(_), None) => {}
        }
    }

    /// A request that speaks for itself, whether there is a session beside it or not.
    fn stateless(&mut self, request: Request, envelope: &Envelope) {
        let id = request.id.clone();
        if self.stateless.contains_key(&id) {
            let text = format!("request id {} is in use by a request without an answer yet", Theirs(&id.to_string()));
            return self.refuse(Some(id), ErrorObject::new(code::INVALID_REQUEST, text));
        }
        let word = envelope.affinity.as_deref().unwrap_or(&self.pipe);
        let client = match self.router.pool().get(self.principal.clone(), &envelope.capabilities, Some(word)) {
            Ok(client) => client,
            Err(error) => return self.refuse(Some(id), error),
        };
        if !self.places.iter().any(|place| place.is_of(&client)) {
            if self.places.len() >= PLACES {
                self.places.pop_front();
            }
            self.places.push_back(client.stay());
        }
        self.router.clients().roster().seen(&self.principal, envelope.info.as_ref(), &request.method, Via::Stdio);
        let leg = Mailbox::of_modern(self.router.limits(), self.account.clone(), envelope.level.as_deref());
        let is_listen = request.method == Method::Listen;
        let method = request.method.clone();
        let answer = self.router.stateless(&client, request, &leg, &self.stop);
        let answer = self.until_ended(&client, method, answer);
        let withdrawn = if is_listen { self.listens.child_token() } else { CancellationToken::new() };
        self.stateless.insert(id.clone(), withdrawn.clone());
        self.calls.push(Call::new(id, leg, answer).until(withdrawn).step());
    }

    /// Withdraws the request without a session that a notification names; what concerns none is given back.
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

    /// A request before there is a session.
    fn first(&mut self, request: Request) {
        let id = Some(request.id);
        let outcome = match request.method {
            Method::Ping => Ok(classify::pong()),
            Method::Initialize => {
                let opened = self.router.open(self.principal.clone(), request.params.as_ref(), self.account.clone());
                opened.map(|(client, result)| {
                    // A pipe has a reader as long as its session lives.
                    std::mem::forget(client.mailbox().read());
                    self.router.clients().roster().welcome(&client, Via::Stdio);
                    client.has_asked(self.asked);
                    self.client = Some(client);
                    result
                })
            }
            method => Err(classify::not_initialized(method.as_str())),
        };
        self.out.push(Response { id, outcome }.frame());
    }

    fn request(&mut self, client: &Arc<Client>, request: Request) {
        if request.method == Method::Initialize {
            let error =
                ErrorObject::new(code::INVALID_REQUEST, "`initialize` again: this pipe has its session already");
            return self.refuse(Some(request.id), error);
        }
        let leg = client.leg(self.router.limits());
        let (id, method) = (request.id.clone(), request.method.clone());
        let answer = self.until_ended(client, method, Box::pin(self.router.request(client, request, &leg)));
        self.calls.push(Call::new(id, leg, answer).step());
    }

    /// The answer to a request; where it is a guest's, it ends with what runs for that guest.
    fn until_ended(&self, client: &Arc<Client>, method: Method, answer: Answer) -> Answer {
        match &self.guest {
            Some(guest) => Box::pin(self.router.until(client, method, answer, guest.ending.clone())),
            None => answer,
        }
    }

    fn refuse(&mut self, id: Option<RequestId>, error: ErrorObject) {
        self.out.push(Response { id, outcome: Err(error) }.frame());
    }
}

/// What the session has for its client outside of calls; never, before there is one.
async fn mail(client: Option<&Arc<Client>>) -> Option<Message> {
    match client {
        Some(client) => client.mailbox().next().await,
        None => std::future::pending().await,
    }
}

/// Writes some of what waits.
///
/// # Cancel safety
/// What was written is out of the box.
async fn write<W: AsyncWrite + Unpin>(output: &mut W, out: &mut Outbox) -> io::Result<()> {
    if output.write_buf(out).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    if out.is_empty() {
        output.flush().await?;
    }
    Ok(())
}

/// The other side's end is no error.
fn broken(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WriteZero};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof | WriteZero => Ok(()),
        _ => Err(error),
    }
}
