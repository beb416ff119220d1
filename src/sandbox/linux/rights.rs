//! Rights of root: what a confined server does not have although it runs as root.
//!
//! Root may look into other processes and into the kernel past every rule for files. Whoever runs the host as root, in an
//! image for example, wants servers to keep the rights of root on files, and no others. Another account has none to lose.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capability_is_in_bounding_set, clear_ambient_capability_set, remove_capability_from_bounding_set,
};

/// What root keeps: its rights on files, other accounts, and low ports.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Gives up the other rights. The next `exec` makes that count.
pub(super) fn give_up() -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    if !rustix::process::geteuid().is_root() {
        // Nothing gives this process rights: it cannot gain any by `exec`.
        return Ok(());
    }
    let lost = CapabilitySet::all().difference(KEPT);
    // The right to give up rights is the last.
    let order = lost.difference(CapabilitySet::SETPCAP).iter().chain([CapabilitySet::SETPCAP]);
    for right in order {
        match capability_is_in_bounding_set(right) {
            Ok(true) => remove_capability_from_bounding_set(right)?,
            // An older kernel does not know it.
            Ok(false) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
