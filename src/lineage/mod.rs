//! Keeps a host from starting or dialing itself without end. A host is *above* a process if that process descends from
//! it. There are four mechanisms:
//!
//! - The program leaves out config entries that start this same program with a config file that it serves
//!   (`bin/mcp-host/itself.rs`).
//! - A host has a random *id* for its lifetime and sends it in `initialize` and `server/discover`. An endpoint that
//!   answers with our own id is disabled before any other request.
//! - Each child process gets the *marks* of all hosts above it, which are digests of their config files, in
//!   [`VARIABLE`]. A host that finds its own marks there starts nothing.
//! - If the environment was cleaned on the way, Linux names the processes above, and each host has left its marks in
//!   the state directory (`notes.rs`).
//!
//! Hosts that list each other are handled elsewhere. `registry/through.rs` leaves out what comes back from hosts that
//! identify themselves, `registry/circle.rs` what comes back through a plain proxy.
//!
//! **Invariant:** nothing here is secret, and a lie harms only the liar: a server that claims our id is disabled.

mod notes;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::hex;
use crate::lock::lock;

/// The environment variable that carries the marks of the hosts above. Variables that begin with `MCP_HOST_` are
/// settings, so this one does not.
pub(crate) const VARIABLE: &str = "_MCP_HOST_CHAIN";
/// How many hosts may be nested in one another. A circle of more hosts than fit into the variable would go unnoticed.
const MOST_ABOVE: usize = 3;
/// How many hosts of one user may run the same config at once: the last safety net.
const MOST_ALIKE: usize = 64;
/// How many config files of one host leave marks.
const FILES: usize = 16;
/// How many bytes of the variable are read.
const LONGEST: usize = 16 * 1024;

/// The id of one host for its lifetime: 32 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HostId(Arc<str>);

impl HostId {
    /// Creates a new id. Returns `None` if the system has no randomness.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(hex::encode(&bytes).into()))
    }

    /// Parses an id that was sent to us. Returns `None` if it has another shape.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        is_mark(text).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The config files of a host, each with the SHA-256 of its content.
#[derive(Debug)]
pub(crate) struct Files(Vec<(PathBuf, Option<[u8; 32]>)>);

/// One host and the hosts above it.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// The id of this host; `None` for a server that only happens to be built on this crate.
    id: Option<HostId>,
    above: Vec<Host>,
    own: Mutex<Host>,
    /// The note that this host leaves, removed with the host.
    _note: Option<notes::Note>,
}

/// The marks of one host: for each config file, a digest of its path and one of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host(Vec<String>);

/// Why a host must not start here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// A host with the same config is above this one.
    #[error(
        "{} has mcp-host itself as a server, with this same config: it would start itself without end",
        named(files)
    )]
    Below {
        /// The config files.
        files: Vec<PathBuf>,
    },
    /// Too many hosts are above this one.
    #[error("{MOST_ABOVE} mcp-hosts are above this one, each started by a server of the one before")]
    TooDeep,
    /// Too many hosts have the same config.
    #[error("{MOST_ALIKE} mcp-hosts use {} already", named(files))]
    TooMany {
        /// The config files.
        files: Vec<PathBuf>,
    },
}

impl Refusal {
    /// Returns what to do about the refusal.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::Below { files } => format!(
                "remove that entry from {}; a client's entry for mcp-host belongs in that client's own file",
                named(files)
            ),
            Self::TooDeep => "put the servers of all these hosts into one config".to_owned(),
            Self::TooMany { .. } => "stop the ones that you no longer need".to_owned(),
        }
    }
}

