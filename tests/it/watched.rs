//! Processes as Linux reports them, and waits for what can only be looked at again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Tries until there is a result, as long as the patience lasts.
pub(crate) fn wait<T>(patience: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < patience, "it did not come");
        #[expect(clippy::disallowed_methods, reason = "processes can only be looked at again")]
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns state, parent, and session of a process (`/proc/PID/stat`).
pub(crate) fn stat(pid: u32) -> Option<(String, u32, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some((fields[0].to_owned(), fields[1].parse().ok()?, fields[3].parse().ok()?))
}

pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, ..)| state != "Z" && state != "X")
}

/// Returns the descendants of a process, without itself.
pub(crate) fn below(root: u32) -> BTreeSet<u32> {
    let pids: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let parents: Vec<(u32, u32)> = pids.into_iter().filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        let children: Vec<u32> =
            parents.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid).collect();
        found.extend(children);
        if found.len() == before {
            break;
        }
    }
    found.remove(&root);
    found
}
