//! The few system calls that the process of a script may make: it computes, allocates memory, reads one pipe, and
//! writes another.
//!
//! This is a list of allowed calls, unlike the one for servers (`filter.rs`), because it is known which program runs.
//! Any other call is refused (`EPERM`), so an error in the engine cannot open, connect, start, signal, or remove
//! anything.

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
    // The current time, and the processor time used.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // What every C library does on its own: locks, signals, asking for its ids.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // Exiting.
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Refuses all other system calls to this process, permanently.
pub(super) fn keep() -> Result<(), Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules: BTreeMap<i64, Vec<_>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
