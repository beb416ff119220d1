//! What the host takes from outside of itself: chance, and the time that goes on while the machine sleeps. Both are
//! passed in, so that tests and simulations can bring their own. Every other time is that of the runtime, which can be
//! paused.
//!
//! A sleep of the machine shows as a clock that went on, or as a look that comes too late. Deadlines are put off by as
//! much, and servers are asked whether they are there before any is taken for lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lineage::Lineage;

/// Chance and the clock that never stops; cheap to clone.
#[derive(Clone)]
pub(crate) struct Nature {
    /// A number from 0 to 1.
    pub(crate) chance: Arc<dyn Fn() -> f64 + Send + Sync>,
    /// How much time has passed since some moment, sleep of the machine included. Only differences count.
    pub(crate) outside: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Which host this is, and which are above it.
    pub(crate) lineage: Arc<Lineage>,
}

impl Nature {
    /// Those of this machine.
    pub(crate) fn real() -> Self {
        Self { chance: Arc::new(super::backoff::chance), outside: Arc::new(outside), lineage: Arc::default() }
    }

    /// Those of this machine, for a host of that lineage.
    pub(crate) fn of(lineage: Lineage) -> Self {
        Self { lineage: Arc::new(lineage), ..Self::real() }
    }
}

impl fmt::Debug for Nature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nature")
    }
}

/// A clock that nobody sets, and that goes on while the machine sleeps.
#[cfg(target_os = "linux")]
fn outside() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// The clock of the wall. Where somebody sets it forward, servers are asked whether they are there; nothing else follows.
#[cfg(not(target_os = "linux"))]
fn outside() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Notices that the machine, or this process alone, was asleep (`docs/hazards.md` H59): by a clock that went on meanwhile,
/// or by a look that comes far too late.
#[derive(Debug)]
pub(crate) struct Vigil {
    nature: Nature,
    start: Instant,
    /// The last look, in milliseconds after the start. As long as nobody looks there is none, and nobody sleeps.
    seen: AtomicU64,
    /// How long the clock of the deadlines went on while nothing could be done, in milliseconds.
    slept: AtomicU64,
    woken: watch::Sender<u64>,
}

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(5);
/// Less is no sleep.
const GAP: Duration = Duration::from_secs(30);

impl Vigil {
    pub(crate) fn new(nature: Nature) -> Arc<Self> {
        let (seen, slept) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Arc::new(Self { nature, start: Instant::now(), seen, slept, woken: watch::Sender::new(0) })
    }

    /// Looks until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut outside = (self.nature.outside)();
        self.seen.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
        while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
            let late = self.late();
            let since = self.passed();
            let now = (self.nature.outside)();
            // What the other clock has more; one that was set back says nothing.
            let more = now.saturating_sub(outside).saturating_sub(since);
            outside = now;
            self.slept.fetch_add(milliseconds(late), Ordering::Relaxed);
            self.seen.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
            if !late.is_zero() || more > GAP {
                tracing::info!("back after a sleep of {:?}: the servers are asked whether they are there", late + more);
                self.woken.send_modify(|count| *count += 1);
            }
        }
    }

    /// Counts up after each sleep.
    pub(super) fn woken(&self) -> watch::Receiver<u64> {
        self.woken.subscribe()
    }

    /// How much of the time of all deadlines was slept through so far, as of the last look: for [`Vigil::slept_since`].
    pub(crate) fn mark(&self) -> Mark {
        Mark(Duration::from_millis(self.slept.load(Ordering::Relaxed)))
    }

    /// How much of the time since that mark was slept through, and the mark of now. Whoever ran out of time has that much
    /// more.
    pub(crate) fn slept_since(&self, mark: Mark) -> (Duration, Mark) {
        let all = self.mark().0 + self.late();
        (all.saturating_sub(mark.0), Mark(all))
    }

    /// The time since the last look.
    fn passed(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.seen.load(Ordering::Relaxed)))
    }

    /// By how much the next look is late, where that means a sleep.
    fn late(&self) -> Duration {
        Some(self.passed().saturating_sub(PERIOD)).filter(|late| *late > GAP).unwrap_or_default()
    }
}

/// A moment in the count of time slept through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(Duration);

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
