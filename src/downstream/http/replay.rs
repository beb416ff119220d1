//! One event stream of a session: its events, sent and unsent, are kept for a client that loses its connection.
//!
//! A writer pushes messages, and at most one reader takes them in order. The reader's position survives its connection:
//! the reader of a new connection starts after the last event taken, or after the last event that the client saw
//! (2025-11-25, transports, "Resumability and Redelivery"). **Invariant:** events that no reader has taken are dropped
//! last, and the newest of them never. Taken events are kept for redelivery while the queues of all clients have plenty
//! of room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::event_id::{self, Label};
use super::wires::HttpWire;
use crate::lock::lock;
use crate::protocol::Frame;
use crate::queues::{Account, Share, Spare};

/// How long a stream is kept after its last event.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(5 * 60);
/// The most bytes and events that are kept for redelivery after they were taken.
const TAKEN_BYTES: usize = 1024 * 1024;
const TAKEN_EVENTS: usize = 256;
/// The bytes that an event costs in addition to its length.
const OVERHEAD: usize = 128;

/// A stream: its events, and the state of its reader.
#[derive(Debug)]
pub(super) struct Record {
    /// The stream's number, and the life of its session that it belongs to: the first parts of its event ids.
    pub(super) number: u32,
    life: u32,
    /// The part of its event ids that names the request that it answers.
    label: Label,
    /// The most bytes that may wait while there is no reader.
    cap: usize,
    state: Mutex<RecordState>,
}

#[derive(Debug)]
struct RecordState {
    /// The newest events, without gaps; `next` is the number of the one that will follow.
    kept: VecDeque<RecordEvent>,
    next: u64,
    /// The first event that no reader took.
    untaken: u64,
    /// The bytes of the untaken events (`waiting`), and of the taken ones (`taken`).
    waiting: Share,
    taken: Spare,
    reading: bool,
    /// How many readers have left, and the connection of the current one.
    turn: u64,
    wire: Option<HttpWire>,
    waker: Option<Waker>,
    poked: bool,
    hang_up: Option<Duration>,
    ended: Option<Instant>,
}

/// A message; `None` is an event without a message, which only gives the client an id to resume from.
type RecordEvent = Option<Frame>;

/// The next thing for a reader to do.
#[derive(Debug)]
pub(super) enum Item {
    /// Send an event; the number is the second part of its id.
    Event(u64, RecordEvent),
    /// Write a comment: another connection wants to read, and the write shows whether the reader's connection is alive.
    Poke,
    /// Close the connection, and tell the client to reconnect after this time.
    HangUp(Duration),
    /// The stream has ended.
    End,
}

/// Where a reader starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// At the first event that no reader has taken.
    Untaken,
    /// After the event with this number.
    After(u64),
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadRefused {
    /// The stream already has a reader.
    Taken,
    /// The event from which to resume does not exist.
    Unknown,
}

/// The reader of a record. Dropping it frees the record for another reader.
#[derive(Debug)]
pub(super) struct Reader {
    record: Arc<Record>,
    turn: u64,
}

impl Record {
    /// Creates a stream whose bytes count against this account; at most `cap` bytes wait while there is no reader.
    pub(super) fn new((life, number): (u32, u32), label: Label, cap: usize, account: &Account) -> Self {
        let state = RecordState {
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
        Self { number, life, label, cap, state: Mutex::new(state) }
    }

    /// Adds a message, or an event without one.
    pub(super) fn push(&self, event: RecordEvent) {
        let mut state = self.lock();
        state.waiting.add(weight(&event));
        state.next += 1;
        state.kept.push_back(event);
        self.trim(&mut state);
        state.wake();
    }

    /// Ends the stream: no more events follow.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(Instant::now);
        state.wake();
    }

    /// Disconnects the reader once it has taken all events; the client may reconnect after `retry`, and the stream
    /// continues.
    pub(super) fn hang_up(&self, retry: Duration) {
        let mut state = self.lock();
        if state.reading {
            state.hang_up = Some(retry);
            state.wake();
        }
    }

