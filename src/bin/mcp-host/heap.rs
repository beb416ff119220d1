//! Returns memory to the system: code that has run and is at rest, and the allocator's free memory after a burst.
//!
//! Nearly all memory of an idle host is code. Its pages stay after they have run, so the program drops them once it is
//! quiet after work, at most twice a minute. A start may be too little work for that, so the first rest counts, too.
//! Code that runs again is mapped again, which takes a tenth of a millisecond.
//!
//! The allocator of glibc keeps free memory below the last block in use. This program allocates and frees a lot at
//! once, and some blocks always stay for a while. So it checks its memory four times a second, and twenty times a
//! second in a burst: while it holds 16 MiB more than its minimum so far. In a burst, and for three seconds after it,
//! the program trims the heap whenever 8 MiB of it are free. Checking a heap with many free blocks takes milliseconds,
//! so the next check waits a hundred times as long: checks take at most a hundredth of a processor. In a burst,
//! allocations from 64 KiB on get mappings of their own. Blocks over 2 MiB, and bodies from 128 KiB on, have their own
//! mappings anyway (`protocol/whole.rs`).

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// How often the process checks its memory. A burst of clients takes tens of MiB within a second and ends as fast.
/// Small allocations between large ones then keep the heap from shrinking.
const LOOK: Duration = Duration::from_millis(250);
/// The interval during a burst: memory is returned before the next clients take as much again.
const CLOSE_LOOK: Duration = Duration::from_millis(50);
/// How much longer the program waits than a check took.
const SHARE: u32 = 100;
/// The least CPU time after which code pages are worth dropping.
const WORK: Duration = Duration::from_millis(10);
/// The most CPU time between two checks of a program that is quiet: its timers take less, and a call takes more.
const QUIET: Duration = Duration::from_millis(2);
/// The least time between two drops of code pages.
const APART: Duration = Duration::from_secs(30);
/// The number of quiet checks in a row that are a rest.
const REST: u32 = 8;
/// The heap is checked once the process holds this much more than its minimum so far, in KiB.
const CROWD: u64 = 16 * 1024;
/// This much newly freed heap is returned at once, in KiB. During a trim, other threads wait for the allocator.
const WORTH: u64 = 8 * 1024;
/// This much newly freed heap is returned if the last trim is [`LOOKS`] checks ago, in KiB.
const LITTLE: u64 = 1024;
/// The number of checks between trims of little memory, and of checks that still trim after a burst.
const LOOKS: u32 = 12;
/// In a burst, allocations from this size on get mappings of their own, in bytes.
const CROWDED: u32 = 64 * 1024;
/// The threshold after a burst, in bytes: a mapping costs time, so only the largest get one.
const CALM: u32 = 32 * 1024 * 1024;

/// Checks the memory forever.
pub(crate) async fn give_back() -> Infallible {
    let mut pace = Pace::default();
    let mut crowded = false;
    let mut code = Code::default();
    while let Some(now) = written() {
        if code.is_at_rest(Instant::now(), used()) {
            // The closure does not panic.
            let _ = spawn_blocking(mcp_host_heap::forget_code).await;
        }
        if pace.is_crowded(now) != crowded {
            crowded = !crowded;
            mcp_host_heap::map_from(if crowded { CROWDED } else { CALM });
        }
        let mut took = Duration::ZERO;
        if pace.looks_on(crowded) {
            let begun = Instant::now();
            let unused_now = unused();
            took = begun.elapsed();
            if unused_now.is_some_and(|unused| pace.is_time(unused)) {
                // The closure does not panic.
                let _ = spawn_blocking(mcp_host_heap::trim).await;
                pace.tried(unused().unwrap_or_default());
            }
        }
        sleep(pause(crowded, took)).await;
    }
    // Without `/proc` there is nothing to check.
    pending().await
}

/// Returns how long to wait after a check that took this long.
fn pause(crowded: bool, took: Duration) -> Duration {
    (if crowded { CLOSE_LOOK } else { LOOK }).max(took * SHARE)
}

/// Decides when to drop code pages.
#[derive(Debug, Default)]
struct Code {
    /// When they were dropped last, and the CPU time used until then.
    dropped: Option<Instant>,
    used: Duration,
    /// The CPU time used until the last check.
    seen: Duration,
    /// The number of quiet checks in a row.
    quiet: u32,
}

impl Code {
    /// Records a check, and reports whether to drop code pages now. `used` is all CPU time so far.
    ///
    /// Before the first real work, each rest causes a drop that does not count toward the limit of two a minute,
    /// because the work may come right after it.
    fn is_at_rest(&mut self, now: Instant, used: Duration) -> bool {
        let is_quiet = used.saturating_sub(self.seen) < QUIET;
        self.seen = used;
        self.quiet = if is_quiet { self.quiet.saturating_add(1) } else { 0 };
        let is_apart = self.dropped.is_none_or(|dropped| now.saturating_duration_since(dropped) >= APART);
        let is_due = is_quiet && is_apart && used.saturating_sub(self.used) >= WORK;
        if is_due {
            (self.dropped, self.used) = (Some(now), used);
        }
        is_due || (self.dropped.is_none() && self.quiet == REST)
    }
}

/// Decides when to trim the heap. All sizes are in KiB.
#[derive(Debug)]
struct Pace {
    /// The least memory held so far.
    least: u64,
    /// The least unused heap since the last trim.
    unused: u64,
    /// Checks since the last trim.
    looks: u32,
    /// Checks since the last burst.
    calm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { least: u64::MAX, unused: 0, looks: 0, calm: LOOKS }
    }
}

