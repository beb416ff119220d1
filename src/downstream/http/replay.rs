//! One stream of a session: what was and is to be sent on it, kept for a client that lost its connection.
//!
//! A writer pushes messages, at most one reader takes them in order; the reader's place survives its connection, so that
//! a new one begins after what the last took, or after the event the client saw last (2025-11-25, transports,
//! "Resumability and Redelivery"). **Invariant:** what nobody took yet is dropped last, and the newest event never.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::Frame;

/// How long a stream is kept after its last event.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(5 * 60);
/// How many bytes and events that were taken already are kept for another try.
const TAKEN_BYTES: usize = 1024 * 1024;
const TAKEN_EVENTS: usize = 256;
/// What an event costs beside its bytes.
const OVERHEAD: usize = 128;

/// A stream.
#[derive(Debug)]
pub(super) struct Record {
    /// The first part of its event ids.
    pub(super) number: u32,
    /// Most bytes that wait while no one reads.
    cap: usize,
    budget: Budget,
    state: Mutex<State>,
}

/// How many bytes all streams of the door keep.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
    cap: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The events up to `next`, without gaps.
    kept: VecDeque<Event>,
    next: u64,
    /// The first event that no reader took.
    untaken: u64,
    bytes: usize,
    reading: bool,
    waker: Option<Waker>,
    poked: bool,
    hang_up: Option<Duration>,
    ended: Option<Instant>,
}

/// A message, or nothing: an event that only gives the client an id to come back with.
type Event = Option<Frame>;

/// What a reader gets.
#[derive(Debug)]
pub(super) enum Item {
    /// An event and the second part of its id.
    Event(u64, Event),
    /// Somebody wants to know whether the reader's connection lives: write a comment.
    Poke,
    /// Close the connection and tell the client to come back after that time.
    HangUp(Duration),
    /// That was all.
    End,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// At the first event that no reader took.
    Untaken,
    /// Behind the event with that number.
    After(u64),
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It has a reader.
    Taken,
    /// There is no such event.
    Unknown,
}

/// The reader of a record, until it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    record: Arc<Record>,
}

impl Record {
    pub(super) fn new(number: u32, cap: usize, budget: Budget) -> Self {
        Self { number, cap, budget, state: Mutex::default() }
    }

    /// Adds a message; `None` adds an event without one.
    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        let size = weight(&event);
        self.budget.add(size);
        state.bytes += size;
        state.next += 1;
        state.kept.push_back(event);
        self.trim(&mut state);
        state.wake();
    }

    /// No more events.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(Instant::now);
        state.wake();
    }

    /// Sends the reader away once it took everything; the stream goes on.
    pub(super) fn hang_up(&self, retry: Duration) {
        let mut state = self.lock();
        if state.reading {
            state.hang_up = Some(retry);
            state.wake();
        }
    }

    /// Begins to read.
    pub(super) fn read(self: &Arc<Self>, from: From) -> Result<Reader, Refused> {
        let mut state = self.lock();
        if state.reading {
            // A connection that died unseen dies of the next write.
            state.poked = true;
            state.wake();
            return Err(Refused::Taken);
        }
        if let From::After(seen) = from {
            if seen >= state.next {
                return Err(Refused::Unknown);
            }
            state.untaken = (seen + 1).max(state.first());
        }
        state.reading = true;
        drop(state);
        Ok(Reader { record: Arc::clone(self) })
    }

    /// What the stream keeps, if it ended and nobody reads: bytes and when it ended.
    pub(super) fn rest(&self) -> Option<(usize, Instant)> {
        let state = self.lock();
        state.ended.filter(|_| !state.reading).map(|at| (state.bytes, at))
    }

    fn trim(&self, state: &mut State) {
        while state.kept.len() > 1 {
            let taken = state.first() < state.untaken;
            let over = if taken {
                state.bytes > TAKEN_BYTES || state.kept.len() > TAKEN_EVENTS || self.budget.is_spent()
            } else {
                // Events for a reader are bounded where they come from; without one they end here.
                !state.reading && (state.bytes > self.cap || self.budget.is_spent())
            };
            if !over {
                return;
            }
            if let Some(event) = state.kept.pop_front() {
                let size = weight(&event);
                state.bytes -= size;
                self.budget.give_back(size);
            }
            state.untaken = state.untaken.max(state.first());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.budget.give_back(bytes);
    }
}

impl State {
    /// The number of the oldest event that is kept.
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Reader {
    /// The first part of the event ids.
    pub(super) fn number(&self) -> u32 {
        self.record.number
    }

    /// Waits for the next thing to do.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Item> {
        let mut state = self.record.lock();
        if state.untaken < state.next {
            let number = state.untaken;
            let at = usize::try_from(number - state.first()).unwrap_or(usize::MAX);
            let event = state.kept.get(at).cloned().flatten();
            state.untaken += 1;
            self.record.trim(&mut state);
            return Poll::Ready(Item::Event(number, event));
        }
        if let Some(retry) = state.hang_up.take() {
            return Poll::Ready(Item::HangUp(retry));
        }
        if state.ended.is_some() {
            return Poll::Ready(Item::End);
        }
        if std::mem::take(&mut state.poked) {
            return Poll::Ready(Item::Poke);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.record.lock();
        state.reading = false;
        state.waker = None;
        state.poked = false;
        state.hang_up = None;
        self.record.trim(&mut state);
    }
}

impl Budget {
    pub(super) fn new(cap: usize) -> Self {
        Self { used: Arc::default(), cap }
    }

    fn add(&self, size: usize) {
        self.used.fetch_add(size, Ordering::Relaxed);
    }

    fn give_back(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }

    fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.cap
    }
}

fn weight(event: &Event) -> usize {
    OVERHEAD + event.as_ref().map_or(0, Frame::len)
}
