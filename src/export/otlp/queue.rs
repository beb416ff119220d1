//! The queue of ended calls for the task that sends spans, with at most [`MOST`] spans.
//!
//! **Invariant:** no call waits for the task. If there is no room for the spans of a call, all of them are dropped.
//! That is counted, and logged once, until the task has taken everything from the queue. How long calls take is counted
//! at once (`metrics.rs`), so metrics are right even if a collector takes no spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::environment::Target;
use super::metrics::Durations;
use super::spans::Done;
use crate::counts::{Counts, HostCount};

/// The most spans in the queue, including those of the request in flight.
pub(super) const MOST: usize = 4096;

/// The queue from calls to the task.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    done: mpsc::Sender<Done>,
    room: Room,
    /// The durations for metrics; `None` if no metrics are sent.
    durations: Option<Arc<Durations>>,
    /// Whether spans are sent.
    traces: bool,
}

impl Queue {
    /// Returns the queue and its receiving end, which the task reads.
    pub(super) fn new(target: &Target, room: Room, durations: Arc<Durations>) -> (Self, mpsc::Receiver<Done>) {
        // Each entry has at least one span, so the channel is never full before the room is.
        let (done, queue) = mpsc::channel(MOST);
        let durations = target.metrics.is_some().then_some(durations);
        (Self { done, room, durations, traces: target.traces.is_some() }, queue)
    }

    /// Adds a call that has ended.
    pub(super) fn push(&self, done: Done) {
        if let Some(durations) = &self.durations {
            durations.add(&done);
        }
        let spans = if self.traces { done.count() } else { 0 };
        if spans > 0 && self.room.take(spans) && self.done.try_send(done).is_err() {
            // The host is shutting down.
            self.room.give(spans);
            self.room.0.counts.add(HostCount::OtelSpansDropped, spans as u64);
        }
    }
}

/// The places for spans in the queue.
#[derive(Clone, Debug)]
pub(super) struct Room(Arc<Places>);

#[derive(Debug)]
struct Places {
    taken: AtomicUsize,
    counts: Counts,
    /// Whether a warning was logged that there is no room.
    is_told: AtomicBool,
}

impl Room {
    pub(super) fn new(counts: Counts) -> Self {
        Self(Arc::new(Places { taken: AtomicUsize::new(0), counts, is_told: AtomicBool::new(false) }))
    }

    /// Reserves places for this many spans. If there are too few, counts the spans as dropped, and returns false.
    pub(super) fn take(&self, spans: usize) -> bool {
        let more = |taken: usize| taken.checked_add(spans).filter(|taken| *taken <= MOST);
        if self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            return true;
        }
        self.0.counts.add(HostCount::OtelSpansDropped, spans as u64);
        if !self.0.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!("the collector of host.otel is slower than the calls: spans are dropped");
        }
        false
    }

    /// Releases places.
    pub(super) fn give(&self, spans: usize) {
        self.0.taken.fetch_sub(spans, Ordering::Relaxed);
    }

    /// Records that the task has emptied the queue.
    pub(super) fn is_drained(&self) {
        self.0.is_told.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_those_of_spans() {
        let counts = Counts::default();
        let room = Room::new(counts.clone());
        assert!(room.take(MOST - 2) && !room.take(3) && room.take(2) && !room.take(1));
        assert_eq!(counts.read(HostCount::OtelSpansDropped), 4);
        room.give(17);
        assert!(!room.take(18) && room.take(17));
        assert_eq!(counts.read(HostCount::OtelSpansDropped), 22);
    }
}
