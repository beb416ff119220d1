//! The bodies that are being received, and what they hold in all (`host.limits.bodies`).
//!
//! A body that comes in one piece is not counted: it is held by nobody while it is waited for. **Invariant:** what all
//! others hold is within the cap, save that one alone may have any size. Over it a body is given up at once, and its memory
//! with it: of the principal whose bodies have cost most so far, each its bytes times how long it is on its way, the
//! costliest. So whoever holds much for long makes room, and small bodies and quick ones get in (`hazards.md` H103).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::connection::BUFFER;
use crate::router::Principal;

/// What a body costs beside its bytes: its task, and what its connection reads into. It bounds how many there are.
const PLACE: usize = 16 * 1024;
/// Room for the first bytes of a body that does not say how long it is.
const FIRST: usize = 4 * 1024;
/// Refused bodies that are read on, so that their clients see the refusal. Each costs what a connection reads ahead.
const DROPPED: usize = 64;

/// All of them.
#[derive(Debug)]
pub(super) struct Bodies {
    cap: usize,
    used: AtomicUsize,
    count: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Entry>>>,
    dropped: Semaphore,
}

#[derive(Debug)]
struct Entry {
    principal: Principal,
    begun: Instant,
    held: AtomicUsize,
    /// What has come; `None` once it is given up.
    bytes: Mutex<Option<Vec<u8>>>,
    given_up: Notify,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Receipt<'a> {
    bodies: &'a Bodies,
    number: u64,
    entry: Arc<Entry>,
}

/// The body was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenUp;

