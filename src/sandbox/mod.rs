//! The sandbox of a server's process (`docs/hazards.md` H108): what a level restricts on this machine, and how a server
//! starts in it.
//!
//! In: the command of a server with its `sandbox`. Out: the command that starts it confined, which is this program in a
//! hidden mode, or what this machine lacks. `grants.rs` decides what the process may read and write, once, before the
//! start; the launcher (`linux/launch.rs`) opens exactly that, gives up everything else, and becomes the server.
//!
//! **Invariant:** a server never starts with less than its level, unless its entry says `weak`; then its status says
//! what is missing. A server without a sandbox costs nothing here. Start reading at [`start`].

#[cfg(not(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
)))]
mod elsewhere;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
mod grants;
mod learned;
#[cfg(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"))]
mod linux;
// On Linux only its tests see it: profiles are text, and the rest is compiled along.
#[cfg(any(
    all(test, feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
#[cfg_attr(not(target_os = "macos"), expect(dead_code, reason = "there only tests use it"))]
mod macos;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
mod places;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
mod programs;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
mod proxy;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
mod withheld;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
)))]
use self::elsewhere as on;
pub use self::learned::{Learned, Needed, Touched};
#[cfg(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"))]
use self::linux as on;
#[cfg(all(feature = "sandbox", target_os = "macos"))]
use self::macos as on;
pub(crate) use self::on::Door;
use crate::config::{Sandbox, Stdio};

/// The argument with which a program becomes the launcher of a confined server.
#[cfg(unix)]
pub(crate) const ARGUMENT: &str = "__confine";

/// The environment variable that marks our children and their descendants. Each word of its value is a mark, one per
/// host in the chain. It does not begin with `MCP_HOST_`, because such names are settings.
#[cfg(unix)]
pub(crate) const MARK: &str = "_MCP_HOST_GUARD";

#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
const NO_STATE: &str = "there is no state directory for its own HOME";

/// Whether `main` began with `guard()`, so that this program can be a launcher.
static CAN: AtomicBool = AtomicBool::new(false);

/// Why a server cannot start confined. `Display` is one line with what to do.
#[cfg_attr(
    not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
    allow(dead_code, reason = "elsewhere some or all of it is lacking")
)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// This machine, or this build, cannot provide the level.
    #[error(
        "this machine cannot give sandbox {level:?}: {}; write `weak = true` in its `sandbox` to take what there is, or {level:?} becomes \"off\"",
        .lacks.join(", ")
    )]
    Lacks {
        /// The level.
        level: &'static str,
        /// What is missing.
        lacks: Vec<String>,
    },
    /// There is nothing that starts containers.
    #[error("this machine cannot start its container: {}", .lacks.join(", "))]
    Uncontained {
        /// What is missing, and what to do.
        lacks: Vec<String>,
    },
    /// What the entry says cannot be had in a container.
    #[error("sandbox.container: {0}")]
    Container(String),
    /// A listed path cannot be granted.
    #[error("sandbox.{key}: {path} {why}")]
    Path {
        /// The key that lists it.
        key: &'static str,
        /// The path.
        path: String,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// strace, with which the server would be watched, is not installed.
    #[error(
        "there is no strace (the program `strace`, in the package `strace`), so the server cannot be watched; install it"
    )]
    Unwatched,
    /// The grants of each level cannot be recorded.
    #[error("what each level grants cannot be written to {path}: {why}; make its folder writable")]
    Note {
        /// The file.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// The door to the server's hosts cannot be created.
    #[error("the socket of its network proxy cannot be made in {path}: {why}; make it writable")]
    Door {
        /// The folder.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// It cannot be recorded that the server's package was fetched.
    #[error("its package is fetched, but {path} cannot be written: {why}; make its folder writable")]
    Mark {
        /// The file.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// The folder with the server's own HOME cannot be created.
    #[error("the folder for its own HOME, {path}, cannot be made: {why}; make it writable")]
    Home {
        /// The folder.
        path: String,
        /// The system's reason.
        why: String,
    },
}

/// The command that starts a server as its entry says, and the door of its sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) stdio: Stdio,
    /// Serves the server's connections to the hosts that its entry lists; `None` if it lists none.
    pub(crate) door: Option<Arc<Door>>,
    /// What has to be run once, before the first start of the server.
    pub(crate) first: Option<First>,
}

/// The command that fetches a server's package.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub(crate) stdio: Stdio,
    pub(crate) door: Option<Arc<Door>>,
    /// The file that records that this was done.
    mark: PathBuf,
}

