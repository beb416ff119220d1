//! Returns memory to the system: what glibc's allocator keeps free, and code and constants that were only needed at
//! startup.
//!
//! This is a separate crate because neither has a safe interface, and `mcp-host` forbids unsafe code. Without glibc,
//! nothing here has any effect.

/// Returns every unused page to the system.
///
/// It takes about a millisecond per 10 MiB returned. Allocations wait meanwhile, so call it rarely.
///
/// # Examples
///
/// ```
/// drop(vec![0; 1 << 20]);
/// mcp_host_heap::trim();
/// ```
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes a number, touches nothing that is in use, and may be made from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns how many bytes of the heap are unused, modulo 4 GiB; `None` if the allocator does not say.
///
/// Pages that the system already has back count, too, so only a change of this number shows how much there is to
/// return.
///
/// # Examples
///
/// ```
/// let before = mcp_host_heap::unused();
/// mcp_host_heap::trim();
/// # let _ = before;
/// ```
pub fn unused() -> Option<u32> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // `mallinfo2`, whose fields are wider, is missing before glibc 2.33. SAFETY: the call takes nothing and returns
        // numbers, under the allocator's own locks.
        let info = unsafe { libc::mallinfo() };
        Some(info.fordblks.cast_unsigned())
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// Gives each allocation of this many bytes or more its own mapping from now on, which is returned as soon as it is
/// freed. Free memory at the end of the heap is returned once it reaches twice that size.
///
/// A mapping costs two system calls and a fault per page; without it, freed memory stays as a hole in the heap. By
/// default, glibc starts at 128 KiB and raises this size up to 32 MiB as such allocations are freed. After the first
/// call of this function, glibc no longer raises it.
///
/// # Examples
///
/// ```
/// mcp_host_heap::map_from(64 * 1024);
/// drop(vec![0; 1 << 20]);
/// ```
pub fn map_from(bytes: u32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        for (setting, value) in [(libc::M_MMAP_THRESHOLD, bytes), (libc::M_TRIM_THRESHOLD, bytes.saturating_mul(2))] {
            // SAFETY: the call sets a number of the allocator, under the allocator's own lock.
            unsafe {
                libc::mallopt(setting, value);
            }
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}

/// Drops all pages of code and constants from memory, those of the C library, too; each is read again from the page
/// cache when something needs it.
///
/// A starting program runs much code that it never runs again: it is linked, reads arguments and settings and builds
/// its tables. Those pages stay until the system runs short of memory. The call takes well under a millisecond, and so
/// does reloading what runs next.
///
/// # Examples
///
/// ```
/// mcp_host_heap::forget_code();
/// ```
pub fn forget_code() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (start, length) in code::unwritten() {
        // SAFETY: the range is a private mapping of a file that cannot be written, and of which no page was ever
        // written: the system reads the same bytes again when any thread needs them, as it does after it has reclaimed
        // pages by itself. The files are those that were mapped before `main`, and nothing unmaps them.
        unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED);
        }
    }
}

/// Finds what a program runs and reads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod code {
    use std::fs;

    /// The libraries of glibc that the program is linked with, by the beginnings of their names. They are mapped before
    /// `main`. Others may be loaded by one thread while another one reads which mappings there are.
    const LINKED: [&str; 3] = ["libc.so.", "libm.so.", "ld-linux"];

    /// Returns the start and length of each private mapping of the program, or of one of [`LINKED`], that cannot be
    /// written and never was.
    pub(super) fn unwritten() -> Vec<(usize, usize)> {
        let (Ok(program), Ok(text)) = (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/smaps")) else {
            return Vec::new();
        };
        let is_ours = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            program.to_str() == Some(path) || LINKED.iter().any(|library| name.starts_with(library))
        };
        let mut found = Vec::new();
        let mut at = None;
        for line in text.lines() {
            if let Some(mapping) = mapping(line) {
                at = mapping.2.filter(|path| is_ours(path)).map(|_| (mapping.0, mapping.1));
            } else if let (Some(range), Some(written)) = (at, line.strip_prefix("Anonymous:")) {
                found.extend((written.trim() == "0 kB").then_some(range));
            }
        }
        found
    }

    /// Parses the first line of a mapping (proc(5)). Returns its start, its length, and its file if the mapping is
    /// private and only read or run; `None` for any other line.
    fn mapping(line: &str) -> Option<(usize, usize, Option<&str>)> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let rest = rest.strip_prefix("r-xp ").or_else(|| rest.strip_prefix("r--p "));
        let path = rest.and_then(|rest| rest.splitn(4, ' ').last()).map(str::trim_start);
        Some((start, end.checked_sub(start)?, path.filter(|path| path.starts_with('/'))))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn lines_of_mappings_are_told_from_others() {
            let code = "55d0c0a00000-55d0c0b00000 r-xp 00001000 fe:01 1234                       /usr/bin/a b";
            assert_eq!(mapping(code), Some((0x55d0_c0a0_0000, 0x10_0000, Some("/usr/bin/a b"))));
            let constants = code.replace("r-xp", "r--p");
            assert_eq!(mapping(&constants).and_then(|mapping| mapping.2), Some("/usr/bin/a b"));
            for other in ["rw-p", "r--s", "rwxp", "---p"] {
                let line = code.replace("r-xp", other);
                assert_eq!(mapping(&line), Some((0x55d0_c0a0_0000, 0x10_0000, None)), "{other}");
            }
            let kernel = "7ffc2d5f2000-7ffc2d5f4000 r-xp 00000000 00:00 0                          [vdso]";
            assert_eq!(mapping(kernel), Some((0x7ffc_2d5f_2000, 0x2000, None)));
            let nameless = "7ffc2d5f2000-7ffc2d5f4000 r--p 00000000 00:00 0 ";
            assert_eq!(mapping(nameless), Some((0x7ffc_2d5f_2000, 0x2000, None)));
            assert_eq!(mapping("Anonymous:             0 kB"), None);
        }

        #[test]
        fn this_program_is_found_and_runs_on() {
            let resident = || {
                let text = fs::read_to_string("/proc/self/statm").unwrap();
                text.split(' ').nth(2).unwrap().parse::<usize>().unwrap()
            };
            assert!(unwritten().len() > 2, "this program, its constants, and the C library");
            let before = resident();
            crate::forget_code();
            let after = resident();
            assert!(after < before, "{before} pages of files, then {after}");
        }
    }
}