    /// Starts to read.
    pub(super) fn read(self: &Arc<Self>, from: From) -> Result<Reader, ReadRefused> {
        let mut state = self.lock();
        if matches!(from, From::After(seen) if seen < state.next) && state.wire.as_ref().is_some_and(HttpWire::was_left)
        {
            // The client sends no more on the old connection and has reconnected, so the new connection reads from now
            // on.
            state.leave();
        }
        if state.reading {
            // If the current reader's connection is dead, writing to it reveals that.
            state.poked = true;
            state.wake();
            return Err(ReadRefused::Taken);
        }
        if let From::After(seen) = from {
            if seen >= state.next {
                return Err(ReadRefused::Unknown);
            }
            let first = state.first();
            state.go_to((seen + 1).max(first));
        }
        state.reading = true;
        let turn = state.turn;
        drop(state);
        Ok(Reader { record: Arc::clone(self), turn })
    }

    /// Returns the bytes that the stream keeps, and when it ended; `None` if it has not ended or has a reader.
    pub(super) fn rest(&self) -> Option<(usize, Instant)> {
        let state = self.lock();
        state.ended.filter(|_| !state.reading).map(|at| (state.waiting.bytes() + state.taken.bytes(), at))
    }

    fn trim(&self, state: &mut RecordState) {
        while state.kept.len() > 1 {
            let over = if state.first() < state.untaken {
                state.taken.bytes() > TAKEN_BYTES || state.kept.len() > TAKEN_EVENTS
            } else {
                // While there is a reader, untaken events are bounded at their source; without a reader, they are
                // bounded here.
                !state.reading && state.waiting.bytes() > self.cap
            };
            if !over {
                return;
            }
            state.drop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        lock(&self.state)
    }
}

impl RecordState {
    /// Returns the number of the oldest kept event.
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }

    /// Drops the oldest event.
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

    /// Takes the first untaken event, if there is one.
    fn take(&mut self) -> Option<(u64, RecordEvent)> {
        if self.untaken >= self.next {
            return None;
        }
        let number = self.untaken;
        let at = usize::try_from(number - self.first()).unwrap_or(usize::MAX);
        let event = self.kept.get(at).cloned().flatten();
        let size = weight(&event);
        self.waiting.take(size);
        self.untaken += 1;
        // Events taken earlier make room for the one taken now.
        while !self.taken.try_add(size) {
            if self.untaken - self.first() == 1 {
                self.kept.pop_front();
                break;
            }
            self.drop_first();
        }
        Some((number, event))
    }

    /// Makes the next reader start at the event with this number, which must still be kept.
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

    /// Detaches the reader.
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
    /// Sets the connection of a reader whose disconnect we may notice late.
    pub(super) fn is_on(&self, wire: &HttpWire) {
        self.record.lock().wire = Some(wire.clone());
    }

    /// Returns the id of the event with this number.
    pub(super) fn id_of(&self, event: u64) -> String {
        event_id::write((self.record.life, self.record.number), event, &self.record.label)
    }

    /// Polls for the next thing to do.
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

fn weight(event: &RecordEvent) -> usize {
    OVERHEAD + event.as_ref().map_or(0, Frame::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Method, Notification, Raw};

    fn event(size: usize) -> RecordEvent {
        let params = Some(Raw::from_value(&"x".repeat(size)));
        Some(Notification { method: Method::LogMessage, params }.frame())
    }

    /// Returns the number of the first event that a reader gets now, and how many it gets.
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
            let record = Arc::new(Record::new((0, 1), Label::default(), usize::MAX, &Account::free()));
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
        let record = Arc::new(Record::new((0, 1), Label::default(), 7 * OVERHEAD, &Account::free()));
        (0..100).for_each(|_| record.push(None));
        assert_eq!(taken(&record.read(From::Untaken).unwrap()), (Some(93), 7));
    }
}