impl Ready {
    /// Returns a command that starts without a sandbox.
    pub(crate) fn plain(stdio: Stdio) -> Self {
        Self { stdio, door: None, first: None }
    }
}

impl First {
    /// Records that the package was fetched. Writes a file, so it must not run on a runtime's thread.
    pub(crate) fn done(&self) -> Result<(), Error> {
        let wrong =
            |error: std::io::Error| Error::Mark { path: self.mark.display().to_string(), why: error.to_string() };
        std::fs::write(&self.mark, "").map_err(wrong)
    }
}

/// Records that this program can be a launcher.
#[cfg(unix)]
pub(crate) fn may_launch() {
    CAN.store(true, Ordering::Relaxed);
}

fn can_launch() -> bool {
    CAN.load(Ordering::Relaxed)
}

/// If these are the arguments of a launcher, becomes the confined server, and never returns.
#[cfg(unix)]
pub(crate) fn become_server(arguments: impl Iterator<Item = std::ffi::OsString>) {
    on::become_server(arguments);
}

/// Restricts this process, which runs a script, to the system calls that it needs, as far as the machine can.
///
/// # Errors
/// Fails if the machine can refuse the other calls, but that did not succeed.
#[cfg(all(unix, feature = "script"))]
pub(crate) fn confine_script() -> std::io::Result<()> {
    on::confine_script()
}

/// Returns the command that starts the server of `stdio` confined; `stdio` itself if it has no sandbox. `state` is the
/// host's state directory. Reads files and creates folders, so it must not run on a runtime's thread.
pub(crate) fn start(stdio: Stdio, state: Option<&Path>) -> Result<Ready, Error> {
    let Some(sandbox) = stdio.sandbox.clone() else { return Ok(Ready::plain(stdio)) };
    if !sandbox.is_on() {
        return on::unconfined(stdio, &sandbox, state);
    }
    let lacks = on::lacks(&sandbox, state.is_some());
    if !lacks.is_empty() && sandbox.container.is_some() {
        return Err(Error::Uncontained { lacks });
    }
    if !lacks.is_empty() && !sandbox.weak {
        return Err(Error::Lacks { level: level(&sandbox), lacks });
    }
    on::watched(on::start(stdio, &sandbox, state)?, &sandbox)
}

/// Describes what restricts the server's process, as far as that is known without a test; `None` if the sandbox is off.
/// `has_state` says whether mcp-host has a state directory.
pub(crate) fn told(sandbox: &Sandbox, has_state: bool) -> Option<String> {
    if !sandbox.is_on() {
        return None;
    }
    let lacks = on::known_lacks(sandbox, has_state);
    if let Some(image) = &sandbox.container {
        let lacking = format!("container {image} cannot be had: {}", lacks.join(", "));
        return Some(if lacks.is_empty() { format!("container {image}") } else { lacking });
    }
    let level = level(sandbox);
    let how = match (lacks.is_empty(), sandbox.weak) {
        (true, _) => level.to_owned(),
        (false, false) => format!("{level} cannot be had: {}", lacks.join(", ")),
        (false, true) if on::cannot_start(has_state) => {
            format!("off, since {level} cannot be had: {}", lacks.join(", "))
        }
        (false, true) => format!("{level}, but {}", lacks.join(", ")),
    };
    let gaps = on::gaps(sandbox);
    Some(if gaps.is_empty() || !lacks.is_empty() { how } else { format!("{how}; {}", gaps.join(", ")) })
}

impl Sandbox {
    /// Returns what the sandbox needs but this machine lacks, one sentence each. `has_state` says whether mcp-host has
    /// a state directory. May run bubblewrap once, which takes some milliseconds.
    #[must_use]
    pub fn lacks(&self, has_state: bool) -> Vec<String> {
        if self.is_on() { on::lacks(self, has_state) } else { Vec::new() }
    }

    /// Returns what a server has to be granted so that it can do what it did while [`traced`](Sandbox::traced) without
    /// a sandbox. Reads files, so it must not run on a runtime's thread.
    ///
    /// # Errors
    /// Fails if that cannot be determined; the error says why, in one line.
    pub fn learned(&self, touched: impl IntoIterator<Item = Touched>) -> Result<Learned, String> {
        on::learned(self, touched)
    }

    /// Returns the names of the system calls that every level refuses, whatever their arguments.
    pub fn refused_calls() -> impl Iterator<Item = &'static str> {
        on::refused_calls()
    }
}

fn level(sandbox: &Sandbox) -> &'static str {
    use crate::config::Words as _;
    sandbox.level.word()
}
