//! Memory and processor time of servers' processes, as Linux reports them. A server is its whole process group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// How often the system is asked.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// The memory and processor time that a server uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Used {
    /// Resident memory in bytes, rounded to tenths of a MiB, so that smaller changes are no events.
    rss: u64,
    /// The share of one core, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
}

/// What process groups use, according to the last measurement and the one before.
#[derive(Debug, Default)]
pub(super) struct Usage {
    groups: BTreeMap<u32, Group>,
    before: BTreeMap<u32, Group>,
    /// The time between the two measurements.
    passed: Duration,
    at: Option<Instant>,
}

/// One process group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Group {
    bytes: u64,
    ticks: u64,
}

/// A tenth of a MiB.
const STEP: u64 = (1 << 20) / 10;

impl Usage {
    /// Records a measurement.
    pub(super) fn take(&mut self, groups: BTreeMap<u32, Group>, now: Instant) {
        self.passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.before = std::mem::replace(&mut self.groups, groups);
        self.at = Some(now);
    }

    /// Returns what these process groups use together; `None` if that is not known.
    pub(super) fn of(&self, pids: &[u32]) -> Option<Used> {
        let found: Vec<(&Group, Option<&Group>)> =
            pids.iter().filter_map(|pid| Some((self.groups.get(pid)?, self.before.get(pid)))).collect();
        if found.is_empty() {
            return None;
        }
        let bytes: u64 = found.iter().map(|(now, _)| now.bytes).sum();
        let since = |(now, before): &(&Group, Option<&Group>)| Some(now.ticks.saturating_sub((*before)?.ticks));
        let ticks: Option<u64> = found.iter().map(since).sum();
        Some(Used { rss: bytes / STEP * STEP, cpu: ticks.and_then(|ticks| share(ticks, self.passed)) })
    }
}

/// Returns the share of a core in percent, with tenths.
fn share(ticks: u64, passed: Duration) -> Option<f64> {
    let (ticks, a_second) = (u32::try_from(ticks).ok()?, u32::try_from(ticks_per_second()).ok()?);
    let passed = passed.as_secs_f64();
    let share = f64::from(ticks) * 100.0 / f64::from(a_second.max(1)) / passed;
    (passed > 0.0).then(|| (share * 10.0).round() / 10.0)
}

#[cfg(target_os = "linux")]
fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(not(target_os = "linux"))]
fn ticks_per_second() -> u64 {
    100
}

/// Asks the system what these process groups use. It reads a small file for each process of the system, so it runs on a
/// thread that may block.
#[cfg(target_os = "linux")]
pub(super) async fn look(wanted: BTreeSet<u32>) -> BTreeMap<u32, Group> {
    let read = move || {
        let mut groups = BTreeMap::new();
        let page = rustix::param::page_size() as u64;
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
            // A process may end at any moment.
            let Ok(stat) = std::fs::read(entry.path().join("stat")) else { continue };
            if let Some((group, used)) = parse(&String::from_utf8_lossy(&stat), page)
                && wanted.contains(&group)
            {
                let sum: &mut Group = groups.entry(group).or_default();
                sum.bytes += used.bytes;
                sum.ticks += used.ticks;
            }
        }
        groups
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// Returns nothing: other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub(super) async fn look(_: BTreeSet<u32>) -> BTreeMap<u32, Group> {
    BTreeMap::new()
}

/// Reads the `stat` of a process: its group, and what it uses.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has that file"))]
fn parse(stat: &str, page: u64) -> Option<(u32, Group)> {
    // The second field is the name of the program in parentheses, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field here is the third one of the file.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let group = u32::try_from(field(5)?).ok()?;
    Some((group, Group { bytes: field(24)?.saturating_mul(page), ticks: field(14)?.saturating_add(field(15)?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat =
            "7 (a) b ( c) S 1 42 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 900 1000000 2000 18446744073709551615";
        assert_eq!(parse(stat, 4096), Some((42, Group { bytes: 2000 * 4096, ticks: 300 })));
        assert_eq!((parse("", 4096), parse("1 (x) S", 4096)), (None, None));
    }

    #[test]
    fn a_server_is_the_sum_of_its_groups_and_its_time_is_a_difference() {
        let (mut usage, now) = (Usage::default(), Instant::now());
        assert_eq!(usage.of(&[7]), None);
        let groups = |ticks: u64| {
            BTreeMap::from([(7, Group { bytes: 10 << 20, ticks }), (8, Group { bytes: 10 << 20, ticks: 5 })])
        };
        usage.take(groups(100), now);
        let rss = (20 << 20) / STEP * STEP;
        assert_eq!(usage.of(&[7, 8, 9]), Some(Used { rss, cpu: None }));
        usage.take(groups(100 + ticks_per_second()), now + Duration::from_secs(2));
        assert_eq!(usage.of(&[7, 8, 9]), Some(Used { rss, cpu: Some(50.0) }));
        assert_eq!(usage.of(&[9]), None);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn this_process_is_in_its_group() {
        let group = u32::try_from(rustix::process::getpgrp().as_raw_pid()).unwrap();
        let groups = look(BTreeSet::from([group])).await;
        assert!(groups[&group].bytes > 1 << 20, "{groups:?}");
        assert_eq!(groups.len(), 1);
    }
}
