//! Finds processes that a host started and that nothing will end any more: they carry the mark of a host whose guard is gone.
//!
//! Only Linux shows the environment of other processes; elsewhere none are found. **Invariant:** this only finds
//! processes, and ends none.

/// A process that a host left behind.
///
/// ```
/// for orphan in mcp_host::orphans() {
///     println!("{} {}", orphan.pid, orphan.name);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Orphan {
    /// Its id.
    pub pid: u32,
    /// The name of its program, as the system reports it.
    pub name: String,
}

/// Lists the processes of this user that a host left behind. Blocks for some milliseconds.
///
/// ```
/// println!("{} processes were left behind", mcp_host::orphans().len());
/// ```
#[cfg(target_os = "linux")]
#[must_use]
pub fn orphans() -> Vec<Orphan> {
    linux::look()
}

/// Lists nothing: this system does not show the environment of other processes.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn orphans() -> Vec<Orphan> {
    Vec::new()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use super::super::{ARGUMENT, VARIABLE};
    use super::Orphan;

    struct Process {
        pid: u32,
        /// The words of its mark.
        mark: Vec<String>,
        /// The mark that it guards, if it is a guard.
        guards: Option<String>,
    }

    pub(super) fn look() -> Vec<Orphan> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let all: Vec<Process> = pids.filter_map(read).collect();
        let living: Vec<&String> = all.iter().filter_map(|process| process.guards.as_ref()).collect();
        let is_left = |process: &&Process| {
            !process.mark.is_empty()
                && process.guards.is_none()
                && !process.mark.iter().any(|word| living.iter().any(|mark| word.starts_with(mark.as_str())))
        };
        let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        all.iter().filter(is_left).map(|process| Orphan { pid: process.pid, name: name(process.pid) }).collect()
    }

    /// Reads a process. The system shows the environment of the user's own processes only.
    fn read(pid: u32) -> Option<Process> {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0).skip(1);
        let is_guard = words.next() == Some(ARGUMENT.as_bytes());
        let mark = words.next().filter(|mark| is_guard && !mark.is_empty());
        let guards = mark.map(|mark| String::from_utf8_lossy(mark).trim_end().to_owned());
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(VARIABLE.as_bytes()).and_then(|entry| entry.strip_prefix(b"=")));
        let value = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
        let mark = value.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Some(Process { pid, mark, guards })
    }
}
