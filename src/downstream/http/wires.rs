//! The open connections (wires), the principals whose requests each one carries, and the choice of a connection that is
//! closed to make room for a new one (`docs/hazards.md` H107).
//!
//! A connection is proven once it has carried an authenticated request. Unproven connections give way, oldest first,
//! once they hold a quarter of `connections` or no slot is left. If all are proven, the one that was idle longest gives
//! way.
//!
//! **Invariant:** a proven connection gives way only if no unproven one is left, and never while one of its requests is
//! being served or an answer is not fully written.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rules::Change;
use crate::lock::lock;
use crate::router::Principal;

/// A connection, which its token can end. Only [`Wires::open`] creates one, so each connection is listed and can be
/// ended.
#[derive(Clone, Debug)]
pub(super) struct HttpWire(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    end: CancellationToken,
    carried: Mutex<Vec<Principal>>,
    /// The table that lists the connection, and its number there.
    table: Weak<Mutex<Table>>,
    number: u64,
    opened: Instant,
    /// Whether the connection carried an authenticated request.
    proven: AtomicBool,
    /// The number of requests that are being served.
    serving: AtomicUsize,
    /// Whether the end of an answer is still to be written.
    unwritten: AtomicBool,
    /// When the last served request ended, in microseconds since the connection was opened.
    used: AtomicU64,
    /// Whether the end of the client's input is held back, so that running requests survive it.
    held: AtomicBool,
    /// Whether the end of the client's input arrived while it was held back.
    left: AtomicBool,
    /// Wakes the reading side once the end is no longer held back.
    reader: AtomicWaker,
}

/// All open connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// The unproven connections, in the order in which they were opened.
    unproven: BTreeMap<u64, HttpWire>,
    proven: HashMap<u64, HttpWire>,
}

/// The listing of a connection. Dropping this removes the connection from the table.
#[derive(Debug)]
pub(super) struct Listed {
    wires: Arc<Mutex<Table>>,
    number: u64,
}

/// A request that is being served, until hyper has its whole response.
#[derive(Debug)]
pub(super) struct Serving(HttpWire);

/// The bytes that a connection reads ahead, and those that it buffers for writing in addition to the message being
/// written.
pub(super) const BUFFER: usize = 128 * 1024;

/// The most principals recorded for one connection. At this number, any change of the access rules ends the connection.
const CARRIED: usize = 64;

/// Unproven connections may hold one slot in this many.
const SHARE: usize = 4;
/// How long an unproven connection is safe from that share, while slots are free: many clients may connect at once.
const GRACE: Duration = Duration::from_secs(1);

