//! The CPU time and memory of a process, from `/proc`. On systems other than Linux, the results are `None`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The kernel reports CPU time to programs in hundredths of a second, whatever its own tick.
const TICK: Duration = Duration::from_millis(10);

/// CPU time used so far, user and system together.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// The CPU time of each live thread, to the nanosecond.
    threads: HashMap<u64, Duration>,
    /// The CPU time of the whole process, ended threads included, to the tick.
    process: Duration,
}

impl Cpu {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last parenthesis may hold anything; utime and stime are fields 14 and 15 of the line.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        let process = TICK * (ticks()? + ticks()?);
        let mut threads = HashMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let time = fs::read_to_string(entry.path().join("schedstat")).ok();
            let nanos = time.and_then(|time| time.split_ascii_whitespace().next()?.parse().ok());
            let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(thread), Some(nanos)) = (thread, nanos) {
                threads.insert(thread, Duration::from_nanos(nanos));
            }
        }
        Some(Self { threads, process })
    }

    /// Returns the CPU time used since `earlier`: the threads' if all threads from then still live, else the process's.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let lost = earlier.threads.keys().any(|thread| !self.threads.contains_key(thread));
        if lost || self.threads.is_empty() {
            return self.process.saturating_sub(earlier.process);
        }
        let before = |thread| earlier.threads.get(thread).copied().unwrap_or_default();
        self.threads.iter().map(|(thread, now)| now.saturating_sub(before(thread))).sum()
    }
}

/// Returns the resident memory in bytes.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    // The rollup walks the pages and is exact; the counters in status may lag by some pages per thread.
    memory(pid, "smaps_rollup", "Rss:").or_else(|| memory(pid, "status", "VmRSS:"))
}

/// Returns the resident memory that the process has written, in bytes. Code pages are left out: they come and go with
/// what runs.
pub(crate) fn written(pid: u32) -> Option<u64> {
    memory(pid, "smaps_rollup", "Anonymous:").or_else(|| memory(pid, "status", "RssAnon:"))
}

/// Returns the value in the line that begins with `key` in one of the process's `/proc` files, in bytes.
fn memory(pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the median.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> Option<T> {
    quantile(values, 0.5)
}

/// Returns the value that this share of the values does not exceed.
pub(crate) fn quantile<T: Copy + PartialOrd>(values: &[T], share: f64) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).expect("no value is missing"));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is an index")]
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied()
}
