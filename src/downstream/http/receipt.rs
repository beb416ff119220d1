//! The bodies in receipt, and what they hold in all (`host.limits.bodies`).
//!
//! A body that comes in one piece is not counted: nothing holds it while it is waited for. Bodies have the cap less
//! what connections and queues to clients hold, and a sixth of it in any case. A closed connection counts for four
//! seconds more, because its memory is not back at once. While bodies that were given up have not left, no connection
//! is accepted.
//!
//! **Invariant:** all counted bodies together are within the cap, except that a single one may have any size. Over it
//! one body is given up at once, and its memory with it: the costliest one (bytes times time on the way) of the
//! principal whose bodies have cost most so far. So a sender that holds much for long makes room, and small and quick
//! bodies get in (`docs/hazards.md` H103).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::wires::{BUFFER, Wires};
use crate::lock::lock;
use crate::protocol::whole::Whole;
use crate::queues::Queues;
use crate::router::Principal;

/// Bodies always have this part of their cap, however much connections and queues hold: a sixth.
const LEAST: usize = 6;
/// Each connection counts as so much: its task, and its buffers to read into and to write from.
const CONNECTION: usize = 32 * 1024;
/// How long the system may wait for what connections held, once they are gone. The program gives the last of it back after
/// three seconds.
const BACK: Duration = Duration::from_secs(4);
/// What a body costs beside its bytes: its task, and what its connection reads into. It bounds how many there are.
const PLACE: usize = 16 * 1024;
/// Room for the first bytes of a body; it doubles.
const FIRST: usize = 4 * 1024;
/// From this size on a body has memory of its own, which the system gives in pages.
const SMALL: usize = 128 * 1024;
const PAGE: usize = 4 * 1024;
/// Large bodies that read on in one turn of the runtime: each reads all that has come, and others wait meanwhile.
const AT_ONCE: usize = 4;
/// Refused bodies that are read on, so that their clients see the refusal. Each costs what a connection reads ahead.
const DROPPED: usize = 16;
/// Bodies that were given up and whose tasks have not heard of it: as long as there are more, nobody reads on, and no
/// connection is accepted. Each costs what its connection has read ahead, which is no longer counted.
const LEAVING: usize = 16;

/// All of them.
#[derive(Debug)]
pub(super) struct Bodies {
    cap: usize,
    wires: Wires,
    queues: Queues,
    used: AtomicUsize,
    count: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Entry>>>,
    dropped: Semaphore,
    /// For the large ones that read on.
    gate: Semaphore,
    leaving: AtomicUsize,
    /// One of those has left.
    left: Notify,
    /// The most connections of late, and when there were so many.
    most: Mutex<(usize, Instant)>,
}

#[derive(Debug)]
struct Entry {
    principal: Principal,
    begun: Instant,
    held: AtomicUsize,
    /// What has come; `None` once it is given up.
    kept: Mutex<Option<Kept>>,
    given_up: Notify,
}

/// What has come of a body: a small one in the heap, where it doubles, a large one in a mapping as long as it may become.
#[derive(Debug, Default)]
struct Kept {
    small: Vec<u8>,
    large: Option<Whole>,
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
    /// None so far, and `cap` bytes for all of them, less what those connections hold, and what waits in those queues.
    pub(super) fn new(cap: usize, wires: Wires, queues: Queues) -> Self {
        Self {
            cap,
            wires,
            queues,
            used: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            open: Mutex::default(),
            dropped: Semaphore::new(DROPPED),
            gate: Semaphore::new(AT_ONCE),
            leaving: AtomicUsize::new(0),
            left: Notify::new(),
            most: Mutex::new((0, Instant::now())),
        }
    }

    /// Bytes that they hold now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// What they may hold now. Clients hold connections and what waits for them, too: the more that is, the less is received.
    fn room(&self) -> usize {
        let others = self.queues.used().saturating_add(self.connections() * CONNECTION);
        self.cap.saturating_sub(others).max(self.cap / LEAST)
    }