fn named(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Reports whether any host is above this process.
pub(crate) fn is_below() -> bool {
    !hosts(&std::env::var_os(VARIABLE).unwrap_or_default()).is_empty() || !notes::above().is_empty()
}

/// Reports whether any host is above another process of this user. Only Linux tells. Blocks.
#[cfg(all(unix, feature = "server"))]
pub(crate) fn is_above(pid: u32) -> bool {
    !hosts(&notes::variable_of(pid, VARIABLE).unwrap_or_default()).is_empty() || !notes::above_process(pid).is_empty()
}

impl Lineage {
    /// Finds the hosts above this process, and leaves a note of this host for hosts below it.
    ///
    /// # Errors
    /// Fails if a host with this config must not run here.
    pub(crate) fn enter(files: &Files, state: Option<&Path>) -> Result<Self, Refusal> {
        let own = files.marks();
        let mut above = hosts(&std::env::var_os(VARIABLE).unwrap_or_default());
        if above.is_empty() {
            // Either no host is above, or a process in between cleaned the environment.
            above = notes::above();
        }
        let id = HostId::random();
        if own.0.is_empty() {
            // Without a file there is no config that a child could load again.
            return Ok(Self { id, above, own: Mutex::new(own), _note: None });
        }
        if above.iter().any(|host| host.shares(&own)) {
            return Err(Refusal::Below { files: files.names() });
        }
        if above.len() >= MOST_ABOVE {
            return Err(Refusal::TooDeep);
        }
        let note = state.and_then(|state| notes::Note::leave(state, &chain(&above, &own)));
        if note.as_ref().is_some_and(|note| note.alike(&own) > MOST_ALIKE) {
            return Err(Refusal::TooMany { files: files.names() });
        }
        Ok(Self { id, above, own: Mutex::new(own), _note: note })
    }

    /// Returns the id that this host's answers carry, if it has one.
    pub(crate) fn id(&self) -> Option<&HostId> {
        self.id.as_ref()
    }

    /// Replaces the marks after a config change.
    pub(crate) fn follow(&self, config: &Config) {
        *lock(&self.own) = Files::of(config).marks();
    }

    /// Returns the value of [`VARIABLE`] for a child process; `None` if there are no marks.
    pub(crate) fn chain(&self) -> Option<String> {
        let chain = chain(&self.above, &lock(&self.own));
        (!chain.is_empty()).then_some(chain)
    }
}

impl Files {
    pub(crate) fn of(config: &Config) -> Self {
        Self(config.read_files().take(FILES).map(|(path, content)| (path.to_owned(), content)).collect())
    }

    fn marks(&self) -> Host {
        let marks = |(path, content): &(PathBuf, Option<[u8; 32]>)| {
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let content = content.map(|content| mark("content", &content));
            [Some(mark("path", path.as_os_str().as_encoded_bytes())), content]
        };
        Host(self.0.iter().flat_map(marks).flatten().collect())
    }

    fn names(&self) -> Vec<PathBuf> {
        self.0.iter().map(|(path, _)| path.clone()).collect()
    }
}

impl Host {
    fn shares(&self, other: &Self) -> bool {
        self.0.iter().any(|mark| other.0.contains(mark))
    }
}

fn mark(kind: &str, bytes: &[u8]) -> String {
    hex::encode(&Sha256::new().chain_update(kind).chain_update([0]).chain_update(bytes).finalize()[..16])
}

/// Formats the marks of hosts: one word per host, the outermost first.
fn chain(above: &[Host], own: &Host) -> String {
    let hosts = above.iter().chain(std::iter::once(own)).filter(|host| !host.0.is_empty());
    hosts.map(|host| host.0.join(",")).collect::<Vec<_>>().join(" ")
}

fn hosts(chain: &OsStr) -> Vec<Host> {
    let chain = chain.as_encoded_bytes();
    let chain = String::from_utf8_lossy(&chain[..chain.len().min(LONGEST)]);
    let marks = |word: &str| word.split(',').filter(|mark| is_mark(mark)).map(str::to_owned).collect();
    chain.split(' ').map(|word| Host(marks(word))).filter(|host: &Host| !host.0.is_empty()).collect()
}

fn is_mark(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(marks: &[char]) -> Host {
        Host(marks.iter().map(|mark| mark.to_string().repeat(32)).collect())
    }

    #[test]
    fn a_chain_is_read_as_it_was_written() {
        let above = [host(&['a', 'b']), host(&['c'])];
        let text = chain(&above, &host(&['d']));
        assert_eq!(hosts(text.as_ref()), [host(&['a', 'b']), host(&['c']), host(&['d'])]);
        assert_eq!(chain(&[], &Host::default()), "");
    }

    #[test]
    fn what_is_no_mark_is_not_read() {
        for text in ["", " ", "a", "../../etc/passwd", &"g".repeat(32), &"A".repeat(32), &"a".repeat(33)] {
            assert_eq!(hosts(text.as_ref()), [], "{text}");
        }
        let long = format!("{} ", "a".repeat(32)).repeat(10_000);
        assert!(hosts(long.as_ref()).len() < 1000);
    }

    #[test]
    fn one_shared_file_is_enough() {
        assert!(host(&['a', 'b']).shares(&host(&['c', 'b'])));
        assert!(!host(&['a', 'b']).shares(&host(&['c'])));
    }
}
