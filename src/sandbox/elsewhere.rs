//! No sandbox outside of Linux, or without the feature `sandbox`.

use std::path::Path;

use super::{Error, can_launch};
use crate::config::{Sandbox, Stdio};

const WHY: &str = if cfg!(target_os = "linux") {
    "this program was built without the feature `sandbox`"
} else {
    "there is a sandbox on Linux only"
};

/// Nothing here is a launcher.
#[cfg(unix)]
pub(super) fn become_server(_: impl Iterator<Item = std::ffi::OsString>) {}

/// Nothing here can refuse system calls.
#[cfg(all(unix, feature = "script"))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
pub(super) fn confine_script() -> std::io::Result<()> {
    Ok(())
}

pub(super) fn lacks(_: &Sandbox, _: bool) -> Vec<&'static str> {
    let _ = can_launch();
    vec![WHY]
}

pub(super) fn cannot_start(_: bool) -> bool {
    true
}

pub(super) fn gaps() -> Vec<&'static str> {
    Vec::new()
}

/// Starts the server as it is: its entry says `weak`.
pub(super) fn start(stdio: Stdio, _: &Sandbox, _: Option<&Path>) -> Result<Stdio, Error> {
    Ok(Stdio { sandbox: None, ..stdio })
}
