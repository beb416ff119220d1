//! Gives memory back after a burst, where the allocator does not do so by itself.
//!
//! The allocator of glibc keeps what is free below the last thing that is in use. Much comes and goes here at once, and
//! something of it always stays for a while.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often it is looked how much there is.
const LOOK: Duration = Duration::from_secs(15);
/// It is not worth it for less, in KiB.
const WORTH: u64 = 16 * 1024;

/// Looks now and then, for good.
pub(crate) async fn give_back() -> Infallible {
    let mut least = u64::MAX;
    while let Some(now) = resident() {
        least = least.min(now);
        if now - least >= WORTH {
            // It cannot fail.
            let _ = spawn_blocking(mcp_host_heap::trim).await;
        }
        sleep(LOOK).await;
    }
    // There is no `/proc`.
    pending().await
}

/// The memory of this process, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
