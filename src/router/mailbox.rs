//! Messages waiting to be written to one client: a queue with a cap, filled by the router, emptied by a door.
//!
//! **Invariant:** putting a message in never waits, so a slow client never stops a server's reader (`docs/hazards.md` H48,
//! H49). Over the cap, or while all queues together are half full, progress and log lines are dropped first, and a list
//! change is queued once. After that the box overflows, which tells the door to cut the client off.

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
    /// The limits for the box and its request, from the config at the time it was made.
    limits: Arc<Limits>,
    account: Account,
    /// The least level of log lines that its request wants. Only requests without a session say so.
    level: Option<Level>,
    /// Where its request goes, if a listener wants to know.
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

/// The box has a reader while this lives.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a Mailbox);

impl Mailbox {
    /// Makes an empty box for up to `clientQueue` bytes, or one message of any size. The bytes count for `account`.
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

    /// Makes it the box of a request that wants log lines from this level on.
    pub(crate) fn with_level(self, level: Option<Level>) -> Self {
        Self { level, ..self }
    }

    /// Makes it the box of one request, whose door reads as long as the request runs.
    pub(crate) fn of_request(self) -> Self {
        Self { readers: AtomicUsize::new(1), ..self }
    }

    /// Returns the limits for its request, which config changes do not affect.
    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Returns the account that its bytes count for.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the note of which server the request goes to. From now on it is kept.
    pub(super) fn observed(&self) -> Arc<Subject> {
        self.subject.get_or_init(Arc::default).clone()
    }

    /// Returns that note, if a listener wants it.
    pub(super) fn subject(&self) -> Option<&Subject> {
        self.subject.get().map(|subject| &**subject)
    }

    pub(super) fn level(&self) -> Option<Level> {
        self.level
    }

    /// Puts a message in, or drops it as the cap demands.
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
                // The door would not notice by itself: a connection that takes nothing asks for nothing either.
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

    /// Waits for the next message. Returns `None` once the box is closed and empty, or overflowed. One reader at a time.
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

    /// Returns the next message, if there is one now.
    pub(crate) fn try_next(&self) -> Option<Message> {
        self.lock().pop()
    }

    /// Waits until the door has something to read or to do, or the box is closed or overflowed.
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

    /// Asks the door to close the stream of this box, after the messages that wait now, and to tell the client to come back
    /// for the rest after `retry` (2025-11-25, SEP-1699). A door without such streams ignores this.
    pub(crate) fn hang_up(&self, retry: Duration) {
        self.lock().hang_up = Some(retry);
        self.news.notify_one();
    }

    /// Returns how soon the client should come back, if the stream is to be closed now that everything before is read.
    #[cfg(feature = "server")]
    pub(crate) fn take_hang_up(&self) -> Option<Duration> {
        let mut queue = self.lock();
        if queue.messages.is_empty() { queue.hang_up.take() } else { None }
    }

    /// Reports whether the client was too slow, so that the door must cut it off.
    #[must_use]
    pub(crate) fn overflowed(&self) -> bool {
        self.lock().state == Opening::Overflowed
    }

    /// Closes the box to new messages. The ones that wait can still be read.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        if queue.state == Opening::Open {
            queue.state = Opening::Closed;
        }
        drop(queue);
        self.news.notify_one();
    }

    /// Notes that a stream to the client is open, until the returned value is dropped.
    pub(crate) fn read(&self) -> Reader<'_> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        self.reader_came.notify_waiters();
        Reader(self)
    }

    /// Reports whether a stream to the client is open.
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
