//! Keeps a host from starting or dialing itself without end. Four things do that:
//!
//! - The program leaves out entries of a config that are its own file with a config of its own
//!   (`bin/mcp-host/itself.rs`).
//! - A host has a random *id* for its lifetime and says it in `initialize` and `server/discover`. An endpoint that
//!   answers with our own id is switched off before anything else is asked of it.
//! - Each child gets the *marks* of all hosts above it, digests of their config files, in [`VARIABLE`]. A host that
//!   finds its own marks there starts nothing.
//! - Where the environment was cleaned on the way, Linux says which processes are above, and each host has left its
//!   marks in the state directory (`notes.rs`).
//!
//! Hosts that list each other are another matter. `registry/through.rs` leaves out what comes back from hosts that say
//! who they are, `registry/circle.rs` what comes back through a plain proxy.
//!
//! **Invariant:** nothing here is secret. A lie in it harms only the liar: a server that claims our id is switched off.

mod notes;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::config::Config;

/// The variable that carries the marks of the hosts above. Not a name that begins with `MCP_HOST_`: those are settings.
pub(crate) const VARIABLE: &str = "_MCP_HOST_CHAIN";
/// Hosts that may be above one another. A circle of more hosts than the variable can name would never be noticed.
const MOST_ABOVE: usize = 3;
/// Hosts of one user that may run one config at the same time: the last net.
const MOST_ALIKE: usize = 64;
/// Config files of one host that leave marks.
const FILES: usize = 16;
/// Bytes of the variable that are read.
const LONGEST: usize = 16 * 1024;

/// The id of one host for as long as it lives: 32 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HostId(Arc<str>);

impl HostId {
    /// A new one.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes).into()))
    }

    /// One that somebody sent; `None` if it has another shape.
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

/// The config files of a host, each with the SHA-256 of what it held.
#[derive(Debug)]
pub(crate) struct Files(Vec<(PathBuf, Option<[u8; 32]>)>);

/// What one host is, and what is above it.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// Nothing for a server that only happens to be built on this crate.
    id: Option<HostId>,
    above: Vec<Host>,
    own: Mutex<Host>,
    /// Goes with the host.
    _note: Option<notes::Note>,
}

/// The marks of one host: a digest of the path and one of the content of each of its config files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host(Vec<String>);

/// Why a host must not start here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// A host with the same config is above it.
    #[error(
        "{} has mcp-host itself as a server, with this same config: it would start itself without end",
        named(files)
    )]
    Below {
        /// The files of both.
        files: Vec<PathBuf>,
    },
    /// There are too many hosts above it.
    #[error("{MOST_ABOVE} mcp-hosts are above this one, each started by a server of the one before")]
    TooDeep,
    /// There are too many of the same config.
    #[error("{MOST_ALIKE} mcp-hosts use {} already", named(files))]
    TooMany {
        /// The files.
        files: Vec<PathBuf>,
    },
}

impl Refusal {
    /// What mends it.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::Below { files } => format!(
                "take that server out of {}; a client that wants mcp-host keeps it in a file of its own",
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

impl Lineage {
    /// Finds out what is above this process, and notes this host for those that will be below it.
    ///
    /// # Errors
    /// When a host of this config must not run here.
    pub(crate) fn enter(files: &Files, state: Option<&Path>) -> Result<Self, Refusal> {
        let own = files.marks();
        let mut above = hosts(&std::env::var_os(VARIABLE).unwrap_or_default());
        if above.is_empty() {
            // Either nothing is above, or somebody between cleaned the environment.
            above = notes::above();
        }
        let id = HostId::random();
        if own.0.is_empty() {
            // Without a file there is nothing that could be read again.
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

    /// The id that our answers carry.
    pub(crate) fn id(&self) -> Option<&HostId> {
        self.id.as_ref()
    }

    /// The config is another one now.
    pub(crate) fn follow(&self, config: &Config) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Files::of(config).marks();
    }

    /// The value of [`VARIABLE`] for a child process.
    pub(crate) fn chain(&self) -> Option<String> {
        let chain = chain(&self.above, &self.own.lock().unwrap_or_else(PoisonError::into_inner));
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
    hex(&Sha256::new().chain_update(kind).chain_update([0]).chain_update(bytes).finalize()[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One word a host, the outermost first.
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
