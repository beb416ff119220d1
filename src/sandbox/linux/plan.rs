//! What the launcher does, as the host tells it: paths, limits, and names of variables. It holds no secret.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The orders for one start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Whether only what is listed can be opened.
    pub(super) keeps_files: bool,
    /// Whether system calls are refused.
    pub(super) keeps_calls: bool,
    /// Files and folders to read, without links.
    pub(super) read: Vec<PathBuf>,
    /// Files and folders to read and write, without links.
    pub(super) write: Vec<PathBuf>,
    /// Links to make in its own HOME: from, and to.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Whether it may open connections.
    pub(super) network: bool,
    /// Whether it may open Unix sockets.
    pub(super) unix: bool,
    /// The most open files.
    pub(super) files: Option<u64>,
    /// The most bytes of data.
    pub(super) memory: Option<u64>,
    /// Variables to set.
    pub(super) set: Vec<(String, PathBuf)>,
    /// Variables that the server's entry sets. They pass whatever their names.
    pub(super) own: Vec<String>,
    /// The working directory; `None` means the launcher's.
    pub(super) cwd: Option<PathBuf>,
}

impl Plan {
    /// Reports whether a variable that the process has inherited stays behind: it leads to folders, sockets, or agents of
    /// the user.
    pub(super) fn withholds(&self, name: &OsString) -> bool {
        let Some(name) = name.to_str() else { return true };
        let leads_out = ["XDG_", "DBUS_"].iter().any(|prefix| name.starts_with(prefix)) || LEADS_OUT.contains(&name);
        leads_out && !self.own.iter().any(|own| own == name)
    }
}

const LEADS_OUT: [&str; 6] =
    ["DOCKER_HOST", "GPG_AGENT_INFO", "SSH_AGENT_PID", "SSH_AUTH_SOCK", "CONTAINER_HOST", "KUBECONFIG"];
