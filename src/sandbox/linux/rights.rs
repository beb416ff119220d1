//! The privileges of root that a confined server lacks although it runs as root.
//!
//! Root can bypass every rule for files by reaching into other processes and into the kernel. If mcp-host runs as root,
//! as in a container image, servers keep root's privileges on files, but no others. Other accounts have none to lose.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capability_is_in_bounding_set, clear_ambient_capability_set, remove_capability_from_bounding_set,
};

/// The privileges that root keeps: on files, other accounts, and low ports.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Gives up the other privileges. This takes effect at the next `exec`.
pub(super) fn give_up() -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    if !rustix::process::geteuid().is_root() {
        // This process has no privileges, and cannot gain any by `exec`.
        return Ok(());
    }
    let lost = CapabilitySet::all().difference(KEPT);
    // The privilege to give up privileges is given up last.
    let order = lost.difference(CapabilitySet::SETPCAP).iter().chain([CapabilitySet::SETPCAP]);
    for right in order {
        match capability_is_in_bounding_set(right) {
            Ok(true) => remove_capability_from_bounding_set(right)?,
            // An older kernel does not know the capability.
            Ok(false) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
