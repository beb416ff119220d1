//! What servers have shown of themselves, kept for the next start: those that ask their clients something are not shared
//! from the start on (`bridging.md` 2).
//!
//! A file that cannot be read or written costs a second process at most: it is told to the log and nobody else.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::Transport;

/// The servers that have asked a client something.
#[derive(Debug, Default)]
pub(super) struct Known {
    path: Option<PathBuf>,
    asking: Mutex<BTreeSet<String>>,
}

/// The file. Another version of it is not read, and written anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    asking: BTreeSet<String>,
}

const VERSION: u32 = 1;
/// Servers that are remembered; a config with throwaway arguments must not grow the file for ever.
const MOST: usize = 1000;

impl Known {
    /// Reads what is known from the state directory; nothing without one.
    pub(super) fn load(directory: Option<&Path>) -> Self {
        let path = directory.map(|directory| directory.join("servers.json"));
        let asking = path.as_deref().map(read).unwrap_or_default();
        Self { path, asking: Mutex::new(asking) }
    }

    pub(super) fn asks(&self, key: &str) -> bool {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Remembers that this server asks.
    pub(super) fn note(&self, key: &str) {
        let asking = {
            let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
            if asking.len() >= MOST || !asking.insert(key.to_owned()) {
                return;
            }
            // Another daemon may have written since.
            if let Some(path) = &self.path {
                asking.extend(read(path));
            }
            asking.clone()
        };
        if let Some(path) = &self.path
            && let Err(error) = write(path, &Stored { version: VERSION, asking })
        {
            tracing::warn!("{} is not written: {error}", path.display());
        }
    }
}

/// What the file holds; nothing if it is not there, or not one of ours.
fn read(path: &Path) -> BTreeSet<String> {
    let text = std::fs::read(path).unwrap_or_default();
    let stored = serde_json::from_slice::<Stored>(&text).ok().filter(|stored| stored.version == VERSION);
    stored.map(|stored| stored.asking).unwrap_or_default()
}

/// Writes it whole or not at all.
fn write(path: &Path, stored: &Stored) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let partial = directory.join(format!(".servers.{}.json", std::process::id()));
    let mut file = std::fs::File::create(&partial)?;
    file.write_all(&serde_json::to_vec(stored)?)?;
    file.sync_all()?;
    std::fs::rename(partial, path)
}

/// Stands for a server: its command line or its URL, hashed because either may hold a secret.
pub(super) fn key(transport: &Transport) -> String {
    let mut hash = Sha256::new();
    match transport {
        Transport::Stdio(stdio) => {
            for word in std::iter::once(&stdio.command).chain(&stdio.args) {
                hash.update(word.as_bytes());
                hash.update([0]);
            }
        }
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => hash.update(remote.url.as_str()),
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_known_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::load(Some(directory.path()));
        assert!(!known.asks("a"));
        known.note("a");
        let other = Known::load(Some(directory.path()));
        assert!(other.asks("a"));
        known.note("b");
        other.note("c");
        let now = Known::load(Some(directory.path()));
        assert!(["a", "b", "c"].iter().all(|key| now.asks(key)), "two daemons do not forget for each other");
        std::fs::write(directory.path().join("servers.json"), "{").unwrap();
        assert!(!Known::load(Some(directory.path())).asks("a"), "a broken file is no reason to stop");
    }
}
