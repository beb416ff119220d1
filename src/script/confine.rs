//! Takes from the process of a script what a script does not need: files, other processes, time, memory, system calls.
//!
//! JavaScript as `engine.rs` runs it reaches none of that anyway. These are the bounds for an error in the engine itself.
//! **Invariant:** a limit that cannot be set ends the process before the script begins, but for the number of processes,
//! which the superuser is free of, and system calls on a machine that cannot refuse them.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

/// How much address space there is beside the objects of the script: for answers on their way, and for the stack.
const BESIDE: u64 = 64 << 20;

/// Makes the process the last to get time, and the first to go where memory is short.
pub(super) fn at_once() {
    let _ = rustix::process::nice(19);
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Sets the limits for good.
pub(super) fn to(memory: usize, cpu: Duration) -> io::Result<()> {
    let used = address_space();
    let limit = |resource: Resource, most: u64| {
        let both = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, both).map_err(io::Error::from)
    };
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    let _ = limit(Resource::Nproc, 0);
    // The engine looks at the time itself; this is for what it does in one step, and counts whole seconds.
    let seconds = cpu.as_secs() + 2;
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    if let Some(used) = used {
        // An answer is there as text and as objects for a moment.
        limit(Resource::As, used + 3 * memory as u64 + BESIDE)?;
    }
    limit(Resource::Nofile, 0)?;
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    crate::sandbox::confine_script()
}

/// Returns how much address space the process has; `None` where that is not known, or not limited.
#[cfg(target_os = "linux")]
fn address_space() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn address_space() -> Option<u64> {
    None
}