impl Pace {
    /// Reports whether there is a burst: `now` is much more than the minimum so far.
    fn is_crowded(&mut self, now: u64) -> bool {
        self.least = self.least.min(now);
        now >= self.least.saturating_add(CROWD)
    }

    /// Reports whether to check the heap, which is so in a burst and right after it, while its memory is still to be
    /// returned.
    fn looks_on(&mut self, crowded: bool) -> bool {
        self.calm = if crowded { 0 } else { self.calm.saturating_add(1) };
        self.calm <= LOOKS
    }

    /// Records a check, and reports whether to trim. Heap that has been unused since the last trim is already returned.
    fn is_time(&mut self, unused: u64) -> bool {
        self.unused = self.unused.min(unused);
        self.looks += 1;
        let freed = unused - self.unused;
        freed >= WORTH || (self.looks >= LOOKS && freed >= LITTLE)
    }

    /// Records a trim that left this much of the heap unused.
    fn tried(&mut self, unused: u64) {
        (self.unused, self.looks) = (unused, 0);
    }
}

/// Returns the CPU time that this process has used.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns how much of the heap is unused, in KiB; `None` if the allocator does not say.
fn unused() -> Option<u64> {
    Some(u64::from(mcp_host_heap::unused()?) / 1024)
}

/// Returns the memory that this process has written and holds, in KiB; `None` without `/proc`. In `statm`, the second
/// number counts resident pages and the third those backed by files (proc(5)), such as code, which the system reclaims
/// by itself.
fn written() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = sizes.split_whitespace().skip(1).map_while(|count| count.parse::<u64>().ok());
    let (all, of_files) = (pages.next()?, pages.next()?);
    Some(all.saturating_sub(of_files) * rustix::param::page_size() as u64 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024;

    #[test]
    fn code_is_dropped_when_the_work_is_over_and_not_at_each_pause() {
        let (mut code, begun) = (Code::default(), Instant::now());
        let mut drops = |looks: &[(u64, u64)]| {
            let at = looks.iter().map(|(seconds, used)| {
                code.is_at_rest(begun + Duration::from_secs(*seconds), Duration::from_millis(*used))
            });
            at.collect::<Vec<_>>()
        };
        assert_eq!(drops(&[(0, 20), (1, 40), (2, 41), (3, 41)]), [false, false, true, false], "it has started");
        assert_eq!(drops(&[(4, 90), (5, 90), (31, 90), (32, 90)]), [false, false, false, true], "half a minute apart");
        assert_eq!(drops(&[(70, 91), (120, 92), (180, 101)]), [false, false, false], "timers are no work");
        assert_eq!(drops(&[(181, 102)]), [true]);
    }

    #[test]
    fn a_start_that_was_little_work_is_dropped_at_the_first_rest() {
        let (mut code, begun) = (Code::default(), Instant::now());
        let mut drops =
            |used: &[u64]| used.iter().filter(|used| code.is_at_rest(begun, Duration::from_millis(**used))).count();
        assert_eq!(drops(&[6, 7, 7, 7, 7, 7, 7]), 0, "servers may still start");
        assert_eq!(drops(&[7, 7, 7, 7, 7, 7]), 1, "one rest");
        assert_eq!(drops(&[20, 20, 20]), 1, "the first calls do not wait for half a minute");
        assert_eq!(drops(&[20; 20]), 0, "from now on only work counts");
    }

    #[test]
    fn a_look_at_a_large_heap_takes_a_hundredth_of_the_time() {
        let paused = |took| pause(true, Duration::from_micros(took)).as_millis();
        assert_eq!([0, 500, 5_000].map(paused), [50, 50, 500]);
        assert_eq!(pause(false, Duration::ZERO), LOOK);
    }

    #[test]
    fn a_host_at_rest_looks_no_further() {
        let mut pace = Pace::default();
        assert_eq!(
            [20, 35, 36, 20, 10, 26].map(|now| pace.is_crowded(now * MIB)),
            [false, false, true, false, false, true]
        );
    }

    #[test]
    fn what_a_burst_held_goes_back_after_it() {
        let mut pace = Pace::default();
        assert!(!pace.looks_on(false), "there was none");
        assert!(pace.looks_on(true));
        let after = (0..100).filter(|_| pace.looks_on(false)).count();
        assert_eq!(after, LOOKS as usize);
    }

    #[test]
    fn what_becomes_free_goes_back() {
        let mut pace = Pace::default();
        assert!(!pace.is_time(WORTH - 1), "it is not worth it");
        assert!(pace.is_time(30 * MIB), "a burst is over");
        pace.tried(30 * MIB);
        assert!(!pace.is_time(30 * MIB), "that is with the system");
        assert!(!pace.is_time(2 * MIB), "it is used again");
        assert!(pace.is_time(10 * MIB), "and free again");
    }

    #[test]
    fn a_little_waits_and_nothing_waits_for_good() {
        let mut pace = Pace::default();
        pace.tried(5 * MIB);
        assert_eq!((1..=100).find(|_| pace.is_time(6 * MIB)), Some(LOOKS));
        pace.tried(6 * MIB);
        assert_eq!((1..=100).find(|_| pace.is_time(6 * MIB)), None);
    }
}
