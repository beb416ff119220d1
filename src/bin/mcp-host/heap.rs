//! Gives memory back after a burst, where the allocator does not do so by itself.
//!
//! The allocator of glibc keeps what is free below the last thing that is in use. Much comes and goes here at once, and
//! something of it always stays for a while.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often the process looks at its memory. A burst of clients takes tens of MiB within a second. Small allocations
/// between large ones then keep the heap from shrinking.
const LOOK: Duration = Duration::from_millis(250);
/// At most one look in so many trims, since other threads wait for the allocator meanwhile.
const EACH: u32 = 4;
/// It is not worth it for less, in KiB.
const WORTH: u64 = 16 * 1024;
/// Memory that does not grow is in use, or was given up since the last try: after so many looks it is tried again. Each try
/// that brings back less than a quarter of `WORTH` doubles their number.
const LOOKS: u32 = 3;
const LOOKS_AT_MOST: u32 = 15;
/// Allocations from this size on have mappings of their own in a burst.
const CROWDED: u32 = 64 * 1024;
/// After a burst only the largest have them, since a mapping costs time.
const CALM: u32 = 32 * 1024 * 1024;

/// Looks now and then, for good.
pub(crate) async fn give_back() -> Infallible {
    let mut pace = Pace::default();
    let mut crowded = false;
    let mut looks: u32 = 0;
    while let Some(now) = resident() {
        if looks.is_multiple_of(EACH) && pace.is_time(now) {
            // It cannot fail.
            let _ = spawn_blocking(mcp_host_heap::trim).await;
            pace.tried(now, resident().unwrap_or(now));
        }
        if pace.is_crowded(now) != crowded {
            crowded = !crowded;
            mcp_host_heap::map_from(if crowded { CROWDED } else { CALM });
        }
        looks = looks.wrapping_add(1);
        sleep(LOOK).await;
    }
    // There is no `/proc`.
    pending().await
}

/// When it is tried; memory in KiB.
#[derive(Debug)]
struct Pace {
    /// The least that there ever was.
    least: u64,
    /// The least since the last try.
    since: u64,
    /// Looks since the last try, and how many there are to the next.
    looks: u32,
    until: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { least: u64::MAX, since: u64::MAX, looks: 0, until: LOOKS }
    }
}

impl Pace {
    /// One look more, at which there is that much.
    fn is_time(&mut self, now: u64) -> bool {
        self.least = self.least.min(now);
        self.since = self.since.min(now);
        self.looks += 1;
        let grown = now - self.since >= WORTH;
        (grown || self.looks >= self.until) && self.is_crowded(now)
    }

    /// Whether that is much more than there was.
    fn is_crowded(&self, now: u64) -> bool {
        now >= self.least.saturating_add(WORTH)
    }

    /// It was tried: how much there was before, and is left.
    fn tried(&mut self, before: u64, left: u64) {
        let helped = before.saturating_sub(left) >= WORTH / 4;
        self.until = if helped { LOOKS } else { (self.until * 2).min(LOOKS_AT_MOST) };
        (self.since, self.looks) = (left, 0);
    }
}

/// The memory of this process, in KiB: the second number of `statm` counts pages (proc(5)).
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024;

    /// At which of so many looks at that much it is tried first, counted from one.
    fn first(pace: &mut Pace, now: u64, looks: u32) -> Option<u32> {
        (1..=looks).find(|_| pace.is_time(now))
    }

    #[test]
    fn growth_is_answered_at_once() {
        let mut pace = Pace::default();
        assert_eq!(first(&mut pace, 20 * MIB, 1000), None, "a host at rest");
        assert_eq!(first(&mut pace, 35 * MIB, 1), None, "it is not worth it");
        assert_eq!(first(&mut pace, 60 * MIB, 1000), Some(1), "a burst");
        pace.tried(60 * MIB, 50 * MIB);
        assert_eq!(first(&mut pace, 70 * MIB, 1000), Some(1), "the next one");
        pace.tried(70 * MIB, 22 * MIB);
        assert_eq!(first(&mut pace, 22 * MIB, 1000), None, "all of it is back");
    }

    #[test]
    fn what_is_in_use_is_tried_seldom() {
        let mut pace = Pace::default();
        pace.is_time(20 * MIB);
        pace.is_time(60 * MIB);
        for looks in [6, 12, LOOKS_AT_MOST, LOOKS_AT_MOST] {
            pace.tried(60 * MIB, 60 * MIB);
            assert_eq!(first(&mut pace, 60 * MIB, 1000), Some(looks));
        }
        pace.tried(60 * MIB, 50 * MIB);
        assert_eq!(first(&mut pace, 50 * MIB, 1000), Some(LOOKS), "something was given up");
    }
}
