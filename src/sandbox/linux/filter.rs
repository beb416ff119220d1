//! System calls: what seccomp refuses to a confined process.
//!
//! This is a list of refused calls, not of allowed ones: a server can be any program, and a runtime that lacks a call
//! may fail without a clue. It refuses calls that bypass the rules for files, or that reach into other processes or
//! into the kernel itself, and that no server needs. A refused call fails with `EPERM`. `clone3` fails with `ENOSYS`,
//! because its flags are in memory that a filter cannot see; every C library then uses `clone`.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::plan::Plan;

/// Why the filter is not in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("seccomp: {0}")]
    Backend(#[from] BackendError),
    #[error("seccomp: {0}")]
    Kernel(#[from] seccompiler::Error),
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are refused whatever their arguments, by name.
const REFUSED: [(&str, i64); 49] = [
    // Other processes.
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("process_madvise", libc::SYS_process_madvise),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kcmp", libc::SYS_kcmp),
    // Other views of the file system, and files without a path.
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    // Namespaces, in which a process has rights that it lacks here.
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    // Keys of the user's session.
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    // Work that the kernel does for a process without this filter.
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    // The kernel itself.
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("kexec_load", libc::SYS_kexec_load),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("nfsservctl", libc::SYS_nfsservctl),
    ("lookup_dcookie", libc::SYS_lookup_dcookie),
    ("syslog", libc::SYS_syslog),
    ("vhangup", libc::SYS_vhangup),
    // The machine.
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("acct", libc::SYS_acct),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("adjtimex", libc::SYS_adjtimex),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
];

/// Calls that have other numbers under the x32 interface of x86-64, which a filter for x86-64 does not recognize:
/// ptrace, kexec_load, process_vm_readv, and process_vm_writev.
#[cfg(target_arch = "x86_64")]
const X32: [i64; 4] = [521, 528, 539, 540];
/// The bit in call numbers that marks this interface.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// The namespaces that `clone` can make.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The kinds of sockets that receive or send raw packets.
const RAW: [i32; 4] = [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_DCCP, OLD_PACKET];
/// `SOCK_PACKET`, with which old programs receive packets.
const OLD_PACKET: i32 = 10;
/// The bits of a socket's type that hold its kind.
const KIND: u64 = 0xf;
/// `TIOCSTI` and `TIOCLINUX`, which put text into a terminal as if it were typed.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Returns the names of the calls that are refused whatever their arguments.
pub(in crate::sandbox) fn refused() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|(name, _)| *name)
}

/// Applies the filter to this process, permanently.
pub(super) fn enforce(plan: &Plan) -> Result<(), Error> {
    for program in programs(plan)? {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// Returns the filters of a plan. `clone3` fails with another error, so it has its own filter.
pub(super) fn programs(plan: &Plan) -> Result<[BpfProgram; 2], BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let (refused, absent) = (errno(libc::EPERM), errno(libc::ENOSYS));
    let hidden: Rules = both([(libc::SYS_clone3, Vec::new())]);
    let refused = SeccompFilter::new(rules(plan)?, SeccompAction::Allow, refused, arch)?;
    let hidden = SeccompFilter::new(hidden, SeccompAction::Allow, absent, arch)?;
    Ok([hidden.try_into()?, refused.try_into()?])
}

fn errno(code: i32) -> SeccompAction {
    SeccompAction::Errno(code.unsigned_abs())
}

fn rules(plan: &Plan) -> Result<Rules, BackendError> {
    let mut calls: Vec<(i64, Vec<SeccompRule>)> = REFUSED.iter().map(|(_, call)| (*call, Vec::new())).collect();
    let namespaces = NAMESPACES.iter().map(|flag| u64::from(flag.unsigned_abs()));
    let namespaces = namespaces.map(|flag| rule([(0, SeccompCmpOp::MaskedEq(flag), flag)]));
    calls.push((libc::SYS_clone, namespaces.collect::<Result<_, _>>()?));
    let typing = TYPING.iter().map(|what| rule([(1, SeccompCmpOp::Eq, *what)]));
    calls.push((libc::SYS_ioctl, typing.collect::<Result<_, _>>()?));
    calls.push((libc::SYS_socket, sockets(plan)?));
    calls.push((libc::SYS_socketpair, pairs(plan)?));
    // Landlock does not cover limits: a limit on the processor time of another process of the user would end that
    // process.
    calls.push((libc::SYS_prlimit64, vec![rule([(0, SeccompCmpOp::Ne, 0)])?]));
    #[cfg(target_arch = "x86_64")]
    calls.extend([(libc::SYS_kexec_file_load, Vec::new())]);
    Ok(both(calls))
}

/// Returns which sockets are refused: those of families that the plan does not allow, and raw ones. Creating a pair of
/// Unix sockets is another call.
fn sockets(plan: &Plan) -> Result<Vec<SeccompRule>, BackendError> {
    let mut families = Vec::new();
    if plan.network {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if plan.unix {
        families.push(libc::AF_UNIX);
    }
    let is_none = families.iter().map(|family| (0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    let is_none: Vec<_> = is_none.collect();
    if is_none.is_empty() {
        // Without a condition the call is refused whatever its arguments.
        return Ok(Vec::new());
    }
    let mut rules = vec![rule(is_none)?];
    for kind in RAW {
        rules.push(rule([(1, SeccompCmpOp::MaskedEq(KIND), u64::from(kind.unsigned_abs()))])?);
    }
    Ok(rules)
}

/// Returns which socket pairs are refused: all but Unix sockets and, if the plan allows no Unix sockets, datagram
/// pairs. One end of a datagram pair can be reconnected, to a socket with a path.
fn pairs(plan: &Plan) -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = vec![rule([(0, SeccompCmpOp::Ne, u64::from(libc::AF_UNIX.unsigned_abs()))])?];
    if !plan.unix {
        rules.push(rule([(1, SeccompCmpOp::MaskedEq(KIND), u64::from(libc::SOCK_DGRAM.unsigned_abs()))])?);
    }
    Ok(rules)
}

/// Returns a rule that applies if all these conditions hold: each on an argument by its index, compared as 32 bits.
fn rule(conditions: impl IntoIterator<Item = (u8, SeccompCmpOp, u64)>) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .into_iter()
        .map(|(number, operator, value)| SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Returns the calls under the numbers that they have in every interface of this kind of processor.
fn both(calls: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>) -> Rules {
    let rules: Rules = calls.into_iter().collect();
    #[cfg(target_arch = "x86_64")]
    let rules = {
        let mut rules = rules;
        let mut x32: Vec<_> = rules.iter().map(|(call, rule)| (call | X32_BIT, rule.clone())).collect();
        x32.extend(X32.iter().map(|call| (call | X32_BIT, Vec::new())));
        // There, `ioctl` has another number, too.
        if let Some(ioctl) = rules.get(&libc::SYS_ioctl) {
            x32.push((514 | X32_BIT, ioctl.clone()));
        }
        rules.extend(x32);
        rules
    };
    rules
}
