//! Outgoing messages other than requests: notifications, and answers to the server's questions.
//!
//! Over HTTP each message is a POST of its own. A server that accepts them and never responds would hold one of our
//! sockets for each, so only a few are in flight at once, and the others wait in order, within `limits.serverQueue`.
//! Messages that the server itself provokes have little room in that queue, and a mere refusal has none
//! (`docs/hazards.md` H18).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{Connection, Item, Link};
use crate::counts::{Count, ServerCounts};
use crate::lock::lock;
use crate::protocol::{ErrorObject, Frame, Message, Method, Notification, Outcome, Raw, RequestId, Response};
use crate::transport::{self, Sse};
use crate::upstream::ask::Asker;

/// The maximum number of messages posted to one server at once.
const AT_ONCE: usize = 16;
/// The maximum queue length for echoes: answers to pings and to unknown requests.
const ECHOES: usize = 64;
/// The bytes that a queued message costs in addition to its own length.
const OVERHEAD: usize = 256;
/// How long a server may take to accept a POST over HTTP with SSE. The answer comes on the stream.
const ACCEPT: Duration = Duration::from_secs(60);
/// How long POSTs in flight may continue after the connection is lost: they may have arrived, and their call may still
/// be answered.
const LAST: Duration = Duration::from_secs(1);

/// Why a message is sent, which decides how long it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The host or a client has something to say.
    Ours,
    /// An answer that the host gives itself: to a ping, or to an unknown request.
    Echo,
    /// A refusal, because the server asks too much.
    Refusal,
}

/// The outgoing queue over HTTP.
#[derive(Debug, Default)]
pub(super) struct Speech {
    queue: Mutex<Queue>,
    /// The POSTs that must finish before the session may end.
    said: TaskTracker,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Frame>,
    bytes: usize,
    /// The number of tasks that post queued messages.
    speakers: usize,
}

impl Speech {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Returns the next message. `None` means that there is none; the calling task then no longer counts as a speaker.
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
    /// Whether a message may be queued. An empty queue takes a message of any size.
    fn has_room(&self, frame: &Frame, why: Why, cap: usize) -> bool {
        match why {
            Why::Ours => self.waiting.is_empty() || self.bytes + frame.len() + OVERHEAD <= cap,
            Why::Echo => self.waiting.len() < ECHOES,
            Why::Refusal => false,
        }
    }
}

impl Connection {
    /// Sends a notification without waiting.
    pub(crate) fn notify(self: &Arc<Self>, method: Method, params: Option<Raw>) {
        // In the modern era a client sends only cancellations, and over HTTP it closes the stream instead.
        if self.is_modern() && (method != Method::Cancelled || matches!(self.link(), Link::Http(_))) {
            return;
        }
        self.say(Message::Notification(Notification { method, params }), Why::Ours);
    }

    /// Sends a notification that must arrive before any later message; over HTTP, waits until it is accepted.
    pub(in crate::upstream) async fn say_first(self: &Arc<Self>, method: Method) -> Result<(), transport::Error> {
        let notice = Notification { method, params: None };
        match self.link() {
            Link::Http(http) => http.post(notice.frame()).await.map(drop),
            Link::Sse(sse) => sse.post(notice.frame()).await.map(drop),
            Link::Pipe(_) | Link::Memory(_) => {
                self.say(Message::Notification(notice), Why::Ours);
                Ok(())
            }
        }
    }

    /// Answers a question from the server, if the server still waits for the answer.
    pub(in crate::upstream) fn respond(self: &Arc<Self>, id: &RequestId, outcome: Outcome) {
        self.respond_because(Why::Ours, id, outcome);
    }

    /// Answers a request from the server that no client had to answer.
    pub(super) fn echo(self: &Arc<Self>, id: &RequestId, outcome: Outcome) {
        self.respond_because(Why::Echo, id, outcome);
    }

    fn respond_because(self: &Arc<Self>, why: Why, id: &RequestId, outcome: Outcome) {
        if self.lock().asks.remove(id).is_some() {
            self.say(Message::Response(Response { id: Some(id.clone()), outcome }), why);
        }
    }

    /// Refuses a question that was not admitted.
    pub(super) fn refuse(self: &Arc<Self>, id: RequestId, why: ErrorObject) {
        self.say(Message::Response(Response { id: Some(id), outcome: Err(why) }), Why::Refusal);
    }

    fn say(self: &Arc<Self>, message: Message, why: Why) {
        if self.is_gone() {
            return;
        }
        let result = match self.link() {
            Link::Pipe(pipe) => pipe.send(message.frame()),
            Link::Memory(memory) => memory.send(message),
            Link::Http(_) | Link::Sse(_) => {
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
            return self
                .drop_one("a message to the server: it accepts messages too slowly", Count::DroppedNotification);
        }
        queue.bytes += frame.len() + OVERHEAD;
        queue.waiting.push_back(frame);
        if starts {
            queue.speakers += 1;
            self.parts.tasks.spawn(self.say_in_time(speak(self.clone())));
        }
    }

    /// Tracks a POST that must finish before the session may end.
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
            // The answer may still come; if not, the call has its own deadline.
            Err(_) => tracing::warn!(server = self.label(), "a message was not accepted within {ACCEPT:?}"),
        }
    }

    /// Prepares the orderly end of the session: requests in flight are cancelled at the server, its open questions are
    /// answered with an error, and nothing is sent after that. Once this returns, the session may end.
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

    fn counts(&self) -> &Arc<ServerCounts> {
        self.parts.announcer.counts()
    }
}

/// Posts queued messages until there are none, or the connection is over.
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
        // Over HTTP with SSE the session ended with its stream, so there is nothing to wait for.
        if matches!(connection.link(), Link::Http(_)) {
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
    match connection.link() {
        Link::Http(http) => match timeout(transport::HEADERS, http.post(frame)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => connection.failed(&error),
            Err(_) => tracing::warn!("a message was not accepted within {:?}", transport::HEADERS),
        },
        Link::Sse(sse) => connection.deliver(sse, None, frame).await,
        Link::Pipe(_) | Link::Memory(_) => {}
    }
}
