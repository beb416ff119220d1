//! Messages that wait to be written to one client: a capped queue that the router fills and a door (HTTP, stdio)
//! empties. The mailbox of one request is called the *leg* of its call.
//!
//! **Invariant:** putting a message in never waits, so a slow client never stops the reader of a server's connection
//! (`docs/hazards.md` H48, H49). If the queue is over its cap, or all queues together are half full, progress and log
//! messages are dropped. A notice that a list has changed is never queued twice. If that does not help, the mailbox
//! overflows, which tells the door to cut the client off.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::level::Level;
use super::presence::Sender;
use crate::config::Limits;
use crate::counts::Tally;
use crate::lock::lock;
use crate::observe::{Passing, Subject};
use crate::protocol::{Message, Method};
use crate::queues::{Account, Share};
#[cfg(feature = "otel")]
use crate::traced::Origin;

/// A queue of messages to one client: for its session, or for one of its requests.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    news: Notify,
    readers: AtomicUsize,
    reader_came: Notify,
    /// The limits for the mailbox and its request, from the config as it was when the mailbox was made.
    limits: Arc<Limits>,
    account: Account,
    /// The data of its request. Behind a pointer, since each session has a mailbox for no request, and costs memory.
    request: OnceLock<Box<OfRequest>>,
}

