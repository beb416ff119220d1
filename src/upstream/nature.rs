//! The host's outside inputs: randomness, and a clock that keeps running while the machine sleeps. Both are passed in,
//! so that tests and simulations can replace them. All other time comes from the runtime, which can be paused.
//!
//! A sleep of the machine shows as a clock that jumped ahead, or as a check that runs too late. Deadlines are extended
//! by the time slept, and servers are checked before any of them counts as lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lineage::Lineage;

/// Randomness, the clock that never stops, and this host's lineage; cheap to clone.
#[derive(Clone)]
pub(crate) struct Nature {
    /// Returns a number between 0 and 1.
    pub(crate) chance: Arc<dyn Fn() -> f64 + Send + Sync>,
    /// Returns the time since an arbitrary moment, sleep of the machine included. Only differences matter.
    pub(crate) outside: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The id of this host, and the hosts above it.
    pub(crate) lineage: Arc<Lineage>,
}

impl Nature {
    /// Uses this machine's own sources.
    pub(crate) fn real() -> Self {
        Self { chance: Arc::new(super::backoff::chance), outside: Arc::new(outside), lineage: Arc::default() }
    }

    /// Uses this machine's own sources for a host of that lineage.
    pub(crate) fn of(lineage: Lineage) -> Self {
        Self { lineage: Arc::new(lineage), ..Self::real() }
    }
}

impl fmt::Debug for Nature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nature")
    }
}

/// A clock that cannot be set and keeps running while the machine sleeps.
#[cfg(target_os = "linux")]
fn outside() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// The wall clock. If it is set forward, the servers are checked; nothing else follows.
#[cfg(not(target_os = "linux"))]
fn outside() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Detects that the machine, or this process alone, was asleep (`docs/hazards.md` H59): a clock jumped ahead meanwhile,
/// or a check runs far too late.
#[derive(Debug)]
pub(crate) struct Vigil {
    nature: Nature,
    start: Instant,
    /// The time of the last check, in milliseconds after `start`. `u64::MAX` if no checks run, so that no sleep is
    /// seen.
    seen: AtomicU64,
    /// The total time, in milliseconds, during which deadlines ran on but this process could not.
    slept: AtomicU64,
    woken: watch::Sender<u64>,
}

/// The interval between checks.
const PERIOD: Duration = Duration::from_secs(5);
/// The shortest delay that counts as a sleep.
const GAP: Duration = Duration::from_secs(30);

impl Vigil {
    pub(crate) fn new(nature: Nature) -> Arc<Self> {
        let (seen, slept) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Arc::new(Self { nature, start: Instant::now(), seen, slept, woken: watch::Sender::new(0) })
    }

    /// Checks for sleeps until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut outside = (self.nature.outside)();
        self.seen.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
        while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
            let late = self.late();
            let since = self.passed();
            let now = (self.nature.outside)();
            // The jump of the outside clock; a clock that was set back says nothing.
            let more = now.saturating_sub(outside).saturating_sub(since);
            outside = now;
            self.slept.fetch_add(milliseconds(late), Ordering::Relaxed);
            self.seen.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
            if !late.is_zero() || more > GAP {
                tracing::info!("back after a sleep of {:?}: checking that the servers are still there", late + more);
                self.woken.send_modify(|count| *count += 1);
            }
        }
    }

    /// Returns a counter that increases after each sleep.
    pub(super) fn woken(&self) -> watch::Receiver<u64> {
        self.woken.subscribe()
    }

    /// Returns the total slept time as of the last check, for [`Vigil::slept_since`].
    pub(crate) fn mark(&self) -> Mark {
        Mark(Duration::from_millis(self.slept.load(Ordering::Relaxed)))
    }

    /// Returns how long the machine slept since `mark`, and a new mark. A deadline that passed is extended by that
    /// time.
    pub(crate) fn slept_since(&self, mark: Mark) -> (Duration, Mark) {
        let all = self.mark().0 + self.late();
        (all.saturating_sub(mark.0), Mark(all))
    }

    /// Returns the time since the clock was last checked for a sleep of the machine.
    fn passed(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.seen.load(Ordering::Relaxed)))
    }

    /// Returns the delay of the next check, if it is long enough to mean a sleep.
    fn late(&self) -> Duration {
        Some(self.passed().saturating_sub(PERIOD)).filter(|late| *late > GAP).unwrap_or_default()
    }
}

/// The total slept time at one moment, to be compared with a later one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(Duration);

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
