//! The response body of a session's event stream. It reads a [`Record`](super::replay::Record), and also drives the
//! work that fills this record, so that a call needs no task of its own.

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

/// How long an answer may take before the response becomes a stream, whose comments show the client that the connection
/// is alive.
pub(super) const DECIDE: Duration = Duration::from_millis(1500);
/// How often a comment is written, which shows the client that the connection is alive, and us if it is not
/// (`docs/hazards.md` H62).
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// How long a client whose token expired should wait before it reconnects with another one.
const ANEW: Duration = Duration::from_secs(1);

/// Fills a record with events; resolves when no more follow.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The source of the record's events.
pub(super) enum Source {
    /// A call. If the connection breaks, which does not cancel the call, it continues as a task of this tracker.
    Call(Work, TaskTracker),
    /// The session's mailbox. Without a connection, messages wait in it.
    Mailbox(Work),
    /// No source: something else fills the record, or it is complete.
    None,
}

/// The response body that sends the events of one record.
pub(super) struct Events {
    /// The record's reader; `None` once the stream has ended.
    reader: Option<Reader>,
    source: Source,
    outlet: Outlet,
    /// The pieces of the event being written.
    pieces: VecDeque<Bytes>,
    tick: Interval,
    /// Resolves when the client's proof of authentication expires. Not set for a call, which is answered in any case.
    over: Option<Work>,
    _in_use: Use,
}

impl Events {
    /// Creates a body that sends the events of `reader`, which `source` provides.
    pub(super) fn new(reader: Reader, source: Source, in_use: Use, outlet: Outlet) -> Self {
        let mut tick = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { reader: Some(reader), source, outlet, pieces: VecDeque::new(), tick, over: None, _in_use: in_use }
    }

    /// Starts with a comment, so that the client sees an open stream before there is anything to send.
    pub(super) fn with_comment(mut self) -> Self {
        self.pieces.push_back(COMMENT);
        self
    }

    /// Ends the stream when the proof of authentication expires; messages wait until the client returns.
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
        // The record is polled first, and its source only after the connection has taken all events, so that a slow
        // client fills its mailbox, which is bounded, and not the record.
        let mut item = reader.poll(cx);
        if item.is_pending() && self.source.poll(cx) {
            item = reader.poll(cx);
        }
        match item {
            Poll::Ready(Item::Event(number, event)) => {
                let head = format!("id: {}\ndata: ", reader.id_of(number));
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

    /// Ends reading, which frees the record for another reader; a call continues as a task.
    fn leave(&mut self) {
        self.reader = None;
        if let Source::Call(work, tasks) = std::mem::replace(&mut self.source, Source::None)
            && let Ok(runtime) = Handle::try_current()
        {
            tasks.spawn_on(work, &runtime);
        }
    }
}

/// Returns the last piece of a stream, which tells the client to reconnect after this time.
fn hang_up(retry: Duration) -> Bytes {
    format!("retry: {}\n\n", retry.as_millis()).into()
}

impl Source {
    /// Polls the source; returns whether the record may have new events.
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
