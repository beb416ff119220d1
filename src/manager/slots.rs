//! `maxConcurrent`: how many calls run at once at one server. More calls wait, first come first served. While another
//! client waits, no client gets more than half of the slots, rounded up (`docs/hazards.md` H51). [`Line`], which is
//! pure, decides who is next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::lock::lock;
use crate::upstream::Owner;

/// The slots of one server; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Mutex<Line<oneshot::Sender<()>>>>);

/// The slots of single tools of one server (`maxConcurrent` in `tools`), by the tool's own name and the number of
/// slots. A view may set another number than the server's entry, and its calls are then counted separately.
#[derive(Debug, Default)]
pub(crate) struct ToolSlots(Mutex<HashMap<(Arc<str>, usize), Slots>>);

/// Above this many, the slots of tools that are not called now are forgotten.
const TOOLS: usize = 256;

impl ToolSlots {
    /// Returns the slots of a tool, of which there are `most`.
    pub(crate) fn of(&self, tool: &Arc<str>, most: usize) -> Slots {
        let mut all = lock(&self.0);
        if all.len() > TOOLS {
            // Each call that waits or runs holds a clone.
            all.retain(|_, slots| Arc::strong_count(&slots.0) > 1);
        }
        all.entry((tool.clone(), most)).or_insert_with(|| Slots::new(most)).clone()
    }
}

/// The right to run one call; returned when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    owner: Owner,
}

impl Slots {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Line::new(most))))
    }

    /// Takes a slot for a call of this client; `None` if none is free in time.
    ///
    /// # Cancel safety
    /// A dropped wait leaves the queue.
    pub(crate) async fn take(&self, owner: Owner, patience: Duration) -> Option<Slot> {
        let mut waiter = match self.enter_or_queue(owner) {
            Ok(slot) => return Some(slot),
            Err(waiter) => waiter,
        };
        tokio::time::timeout(patience, &mut waiter.given).await.ok()?.ok()?;
        // Dropping the waiter must not return the slot.
        waiter.is_over = true;
        Some(Slot { slots: self.clone(), owner })
    }

    /// Reports whether no slot is free.
    pub(crate) fn is_full(&self) -> bool {
        let line = self.line();
        line.running >= line.most
    }

    /// Counts the running and the waiting calls.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(crate) fn count(&self) -> (usize, usize) {
        let line = self.line();
        (line.running, line.queue.len())
    }

    /// Takes a slot or joins the queue under one lock: a slot returned in between would go to no one.
    fn enter_or_queue(&self, owner: Owner) -> Result<Slot, Waiter<'_>> {
        let mut line = self.line();
        if line.enter(owner) {
            return Ok(Slot { slots: self.clone(), owner });
        }
        let (give, given) = oneshot::channel();
        line.wait(owner, give);
        drop(line);
        Err(Waiter { slots: self, owner, given, is_over: false })
    }

    fn leave(&self, owner: Owner) {
        let mut line = self.line();
        line.leave(owner);
        while let Some((owner, give)) = line.next() {
            if give.send(()).is_err() {
                // The caller has stopped waiting.
                line.leave(owner);
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line<oneshot::Sender<()>>> {
        lock(&self.0)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.leave(self.owner);
    }
}

/// A caller in the queue.
struct Waiter<'a> {
    slots: &'a Slots,
    owner: Owner,
    given: oneshot::Receiver<()>,
    is_over: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.given.close();
        if self.given.try_recv().is_ok() {
            // The slot arrived just as the wait ended.
            self.slots.leave(self.owner);
        } else {
            self.slots.line().queue.retain(|(_, give)| !give.is_closed());
        }
    }
}

/// Who runs and who waits.
#[derive(Debug)]
struct Line<T> {
    most: usize,
    running: usize,
    held: HashMap<Owner, usize>,
    queue: VecDeque<(Owner, T)>,
}

impl<T> Line<T> {
    fn new(most: usize) -> Self {
        Self { most, running: 0, held: HashMap::new(), queue: VecDeque::new() }
    }

    /// Takes a slot at once; returns false if none is free or someone waits.
    fn enter(&mut self, owner: Owner) -> bool {
        let free = self.running < self.most && self.queue.is_empty();
        if free {
            self.begin(owner);
        }
        free
    }

