//! Facts about servers, kept for the next start: which servers ask their clients something, so that these are not shared
//! again (`bridging.md` 2), and which era each server speaks, so that it is not probed again for a while
//! (`protocol.md` b.7).
//!
//! A file that cannot be read or written costs a second process or a probe at most: it is told to the log and nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::Transport;
use crate::keep::Keep;
use crate::protocol::Era;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    keep: Option<Keep>,
    facts: Mutex<Facts>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Facts {
    /// The servers that have asked a client something.
    #[serde(default)]
    asking: BTreeSet<String>,
    #[serde(default)]
    eras: BTreeMap<String, Seen>,
}

/// Which era a server was found to be of, and when, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    modern: bool,
    at: u64,
}

const VERSION: u32 = 1;
/// Servers that are remembered; a config with throwaway arguments must not grow the file for ever.
const MOST: usize = 1000;
/// A server that knew nothing of the modern era may have been brought up to date since. The other way round it says so.
const LEGACY_FOR: Duration = Duration::from_secs(24 * 60 * 60);

impl Known {
    /// Reads what is known from the state directory; nothing without one.
    pub(super) fn load(directory: Option<&Path>) -> Self {
        let keep = directory.map(|directory| Keep::new(directory.join("servers.json"), VERSION));
        let facts = keep.as_ref().map(Keep::read).transpose().unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        });
        Self { keep, facts: Mutex::new(facts.unwrap_or_default()) }
    }

    pub(super) fn asks(&self, key: &str) -> bool {
        self.facts().asking.contains(key)
    }

    /// Remembers that this server asks.
    pub(super) fn note(&self, key: &str) {
        let mut facts = self.facts();
        if facts.asking.len() < MOST && facts.asking.insert(key.to_owned()) {
            self.keep(&mut facts);
        }
    }

    /// The era of a server, if it was seen not too long ago.
    pub(super) fn era(&self, key: &str, now: SystemTime) -> Option<Era> {
        let seen = *self.facts().eras.get(key)?;
        // A clock that was set back makes nothing older than it is, and nothing younger.
        let age = seconds(now).checked_sub(seen.at)?;
        match seen.modern {
            true => Some(Era::Modern),
            false => (age < LEGACY_FOR.as_secs()).then_some(Era::Legacy),
        }
    }

    /// Remembers the era of a server.
    pub(super) fn note_era(&self, key: &str, era: Era, now: SystemTime) {
        let mut facts = self.facts();
        let seen = Seen { modern: era == Era::Modern, at: seconds(now) };
        let old = facts.eras.get(key).copied();
        if old.is_some_and(|old| old.modern && seen.modern) || (old.is_none() && facts.eras.len() >= MOST) {
            return;
        }
        facts.eras.insert(key.to_owned(), seen);
        self.keep(&mut facts);
    }

    /// Writes the facts, merged with those that another daemon may have written since.
    fn keep(&self, facts: &mut Facts) {
        let Some(keep) = &self.keep else { return };
        let mine = facts.clone();
        let kept = keep.update(|all: &mut Facts| {
            all.asking.extend(mine.asking);
            for (key, seen) in mine.eras {
                let known = all.eras.entry(key).or_insert(seen);
                if known.at <= seen.at {
                    *known = seen;
                }
            }
        });
        match kept {
            Ok(all) => *facts = all,
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map(|age| age.as_secs()).unwrap_or_default()
}

/// Stands for a server: its command line or its URL, hashed because either may hold a secret.
pub(super) fn key(transport: &Transport) -> String {
    hex(&hash(transport).finalize())
}

/// Stands for what a server speaks: its environment may choose that, too.
pub(super) fn era_key(transport: &Transport) -> String {
    let mut hash = hash(transport);
    if let Transport::Stdio(stdio) = transport {
        for (name, value) in &stdio.env {
            hash.update(name.as_bytes());
            hash.update([1]);
            hash.update(value.expose().as_bytes());
            hash.update([0]);
        }
    }
    hex(&hash.finalize())
}

fn hash(transport: &Transport) -> Sha256 {
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
    hash
}

fn hex(hash: &[u8]) -> String {
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
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

    #[test]
    fn a_legacy_verdict_is_believed_for_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::load(Some(directory.path()));
        let now = SystemTime::now();
        let later = |hours: u64| now + Duration::from_secs(hours * 3600);
        known.note_era("old", Era::Legacy, now);
        known.note_era("new", Era::Modern, now);
        let known = Known::load(Some(directory.path()));
        assert_eq!(known.era("old", later(23)), Some(Era::Legacy));
        assert_eq!(known.era("old", later(24)), None);
        assert_eq!(known.era("new", later(24 * 400)), Some(Era::Modern));
        assert_eq!(known.era("other", now), None);
        assert_eq!(known.era("old", now - Duration::from_secs(3600)), None, "the clock was set back");
        known.note_era("old", Era::Modern, later(1));
        known.note_era("new", Era::Legacy, later(1));
        let known = Known::load(Some(directory.path()));
        assert_eq!([known.era("old", later(2)), known.era("new", later(2))], [Some(Era::Modern), Some(Era::Legacy)]);
    }

    #[test]
    fn a_file_from_before_eras_is_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("servers.json"), r#"{"version":1,"asking":["a"]}"#).unwrap();
        assert!(Known::load(Some(directory.path())).asks("a"));
    }
}
