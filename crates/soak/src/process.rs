//! Processes as Linux reports them: parent, alive or not, words in their environment or command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// A process, distinct from any later one with its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
}

#[derive(Clone, Debug)]
struct Stat {
    parent: u32,
    started: u64,
    dead: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = String::from_utf8_lossy(&stat[behind..]).into_owned();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let dead = matches!(*fields.first()?, "Z" | "X");
        Some(Self { parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()?, dead })
    }
}

impl Process {
    pub(crate) fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && !stat.dead)
    }

    /// Returns its command line, for a report.
    pub(crate) fn name(&self) -> String {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words: Vec<_> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let words = words.join(" ").chars().take(120).collect::<String>();
        format!("{words} ({})", stat.split(' ').take(6).collect::<Vec<_>>().join(" "))
    }

    /// Kills it, by id, to clean up after a failure.
    pub(crate) fn kill(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_alive()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Looks at a process that stands still meanwhile. What `/proc` says of a mapping that grows while it is read counts twice.
pub(crate) fn halted<T>(pid: u32, look: impl FnOnce() -> T) -> T {
    let signal = |signal| {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.map(|pid| rustix::process::kill_process(pid, signal))
    };
    let _ = signal(rustix::process::Signal::STOP);
    let stands = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| !rest.trim_start().starts_with(['R', 'S', 'D']))
    };
    while !stands() {
        std::thread::yield_now();
    }
    let seen = look();
    let _ = signal(rustix::process::Signal::CONT);
    seen
}

fn all() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect()
}

/// Returns the descendants of a process, without itself.
pub(crate) fn below(root: u32) -> BTreeSet<Process> {
    let all = all();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        let children = all.iter().filter(|(_, stat)| found.contains(&stat.parent)).map(|(pid, _)| *pid);
        let children: Vec<u32> = children.collect();
        found.extend(children);
        if found.len() == before {
            break;
        }
    }
    found.remove(&root);
    let process = |pid: u32| Some(Process { pid, started: all.get(&pid)?.started });
    found.into_iter().filter_map(process).collect()
}

/// Returns all live processes with the word in their environment or on their command line.
pub(crate) fn with_word(word: &str) -> BTreeSet<Process> {
    let holds = |file: String| {
        fs::read(file).is_ok_and(|bytes| bytes.windows(word.len()).any(|window| window == word.as_bytes()))
    };
    let alive = all().into_iter().filter(|(pid, stat)| !stat.dead && *pid != std::process::id());
    let told = alive.filter(|(pid, _)| holds(format!("/proc/{pid}/environ")) || holds(format!("/proc/{pid}/cmdline")));
    told.map(|(pid, stat)| Process { pid, started: stat.started }).collect()
}

/// Waits until none of these, and none with the word, is alive. Returns how long that took, or the survivors.
pub(crate) fn wait_gone(known: &BTreeSet<Process>, word: &str, patience: Duration) -> Result<Duration, Vec<Process>> {
    let begun = Instant::now();
    loop {
        let mut left: Vec<Process> = known.iter().filter(|process| process.is_alive()).cloned().collect();
        let took = begun.elapsed();
        // Looking at all processes costs more than the measured time, so only when the others are gone.
        if left.is_empty() || took > patience {
            left.extend(with_word(word));
        }
        if left.is_empty() {
            return Ok(took);
        }
        if took > patience {
            return Err(left);
        }
        pause(Duration::from_millis(10));
    }
}

/// Blocks the calling thread, which has nothing else to do.
pub(crate) fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a thread of a test program that watches processes")]
    std::thread::sleep(time);
}
