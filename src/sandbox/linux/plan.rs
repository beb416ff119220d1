//! The plan that mcp-host gives to the launcher: paths, limits, and names of variables. It holds no secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The instructions for one start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The namespaces to enter first; `None` if there are none.
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

/// The identity of a path when it was checked: its device, and its inode number.
pub(super) type Seen = (u64, u64);

impl Plan {
    /// Reports whether an inherited variable is not passed on because it points to folders, sockets, or agents of the
    /// user. If there is a door, proxy settings are not passed on either, even those of the entry.
    pub(super) fn withholds(&self, name: &OsString) -> bool {
        let Some(name) = name.to_str() else { return true };
        let leads_out = ["XDG_", "DBUS_"].iter().any(|prefix| name.starts_with(prefix)) || LEADS_OUT.contains(&name);
        let is_proxy = self.door.is_some() && PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
        is_proxy || leads_out && !self.own.iter().any(|own| own == name)
    }

    /// Returns the variables that tell programs to use the proxy at this URL.
    pub(super) fn proxies(url: &str) -> impl Iterator<Item = (String, String)> {
        let each = |name: &&str| [(*name).to_owned(), name.to_ascii_lowercase()].map(|name| (name, url.to_owned()));
        // Without this variable, Node ignores the others.
        let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].iter().flat_map(each).chain([node]).collect::<Vec<_>>().into_iter()
    }
}

/// Proxy settings, in upper or lower case.
const PROXIES: [&str; 8] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "PIP_PROXY",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_proxy",
];

const LEADS_OUT: [&str; 6] =
    ["DOCKER_HOST", "GPG_AGENT_INFO", "SSH_AGENT_PID", "SSH_AUTH_SOCK", "CONTAINER_HOST", "KUBECONFIG"];
