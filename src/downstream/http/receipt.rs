//! The request bodies that are being received, and the limit on their total memory (`host.limits.bodies`).
//!
//! A body that arrives in one piece is not counted, because nothing is held while waiting for it. Bodies may use the
//! limit minus the memory of connections and of queues to clients, but always at least a sixth of the limit. A closed
//! connection counts for four more seconds, because its memory is not returned to the system at once. While the tasks
//! of many dropped bodies are still running, no connection is accepted.
//!
//! **Invariant:** all counted bodies together stay within the limit, except that a single one may have any size. Above
//! the limit, one body after another is dropped with its memory at once: the costliest one (bytes times time since its
//! start) of the principal whose bodies have cost the most. So a sender that holds much for long makes room, and small,
//! quick bodies get through (`docs/hazards.md` H103).

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

/// Bodies can always take one part of the limit in this many, however much connections and queues hold.
const LEAST: usize = 6;
/// The memory that each connection costs, in bytes: its task, and its read and write buffers.
const CONNECTION: usize = 32 * 1024;
/// How long a closed connection still counts: the program returns the last of its memory to the system after three
/// seconds.
const BACK: Duration = Duration::from_secs(4);
/// What a body costs in addition to its bytes: its task, and the connection's read buffer. This also bounds the number
/// of bodies.
const PLACE: usize = 16 * 1024;
/// The initial capacity for a body's bytes, which then doubles as needed.
const FIRST: usize = 4 * 1024;
/// A body above this size has its own memory mapping, which the system fills page by page.
const SMALL: usize = 128 * 1024;
const PAGE: usize = 4 * 1024;
/// How many large bodies are read in one turn of the runtime: each reads all that has arrived while the others wait.
const AT_ONCE: usize = 4;
/// How many refused bodies may still be read and discarded, so that their clients see the refusal. Each costs a
/// connection's read buffer.
const DROPPED: usize = 16;
/// How many dropped bodies may exist whose tasks have not noticed yet: above this number, no body is read and no
/// connection is accepted. Each costs its connection's read buffer, which is no longer counted.
const LEAVING: usize = 16;

/// All bodies that are being received.
#[derive(Debug)]
pub(super) struct Bodies {
    cap: usize,
    wires: Wires,
    queues: Queues,
    used: AtomicUsize,
    count: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OpenBody>>>,
    dropped: Semaphore,
    /// Admits the large bodies that are read in this turn.
    gate: Semaphore,
    leaving: AtomicUsize,
    /// Notified when the task of a dropped body has ended.
    left: Notify,
    /// The recent maximum of open connections, and its time.
    most: Mutex<(usize, Instant)>,
}

#[derive(Debug)]
struct OpenBody {
    principal: Principal,
    begun: Instant,
    held: AtomicUsize,
    /// The bytes so far; `None` once the body is dropped.
    kept: Mutex<Option<Kept>>,
    given_up: Notify,
}

/// The bytes of a body so far. A small body is on the heap, where its capacity doubles; a large one is in a mapping of
/// its maximum length.
#[derive(Debug, Default)]
struct Kept {
    small: Vec<u8>,
    large: Option<Whole>,
}

/// One body that is being received. It is no longer counted once this is dropped.
#[derive(Debug)]
pub(super) struct Receipt<'a> {
    bodies: &'a Bodies,
    number: u64,
    entry: Arc<OpenBody>,
}

/// The body was dropped to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenUp;

impl Bodies {
    /// Creates the account of all bodies, which may have `cap` bytes minus the memory of these connections and queues.
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

    /// Returns the bytes that bodies hold now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes that bodies may hold now. The more memory connections and queues hold, the fewer bytes are
    /// received.
    fn room(&self) -> usize {
        let others = self.queues.used().saturating_add(self.connections() * CONNECTION);
        self.cap.saturating_sub(others).max(self.cap / LEAST)
    }

    /// Returns the most connections that were open within [`BACK`]: the memory of closed ones is not returned to the
    /// system at once.
    fn connections(&self) -> usize {
        let now = (self.wires.count(), Instant::now());
        let mut most = lock(&self.most);
        if now.0 >= most.0 || now.1 >= most.1 + BACK {
            *most = now;
        }
        most.0
    }

