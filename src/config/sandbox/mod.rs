//! `sandbox`: what a server's process may read, write, and connect to; in a server's entry, or under `host` for all
//! servers without one.
//!
//! Not here: what a level does on this machine (`crate::sandbox`). `read.rs` reads the settings from a file, `host.rs`
//! has the hosts that they may name, and `foreign.rs` reads VS Code's settings.

mod foreign;
mod host;
mod read;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

pub(super) use self::foreign::read as read_foreign;
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
pub(crate) use self::host::parse as parse_host;
pub use self::host::{NotAHost, SandboxHost};
pub(super) use self::read::read;
use super::keys::words;
use super::syntax::Node;
use super::{Server, Stdio, Transport};
use crate::hex;

/// What a server's process may read, write, and connect to.
///
/// ```
/// use mcp_host::config::{Sandbox, Stdio};
///
/// let sandbox = Sandbox::on().read("~/.gitconfig").write("~/src");
/// let stdio = Stdio::new("files-server").sandbox(sandbox);
/// assert!(stdio.sandbox.is_some_and(|sandbox| sandbox.is_on()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sandbox {
    /// How much the process is restricted.
    pub level: SandboxLevel,
    /// Files and folders that it may read in addition to those that the level grants: absolute paths, or `~/…`.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read and write.
    pub write: Vec<PathBuf>,
    /// What it may connect to.
    pub network: SandboxNetwork,
    /// The hosts that npx and uvx may reach to fetch the package, before the server starts; `None` means the hosts of
    /// their package registries.
    pub install: Option<Vec<SandboxHost>>,
    /// Whether it has its own home directory or the user's.
    pub home: SandboxHome,
    /// Whether it may reach Unix sockets of this machine.
    pub unix: bool,
    /// The most open files of one process; `None` means our own limit.
    pub files: Option<usize>,
    /// The most memory in bytes: of all processes together, or of the data of each process if this machine cannot count
    /// them together. `None` means no limit.
    pub memory: Option<usize>,
    /// The most processor time for all processes together, in thousandths of one processor; `None` means no limit.
    pub cpu: Option<u32>,
    /// The most processes and threads of the server together; `None` means no limit.
    pub processes: Option<usize>,
    /// The image of the container in which the command runs, with podman or docker; `None` means that it runs without one.
    pub container: Option<String>,
    /// Whether the server also starts on a machine that cannot provide all of the level.
    pub weak: bool,
    /// The file to which strace writes what the process does; `None` means that it is not watched.
    trace: Option<PathBuf>,
    /// The name of the server's own folder; empty until it is known to which server this sandbox belongs.
    whose: String,
    /// The folder of the project whose config has the entry; `None` for an entry of the user's own config.
    folder: Option<PathBuf>,
}

words! {
    /// How much the process of a server is restricted.
    pub enum SandboxLevel {
        /// Not at all: it may do what the user may.
        #[default]
        Off = "off",
        /// It cannot access the user's files (unless granted), other processes, and sockets of this machine. It reaches
        /// the network.
        Default = "default",
        /// Like `default`, but in namespaces (by bubblewrap): it sees no other process, no file that is not listed, and
        /// no network but the listed hosts.
        Strict = "strict",
    }
}

/// What a confined process may connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Everything that the user may.
    #[default]
    Open,
    /// Nothing, not even this machine itself.
    None,
    /// These hosts, through mcp-host's proxy. The process has a network of its own with nothing else in it.
    Hosts(Vec<SandboxHost>),
}

words! {
    /// Which home directory a confined process has.
    pub enum SandboxHome {
        /// Its own, in the state directory.
        #[default]
        Own = "own",
        /// The user's HOME. The server may read and write only those files in it that are listed.
        User = "user",
    }
}

/// A file that cannot exist. The launcher looks it up to mark where a watched server begins.
pub const BEGINS: &str = "/mcp-host: the server begins";

/// The address of the proxy through which a watched server without a sandbox reaches its hosts: a loopback address that
/// nothing else uses.
pub const WATCHED: Ipv4Addr = Ipv4Addr::new(127, 109, 99, 112);

/// The key, both in a server's entry and under `host`.
pub(super) const KEY: &str = "sandbox";

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            level: SandboxLevel::Off,
            read: Vec::new(),
            write: Vec::new(),
            network: SandboxNetwork::Open,
            install: None,
            home: SandboxHome::Own,
            unix: false,
            files: None,
            memory: None,
            cpu: None,
            processes: None,
            container: None,
            weak: false,
            trace: None,
            whose: String::new(),
            folder: None,
        }
    }
}

/// Each method sets one setting, like the key of the same name in a config file.
impl Sandbox {
    /// Returns the level `default`, with nothing listed.
    #[must_use]
    pub fn on() -> Self {
        Self::at(SandboxLevel::Default)
    }

