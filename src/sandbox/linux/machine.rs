//! What this kernel can do for a sandbox. It is determined once, by a few system calls.

use std::path::Path;
use std::sync::OnceLock;

use super::rules;

/// The kernel's abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Whether file accesses can be restricted to a list (Landlock, version 3).
    pub(super) files: bool,
    /// Whether signals to processes outside can be refused (Landlock, version 6).
    pub(super) signals: bool,
    /// Whether system calls can be refused (seccomp), on this kind of processor.
    pub(super) calls: bool,
}

impl Kernel {
    /// Determines the abilities of this kernel.
    pub(super) fn here() -> Self {
        static HERE: OnceLock<Kernel> = OnceLock::new();
        *HERE.get_or_init(|| Self {
            files: rules::can_keep_files(),
            signals: rules::can_keep_signals(),
            calls: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
                && seccompiler::TargetArch::try_from(std::env::consts::ARCH).is_ok(),
        })
    }

    /// Returns what the level needs but the kernel lacks.
    pub(super) fn lacks(self) -> impl Iterator<Item = &'static str> {
        let files = (!self.files)
            .then_some("this kernel has no Landlock of version 3 or newer (Linux 6.2), so files are not kept");
        let calls =
            (!self.calls).then_some("this kernel has no seccomp for this processor, so system calls are not kept");
        files.into_iter().chain(calls)
    }

    /// Returns what stays unprotected although the level is available.
    pub(super) fn gaps(self) -> Option<&'static str> {
        (self.files && !self.signals).then_some("this kernel does not keep signals (Landlock 6, Linux 6.12)")
    }
}
