//! The plan that mcp-host gives to the launcher: paths, limits, and names of variables. It holds no secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sandbox::withheld::{is_of_proxy, leads_out};

/// The instructions for one start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The container to start in place of the server; `None` if there is none.
    pub(super) container: Option<Container>,
    /// The container to end once its client is gone; `None` if this process starts a server.
    pub(super) keeper: Option<Keeper>,
    /// The limits for all processes together. They are applied first; `None` if there are none.
    pub(super) scope: Option<Scope>,
    /// The namespaces to enter then; `None` if there are none.
    pub(super) bubble: Option<Bubble>,
    /// Whether the launcher is already inside them.
    pub(super) is_inside: bool,
    /// The identity of each path before the namespaces were created.
    pub(super) seen: BTreeMap<PathBuf, Seen>,
    /// Whether strace watches, so that the launcher marks where the server begins.
    pub(super) is_watched: bool,
    /// The file descriptor of the connection over which the launcher sends the door to mcp-host.
    pub(super) door: Option<i32>,
    /// Whether only listed files can be opened.
    pub(super) keeps_files: bool,
    /// Whether system calls are refused.
    pub(super) keeps_calls: bool,
    /// Readable files and folders, without links.
    pub(super) read: Vec<PathBuf>,
    /// Readable and writable files and folders, without links.
    pub(super) write: Vec<PathBuf>,
    /// Links to create in the server's own HOME: path, and target.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Whether the server may open sockets of its network.
    pub(super) network: bool,
    /// Whether the server may open Unix sockets.
    pub(super) unix: bool,
    /// The most open files; `None` means no limit of our own.
    pub(super) files: Option<u64>,
    /// The most bytes of data.
    pub(super) memory: Option<u64>,
    /// The most processes and threads in its user namespace.
    pub(super) processes: Option<u64>,
    /// Variables to set.
    pub(super) set: Vec<(String, PathBuf)>,
    /// Variables that the server's entry sets. They are passed on whatever their names are.
    pub(super) own: Vec<String>,
    /// The working directory; `None` means the launcher's.
    pub(super) cwd: Option<PathBuf>,
}

/// The namespaces around a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bubble {
    /// The program that makes them.
    pub(super) program: PathBuf,
    /// Whether these are all namespaces, with their own file system, and not the network namespace alone.
    pub(super) is_whole: bool,
    /// Whether it has a network namespace of its own.
    pub(super) has_network: bool,
    /// Where mcp-host waits for the listening socket.
    pub(super) door: Option<PathBuf>,
    /// Links to create in the file system: path, and target.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// The folder that is mounted as `/tmp`.
    pub(super) tmp: Option<PathBuf>,
}

/// The systemd scope around a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scope {
    /// The program that asks for it.
    pub(super) program: PathBuf,
    /// The folder of the user's session; `None` means the manager of the system.
    pub(super) session: Option<PathBuf>,
    /// The limits, as systemd has them.
    pub(super) properties: Vec<String>,
}

/// The instructions for one start of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Container {
    /// The program of the engine.
    pub(super) engine: PathBuf,
    pub(super) is_podman: bool,
    /// The image as the config entry names it.
    pub(super) image: String,
    /// The file that records which image that was at first use.
    pub(super) kept: PathBuf,
    /// Options that follow from the entry.
    pub(super) options: Vec<String>,
    /// What the engine must be able to limit: keys of `sandbox`.
    pub(super) limits: Vec<String>,
}

/// A container that is ended once its client is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keeper {
    pub(super) engine: PathBuf,
    /// The name of the container.
    pub(super) name: String,
    /// Whether this process is the keeper, and not the one that starts it.
    pub(super) is_it: bool,
}

/// The identity of a path when it was checked: its device, and its inode number.
pub(super) type Seen = (u64, u64);

impl Plan {
    /// Reports whether an inherited variable is not passed on because it points to folders, sockets, or agents of the
    /// user. If there is a door, proxy settings are not passed on either, even those of the entry.
    pub(super) fn withholds(&self, name: &OsString) -> bool {
        let Some(name) = name.to_str() else { return true };
        self.door.is_some() && is_of_proxy(name) || leads_out(name) && !self.own.iter().any(|own| own == name)
    }
}
