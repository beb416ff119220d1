//! What a server is told besides requests: notifications, and answers to its questions.
//!
//! Over HTTP each message is a POST of its own. A server that accepts them and never answers would have one of our
//! sockets for each, so a few are under way at once, and the others wait in order, within `limits.serverQueue`. What
//! the server itself makes us say has little room there, and a mere refusal has none (`docs/hazards.md` H18).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{Connection, Item, Wire};
use crate::lock::lock;
use crate::protocol::{ErrorObject, Frame, Message, Method, Notification, Outcome, Raw, RequestId, Response};
use crate::transport::{self, Sse};
use crate::upstream::ask::Asker;

/// So many messages are posted to one server at once.
const AT_ONCE: usize = 16;
/// So many wait of what a server makes us say: answers to pings, and to what we do not know.
const ECHOES: usize = 64;
/// What a message that waits costs beside its bytes.
const OVERHEAD: usize = 256;
/// How long a server may take to accept what is posted to it over HTTP with SSE. Its answer comes on the stream.
const ACCEPT: Duration = Duration::from_secs(60);
/// What is under way when the connection is lost may have arrived within that time: its call may be answered yet.
const LAST: Duration = Duration::from_secs(1);

/// Why something is said, which decides how long it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Somebody here has something to say.
    Ours,
    /// The server gets an answer that nobody had to be asked for.
    Echo,
    /// It gets a refusal, because it asks too much.
    Refusal,
}

/// What is to be said over HTTP.
#[derive(Debug, Default)]
pub(super) struct Speech {
    queue: Mutex<Queue>,
    /// Whatever has to be over before the session may end.
    said: TaskTracker,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Frame>,
    bytes: usize,
    /// Tasks that post what waits, one after the other.
    speakers: usize,
}

impl Speech {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// The next message; a speaker that finds none is none any more.
    fn next(&self) -> Option<Frame> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        match &next {
            Some(frame) => queue.bytes -= frame.len() + OVERHEAD,
            None => queue.speakers -= 1,
        }
        next
    }
}

impl Queue {
    /// Whether a message may wait until another one has been said. An empty queue takes one of any size.
    fn has_room(&self, frame: &Frame, why: Why, cap: usize) -> bool {
        match why {
            Why::Ours => self.waiting.is_empty() || self.bytes + frame.len() + OVERHEAD <= cap,
            Why::Echo => self.waiting.len() < ECHOES,
            Why::Refusal => false,
        }
    }
}

impl Connection {
    /// Sends a notification, without anybody waiting for it.
    pub(crate) fn notify(self: &Arc<Self>, method: Method, params: Option<Raw>) {
        // In the modern era a client tells nothing but that, and over HTTP by closing the stream.
        if self.is_modern() && (method != Method::Cancelled || matches!(self.wire(), Wire::Http(_))) {
            return;
        }
        self.say(Message::Notification(Notification { method, params }), Why::Ours);
    }

    /// Sends a notification that must arrive before anything that is sent later.
    pub(in crate::upstream) async fn say_first(self: &Arc<Self>, method: Method) -> Result<(), transport::Error> {
        let notice = Notification { method, params: None };
        match self.wire() {
            Wire::Http(http) => http.post(notice.frame()).await.map(drop),
            Wire::Sse(sse) => sse.post(notice.frame()).await.map(drop),
            Wire::Pipe(_) | Wire::Memory(_) => {
                self.say(Message::Notification(notice), Why::Ours);
                Ok(())
            }
        }
    }

    /// Answers a question of the server, if it still waits.
    pub(in crate::upstream) fn respond(self: &Arc<Self>, id: &RequestId, outcome: Outcome) {
        self.respond_because(Why::Ours, id, outcome);
    }

    /// The same where nobody had to be asked.
    pub(super) fn echo(self: &Arc<Self>, id: &RequestId, outcome: Outcome) {
        self.respond_because(Why::Echo, id, outcome);
    }

    fn respond_because(self: &Arc<Self>, why: Why, id: &RequestId, outcome: Outcome) {
        if self.lock().asks.remove(id).is_some() {
            self.say(Message::Response(Response { id: Some(id.clone()), outcome }), why);
        }
    }

    /// Answers what is no question that is taken.
    pub(super) fn refuse(self: &Arc<Self>, id: RequestId, why: ErrorObject) {
        self.say(Message::Response(Response { id: Some(id), outcome: Err(why) }), Why::Refusal);
    }