    fn wait(&mut self, owner: Owner, ticket: T) {
        self.queue.push_back((owner, ticket));
    }

    /// Gives a free slot to the next caller in line, and returns that caller.
    fn next(&mut self) -> Option<(Owner, T)> {
        let first = self.queue.front().map(|(owner, _)| *owner)?;
        if self.running >= self.most {
            return None;
        }
        let alone = self.queue.iter().all(|(owner, _)| *owner == first);
        let half = self.most.div_ceil(2);
        let fair = |(owner, _): &(Owner, T)| alone || self.held.get(owner).is_none_or(|held| *held < half);
        let at = self.queue.iter().position(fair)?;
        let (owner, ticket) = self.queue.remove(at)?;
        self.begin(owner);
        Some((owner, ticket))
    }

    fn begin(&mut self, owner: Owner) {
        self.running += 1;
        *self.held.entry(owner).or_default() += 1;
    }

    /// Ends a call of this client.
    fn leave(&mut self, owner: Owner) {
        self.running = self.running.saturating_sub(1);
        match self.held.get_mut(&owner) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(self.held.remove(&owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;

    proptest! {
        /// Slots never exceed the limit, are never idle while a call waits, and are never given unfairly; each client's
        /// calls are served in order.
        #[test]
        fn h51_a_line_is_fair_and_never_idle(most in 1usize..7, steps in prop::collection::vec((0u64..4, 0u8..3), 0..120)) {
            let mut line = Line::new(most);
            let (mut ticket, mut served) = (0, HashMap::<Owner, i32>::new());
            for (owner, what) in steps {
                let owner = Owner(owner);
                match what {
                    0 if line.held.contains_key(&owner) => line.leave(owner),
                    1 if !line.queue.is_empty() => {
                        let at = usize::try_from(owner.0).unwrap() % line.queue.len();
                        line.queue.remove(at);
                    }
                    _ => if !line.enter(owner) {
                        ticket += 1;
                        line.wait(owner, ticket);
                    },
                }
                let before = line.held.clone();
                while let Some((owner, ticket)) = line.next() {
                    let last = served.insert(owner, ticket);
                    prop_assert!(last.is_none_or(|last| last < ticket), "{owner:?} is served in its order");
                    let others = line.queue.iter().any(|(other, _)| *other != owner);
                    let held = line.held[&owner];
                    prop_assert!(!others || held <= most.div_ceil(2).max(before.get(&owner).copied().unwrap_or(0)));
                }
                prop_assert_eq!(line.running, line.held.values().sum::<usize>());
                prop_assert!(line.running <= most);
                prop_assert!(line.queue.is_empty() || line.running == most, "a slot is idle while a call waits");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h51_a_client_that_waits_gets_the_next_slot_of_one_that_has_all() {
        let slots = Slots::new(4);
        let (greedy, modest) = (Owner(1), Owner(2));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(slots.take(greedy, Duration::ZERO).await.unwrap());
        }
        let long = Duration::from_secs(60);
        let all = async {
            let more = futures_util::future::join_all((0..3).map(|_| slots.take(greedy, long)));
            let mut one = Box::pin(slots.take(modest, long));
            tokio::select! {
                _ = more => panic!("before the one that has nothing"),
                slot = &mut one => slot,
                () = async { tokio::task::yield_now().await; held.pop(); std::future::pending().await } => None,
            }
        };
        assert!(all.await.is_some());
        assert_eq!(slots.count().1, 0, "who was dropped waits no more");
    }

    #[tokio::test(start_paused = true)]
    async fn h51_a_call_waits_for_a_slot_as_long_as_the_config_says() {
        let slots = Slots::new(1);
        let first = slots.take(Owner(1), Duration::ZERO).await.unwrap();
        let begun = Instant::now();
        assert!(slots.take(Owner(2), Duration::from_secs(30)).await.is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        assert_eq!(slots.count(), (1, 0));
        drop(first);
        assert_eq!(slots.count(), (0, 0));
        assert!(slots.take(Owner(2), Duration::ZERO).await.is_some());
    }
}
