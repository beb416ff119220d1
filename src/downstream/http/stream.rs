//! The body of an event stream: it reads a [`Record`](super::replay::Record), and while it lives it also drives what
//! fills the record, so that a call needs no task of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame as Part;
use tokio::runtime::Handle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::task::TaskTracker;

use super::outlet::Outlet;
use super::replay::{Item, Reader};
use super::session::Use;
use crate::downstream::authentication::Proven;

/// How long an answer may take and still come as JSON: a client behind a stream sees that its connection lives.
pub(super) const DECIDE: Duration = Duration::from_millis(1500);
/// How often a comment shows that the connection lives, and finds out whether it does (`docs/hazards.md` H62).
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// A client whose token is over may come back with another as soon as that.
const ANEW: Duration = Duration::from_secs(1);

/// Fills a record; ready when there is nothing more to fill in.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who fills the record.
pub(super) enum Source {
    /// A call. It outlives the connection (a disconnect is no cancel): then it goes on as a task of this tracker.
    Call(Work, TaskTracker),
    /// What the session has for its client. Without a connection it waits in the mailbox.
    Mailbox(Work),
    /// Somebody else does, or nobody any more.
    None,
}

/// The body.
pub(super) struct Events {
    /// Taken out when the stream is over.
    reader: Option<Reader>,
    source: Source,
    outlet: Outlet,
    /// Pieces of the event being written.
    pieces: VecDeque<Bytes>,
    tick: Interval,
    /// When its client has to show again who it is. A call is answered all the same.
    over: Option<Work>,
    _in_use: Use,
}

impl Events {
    /// A body that reads what `source` writes.
    pub(super) fn new(reader: Reader, source: Source, in_use: Use, outlet: Outlet) -> Self {
        let mut tick = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { reader: Some(reader), source, outlet, pieces: VecDeque::new(), tick, over: None, _in_use: in_use }
    }

    /// Begins with a comment, so that the client sees its stream open before there is anything to send.
    pub(super) fn with_comment(mut self) -> Self {
        self.pieces.push_back(COMMENT);
        self
    }

    /// Ends when it is no longer proven whose stream it is; what is there for the client waits for it to come back.
    pub(super) fn until(mut self, proven: &Proven) -> Self {
        self.over = proven.has_end().then(|| Box::pin(proven.clone().over()) as Work);
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(piece));
        }
        if let Some(over) = &mut self.over
            && over.as_mut().poll(cx).is_ready()
        {
            self.over = None;
            self.leave();
            return Poll::Ready(Some(hang_up(ANEW)));
        }
        let Some(reader) = &self.reader else { return Poll::Ready(None) };
        // What is in the record goes first: the source is asked only when the connection took everything, so that a slow
        // client fills its mailbox, which has a cap, and not the record.
        let mut item = reader.poll(cx);
        if item.is_pending() && self.source.poll(cx) {
            item = reader.poll(cx);
        }
        match item {
            Poll::Ready(Item::Event(number, event)) => {
                let head = format!("id: {}-{number}\ndata: ", reader.number());
                self.outlet.event(&mut self.pieces, head.as_bytes(), event);
                Poll::Ready(self.pieces.pop_front())
            }
            Poll::Ready(Item::Poke) => Poll::Ready(Some(COMMENT)),
            Poll::Ready(Item::HangUp(retry)) => {
                self.leave();
                Poll::Ready(Some(hang_up(retry)))
            }
            Poll::Ready(Item::End) => {
                self.leave();
                Poll::Ready(None)
            }
            Poll::Pending => self.tick.poll_tick(cx).map(|_| Some(COMMENT)),
        }
    }

    /// Leaves the record to others; a call goes on elsewhere.
    fn leave(&mut self) {
        self.reader = None;
        if let Source::Call(work, tasks) = std::mem::replace(&mut self.source, Source::None)
            && let Ok(runtime) = Handle::try_current()
        {
            tasks.spawn_on(work, &runtime);
        }
    }
}

/// The last piece of a stream whose client is to come back after that time.
fn hang_up(retry: Duration) -> Bytes {
    format!("retry: {}\n\n", retry.as_millis()).into()
}

impl Source {
    /// Does some work; whether the record may have news.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let (Self::Call(work, _) | Self::Mailbox(work)) = self else { return false };
        if work.as_mut().poll(cx).is_ready() {
            *self = Self::None;
        }
        true
    }
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Part<Bytes>, Infallible>>> {
        self.poll(cx).map(|piece| piece.map(|bytes| Ok(Part::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_none() && self.pieces.is_empty()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.leave();
    }
}
