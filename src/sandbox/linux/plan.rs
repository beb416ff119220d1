//! What the launcher does, as the host tells it: paths, limits, and names of variables. It holds no secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sandbox::withheld::{is_of_proxy, leads_out};

/// The orders for one start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The container that is started in place of the server; `None` if there is none.
    pub(super) container: Option<Container>,
    /// The container that is ended once its client is gone; `None` if this process starts a server.
    pub(super) keeper: Option<Keeper>,
    /// The limits for all processes together, which come first; `None` if there are none.
    pub(super) scope: Option<Scope>,
    /// The namespaces to go into then; `None` if there are none.
    pub(super) bubble: Option<Bubble>,
    /// Whether the launcher is inside of them.
    pub(super) is_inside: bool,
    /// What each path was before the namespaces were made.
    pub(super) seen: BTreeMap<PathBuf, Seen>,
    /// Whether it is told where the server begins.
    pub(super) is_watched: bool,
    /// The number of the connection that takes the way out to the host.
    pub(super) door: Option<i32>,
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
    /// Whether it may open sockets of the network that it is in.
    pub(super) network: bool,
    /// Whether it may open Unix sockets.
    pub(super) unix: bool,
    /// The most open files.
    pub(super) files: Option<u64>,
    /// The most bytes of data.
    pub(super) memory: Option<u64>,
    /// The most processes and threads, in its namespace.
    pub(super) processes: Option<u64>,
    /// Variables to set.
    pub(super) set: Vec<(String, PathBuf)>,
    /// Variables that the server's entry sets. They pass whatever their names.
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
    /// Whether it is all of them with a file system of their own, and not the network alone.
    pub(super) is_whole: bool,
    /// Whether the network is another one.
    pub(super) has_network: bool,
    /// Where the host waits for the socket of the network.
    pub(super) door: Option<PathBuf>,
    /// Links to make in the file system: where, and what they say.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// The folder that becomes `/tmp`.
    pub(super) tmp: Option<PathBuf>,
}

/// The scope around a launcher.
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

/// The orders for one start of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Container {
    /// The program of the engine.
    pub(super) engine: PathBuf,
    pub(super) is_podman: bool,
    /// The image as the entry has it.
    pub(super) image: String,
    /// The file that says which image that was at first use.
    pub(super) kept: PathBuf,
    /// Options that follow from the entry.
    pub(super) options: Vec<String>,
    /// What the engine has to be able to limit: keys of `sandbox`.
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

/// What a path was when it was looked at: its device, and its number there.
pub(super) type Seen = (u64, u64);

impl Plan {
    /// Reports whether a variable that the process has inherited stays behind: it leads to folders, sockets, or agents of
    /// the user. Where the network is another one, so do settings of the host's proxies, even those of the entry.
    pub(super) fn withholds(&self, name: &OsString) -> bool {
        let Some(name) = name.to_str() else { return true };
        self.door.is_some() && is_of_proxy(name) || leads_out(name) && !self.own.iter().any(|own| own == name)
    }
}