    /// Returns the level `strict`, with nothing listed and no network.
    #[must_use]
    pub fn strict() -> Self {
        Self::at(SandboxLevel::Strict)
    }

    /// Returns a sandbox with this level and nothing listed.
    fn at(level: SandboxLevel) -> Self {
        let network = if level == SandboxLevel::Strict { SandboxNetwork::None } else { SandboxNetwork::Open };
        Self { level, network, ..Self::default() }
    }

    /// Reports whether the process is restricted at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != SandboxLevel::Off || self.container.is_some()
    }

    /// Lets the process read a file or folder.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Lets the process read and write a file or folder.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    /// Lets the process open no connections.
    #[must_use]
    pub fn without_network(self) -> Self {
        Self { network: SandboxNetwork::None, ..self }
    }

    /// Lets the process reach these hosts, and no others.
    ///
    /// ```
    /// use mcp_host::config::Sandbox;
    ///
    /// let sandbox = Sandbox::strict().hosts(["api.example.com".parse()?, "*.example.org:443".parse()?]);
    /// # Ok::<(), mcp_host::config::NotAHost>(())
    /// ```
    #[must_use]
    pub fn hosts(self, hosts: impl IntoIterator<Item = SandboxHost>) -> Self {
        Self { network: SandboxNetwork::Hosts(hosts.into_iter().collect()), ..self }
    }

    /// Runs the command in a container of this image. What is listed is mounted into it, and no other file of this machine.
    ///
    /// ```
    /// use mcp_host::config::{Sandbox, Stdio};
    ///
    /// let stdio = Stdio::new("node").args(["/srv/server.js"]).sandbox(Sandbox::on().container("node:24").read("/srv"));
    /// ```
    #[must_use]
    pub fn container(self, image: impl Into<String>) -> Self {
        Self { container: Some(image.into()), ..self }
    }

    /// Starts the process under strace, which writes to this file what the process opens and connects to, and what it is
    /// refused.
    #[must_use]
    pub fn traced(self, file: impl Into<PathBuf>) -> Self {
        Self { trace: Some(file.into()), ..self }
    }

    /// Returns the file to which strace writes what the process does.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere nothing is watched")
    )]
    pub(crate) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Returns the name of the server's own folder: its alias, and a hash of the file with its entry, so that a
    /// project's server does not get the HOME of another server with the same alias.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere there is no such folder")
    )]
    pub(crate) fn whose(&self) -> &str {
        &self.whose
    }

    /// Returns the folder of the project whose config has the entry. Servers of a project work on the project, so they
    /// may read and write this folder, like their `cwd`.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere nothing is granted")
    )]
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Makes this the sandbox of a server of the project in this folder.
    pub(crate) fn of_project(self, folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), ..self }
    }

    /// Also starts the server on a machine that cannot provide all of the level.
    #[must_use]
    pub fn weak(self) -> Self {
        Self { weak: true, ..self }
    }
}

impl Stdio {
    /// Reports whether the command runs in a container.
    #[must_use]
    pub fn is_contained(&self) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.container.is_some())
    }

    /// Reports whether the process is restricted or watched. If so, another command starts in its place.
    pub(crate) fn is_confined(&self) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.is_on() || sandbox.trace.is_some())
    }
}

impl Server {
    /// Returns the sandbox of the server's process: its own, else `host` (`host.sandbox`). If neither is set, a server
    /// of a project's config has the level `default`, as far as this machine can. `None` means no sandbox.
    #[must_use]
    pub fn sandbox(&self, host: Option<&Sandbox>) -> Option<Sandbox> {
        let Transport::Stdio(stdio) = &self.transport else { return None };
        if self.daemon {
            return None;
        }
        let of_project = || self.project.is_some().then(|| Sandbox::on().weak());
        let sandbox = stdio.sandbox.clone().or_else(|| host.cloned()).or_else(of_project)?;
        (sandbox.is_on() || sandbox.trace.is_some()).then_some(sandbox)
    }

    /// Fixes which sandbox the server's process has.
    pub(crate) fn confine(&mut self, host: Option<&Sandbox>) {
        let sandbox = self.sandbox(host);
        let whose = || {
            let file = Sha256::digest(self.source.file.as_os_str().as_encoded_bytes());
            format!("{}-{}", self.alias, hex::encode(&file[..4]))
        };
        let folder = self.project.as_ref().and_then(|_| self.source.file.parent());
        let sandbox = sandbox.map(|sandbox| Sandbox { whose: whose(), ..sandbox }.of_project(folder));
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.sandbox = sandbox;
        }
    }
}

/// Reports whether a value of `sandbox` is in VS Code's format.
pub(super) fn is_of_another(node: &Node) -> bool {
    node.get("filesystem").is_some() || node.get("network").is_some_and(|network| network.members().is_some())
}
