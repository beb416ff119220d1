//! What waits to be written to one client: a queue with a cap, made by the router, emptied by a door.
//!
//! **Invariant:** putting something in never waits, so a slow client never stops a server's reader (`docs/hazards.md` H48,
//! H49): over the cap, or while all queues together are half full, progress and log lines go first, list changes are told
//! once, and then the box overflows, which tells the door to cut the client off.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::level::Level;
use crate::config::Limits;
use crate::observe::Subject;
use crate::protocol::{Message, Method};
use crate::queues::{Account, Share};

/// A queue of messages to one client: of its session, or of one of its requests.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    news: Notify,
    readers: AtomicUsize,
    reader_came: Notify,
    /// The limits that hold for it, and for the request that it belongs to, to its end: those of the config when it was made.
    limits: Arc<Limits>,
    account: Account,
    /// From which level on the request that it belongs to wants log lines; only requests without a session say so.
    level: Option<Level>,
    /// Where its request goes, if anybody wants to hear that.
    subject: OnceLock<Arc<Subject>>,
}

#[derive(Debug)]
struct Queue {
    messages: VecDeque<Message>,
    share: Share,
    state: Opening,
    hang_up: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Opening {
    #[default]
    Open,
    Overflowed,
    Closed,
}

/// While it lives, somebody reads the box.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a Mailbox);

impl Mailbox {
    /// An empty box that takes up to `clientQueue` bytes, or one message of any size; they count for `account`.
    pub(crate) fn new(limits: Arc<Limits>, account: Account) -> Self {
        let queue =
            Queue { messages: VecDeque::new(), share: account.share(), state: Opening::default(), hang_up: None };
        Self {
            queue: Mutex::new(queue),
            news: Notify::new(),
            readers: AtomicUsize::new(0),
            reader_came: Notify::new(),
            limits,
            account,
            level: None,
            subject: OnceLock::new(),
        }
    }

    /// The same for a request that wants log lines from a level on.
    pub(crate) fn with_level(self, level: Option<Level>) -> Self {
        Self { level, ..self }
    }

    /// The same for one request, whose door reads as long as it runs.
    pub(crate) fn of_request(self) -> Self {
        Self { readers: AtomicUsize::new(1), ..self }
    }

    /// The limits that hold for its request, however the config changes meanwhile.
    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// What it counts for.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Where it is noted which server the request goes to; from now on it is.
    pub(super) fn observed(&self) -> Arc<Subject> {
        self.subject.get_or_init(Arc::default).clone()
    }

    /// The same, if anybody wants to hear of the request.
    pub(super) fn subject(&self) -> Option<&Subject> {
        self.subject.get().map(|subject| &**subject)
    }

    pub(super) fn level(&self) -> Option<Level> {
        self.level
    }

    /// Puts a message in, or drops it by the rules of the cap.
    pub(crate) fn put(&self, message: Message) {
        let mut queue = self.lock();
        if queue.state != Opening::Open {
            return;
        }
        let size = weight(&message);
        if is_list_change(&message) && queue.messages.contains(&message) {
            return;
        }
        if !queue.messages.is_empty() {
            let over = queue.share.bytes() + size > self.limits.client_queue;
            if over || !self.account.has_plenty(size) {
                queue.drop_droppable();
                if droppable(&message)
                    && (!self.account.has_plenty(size) || queue.share.bytes() + size > self.limits.client_queue)
                {
                    return;
                }
            }
            if queue.share.bytes() + size > self.limits.client_queue {
                queue.messages = VecDeque::new();
                queue.share = self.account.share();
                (queue.state, queue.hang_up) = (Opening::Overflowed, None);
                drop(queue);
                self.news.notify_one();
                // A connection that takes nothing asks for nothing either, so it would not notice.
                if self.has_reader() {
                    self.account.cut_off("it takes no messages (host.limits.clientQueue)");
                }
                return;
            }
        }
        queue.share.add(size);
        queue.messages.push_back(message);
        drop(queue);
        self.news.notify_one();
    }

    /// The next message; `None` once the box is closed and empty, or overflowed. One reader at a time.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&self) -> Option<Message> {
        loop {
            let news = self.news.notified();
            {
                let mut queue = self.lock();
                if let Some(message) = queue.pop() {
                    return Some(message);
                }
                if queue.state != Opening::Open {
                    return None;
                }
            }
            news.await;
        }
    }

    /// The next message, if there is one now.
    pub(crate) fn try_next(&self) -> Option<Message> {
        self.lock().pop()
    }

    /// Waits until there is something to read or to do, or nothing ever again.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    #[cfg(feature = "server")]
    pub(crate) async fn ready(&self) {
        loop {
            let news = self.news.notified();
            {
                let queue = self.lock();
                if !queue.messages.is_empty() || queue.hang_up.is_some() || queue.state != Opening::Open {
                    return;
                }
            }
            news.await;
        }
    }

    /// Asks the door to close the stream it writes this box to, after what waits now, and to tell the client to come back
    /// for the rest after `retry` (2025-11-25, SEP-1699). A door without such streams goes on as if nothing was said.
    pub(crate) fn hang_up(&self, retry: Duration) {
        self.lock().hang_up = Some(retry);
        self.news.notify_one();
    }

    /// Whether the stream is to be closed, once everything before is read.
    #[cfg(feature = "server")]
    pub(crate) fn take_hang_up(&self) -> Option<Duration> {
        let mut queue = self.lock();
        if queue.messages.is_empty() { queue.hang_up.take() } else { None }
    }

    /// Whether the client was too slow: the door must cut it off.
    #[must_use]
    pub(crate) fn overflowed(&self) -> bool {
        self.lock().state == Opening::Overflowed
    }

    /// No more messages; what waits can still be read.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        if queue.state == Opening::Open {
            queue.state = Opening::Closed;
        }
        drop(queue);
        self.news.notify_one();
    }

    /// Says that a stream to the client is open, as long as the answer lives.
    pub(crate) fn read(&self) -> Reader<'_> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        self.reader_came.notify_waiters();
        Reader(self)
    }

    /// Whether a stream to the client is open.
    #[must_use]
    pub(crate) fn has_reader(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Waits until a stream to the client is open.
    pub(crate) async fn reader(&self) {
        loop {
            let came = self.reader_came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            if self.has_reader() {
                return;
            }
            came.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.share.take(weight(&message));
        if self.messages.is_empty() {
            // An idle session keeps no buffer.
            self.messages = VecDeque::new();
        }
        Some(message)
    }

    fn drop_droppable(&mut self) {
        let mut dropped = 0;
        self.messages.retain(|message| {
            let stays = !droppable(message);
            dropped += if stays { 0 } else { weight(message) };
            stays
        });
        self.share.take(dropped);
    }
}

fn weight(message: &Message) -> usize {
    let raw = match message {
        Message::Request(request) => request.params.as_ref(),
        Message::Notification(notice) => notice.params.as_ref(),
        Message::Response(response) => response.outcome.as_ref().ok(),
    };
    128 + raw.map_or(0, |raw| raw.as_bytes().len())
}

fn droppable(message: &Message) -> bool {
    matches!(message, Message::Notification(notice) if matches!(notice.method, Method::Progress | Method::LogMessage))
}

fn is_list_change(message: &Message) -> bool {
    matches!(message, Message::Notification(notice)
        if matches!(notice.method, Method::ToolsListChanged | Method::PromptsListChanged | Method::ResourcesListChanged | Method::ResourceUpdated))
}
