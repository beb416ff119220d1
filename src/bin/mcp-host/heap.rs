//! Gives memory back: that of the code that was needed to start, and after a burst that of the allocator.
//!
//! The allocator of glibc keeps free memory below the last block in use. Much comes and goes here at once, and some of
//! it always stays for a while. So the process looks at itself four times a second, and twenty times while it holds
//! 16 MiB more than it ever held at least. Then, and for three seconds after, it trims the heap when 8 MiB of it are
//! free. In a burst, allocations from 64 KiB on get mappings of their own. What is larger than 2 MiB, and bodies from
//! 128 KiB on, have such mappings anyway (`protocol/whole.rs`).

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// How often the process looks at its memory. A burst of clients takes tens of MiB within a second, and leaves as fast.
/// Small allocations between large ones then keep the heap from shrinking.
const LOOK: Duration = Duration::from_millis(250);
/// The same while there is a burst: what some leave behind is given back before others take as much.
const CLOSE_LOOK: Duration = Duration::from_millis(50);
/// When code is forgotten: at the first the program has started, at the second its slow servers have, too.
const STARTED: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];
/// The heap is looked at when the process has written this much more than it ever held at least, in KiB.
const CROWD: u64 = 16 * 1024;
/// So much of the heap that became free is given back at once, in KiB. Other threads wait for the allocator meanwhile.
const WORTH: u64 = 8 * 1024;
/// This much is given back when the last time is that many looks ago, in KiB.
const LITTLE: u64 = 1024;
const LOOKS: u32 = 12;
/// Allocations from this size on have mappings of their own in a burst.
const CROWDED: u32 = 64 * 1024;
/// After a burst only the largest have them, since a mapping costs time.
const CALM: u32 = 32 * 1024 * 1024;

/// Looks now and then, for good.
pub(crate) async fn give_back() -> Infallible {
    let mut pace = Pace::default();
    let mut crowded = false;
    let begun = Instant::now();
    let mut started = STARTED.iter().peekable();
    while let Some(now) = written() {
        if started.next_if(|time| begun.elapsed() >= **time).is_some() {
            // It cannot fail.
            let _ = spawn_blocking(mcp_host_heap::forget_code).await;
        }
        if pace.is_crowded(now) != crowded {
            crowded = !crowded;
            mcp_host_heap::map_from(if crowded { CROWDED } else { CALM });
        }
        if pace.looks_on(crowded) && unused().is_some_and(|unused| pace.is_time(unused)) {
            // It cannot fail.
            let _ = spawn_blocking(mcp_host_heap::trim).await;
            pace.tried(unused().unwrap_or_default());
        }
        sleep(if crowded { CLOSE_LOOK } else { LOOK }).await;
    }
    // There is no `/proc`.
    pending().await
}

/// When it is tried; memory in KiB.
#[derive(Debug)]
struct Pace {
    /// The least that it ever held.
    least: u64,
    /// The least that was unused in the heap since the last try.
    unused: u64,
    /// Looks since the last try.
    looks: u32,
    /// Looks since the last burst.
    calm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { least: u64::MAX, unused: 0, looks: 0, calm: LOOKS }
    }
}

impl Pace {
    /// Whether that is much more than there was.
    fn is_crowded(&mut self, now: u64) -> bool {
        self.least = self.least.min(now);
        now >= self.least.saturating_add(CROWD)
    }

    /// Whether the heap is looked at: in a burst, and right after one, when what that held is still to go back.
    fn looks_on(&mut self, crowded: bool) -> bool {
        self.calm = if crowded { 0 } else { self.calm.saturating_add(1) };
        self.calm <= LOOKS
    }

    /// One look more, at which that much is unused. What was unused at the last try, and since, is with the system.
    fn is_time(&mut self, unused: u64) -> bool {
        self.unused = self.unused.min(unused);
        self.looks += 1;
        let freed = unused - self.unused;
        freed >= WORTH || (self.looks >= LOOKS && freed >= LITTLE)
    }

    /// It was tried, and that much is unused.
    fn tried(&mut self, unused: u64) {
        (self.unused, self.looks) = (unused, 0);
    }
}

/// What nobody uses of the heap, in KiB.
fn unused() -> Option<u64> {
    Some(u64::from(mcp_host_heap::unused()?) / 1024)
}

/// What this process has written and holds, in KiB. In `statm` the second number counts its pages in memory, and the third
/// those of them that are of files (proc(5)): code comes and goes by itself.
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