/// What a mailbox holds beside the messages of its request.
#[derive(Debug, Default)]
struct OfRequest {
    /// The least severe log level that it wants. Only requests without a session state one; `None` means no log messages
    /// for them.
    level: Option<Level>,
    /// Who sent it, if it came without a session.
    sender: Option<Sender>,
    /// The server and target that it goes to, if an observer (`observe/mod.rs`) wants to know.
    subject: Mutex<Option<Arc<Subject>>>,
    tally: Tally,
    /// What is noted of it for a listener that is told only of its end.
    passing: Passing,
    /// Where it comes from, if its door recorded that for a trace.
    #[cfg(feature = "otel")]
    origin: OnceLock<Box<Origin>>,
    /// The tally and notes of a second request, which mcp-host makes on behalf of this one (a fallback).
    second: OnceLock<Box<(Tally, Passing)>>,
    /// The name of the script that makes the call.
    script: Option<Arc<str>>,
    /// The mailbox of the batch that it is part of. All messages go there.
    batch: Option<Arc<Mailbox>>,
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

/// Counts as one reader of the mailbox until dropped.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a Mailbox);

impl Mailbox {
    /// Makes an empty mailbox that holds up to `clientQueue` bytes, or one message of any size. The bytes count for
    /// `account`.
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
            request: OnceLock::new(),
        }
    }

    fn request(&self) -> &OfRequest {
        self.request.get_or_init(Box::default)
    }

    /// Changes what belongs to its request.
    fn with(mut self, change: impl FnOnce(&mut OfRequest)) -> Self {
        let mut request = self.request.take().unwrap_or_default();
        change(&mut request);
        self.request = request.into();
        self
    }

    /// Makes it the mailbox of a request that wants log messages of at least this severity.
    pub(crate) fn with_level(self, level: Option<Level>) -> Self {
        self.with(|request| request.level = level)
    }

    /// Makes it the mailbox of a request without a session.
    pub(crate) fn with_sender(self, sender: Sender) -> Self {
        self.with(|request| request.sender = Some(sender))
    }

    /// Returns who sent its request, if that came without a session.
    pub(super) fn sender(&self) -> Option<&Sender> {
        self.request.get()?.sender.as_ref()
    }

    /// Makes it the mailbox of one request. It counts as read from the start, since the door reads it as long as the
    /// request runs.
    pub(crate) fn of_request(self) -> Self {
        Self { readers: AtomicUsize::new(1), ..self }
    }

    /// Makes the mailbox of one request of a batch, whose messages go into that of the batch: each request is counted
    /// and recorded by itself.
    #[cfg(feature = "server")]
    pub(crate) fn of_batch(batch: &Arc<Self>) -> Arc<Self> {
        let own = Self::new(batch.limits.clone(), batch.account.clone()).of_request();
        Arc::new(own.with(|request| request.batch = Some(batch.clone())))
    }

    /// Makes the mailbox of a part of its request, which is counted and recorded by itself.
    pub(super) fn of_part(&self) -> Self {
        let own = Self::new(self.limits.clone(), self.account.clone()).of_request();
        match self.sender() {
            Some(sender) => own.with_sender(sender.clone()),
            None => own,
        }
    }

    /// Makes it the mailbox of a call that a script makes. `level` is that of the script's own request.
    #[cfg(all(unix, feature = "script"))]
    pub(super) fn of_script(self, script: Arc<str>, level: Option<Level>) -> Self {
        self.with(|request| (request.script, request.level) = (Some(script), level))
    }

    /// Returns the name of the script that makes the call.
    pub(super) fn script(&self) -> Option<&Arc<str>> {
        self.request.get()?.script.as_ref()
    }

    /// Returns the mailbox that its messages go into.
    fn whole(&self) -> &Self {
        self.request.get().and_then(|request| request.batch.as_deref()).unwrap_or(self)
    }

    /// Returns the limits for its request. Config changes do not affect them.
    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Returns the account that its bytes count for.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the record of which server the request goes to, for an observer. The first call creates it.
    pub(super) fn observed(&self) -> Arc<Subject> {
        lock(&self.request().subject).get_or_insert_default().clone()
    }

    /// Makes a new record, for a second request that mcp-host makes on behalf of the client's.
    pub(super) fn observe_anew(&self) -> Arc<Subject> {
        let subject = Arc::<Subject>::default();
        *lock(&self.request().subject) = Some(subject.clone());
        subject
    }

    /// Returns the tally of its request or, if there is one, of the second request made on its behalf.
    pub(super) fn tally(&self) -> &Tally {
        let request = self.request();
        request.second.get().map_or(&request.tally, |second| &second.0)
    }

    /// Returns the notes on that request.
    pub(super) fn passing(&self) -> &Passing {
        let request = self.request();
        request.second.get().map_or(&request.passing, |second| &second.1)
    }

    /// Counts a second request from now on, which mcp-host makes on behalf of the client's.
    pub(super) fn tally_anew(&self) -> &Tally {
        &self.request().second.get_or_init(Box::default).0
    }

    /// Notes where its request comes from. Only the first call has an effect.
    #[cfg(feature = "otel")]
    pub(crate) fn comes_from(&self, origin: Origin) {
        let _ = self.request().origin.set(Box::new(origin));
    }

    /// Returns where its request comes from; `None` if its door did not note that.
    #[cfg(feature = "otel")]
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.request.get()?.origin.get().map(|origin| &**origin)
    }

    /// Returns the record of [`Mailbox::observed`], or `None` if no observer asked for it.
    pub(super) fn subject(&self) -> Option<Arc<Subject>> {
        lock(&self.request.get()?.subject).clone()
    }

    pub(super) fn level(&self) -> Option<Level> {
        self.request.get()?.level
    }

    /// Puts a message in. Over the cap, drops messages or overflows, as the module's head says.
    pub(crate) fn put(&self, message: Message) {
        if let Some(batch) = self.request.get().and_then(|request| request.batch.as_ref()) {
            return batch.put(message);
        }
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
                // The door would not notice the overflow by itself: while its connection accepts no bytes, it does not
                // ask for the next message.
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

    /// Waits for the next message. Returns `None` once the mailbox is closed and empty, or has overflowed. Only one
    /// caller may wait at a time.
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

    /// Waits until there is a message to read or a stream to close ([`Mailbox::hang_up`]), or the mailbox is closed or
    /// has overflowed.
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

    /// Asks the door to close this mailbox's SSE stream after the messages that wait now, and to tell the client to
    /// reconnect for the rest after `retry` (2025-11-25, SEP-1699). A door that has no such streams ignores this.
    pub(crate) fn hang_up(&self, retry: Duration) {
        let whole = self.whole();
        whole.lock().hang_up = Some(retry);
        whole.news.notify_one();
    }

    /// Returns after how long the client should reconnect if the stream is to be closed now. Returns `None` if it is
    /// not, or if messages still wait to be read.
    #[cfg(feature = "server")]
    pub(crate) fn take_hang_up(&self) -> Option<Duration> {
        let mut queue = self.lock();
        if queue.messages.is_empty() { queue.hang_up.take() } else { None }
    }

    /// Reports whether the client was too slow, so that the door must cut it off.
    #[must_use]
    pub(crate) fn overflowed(&self) -> bool {
        self.whole().lock().state == Opening::Overflowed
    }

    /// Closes the mailbox to new messages. Messages that wait can still be read.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        if queue.state == Opening::Open {
            queue.state = Opening::Closed;
        }
        drop(queue);
        self.news.notify_one();
    }

    /// Notes that a stream to the client reads this mailbox, until the returned value is dropped.
    pub(crate) fn read(&self) -> Reader<'_> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        self.reader_came.notify_waiters();
        Reader(self)
    }

    /// Reports whether a stream to the client reads this mailbox.
    #[must_use]
    pub(crate) fn has_reader(&self) -> bool {
        self.whole().readers.load(Ordering::Relaxed) > 0
    }

    /// Waits until a stream to the client reads this mailbox.
    pub(crate) async fn reader(&self) {
        loop {
            let came = self.whole().reader_came.notified();
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
