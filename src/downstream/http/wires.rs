//! The open connections, each with the principals whose requests it carries, and which of them gives way to a newcomer
//! (`docs/hazards.md` H107).
//!
//! A connection that proved nothing gives way, the oldest first, once such connections hold a quarter of `connections`
//! or no slot is left. If there is none, the connection that was idle longest gives way.
//!
//! **Invariant:** a connection that proved who it is gives way only where none is left that did not, and never while a
//! request of it is being served or its answer is not written.

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

/// A connection: cancelled, it ends. Only [`Wires::open`] makes one, so each is listed and can be ended.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    end: CancellationToken,
    carried: Mutex<Vec<Principal>>,
    /// Where it is listed, and as which.
    table: Weak<Mutex<Table>>,
    number: u64,
    opened: Instant,
    /// Whether it carried a request of whom the rules let in.
    proven: AtomicBool,
    /// Requests that are being served.
    serving: AtomicUsize,
    /// Whether the end of an answer is not written yet.
    unwritten: AtomicBool,
    /// When the last request was over, in microseconds since it was opened.
    used: AtomicU64,
    /// Whether the end of what the client sends does not end what is being served.
    held: AtomicBool,
    /// Whether that end came while it was held back.
    left: AtomicBool,
    /// Who waits for it to be held back no longer.
    reader: AtomicWaker,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order in which they were opened.
    unproven: BTreeMap<u64, Wire>,
    proven: HashMap<u64, Wire>,
}

/// A place among them, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    wires: Arc<Mutex<Table>>,
    number: u64,
}

/// A request that is being served, until its answer is with hyper.
#[derive(Debug)]
pub(super) struct Serving(Wire);

/// What a connection reads ahead, and what it takes over to write beside the message that it is writing.
pub(super) const BUFFER: usize = 128 * 1024;

/// Those of more clients on one connection are not told apart: all of them leave with the first.
const CARRIED: usize = 64;

/// Those that proved nothing have one slot of so many at most.
const SHARE: usize = 4;
/// So long a connection has for its first request before it counts for that, while there are slots: many clients may come
/// at once.
const GRACE: Duration = Duration::from_secs(1);

impl Wire {
    /// Waits for its end.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn ended(&self) {
        self.0.end.cancelled().await;
    }

    /// What ends it.
    pub(super) fn end_token(&self) -> &CancellationToken {
        &self.0.end
    }

    /// Notes whose request it carries.
    pub(super) fn carries(&self, principal: &Principal) {
        let mut carried = lock(&self.0.carried);
        if !carried.contains(principal) && carried.len() < CARRIED {
            carried.push(principal.clone());
        }
    }

    /// Notes that it carried a request of whom the rules let in.
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

    /// Notes a request, which is under way until that is dropped. `held`: until then the client that sends no more may be
    /// there to read.
    pub(super) fn serve(&self, held: bool) -> Serving {
        self.0.serving.fetch_add(1, Ordering::AcqRel);
        if held {
            self.0.held.store(true, Ordering::Release);
        }
        Serving(self.clone())
    }

    /// The end of what the client sends is its end, from now on.
    pub(super) fn lets_go(&self) {
        self.0.held.store(false, Ordering::Release);
        self.0.reader.wake();
    }

    /// Whether the end of what the client sends is held back for now; then `cx` is woken when it is so no longer.
    pub(super) fn holds_back(&self, cx: &Context<'_>) -> bool {
        if !self.0.held.load(Ordering::Acquire) {
            return false;
        }
        self.0.left.store(true, Ordering::Release);
        self.0.reader.register(cx.waker());
        self.0.held.load(Ordering::Acquire)
    }

    /// Whether the client sends no more, or is gone.
    pub(super) fn was_left(&self) -> bool {
        self.0.left.load(Ordering::Acquire)
    }

    /// Begins to write all there is; whether that has the end of an answer.
    pub(super) fn writes(&self) -> bool {
        self.0.unwritten.load(Ordering::Acquire) && self.0.unwritten.swap(false, Ordering::AcqRel)
    }

    /// Notes how that went.
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
    /// One more.
    pub(super) fn open(&self) -> (Wire, Listed) {
        let mut table = lock(&self.0);
        let number = table.next;
        table.next += 1;
        let wire = Wire(Arc::new(Inner {
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).count()
    }

    /// Has others give way, so that there is room for one more among so many; whether there is.
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

    /// Ends those that carry anybody whom the change does not keep. Who clients are may have been asked of the system, once
    /// for each connection: where they prove it in another way from now on, all of them end.
    pub(super) fn end_unless_kept(&self, change: &Change) {
        let open: Vec<Wire> = {
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

    /// Takes out the one that misses least: of those that proved nothing the oldest, whatever it did since; where there is
    /// none, of those that do nothing the one idle longest.
    fn least(&mut self) -> Option<Wire> {
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
