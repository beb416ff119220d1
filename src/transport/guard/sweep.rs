//! Finds the processes that a host left behind, by mark, process group, and descent, and kills them.
//!
//! Linux shows all three under `/proc`; other systems show only groups. Scans repeat until several in a row find
//! nothing, because a process in the middle of `exec` shows no environment. Processes older than the host are skipped,
//! so that a scan is cheap on a busy machine. A process that leaves its group, loses its parent, and clears its
//! environment is not found.
//!
//! **Invariant:** a signal reaches only the process that was examined: it is sent by descriptor, after its start time
//! was compared, so that a process that reused the pid is never hit.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

/// A process group, identified by the pid of its leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    leader: Pid,
    /// The start time of its leader; `None` if unknown.
    started: Option<u64>,
}

/// The processes to find.
#[derive(Debug)]
pub(super) struct Which<'a> {
    /// Matches a process if a word of its mark starts with one of these; a space stands for the end of the word.
    pub(super) marks: &'a [String],
    /// Matches processes in these groups.
    pub(super) groups: &'a [Group],
    /// The start time of the host; older processes are skipped.
    pub(super) since: u64,
}

impl Group {
    pub(super) fn led_by(leader: i32) -> Option<Self> {
        // Zero would be our own group, and 1 is never a child.
        let leader = Pid::from_raw(leader).filter(|leader| leader.as_raw_pid() > 1)?;
        Some(Self { leader, started: started(leader.as_raw_pid()) })
    }

    /// Whether the number still belongs to the reported group. While a group has members, its number is not reused; so
    /// a process that has this pid is the leader, or the group is gone and the number belongs to another.
    fn is_the_same(&self) -> bool {
        match started(self.leader.as_raw_pid()) {
            Some(now) => self.started == Some(now),
            None => self.started.is_some() || test_kill_process(self.leader).is_err(),
        }
    }

    pub(super) fn kill(&self) {
        if self.is_the_same() {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
    }
}

/// Scans once; kills all matches and returns their number.
#[cfg(target_os = "linux")]
pub(super) fn kill(which: &Which<'_>) -> usize {
    let seen = linux::look();
    let doomed = which.pick(&seen);
    doomed.iter().filter(|process| process.kill()).count()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill(which: &Which<'_>) -> usize {
    let _ = (which.marks, which.since);
    which.groups.iter().for_each(Group::kill);
    0
}

#[cfg(target_os = "linux")]
pub(super) use linux::name_this_process;

#[cfg(not(target_os = "linux"))]
pub(super) fn name_this_process(_: &str) {}

/// Returns the start time of a process, if it is known.
#[cfg(target_os = "linux")]
pub(super) fn started(pid: i32) -> Option<u64> {
    linux::Seen::of(pid).map(|seen| seen.started)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn started(_: i32) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::fs;

    use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};

    use super::super::VARIABLE;
    use super::Which;

    /// A process at the time of a scan.
    #[derive(Clone, Debug)]
    pub(super) struct Seen {
        pid: i32,
        parent: i32,
        group: i32,
        pub(super) started: u64,
        dead: bool,
    }

    impl Seen {
        /// Reads `/proc/PID/stat` (proc_pid_stat(5)).
        pub(super) fn of(pid: i32) -> Option<Self> {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name is in parentheses and may contain anything, even parentheses.
            let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
            let fields = String::from_utf8_lossy(&stat[behind..]);
            let fields: Vec<&str> = fields.split_whitespace().collect();
            Some(Self {
                pid,
                parent: fields.get(1)?.parse().ok()?,
                group: fields.get(2)?.parse().ok()?,
                started: fields.get(19)?.parse().ok()?,
                dead: matches!(*fields.first()?, "Z" | "X"),
            })
        }

        fn has_mark(&self, marks: &[String]) -> bool {
            let Ok(environment) = fs::read(format!("/proc/{}/environ", self.pid)) else { return false };
            environment.split(|byte| *byte == 0).any(|entry| {
                let value = entry.strip_prefix(VARIABLE.as_bytes()).and_then(|entry| entry.strip_prefix(b"="));
                value.is_some_and(|words| {
                    let mut words = words.split(|byte| *byte == b' ').map(|word| [word, b" "].concat());
                    words.any(|word| marks.iter().any(|mark| word.starts_with(mark.as_bytes())))
                })
            })
        }

        /// Kills the process. Returns whether it was still there.
        pub(super) fn kill(&self) -> bool {
            let Some(pid) = Pid::from_raw(self.pid) else { return false };
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => {
                    // If pid and start time still match after the descriptor was opened, it refers to this process.
                    Self::of(self.pid).is_some_and(|now| now.started == self.started && !now.dead)
                        && pidfd_send_signal(&process, Signal::KILL).is_ok()
                }
                // Before Linux 5.3.
                Err(rustix::io::Errno::NOSYS) => kill_process(pid, Signal::KILL).is_ok(),
                Err(_) => false,
            }
        }
    }

    impl Which<'_> {
        /// Selects the matching processes and their descendants.
        pub(super) fn pick(&self, seen: &[Seen]) -> Vec<Seen> {
            let groups: Vec<i32> =
                self.groups.iter().filter(|group| group.is_the_same()).map(|group| group.leader.as_raw_pid()).collect();
            let own = getpid().as_raw_pid();
            let mut doomed: BTreeSet<i32> = BTreeSet::new();
            let meant = |process: &&Seen| groups.contains(&process.group) || process.has_mark(self.marks);
            let young = seen.iter().filter(|process| process.started >= self.since);
            doomed.extend(young.filter(meant).map(|process| process.pid));
            loop {
                let before = doomed.len();
                let children = seen.iter().filter(|process| doomed.contains(&process.parent));
                let children: Vec<i32> = children.map(|process| process.pid).collect();
                doomed.extend(children);
                if doomed.len() == before {
                    break;
                }
            }
            doomed.remove(&own);
            seen.iter().filter(|process| doomed.contains(&process.pid)).cloned().collect()
        }
    }

    /// Lists all live processes.
    pub(super) fn look() -> Vec<Seen> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid > 1).filter_map(Seen::of).filter(|process| !process.dead).collect()
    }

    pub(in super::super) fn name_this_process(name: &str) {
        let _ = fs::write("/proc/self/comm", name);
    }
}