    /// Starts to receive a body from this principal.
    pub(super) fn begin(&self, principal: &Principal) -> Receipt<'_> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(OpenBody {
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

    /// Reserves a place to discard the rest of a refused body, if one is free.
    pub(super) fn dropping(&self) -> Option<SemaphorePermit<'_>> {
        self.dropped.try_acquire().ok()
    }

    /// Waits until the tasks of few dropped bodies remain. Each new body may displace another one, so without this wait
    /// many bodies that arrive at once would be held twice.
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

    /// Makes room for one more connection, and waits until that room is free.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn make_way(&self) {
        if self.used() > self.room() {
            self.relieve();
        }
        self.settled().await;
    }

    /// Drops as many bodies as necessary, except the last one.
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

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenBody>>> {
        lock(&self.open)
    }
}

fn costliest(open: &HashMap<u64, Arc<OpenBody>>) -> Option<u64> {
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

impl OpenBody {
    /// Returns the body's cost so far, in bytes times milliseconds.
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

    /// Returns the memory for the first `length` bytes of a body of at most `most` bytes.
    fn room(length: usize, most: usize) -> usize {
        if length > SMALL { length.next_multiple_of(PAGE) } else { length.next_power_of_two().max(FIRST).min(most) }
    }

    /// Returns what the first `length` bytes cost, with the connection's read buffer, which grows with the arriving
    /// pieces up to its maximum. Growing heap buffers leaves holes of the same size.
    fn costs(length: usize, most: usize) -> usize {
        let room = Self::room(length, most);
        room + room.min(BUFFER) + 2 * room.min(SMALL)
    }

    /// Adds a piece to a body of at most `most` bytes.
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
    /// Adds one more piece to a body of at most `most` bytes.
    pub(super) fn put(&self, piece: &[u8], most: usize) -> Result<(), GivenUp> {
        let before = self.entry.kept().as_ref().ok_or(GivenUp)?.len();
        // Memory is counted before it is used.
        let holds = |length| if length == 0 { 0 } else { Kept::costs(length, most) };
        self.hold(holds(before + piece.len()) - holds(before));
        self.entry.kept().as_mut().ok_or(GivenUp)?.push(piece, most);
        Ok(())
    }

    /// Waits until the body is dropped.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn given_up(&self) {
        self.entry.given_up.notified().await;
    }

    /// Waits until the body may be read again.
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

    /// Returns all bytes of the body.
    pub(super) fn take(self) -> Result<Bytes, GivenUp> {
        self.entry.kept().take().map(Kept::whole).ok_or(GivenUp)
    }

    fn hold(&self, more: usize) {
        // In this order the sum never falls below the bytes that the bodies hold.
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
    /// The cost of a body of a hundred kibibytes with a known length.
    const EACH: usize = PLACE + 400 * KIB;

    /// Creates an account whose queues are empty.
    fn of(cap: usize) -> Bodies {
        Bodies::new(cap, Wires::default(), Queues::new(usize::MAX))
    }

    /// Receives a body of a hundred kibibytes.
    fn one<'a>(bodies: &'a Bodies, name: &str) -> Receipt<'a> {
        let receipt = bodies.begin(&Principal::named(name));
        let _ = receipt.put(&[b'x'; 100 * KIB], 100 * KIB);
        receipt
    }

    /// Reports which of them are still held.
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
        // Whatever the limit, there is room for one.
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
        // His body takes longer than any of hers, but hers cost more together. A small body stays, whoever sends it.
        let small = bodies.begin(&Principal::named("ann"));
        assert_eq!(small.put(b"{", 2), Ok(()));
        let [first, second, third] = &greedy;
        assert_eq!(held([first, second, third]).iter().filter(|held| **held).count(), 2);
        assert_eq!(held([&slow, &small]), [true; 2]);
        // A quick body is not dropped in favor of a slow one.
        for _ in 0..20 {
            let quick = one(&bodies, "eve");
            assert_eq!(quick.take().unwrap().len(), 100 * KIB);
        }
        assert_eq!(held([&small]), [true]);
        drop((slow, greedy, small));
        assert_eq!(bodies.used(), 0);
    }
}
