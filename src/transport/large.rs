//! Limits how many large responses of one server are read at a time. The others wait unread, and so does the server.
//!
//! Complete responses are charged to their client (`queues.rs`). Incomplete ones are bounded here, for all clients
//! together (`docs/hazards.md` H21, H27). A pipe needs no such limit: it carries one message at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::lock::lock;

/// The number of large responses that are read at once.
const AT_ONCE: usize = 2;
/// The size in bytes from which a response counts as large.
const LARGE: usize = 1024 * 1024;
/// How long the holder of a slot may read nothing before the slot is free again: its call may wait for a client that
/// takes nothing, which must not affect other clients.
const IDLE: Duration = Duration::from_secs(5);

/// The slots of one server, shared by all its leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Large(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The holders of the slots, and when each last read something.
    taken: Mutex<Vec<(u64, Instant)>>,
    count: AtomicU64,
    news: Notify,
}

/// One response, and its slot if it holds one.
#[derive(Debug)]
pub(super) struct LargeSlot {
    large: Large,
    number: u64,
    held: bool,
}

impl Large {
    /// Registers a response that is about to be read.
    pub(super) fn answer(&self) -> LargeSlot {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        LargeSlot { large: self.clone(), number, held: false }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Instant)>> {
        lock(&self.0.taken)
    }
}

impl LargeSlot {
    /// Waits, if the response is large, until it has a slot. Call this before more of the response is read; `size` is
    /// the number of bytes that it has or will have.
    ///
    /// # Cancel safety
    /// Dropping the future loses only its turn.
    pub(super) async fn reach(&mut self, size: usize) {
        if size < LARGE {
            return self.leave();
        }
        let large = self.large.clone();
        loop {
            let news = large.0.news.notified();
            let Some(free) = self.enter() else { return };
            tokio::select! {
                () = news => {}
                () = sleep_until(free) => {}
            }
        }
    }

    /// Records that only `size` bytes of the response are still held; a small rest needs no slot.
    pub(super) fn shrink(&mut self, size: usize) {
        if size < LARGE {
            self.leave();
        }
    }

    /// Takes or keeps a slot, and returns `None`. If no slot is free, returns when one may become free.
    fn enter(&mut self) -> Option<Instant> {
        let (now, mut taken) = (Instant::now(), self.large.lock());
        taken.retain(|(number, read)| *number == self.number || now - *read < IDLE);
        match taken.iter().position(|(number, _)| *number == self.number) {
            Some(at) => taken[at].1 = now,
            None if taken.len() < AT_ONCE => taken.push((self.number, now)),
            None => return taken.iter().map(|(_, read)| *read + IDLE).min(),
        }
        drop(taken);
        self.held = true;
        None
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.held) {
            self.large.lock().retain(|(number, _)| *number != self.number);
            self.large.0.news.notify_one();
        }
    }
}

impl Drop for LargeSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn h21_h27_large_answers_of_a_server_are_read_a_few_at_a_time() {
        let large = Large::default();
        let mut places: Vec<LargeSlot> = (0..AT_ONCE).map(|_| large.answer()).collect();
        for place in &mut places {
            assert!(place.reach(LARGE).now_or_never().is_some());
        }
        let (mut third, mut fourth) = (large.answer(), large.answer());
        assert!(third.reach(LARGE - 1).now_or_never().is_some(), "it is not large");
        assert!(third.reach(LARGE).now_or_never().is_none());
        // A holder keeps its slot, and returns it when little is left or reading has stopped.
        assert!(places[0].reach(16 * LARGE).now_or_never().is_some());
        places[0].reach(0).await;
        third.reach(LARGE).await;
        assert!(fourth.reach(LARGE).now_or_never().is_none());
        places.clear();
        fourth.reach(LARGE).await;
        assert_eq!(large.lock().len(), 2);
        drop((third, fourth));
        assert!(large.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn h48_an_answer_that_is_not_read_is_in_nobodys_way() {
        let large = Large::default();
        let (mut slow, mut slower, mut fresh) = (large.answer(), large.answer(), large.answer());
        slow.reach(LARGE).await;
        slower.reach(LARGE).await;
        tokio::time::advance(IDLE / 2).await;
        slow.reach(LARGE).await;
        let begun = Instant::now();
        fresh.reach(LARGE).await;
        let waited = begun.elapsed();
        assert!(waited >= IDLE / 2 && waited < IDLE, "{waited:?}, not from when the other was read last");
        // Now it has to wait, too.
        assert!(slower.reach(LARGE).now_or_never().is_none());
        drop(fresh);
        assert!(slower.reach(LARGE).now_or_never().is_some());
    }
}