impl Bodies {
    /// None so far, and `cap` bytes for all of them.
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            used: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            open: Mutex::default(),
            dropped: Semaphore::new(DROPPED),
        }
    }

    /// Bytes that they hold now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// One more, of that principal.
    pub(super) fn begin(&self, principal: &Principal) -> Receipt<'_> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            principal: principal.clone(),
            begun: Instant::now(),
            held: AtomicUsize::new(0),
            bytes: Mutex::new(Some(Vec::new())),
            given_up: Notify::new(),
        });
        self.table().insert(number, Arc::clone(&entry));
        let receipt = Receipt { bodies: self, number, entry };
        receipt.hold(PLACE);
        receipt
    }

    /// A place among the refused bodies that are read on, if there is one.
    pub(super) fn dropping(&self) -> Option<SemaphorePermit<'_>> {
        self.dropped.try_acquire().ok()
    }

    /// Gives up as many as it takes.
    fn relieve(&self) {
        let mut open = self.table();
        while self.used() > self.cap && open.len() > 1 {
            let Some(number) = costliest(&open) else { return };
            if let Some(entry) = open.remove(&number) {
                drop(entry.bytes().take());
                self.used.fetch_sub(entry.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                entry.given_up.notify_one();
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn costliest(open: &HashMap<u64, Arc<Entry>>) -> Option<u64> {
    let now = Instant::now();
    let mut of_each: HashMap<&Principal, (u128, u128, u64)> = HashMap::new();
    for (number, entry) in open {
        let cost = entry.cost(now);
        let (sum, most, costliest) = of_each.entry(&entry.principal).or_default();
        *sum += cost;
        if cost >= *most {
            (*most, *costliest) = (cost, *number);
        }
    }
    of_each.into_values().max().map(|(_, _, number)| number)
}

impl Entry {
    /// What it has cost so far.
    fn cost(&self, now: Instant) -> u128 {
        (now.saturating_duration_since(self.begun).as_millis() + 1) * self.held.load(Ordering::Relaxed) as u128
    }

    fn bytes(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receipt<'_> {
    /// Keeps one more piece of a body of `most` bytes at most, for which no more room is ever made.
    pub(super) fn put(&self, piece: &[u8], most: usize) -> Result<(), GivenUp> {
        let (length, room) = self.entry.bytes().as_ref().map(|bytes| (bytes.len(), bytes.capacity())).ok_or(GivenUp)?;
        let needed = length + piece.len();
        let mut wanted = room;
        if needed > room {
            wanted = room.saturating_mul(2).max(FIRST).min(most).max(needed);
            // Room is made before it is taken.
            self.hold(with_ahead(wanted) - with_ahead(room));
        }
        let mut bytes = self.entry.bytes();
        let bytes = bytes.as_mut().ok_or(GivenUp)?;
        bytes.reserve_exact(wanted - length);
        bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Waits until it is given up.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn given_up(&self) {
        self.entry.given_up.notified().await;
    }

    /// The whole.
    pub(super) fn take(self) -> Result<Bytes, GivenUp> {
        self.entry.bytes().take().map(Bytes::from).ok_or(GivenUp)
    }

    fn hold(&self, more: usize) {
        // In this order the sum never falls below what is held.
        let before = self.bodies.used.fetch_add(more, Ordering::Relaxed);
        self.entry.held.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.bodies.cap {
            self.bodies.relieve();
        }
    }
}

/// That room, and what the connection may hold beside it: it reads ahead as much as came at once, up to its buffer.
fn with_ahead(room: usize) -> usize {
    room + room.min(BUFFER)
}

impl Drop for Receipt<'_> {
    fn drop(&mut self) {
        self.bodies.table().remove(&self.number);
        self.bodies.used.fetch_sub(self.entry.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const KIB: usize = 1024;
    /// What a body of a hundred kibibytes holds that says how long it is.
    const EACH: usize = PLACE + 200 * KIB;

    /// One of a hundred kibibytes.
    fn one<'a>(bodies: &'a Bodies, name: &str) -> Receipt<'a> {
        let receipt = bodies.begin(&Principal::named(name));
        let _ = receipt.put(&[b'x'; 100 * KIB], 100 * KIB);
        receipt
    }

    /// Which of them are still held.
    fn held<const N: usize>(receipts: [&Receipt<'_>; N]) -> [bool; N] {
        receipts.map(|receipt| receipt.entry.bytes().is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn h103_room_grows_to_the_most_and_counts_as_it_is() {
        let bodies = Bodies::new(usize::MAX);
        for (most, step) in [(100_000, 1000), (100_000, 1), (4 << 20, 128 * KIB), (500, 499), (0, 10)] {
            let receipt = bodies.begin(&Principal::local());
            let mut length = 0;
            while length < most || length == 0 {
                let piece = vec![b'x'; step.min(most.max(1) - length)];
                length += piece.len();
                receipt.put(&piece, most).unwrap();
                let room = receipt.entry.bytes().as_ref().unwrap().capacity();
                assert!(room <= most.max(length), "room for {room} of {most}");
                assert!(room <= (2 * length).max(FIRST), "room for {room} of which {length} came");
                assert_eq!(bodies.used(), PLACE + room + room.min(BUFFER));
            }
            assert_eq!(receipt.take().unwrap().len(), length);
            assert_eq!(bodies.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h103_over_the_cap_one_is_given_up_at_once() {
        let bodies = Bodies::new(3 * EACH);
        let (first, second, third) = (one(&bodies, "ann"), one(&bodies, "ann"), one(&bodies, "ann"));
        assert_eq!((held([&first, &second, &third]), bodies.used()), ([true; 3], 3 * EACH));
        advance(Duration::from_secs(1)).await;
        let fourth = one(&bodies, "ann");
        let left = held([&first, &second, &third, &fourth]);
        assert_eq!((left.iter().filter(|held| **held).count(), left[3]), (3, true), "{left:?}");
        assert_eq!(bodies.used(), 3 * EACH);
        let gone = [first, second, third].into_iter().find(|receipt| receipt.entry.bytes().is_none()).unwrap();
        gone.given_up().await;
        assert_eq!(gone.put(b"x", 100 * KIB), Err(GivenUp));
        assert_eq!(gone.take(), Err(GivenUp));
        drop(fourth);
        assert_eq!(bodies.used(), 0);
        // Whatever the cap: there is always room for one.
        let bodies = Bodies::new(1);
        let (first, second) = (one(&bodies, "ann"), bodies.begin(&Principal::local()));
        assert_eq!(held([&first, &second]), [false, true]);
        assert_eq!(second.put(&[b'x'; 100 * KIB], 100 * KIB), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn h103_who_holds_much_for_long_makes_room() {
        let bodies = Bodies::new(4 * EACH);
        let slow = one(&bodies, "bob");
        advance(Duration::from_secs(5)).await;
        let greedy = [(); 3].map(|()| one(&bodies, "ann"));
        advance(Duration::from_secs(5)).await;
        // His is on its way for longer than any of hers, and hers cost more together. A small one of anybody stays.
        let small = bodies.begin(&Principal::named("ann"));
        assert_eq!(small.put(b"{", 2), Ok(()));
        let [first, second, third] = &greedy;
        assert_eq!(held([first, second, third]).iter().filter(|held| **held).count(), 2);
        assert_eq!(held([&slow, &small]), [true; 2]);
        // What comes quickly is not given up for what does not.
        for _ in 0..20 {
            let quick = one(&bodies, "eve");
            assert_eq!(quick.take().unwrap().len(), 100 * KIB);
        }
        assert_eq!(held([&small]), [true]);
        drop((slow, greedy, small));
        assert_eq!(bodies.used(), 0);
    }
}
