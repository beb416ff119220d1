//! Takes from a script's process what the script does not need: files, other processes, time, memory, system calls.
//!
//! JavaScript as `engine.rs` runs it cannot reach any of these anyway. The limits are for errors in the engine itself.
//! **Invariant:** if a limit cannot be set, the process exits before the script begins. There are two exceptions: the
//! number of processes, which does not restrict root, and system calls on a machine that cannot refuse them.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

/// The address space besides the objects of the script: for answers in transit, and for the stack.
const BESIDE: u64 = 64 << 20;

/// Makes the process the last to get processor time, and the first to be killed when memory is short.
pub(super) fn at_once() {
    let _ = rustix::process::nice(19);
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Sets the limits permanently.
pub(super) fn to(memory: usize, cpu: Duration) -> io::Result<()> {
    let used = address_space();
    let limit = |resource: Resource, most: u64| {
        let both = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, both).map_err(io::Error::from)
    };
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    let _ = limit(Resource::Nproc, 0);
    // The engine checks the time itself; this limit is for what it does in one step, and counts whole seconds.
    let seconds = cpu.as_secs() + 2;
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    if let Some(used) = used {
        // An answer exists for a moment both as text and as objects.
        limit(Resource::As, used + 3 * memory as u64 + BESIDE)?;
    }
    limit(Resource::Nofile, 0)?;
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    crate::sandbox::confine_script()
}

/// Returns how much address space the process uses; `None` where that is not known, or not limited.
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