impl HttpWire {
    /// Waits until the connection's token ends it.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn ended(&self) {
        self.0.end.cancelled().await;
    }

    /// Returns the cancellation token that ends the connection.
    pub(super) fn end_token(&self) -> &CancellationToken {
        &self.0.end
    }

    /// Records the principal of a request.
    pub(super) fn carries(&self, principal: &Principal) {
        let mut carried = lock(&self.0.carried);
        if !carried.contains(principal) && carried.len() < CARRIED {
            carried.push(principal.clone());
        }
    }

    /// Records that the connection carried an authenticated request.
    pub(super) fn proves(&self) {
        if self.0.proven.load(Ordering::Relaxed) {
            return;
        }
        self.0.proven.store(true, Ordering::Relaxed);
        let Some(table) = self.0.table.upgrade() else { return };
        let mut table = lock(&table);
        if let Some(wire) = table.unproven.remove(&self.0.number) {
            table.proven.insert(self.0.number, wire);
        }
    }

    /// Records a request, which is being served until the result is dropped. If `held`, the client may shut down its
    /// sending side and still read the answer.
    pub(super) fn serve(&self, held: bool) -> Serving {
        self.0.serving.fetch_add(1, Ordering::AcqRel);
        if held {
            self.0.held.store(true, Ordering::Release);
        }
        Serving(self.clone())
    }

    /// From now on, lets the end of the client's input end the connection.
    pub(super) fn lets_go(&self) {
        self.0.held.store(false, Ordering::Release);
        self.0.reader.wake();
    }

    /// Reports whether the end of the client's input is held back for now; if so, `cx` is woken when that changes.
    pub(super) fn holds_back(&self, cx: &Context<'_>) -> bool {
        if !self.0.held.load(Ordering::Acquire) {
            return false;
        }
        self.0.left.store(true, Ordering::Release);
        self.0.reader.register(cx.waker());
        self.0.held.load(Ordering::Acquire)
    }

    /// Reports whether the client's input has ended: the client sends no more, or is gone.
    pub(super) fn was_left(&self) -> bool {
        self.0.left.load(Ordering::Acquire)
    }

    /// Records that everything is about to be written; returns whether that includes the end of an answer.
    pub(super) fn writes(&self) -> bool {
        self.0.unwritten.load(Ordering::Acquire) && self.0.unwritten.swap(false, Ordering::AcqRel)
    }

    /// Records whether the end of an answer was written, with all bytes before it.
    pub(super) fn wrote(&self, all: bool) {
        if !all {
            self.0.unwritten.store(true, Ordering::Release);
        } else if self.0.serving.load(Ordering::Acquire) == 0 {
            self.lets_go();
        }
    }

    fn stays(&self, change: &Change) -> bool {
        let carried = lock(&self.0.carried);
        !change.is_another_way() && carried.len() < CARRIED && carried.iter().all(|principal| change.keeps(principal))
    }

    fn is_idle(&self) -> bool {
        self.0.serving.load(Ordering::Acquire) == 0 && !self.0.unwritten.load(Ordering::Acquire)
    }

    fn last_used(&self) -> Instant {
        self.0.opened + Duration::from_micros(self.0.used.load(Ordering::Relaxed))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let wire = &*self.0.0;
        let used = u64::try_from(wire.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        wire.used.store(used, Ordering::Relaxed);
        wire.unwritten.store(true, Ordering::Release);
        wire.serving.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Wires {
    /// Adds a connection.
    pub(super) fn open(&self) -> (HttpWire, Listed) {
        let mut table = lock(&self.0);
        let number = table.next;
        table.next += 1;
        let wire = HttpWire(Arc::new(Inner {
            end: CancellationToken::new(),
            carried: Mutex::default(),
            table: Arc::downgrade(&self.0),
            number,
            opened: Instant::now(),
            proven: AtomicBool::new(false),
            serving: AtomicUsize::new(0),
            unwritten: AtomicBool::new(false),
            used: AtomicU64::new(0),
            held: AtomicBool::new(false),
            left: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        }));
        table.unproven.insert(number, wire.clone());
        (wire, Listed { wires: Arc::clone(&self.0), number })
    }

    /// Returns how many connections are open.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).count()
    }

    /// Makes connections give way until there is room for one more under the limit; returns whether there is room.
    pub(super) fn make_room(&self, cap: usize) -> bool {
        let mut table = lock(&self.0);
        let now = Instant::now();
        while table.unproven.len() >= (cap / SHARE).max(1)
            && let Some(oldest) = table.unproven.first_entry()
            && now.duration_since(oldest.get().0.opened) >= GRACE
        {
            oldest.remove().0.end.cancel();
        }
        if table.count() < cap {
            return true;
        }
        let Some(closed) = table.least() else { return false };
        closed.0.end.cancel();
        true
    }

    /// Ends the connections that carry a principal whose proof no longer holds. If the way to authenticate changed, all
    /// of them end: the owner of the process at the other end is determined only when a connection opens.
    pub(super) fn end_unless_kept(&self, change: &Change) {
        let open: Vec<HttpWire> = {
            let table = lock(&self.0);
            table.unproven.values().chain(table.proven.values()).cloned().collect()
        };
        for wire in open.iter().filter(|wire| !wire.stays(change)) {
            wire.0.end.cancel();
        }
    }
}

impl Table {
    fn count(&self) -> usize {
        self.unproven.len() + self.proven.len()
    }

    /// Removes the connection that matters least: the oldest unproven one, whatever it is doing; if there is none, the
    /// proven one that has been idle longest. `None` if none of those is idle.
    fn least(&mut self) -> Option<HttpWire> {
        if let Some((_, oldest)) = self.unproven.pop_first() {
            return Some(oldest);
        }
        let idle = self.proven.values().filter(|wire| wire.is_idle());
        let number = idle.min_by_key(|wire| (wire.last_used(), wire.0.number))?.0.number;
        self.proven.remove(&number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut table = lock(&self.wires);
        table.unproven.remove(&self.number);
        table.proven.remove(&self.number);
    }
}
