//! The replacement for `linux` on other systems, or without the feature `sandbox`: there is no sandbox.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, Learned, Ready, Touched, can_launch};
use crate::config::{Sandbox, Stdio};
use crate::counts::ServerCounts;

const WHY: &str = if cfg!(target_os = "linux") {
    "this program was built without the feature `sandbox`"
} else {
    "there is a sandbox on Linux and macOS only"
};

/// A type without values, because no sandbox has a door here.
#[derive(Debug)]
pub(crate) enum Door {}

impl Door {
    /// Never called, because there is no value of this type.
    pub(crate) async fn serve(self: Arc<Self>, _: Arc<str>, _: Arc<ServerCounts>, _: CancellationToken) {
        match *self {}
    }
}

/// Does nothing: this process is never a launcher here.
#[cfg(unix)]
pub(super) fn become_server(_: impl Iterator<Item = std::ffi::OsString>) {}

/// Does nothing: system calls cannot be refused here.
#[cfg(all(unix, feature = "script"))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
pub(super) fn confine_script() -> std::io::Result<()> {
    Ok(())
}

pub(super) fn lacks(_: &Sandbox, _: bool) -> Vec<String> {
    let _ = can_launch();
    vec![WHY.to_owned()]
}

pub(super) fn known_lacks(sandbox: &Sandbox, has_state: bool) -> Vec<String> {
    lacks(sandbox, has_state)
}

pub(super) fn cannot_start(_: bool) -> bool {
    true
}

pub(super) fn gaps(_: &Sandbox) -> Vec<String> {
    Vec::new()
}

/// Nothing is watched here.
pub(super) fn watched(_: Ready, _: &Sandbox) -> Result<Ready, Error> {
    Err(Error::Unwatched)
}

/// Nothing is watched here.
pub(super) fn unconfined(_: Stdio, _: &Sandbox, _: Option<&Path>) -> Result<Ready, Error> {
    Err(Error::Unwatched)
}

/// Nothing was watched here.
pub(super) fn learned(_: &Sandbox, _: impl IntoIterator<Item = Touched>) -> Result<Learned, String> {
    Err(WHY.to_owned())
}

/// Returns nothing: no system calls are refused here.
pub(super) fn refused_calls() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

/// Starts the server without a sandbox, which its entry allows by `weak`.
pub(super) fn start(stdio: Stdio, _: &Sandbox, _: Option<&Path>) -> Result<Ready, Error> {
    Ok(Ready::plain(Stdio { sandbox: None, ..stdio }))
}
