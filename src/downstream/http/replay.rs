//! One stream of a session: what was and is to be sent on it, kept for a client that lost its connection.
//!
//! A writer pushes messages, at most one reader takes them in order; the reader's place survives its connection, so that
//! a new one begins after what the last took, or after the event the client saw last (2025-11-25, transports,
//! "Resumability and Redelivery"). **Invariant:** what nobody took yet is dropped last, and the newest of it never; what was
//! taken is kept as long as there is plenty of room for the queues of all clients.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::wires::Wire;
use crate::lock::lock;
use crate::protocol::Frame;
use crate::queues::{Account, Share, Spare};

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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The events up to `next`, without gaps.
    kept: VecDeque<Event>,
    next: u64,
    /// The first event that no reader took.
    untaken: u64,
    /// What those from there on hold, and what those before do.
    waiting: Share,
    taken: Spare,
    reading: bool,
    /// How many have read before, and the connection of who does.
    turn: u64,
    wire: Option<Wire>,
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
    turn: u64,
}

impl Record {
    /// A stream that counts for that account.
    pub(super) fn new(number: u32, cap: usize, account: &Account) -> Self {
        let state = State {
            kept: VecDeque::new(),
            next: 0,
            untaken: 0,
            waiting: account.share(),
            taken: account.spare(),
            reading: false,
            turn: 0,
            wire: None,
            waker: None,
            poked: false,
            hang_up: None,
            ended: None,
        };
        Self { number, cap, state: Mutex::new(state) }
    }

    /// Adds a message; `None` adds an event without one.
    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        state.waiting.add(weight(&event));
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
        if matches!(from, From::After(seen) if seen < state.next) && state.wire.as_ref().is_some_and(Wire::was_left) {
            // Its client sends no more there, and has come back: it reads here from now on.
            state.leave();
        }
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
            let first = state.first();
            state.go_to((seen + 1).max(first));
        }
        state.reading = true;
        let turn = state.turn;
        drop(state);
        Ok(Reader { record: Arc::clone(self), turn })
    }

    /// What the stream keeps, if it ended and nobody reads: bytes and when it ended.
    pub(super) fn rest(&self) -> Option<(usize, Instant)> {
        let state = self.lock();
        state.ended.filter(|_| !state.reading).map(|at| (state.waiting.bytes() + state.taken.bytes(), at))
    }

    fn trim(&self, state: &mut State) {
        while state.kept.len() > 1 {
            let over = if state.first() < state.untaken {
                state.taken.bytes() > TAKEN_BYTES || state.kept.len() > TAKEN_EVENTS
            } else {
                // Events for a reader are bounded where they come from; without one they end here.
                !state.reading && state.waiting.bytes() > self.cap
            };
            if !over {
                return;
            }
            state.drop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// The number of the oldest event that is kept.
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }

    /// Forgets the oldest event.
    fn drop_first(&mut self) {
        let taken = self.first() < self.untaken;
        let size = self.kept.pop_front().map_or(0, |event| weight(&event));
        if taken {
            self.taken.take(size);
        } else {
            self.waiting.take(size);
            self.untaken = self.untaken.max(self.first());
        }
    }

    /// The first event that no reader took, if there is one: now one has.
    fn take(&mut self) -> Option<(u64, Event)> {
        if self.untaken >= self.next {
            return None;
        }
        let number = self.untaken;
        let at = usize::try_from(number - self.first()).unwrap_or(usize::MAX);
        let event = self.kept.get(at).cloned().flatten();
        let size = weight(&event);
        self.waiting.take(size);
        self.untaken += 1;
        // What was taken before makes room for it.
        while !self.taken.try_add(size) {
            if self.untaken - self.first() == 1 {
                self.kept.pop_front();
                break;
            }
            self.drop_first();
        }
        Some((number, event))
    }

    /// Has the next reader begin at an event that is kept.
    fn go_to(&mut self, number: u64) {
        while self.untaken < number && self.take().is_some() {}
        while self.untaken > number {
            self.untaken -= 1;
            let at = usize::try_from(self.untaken - self.first()).unwrap_or(usize::MAX);
            let size = self.kept.get(at).map_or(0, weight);
            self.taken.take(size);
            self.waiting.add(size);
        }
    }

    /// The reader reads no more.
    fn leave(&mut self) {
        self.wake();
        self.turn += 1;
        self.reading = false;
        self.wire = None;
        self.poked = false;
        self.hang_up = None;
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Reader {
    /// Names the connection of a reader whose going may be seen late.
    pub(super) fn is_on(&self, wire: &Wire) {
        self.record.lock().wire = Some(wire.clone());
    }

    /// The first part of the event ids.
    pub(super) fn number(&self) -> u32 {
        self.record.number
    }

    /// Waits for the next thing to do.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Item> {
        let mut state = self.record.lock();
        if state.turn != self.turn {
            return Poll::Ready(Item::End);
        }
        if let Some((number, event)) = state.take() {
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
        if state.turn == self.turn {
            state.leave();
            self.record.trim(&mut state);
        }
    }
}

fn weight(event: &Event) -> usize {
    OVERHEAD + event.as_ref().map_or(0, Frame::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Method, Notification, Raw};

    fn event(size: usize) -> Event {
        let params = Some(Raw::from_value(&"x".repeat(size)));
        Some(Notification { method: Method::LogMessage, params }.frame())
    }

    /// The number of the first event that a reader gets now, and how many it gets.
    fn taken(reader: &Reader) -> (Option<u64>, usize) {
        let cx = Context::from_waker(Waker::noop());
        let next = || match reader.poll(&cx) {
            Poll::Ready(Item::Event(number, _)) => Some(number),
            _ => None,
        };
        let mut events = std::iter::from_fn(next);
        let first = events.next();
        (first, usize::from(first.is_some()) + events.count())
    }

    #[test]
    fn h65_of_what_was_taken_so_much_is_kept_for_another_try() {
        for (count, size, first, kept) in [(1000, 0, 744, 256), (40, 100_000, 30, 10)] {
            let record = Arc::new(Record::new(1, usize::MAX, &Account::free()));
            let reader = record.read(From::Untaken).unwrap();
            for number in 0..count {
                record.push(event(size));
                assert_eq!(taken(&reader), (Some(number), 1));
            }
            drop(reader);
            assert_eq!(taken(&record.read(From::After(0)).unwrap()), (Some(first), kept));
        }
    }

    #[test]
    fn h65_what_waits_while_nobody_reads_has_a_cap() {
        let record = Arc::new(Record::new(1, 7 * OVERHEAD, &Account::free()));
        (0..100).for_each(|_| record.push(None));
        assert_eq!(taken(&record.read(From::Untaken).unwrap()), (Some(93), 7));
    }
}