    /// The most connections of the last [`BACK`]. The system does not have the memory of closed ones at once.
    fn connections(&self) -> usize {
        let now = (self.wires.count(), Instant::now());
        let mut most = lock(&self.most);
        if now.0 >= most.0 || now.1 >= most.1 + BACK {
            *most = now;
        }
        most.0
    }

    /// One more, of that principal.
    pub(super) fn begin(&self, principal: &Principal) -> Receipt<'_> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            principal: principal.clone(),
            begun: Instant::now(),
            held: AtomicUsize::new(0),
            kept: Mutex::new(Some(Kept::default())),
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

    /// Waits until no more than a few were given up and have not left. Each new body may make another one leave, so
    /// without that wait a crowd that comes at once would be held twice.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    async fn settled(&self) {
        loop {
            let left = self.left.notified();
            if self.leaving.load(Ordering::Relaxed) <= LEAVING {
                return;
            }
            left.await;
        }
    }

    /// Makes room for one more connection, and waits until it is there.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn make_way(&self) {
        if self.used() > self.room() {
            self.relieve();
        }
        self.settled().await;
    }

    /// Gives up as many as it takes.
    fn relieve(&self) {
        let mut open = self.table();
        while self.used() > self.room() && open.len() > 1 {
            let Some(number) = costliest(&open) else { return };
            if let Some(entry) = open.remove(&number) {
                drop(entry.kept().take());
                self.used.fetch_sub(entry.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                self.leaving.fetch_add(1, Ordering::Relaxed);
                entry.given_up.notify_one();
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        lock(&self.open)
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

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        lock(&self.kept)
    }
}

impl Kept {
    fn len(&self) -> usize {
        self.large.as_ref().map_or(self.small.len(), Whole::len)
    }

    /// How much memory the first `length` bytes of a body of `most` take.
    fn room(length: usize, most: usize) -> usize {
        if length > SMALL { length.next_multiple_of(PAGE) } else { length.next_power_of_two().max(FIRST).min(most) }
    }

    /// What they cost with what the connection holds beside them: it reads ahead as much as came at once, up to its buffer.
    /// What both had in the heap, as they grew, leaves holes of the same size.
    fn costs(length: usize, most: usize) -> usize {
        let room = Self::room(length, most);
        room + room.min(BUFFER) + 2 * room.min(SMALL)
    }

    /// Adds a piece of a body of `most` bytes at most.
    fn push(&mut self, piece: &[u8], most: usize) {
        let length = self.len() + piece.len();
        if length <= SMALL {
            self.small.reserve_exact(Self::room(length, most).saturating_sub(self.small.len()));
            return self.small.extend_from_slice(piece);
        }
        let small = &mut self.small;
        let large = self.large.get_or_insert_with(|| {
            let mut large = Whole::mapped(most);
            large.push(&std::mem::take(small));
            large
        });
        large.push(piece);
    }

    fn whole(self) -> Bytes {
        self.large.map_or_else(|| self.small.into(), Whole::freeze)
    }
}

impl Receipt<'_> {
    /// Keeps one more piece of a body of `most` bytes at most.
    pub(super) fn put(&self, piece: &[u8], most: usize) -> Result<(), GivenUp> {
        let before = self.entry.kept().as_ref().ok_or(GivenUp)?.len();
        // Room is counted before it is taken.
        let holds = |length| if length == 0 { 0 } else { Kept::costs(length, most) };
        self.hold(holds(before + piece.len()) - holds(before));
        self.entry.kept().as_mut().ok_or(GivenUp)?.push(piece, most);
        Ok(())
    }

    /// Waits until it is given up.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn given_up(&self) {
        self.entry.given_up.notified().await;
    }

    /// Waits until there is time to read on.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn turn(&self) {
        self.bodies.settled().await;
        if self.entry.held.load(Ordering::Relaxed) > SMALL {
            let _pass = self.bodies.gate.acquire().await;
            yield_now().await;
        }
    }

    /// The whole.
    pub(super) fn take(self) -> Result<Bytes, GivenUp> {
        self.entry.kept().take().map(Kept::whole).ok_or(GivenUp)
    }

    fn hold(&self, more: usize) {
        // In this order the sum never falls below what is held.
        let before = self.bodies.used.fetch_add(more, Ordering::Relaxed);
        self.entry.held.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.bodies.room() {
            self.bodies.relieve();
        }
    }
}