    fn say(self: &Arc<Self>, message: Message, why: Why) {
        if self.is_gone() {
            return;
        }
        let result = match self.wire() {
            Wire::Pipe(pipe) => pipe.send(message.frame()),
            Wire::Memory(memory) => memory.send(message),
            Wire::Http(_) | Wire::Sse(_) => {
                self.queue(message.frame(), why);
                Ok(())
            }
        };
        if let Err(error) = result {
            tracing::debug!(server = &*self.parts.server, "not sent: {error}");
        }
    }

    fn queue(self: &Arc<Self>, frame: Frame, why: Why) {
        let mut queue = self.speech.lock();
        let starts = queue.speakers < AT_ONCE;
        if !starts && !queue.has_room(&frame, why, self.parts.queue) {
            drop(queue);
            return self.drop_one("what it would be told: it takes its messages too slowly");
        }
        queue.bytes += frame.len() + OVERHEAD;
        queue.waiting.push_back(frame);
        if starts {
            queue.speakers += 1;
            self.parts.tasks.spawn(self.say_in_time(speak(self.clone())));
        }
    }

    /// Counts a POST that has to be over before the session may end.
    pub(in crate::upstream) fn say_in_time<F: Future>(&self, post: F) -> impl Future<Output = F::Output> + use<F> {
        self.speech.said.track_future(post)
    }

    /// Posts a message over HTTP with SSE.
    pub(in crate::upstream) async fn deliver(self: &Arc<Self>, sse: &Sse, id: Option<u64>, frame: Frame) {
        match timeout(ACCEPT, sse.post(frame)).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(answer))) => self.take(id, &answer),
            Ok(Err(error)) => {
                self.failed(&error);
                match id {
                    Some(id) => self.lose_one(id, error),
                    None => tracing::debug!(server = self.label(), "not sent: {error}"),
                }
            }
            // Its answer may still come; if not, the call has a deadline of its own.
            Err(_) => tracing::warn!(server = self.label(), "a message was not accepted within {ACCEPT:?}"),
        }
    }

    /// Takes leave in good order: what runs is cancelled at the server, its questions are answered, and once all that is
    /// out nothing is said any more. The session may end then.
    pub(in crate::upstream) async fn part(self: &Arc<Self>) {
        let error = transport::Error::Closed;
        let (waiting, asks) = {
            let mut table = self.lock();
            if table.lost.is_some() {
                return;
            }
            table.lost = Some(error.clone());
            table.acknowledgements.clear();
            (std::mem::take(&mut table.waiting), table.asks.take())
        };
        for (id, entry) in waiting {
            entry.inbox.put(Item::Lost(error.clone()));
            if self.peer.get().is_some() {
                self.cancel(id, "the session ends");
            }
        }
        for (id, _) in &asks {
            let outcome = Err(ErrorObject::internal("the client is gone"));
            self.say(Message::Response(Response { id: Some(id.clone()), outcome }), Why::Ours);
        }
        self.withdraw_all(asks);
        self.gone.store(true, Ordering::Release);
        self.speech.said.close();
        self.speech.said.wait().await;
    }

    pub(super) fn cancel(self: &Arc<Self>, id: u64, reason: &str) {
        let params = format!(r#"{{"requestId":{id},"reason":"{reason}"}}"#);
        self.notify(Method::Cancelled, Some(Raw::trusted(params.into())));
    }
}

impl Asker for Connection {
    fn version(&self) -> Option<String> {
        self.server_version()
    }

    fn waits_for(&self, question: &RequestId) -> bool {
        self.waits_for_answer(question)
    }

    fn answer(self: Arc<Self>, question: &RequestId, outcome: Outcome) {
        self.respond(question, outcome);
    }
}

/// Posts what waits until nothing does, or the connection is over.
async fn speak(connection: Arc<Connection>) {
    let stop = connection.stop_token();
    let speech = async {
        while !stop.is_cancelled()
            && let Some(frame) = connection.speech.next()
        {
            post(&connection, frame).await;
        }
    };
    let over = async {
        stop.cancelled().await;
        // Over HTTP with SSE the stream was the session.
        if matches!(connection.wire(), Wire::Http(_)) {
            tokio::time::sleep(LAST).await;
        }
    };
    tokio::select! {
        biased;
        () = speech => {}
        () = over => {}
    }
}

async fn post(connection: &Arc<Connection>, frame: Frame) {
    match connection.wire() {
        Wire::Http(http) => match timeout(transport::HEADERS, http.post(frame)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => connection.failed(&error),
            Err(_) => tracing::warn!("a message was not accepted within {:?}", transport::HEADERS),
        },
        Wire::Sse(sse) => connection.deliver(sse, None, frame).await,
        Wire::Pipe(_) | Wire::Memory(_) => {}
    }
}
