//! The few system calls that the process of a script may make: it computes, takes memory, reads one pipe, and writes another.
//!
//! A list of what is allowed, unlike that for servers (`filter.rs`): here it is known which program runs. Any other call is
//! refused (`EPERM`), so that an error in the engine opens, connects, starts, signals, and removes nothing.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::filter::Error;

const ALLOWED: [i64; 22] = [
    // Its pipes.
    libc::SYS_read,
    libc::SYS_write,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    // The time, and how long it has computed.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // What every C library does by itself: locks, signals, its identity.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // Its end.
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Refuses this process every other call, for good.
pub(super) fn keep() -> Result<(), Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules: BTreeMap<i64, Vec<_>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