impl Drop for Receipt<'_> {
    fn drop(&mut self) {
        if self.bodies.table().remove(&self.number).is_none() {
            self.bodies.leaving.fetch_sub(1, Ordering::Relaxed);
            self.bodies.left.notify_waiters();
        }
        self.bodies.used.fetch_sub(self.entry.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const KIB: usize = 1024;
    /// What a body of a hundred kibibytes holds that says how long it is.
    const EACH: usize = PLACE + 400 * KIB;

    /// With queues in which nothing waits.
    fn of(cap: usize) -> Bodies {
        Bodies::new(cap, Wires::default(), Queues::new(usize::MAX))
    }

    /// One of a hundred kibibytes.
    fn one<'a>(bodies: &'a Bodies, name: &str) -> Receipt<'a> {
        let receipt = bodies.begin(&Principal::named(name));
        let _ = receipt.put(&[b'x'; 100 * KIB], 100 * KIB);
        receipt
    }

    /// Which of them are still held.
    fn held<const N: usize>(receipts: [&Receipt<'_>; N]) -> [bool; N] {
        receipts.map(|receipt| receipt.entry.kept().is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn h103_room_grows_to_the_most_and_counts_as_it_is() {
        let bodies = of(usize::MAX);
        for (most, step) in [(100_000, 1000), (100_000, 1), (4 << 20, 128 * KIB), (500, 499)] {
            let receipt = bodies.begin(&Principal::local());
            let mut length = 0;
            while length < most {
                let piece = vec![b'x'; step.min(most - length)];
                length += piece.len();
                receipt.put(&piece, most).unwrap();
                let room = Kept::room(length, most);
                assert!(room >= length && room <= (2 * length).max(FIRST), "room for {room} where {length} came");
                assert!(room <= most.next_multiple_of(PAGE), "room for {room} of {most}");
                let heap = receipt.entry.kept().as_ref().unwrap().small.capacity();
                assert!(heap <= room.min(SMALL), "{heap} in the heap");
                assert_eq!(bodies.used(), PLACE + room + room.min(BUFFER) + 2 * room.min(SMALL));
            }
            assert_eq!(receipt.take().unwrap().len(), length);
            assert_eq!(bodies.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h103_over_the_cap_one_is_given_up_at_once() {
        let bodies = of(3 * EACH);
        let (first, second, third) = (one(&bodies, "ann"), one(&bodies, "ann"), one(&bodies, "ann"));
        assert_eq!((held([&first, &second, &third]), bodies.used()), ([true; 3], 3 * EACH));
        advance(Duration::from_secs(1)).await;
        let fourth = one(&bodies, "ann");
        let left = held([&first, &second, &third, &fourth]);
        assert_eq!((left.iter().filter(|held| **held).count(), left[3]), (3, true), "{left:?}");
        assert_eq!(bodies.used(), 3 * EACH);
        let gone = [first, second, third].into_iter().find(|receipt| receipt.entry.kept().is_none()).unwrap();
        gone.given_up().await;
        assert_eq!(gone.put(b"x", 100 * KIB), Err(GivenUp));
        assert_eq!(gone.take(), Err(GivenUp));
        drop(fourth);
        assert_eq!(bodies.used(), 0);
        // Whatever the cap: there is always room for one.
        let bodies = of(1);
        let (first, second) = (one(&bodies, "ann"), bodies.begin(&Principal::local()));
        assert_eq!(held([&first, &second]), [false, true]);
        assert_eq!(second.put(&[b'x'; 100 * KIB], 100 * KIB), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn h103_who_holds_much_for_long_makes_room() {
        let bodies = of(4 * EACH);
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
