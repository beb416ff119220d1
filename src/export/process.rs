//! Numbers about this process that the system provides.

/// The process; empty on systems that do not provide these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
}

impl Process {
    /// Reads the numbers. May block.
    #[cfg(target_os = "linux")]
    pub(super) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size());
        let Self { resident_bytes, cpu_seconds, .. } = Self::read(&stat, ticks, page as u64);
        // The descriptor of the folder itself is open at that moment.
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|files| (files.count() as u64).saturating_sub(1));
        Self { resident_bytes, cpu_seconds, open_fds: open, max_fds: max_fds() }
    }

    /// Returns nothing on this system.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn now() -> Self {
        Self::default()
    }

    /// Parses `/proc/self/stat`, in which times are in ticks and sizes in pages.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has that file"))]
    #[expect(clippy::cast_precision_loss, reason = "a process has fewer ticks than a float holds exactly")]
    fn read(stat: &str, ticks: u64, page: u64) -> Self {
        // The second field is the name of the program in parentheses, which may contain any text.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        // The first field here is the third one of the file.
        let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
        let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) as f64 / ticks.max(1) as f64);
        Self { resident_bytes: field(24).map(|pages| pages * page), cpu_seconds: cpu, open_fds: None, max_fds: None }
    }
}

#[cfg(target_os = "linux")]
fn max_fds() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let stat =
            "7 (a) b ( c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 900 1000000 2000 18446744073709551615";
        let read = Process::read(stat, 100, 4096);
        let expected =
            Process { resident_bytes: Some(2000 * 4096), cpu_seconds: Some(3.0), open_fds: None, max_fds: None };
        assert_eq!(read, expected);
        assert_eq!(Process::read("", 100, 4096), Process::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_files() {
        let now = Process::now();
        assert!(now.resident_bytes.unwrap() > 1 << 20 && now.open_fds.unwrap() >= 3, "{now:?}");
        assert!(now.cpu_seconds.is_some() && now.max_fds.unwrap() > now.open_fds.unwrap());
    }
}
