//! What servers have shown about themselves, kept for the next start: what each asks its clients, which decides who
//! shares a process (`docs/bridging.md` 15.2), and the era of each server, which is not probed again for a while
//! (`docs/bridging.md` 3.1).
//!
//! A file that cannot be read or written costs at most a second process or a probe, so only the log reports it. It is
//! written off the runtime's thread: a fact counts at once, and is on disk a moment later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::asked::Asked;
use crate::config::Transport;
use crate::hex;
use crate::keep::{Behind, Keep};
use crate::lock::lock;
use crate::protocol::Era;

/// The facts about all servers.
#[derive(Debug, Default)]
pub(super) struct Known {
    facts: Mutex<Facts>,
    file: Option<Arc<Behind<Facts>>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Facts {
    /// Servers about which an older version of this program recorded only that they ask something.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    asking: BTreeSet<String>,
    #[serde(default)]
    servers: BTreeMap<String, Shown>,
    #[serde(default)]
    eras: BTreeMap<String, SeenEra>,
    /// Whether servers that need no session nevertheless accept `initialize`.
    #[serde(default)]
    sessions: BTreeMap<String, SessionAnswer>,
}

/// What one server has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    #[serde(default)]
    asks: Asked,
    /// Whether it lists tools or resources for MCP Apps.
    #[serde(default)]
    ui: bool,
    /// The version that the server reported when it last asked for roots.
    #[serde(default)]
    version: Option<String>,
    /// How many connections to another version of the server could have asked for roots since then, had a call, and did
    /// not ask.
    #[serde(default)]
    quiet: u32,
    /// When it was last noted, in seconds since 1970.
    at: u64,
}

/// The era of a server, and when it was seen, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SeenEra {
    modern: bool,
    at: u64,
}

/// Whether a server accepted `initialize`, and when it was asked, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionAnswer {
    yes: bool,
    at: u64,
}

const VERSION: u32 = 1;
/// How many servers are remembered, the newest; a config with throwaway arguments must not grow the file without bound.
const MOST: usize = 1000;
/// How long a server counts as legacy: it may have been upgraded since. A modern server that was downgraded says so
/// itself.
const LEGACY_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// An unchanged fact is noted again after this time, because the oldest facts are dropped.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
/// After this many quiet connections, a new version counts as one that asks for no roots.
const QUIET: u32 = 20;

impl Known {
    /// Reads the facts from the state directory; starts empty without one.
    pub(super) fn load(directory: Option<&Path>) -> Self {
        let keep = directory.map(|directory| Keep::new(directory.join("servers.json"), VERSION));
        let facts = keep.as_ref().map(Keep::read).transpose().unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        });
        let file = keep.map(Behind::new);
        let mut facts: Facts = facts.unwrap_or_default();
        // Another program may have written any number of facts.
        trim(&mut facts.servers, |shown| shown.at);
        trim(&mut facts.eras, |seen| seen.at);
        trim(&mut facts.sessions, |took| took.at);
        Self { facts: Mutex::new(facts), file }
    }

    /// Returns what this server is known to ask.
    pub(super) fn asks(&self, key: &str) -> Asked {
        let facts = self.facts();
        match facts.servers.get(key) {
            Some(shown) => shown.asks,
            // Nearly all servers that ask anything ask for roots. A question of another kind is added when it comes.
            None if facts.asking.contains(key) => Asked::ROOTS,
            None => Asked::NOTHING,
        }
    }

    /// Reports whether this server lists something for MCP Apps.
    pub(super) fn shows_ui(&self, key: &str) -> bool {
        self.facts().servers.get(key).is_some_and(|shown| shown.ui)
    }

    /// Remembers that this server asks questions of these kinds.
    pub(super) fn note(&self, key: &str, asks: Asked, version: Option<String>, now: SystemTime) {
        let is_known = self.facts().servers.get(key).is_some_and(|shown| {
            let is_old = seconds(now).abs_diff(shown.at) >= FRESH.as_secs();
            let is_same = !asks.has(Asked::ROOTS) || (shown.version == version && shown.quiet == 0);
            shown.asks.has(asks) && is_same && !is_old
        });
        if is_known {
            // This runs at every request for roots, so a known fact must cost nothing.
            return;
        }
        self.change(key, now, move |shown| {
            shown.asks = shown.asks.with(asks);
            if asks.has(Asked::ROOTS) {
                (shown.version, shown.quiet) = (version.clone(), 0);
            }
        });
    }

    /// Remembers whether this server lists something for MCP Apps.
    pub(super) fn note_ui(&self, key: &str, ui: bool, now: SystemTime) {
        if self.shows_ui(key) != ui {
            self.change(key, now, move |shown| shown.ui = ui);
        }
    }

    /// Notes a connection that declared roots and had a call, but got no request for them. Returns true if there were
    /// `QUIET` such connections: from now on the server counts as one that asks for no roots.
    pub(super) fn note_quiet(&self, key: &str, version: Option<&str>, now: SystemTime) -> bool {
        let is_news = self.facts().servers.get(key).is_some_and(|shown| {
            shown.asks.has(Asked::ROOTS) && version.is_some() && shown.version.as_deref() != version
        });
        if !is_news {
            return false;
        }
        let version = version.map(str::to_owned);
        self.change(key, now, move |shown| {
            shown.quiet += 1;
            if shown.quiet >= QUIET {
                shown.asks = shown.asks.without(Asked::ROOTS);
                (shown.version, shown.quiet) = (version.clone(), 0);
            }
        });
        !self.asks(key).has(Asked::ROOTS)
    }

    /// Forgets what this server asks.
    pub(super) fn forget(&self, key: &str) {
        let key = key.to_owned();
        self.keep(move |facts| {
            facts.asking.remove(&key);
            facts.servers.remove(&key);
        });
    }

    /// Returns the era of a server, if it was seen recently enough.
    pub(super) fn era(&self, key: &str, now: SystemTime) -> Option<Era> {
        let seen = *self.facts().eras.get(key)?;
        // If the clock was set back, the age is unknown.
        let age = seconds(now).checked_sub(seen.at)?;
        match seen.modern {
            true => Some(Era::Modern),
            false => (age < LEGACY_FOR.as_secs()).then_some(Era::Legacy),
        }
    }

    /// Remembers the era of a server.
    pub(super) fn note_era(&self, key: &str, era: Era, now: SystemTime) {
        let seen = SeenEra { modern: era == Era::Modern, at: seconds(now) };
        if self.facts().eras.get(key).is_some_and(|old| old.modern && seen.modern) {
            return;
        }
        let key = key.to_owned();
        self.keep(move |facts| {
            let known = facts.eras.entry(key.clone()).or_insert(seen);
            if known.at <= seen.at {
                *known = seen;
            }
            trim(&mut facts.eras, |seen| seen.at);
        });
    }

    /// Returns whether a server that needs no session nevertheless accepts `initialize`, and when that was seen.
    pub(super) fn sessions(&self, key: &str) -> Option<(bool, SystemTime)> {
        let took = *self.facts().sessions.get(key)?;
        Some((took.yes, SystemTime::UNIX_EPOCH + Duration::from_secs(took.at)))
    }

    /// Remembers whether a server that needs no session accepts `initialize`.
    pub(super) fn note_sessions(&self, key: &str, yes: bool, now: SystemTime) {
        let took = SessionAnswer { yes, at: seconds(now) };
        if self.facts().sessions.get(key).is_some_and(|old| old.yes && yes) {
            return;
        }
        let key = key.to_owned();
        self.keep(move |facts| {
            let known = facts.sessions.entry(key.clone()).or_insert(took);
            if known.at <= took.at {
                *known = took;
            }
            trim(&mut facts.sessions, |took| took.at);
        });
    }

    /// Waits until everything noted is on disk.
    pub(super) async fn written(&self) {
        if let Some(file) = &self.file {
            file.written().await;
        }
    }

    fn change(&self, key: &str, now: SystemTime, change: impl Fn(&mut Shown) + Send + Clone + 'static) {
        let (key, at) = (key.to_owned(), seconds(now));
        self.keep(move |facts| {
            let was = if facts.asking.remove(&key) { Asked::ROOTS } else { Asked::NOTHING };
            let shown = facts.servers.entry(key.clone()).or_insert_with(|| Shown { asks: was, ..Shown::default() });
            shown.at = at;
            change(shown);
            trim(&mut facts.servers, |shown| shown.at);
        });
    }

    /// Applies a change in memory at once, and soon to the file, which another daemon may have changed meanwhile.
    fn keep(&self, change: impl FnOnce(&mut Facts) + Send + Clone + 'static) {
        change.clone()(&mut self.facts());
        if let Some(file) = &self.file {
            file.push(change);
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        lock(&self.facts)
    }
}

/// Drops the oldest facts beyond `MOST`.
fn trim<T>(all: &mut BTreeMap<String, T>, at: impl Fn(&T) -> u64) {
    let excess = all.len().saturating_sub(MOST);
    if excess == 0 {
        return;
    }
    let mut ages: Vec<(u64, String)> = all.iter().map(|(key, one)| (at(one), key.clone())).collect();
    ages.sort();
    for (_, oldest) in ages.into_iter().take(excess) {
        all.remove(&oldest);
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map(|age| age.as_secs()).unwrap_or_default()
}

/// Returns the key of a server: its command line or its URL, hashed because either may hold a secret.
pub(super) fn key(transport: &Transport) -> String {
    hex::encode(&hash(transport).finalize()[..16])
}

/// Returns the key under which a server's era is recorded: its environment variables are part of it, as they may choose
/// the era.
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
    hex::encode(&hash.finalize()[..16])
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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(known: &Known, key: &str, asks: Asked, version: &str) {
        known.note(key, asks, Some(version.to_owned()), SystemTime::now());
    }

    #[test]
    fn what_was_noted_is_known_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::load(Some(directory.path()));
        assert!(known.asks("a").is_empty());
        note(&known, "a", Asked::ROOTS, "1");
        let other = Known::load(Some(directory.path()));
        assert_eq!(other.asks("a"), Asked::ROOTS);
        note(&known, "b", Asked::SAMPLING, "1");
        note(&other, "a", Asked::ELICITATION, "1");
        other.note_ui("c", true, SystemTime::now());
        let now = Known::load(Some(directory.path()));
        assert_eq!([now.asks("a"), now.asks("b")], [Asked::ROOTS.with(Asked::ELICITATION), Asked::SAMPLING]);
        assert!(now.shows_ui("c") && now.asks("c").is_empty(), "two daemons do not forget for each other");
        now.forget("a");
        assert!(Known::load(Some(directory.path())).asks("a").is_empty());
        std::fs::write(directory.path().join("servers.json"), "{").unwrap();
        assert!(Known::load(Some(directory.path())).asks("b").is_empty(), "a broken file is no reason to stop");
    }

    /// Servers may ask for roots all the time.
    #[test]
    fn what_is_known_already_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::load(Some(directory.path()));
        let file = directory.path().join("servers.json");
        note(&known, "a", Asked::ROOTS, "1");
        for (version, is_news) in [("1", false), ("2", true), ("2", false)] {
            std::fs::remove_file(&file).unwrap_or_default();
            note(&known, "a", Asked::ROOTS, version);
            assert_eq!(file.exists(), is_news, "{version}");
        }
        known.note("a", Asked::ROOTS, Some("2".to_owned()), SystemTime::now() + FRESH);
        assert!(file.exists(), "it is not the oldest");
    }

    #[test]
    fn of_a_file_with_more_the_oldest_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let servers: BTreeMap<String, Shown> = (0..2 * MOST)
            .map(|number| (number.to_string(), Shown { asks: Asked::ROOTS, at: number as u64, ..Shown::default() }))
            .collect();
        let text = serde_json::json!({ "version": VERSION, "servers": servers });
        std::fs::write(directory.path().join("servers.json"), text.to_string()).unwrap();
        let known = Known::load(Some(directory.path()));
        assert_eq!([known.asks("999"), known.asks("1000")], [Asked::NOTHING, Asked::ROOTS]);
        assert_eq!(known.facts().servers.len(), MOST);
    }

    /// A new version that does not ask for roots on twenty connections stops asking; the same version may ask rarely.
    #[test]
    fn a_new_version_may_stop_asking_for_roots() {
        let known = Known::default();
        note(&known, "a", Asked::ROOTS.with(Asked::SAMPLING), "1");
        let quiet = |version| known.note_quiet("a", Some(version), SystemTime::now());
        assert!((0..40).all(|_| !quiet("1")));
        assert!((0..19).all(|_| !quiet("2")));
        note(&known, "a", Asked::ROOTS, "2");
        assert!((0..19).all(|_| !quiet("3")) && known.asks("a").has(Asked::ROOTS), "a question restarts the count");
        assert!(quiet("3"));
        assert_eq!(known.asks("a"), Asked::SAMPLING, "what is asked rarely stays");
    }

    #[test]
    fn of_a_thousand_servers_the_oldest_goes() {
        let known = Known::default();
        for number in 0..=MOST {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            known.note(&number.to_string(), Asked::ROOTS, None, at);
        }
        assert_eq!([known.asks("0"), known.asks("1")], [Asked::NOTHING, Asked::ROOTS]);
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
    fn which_servers_take_sessions_is_known_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::load(Some(directory.path()));
        let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second);
        known.note_sessions("both", true, at(0));
        known.note_sessions("one", false, at(0));
        let known = Known::load(Some(directory.path()));
        let all = |known: &Known| ["both", "one", "other"].map(|key| known.sessions(key));
        assert_eq!(all(&known), [Some((true, at(0))), Some((false, at(0))), None]);
        known.note_sessions("both", false, at(1));
        known.note_sessions("one", true, at(1));
        let known = Known::load(Some(directory.path()));
        assert_eq!(all(&known), [Some((false, at(1))), Some((true, at(1))), None]);
    }

    #[test]
    fn a_file_from_before_eras_is_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("servers.json"), r#"{"version":1,"asking":["a"]}"#).unwrap();
        let known = Known::load(Some(directory.path()));
        assert_eq!(known.asks("a"), Asked::ROOTS, "which kind it did not keep");
        note(&known, "a", Asked::SAMPLING, "1");
        assert_eq!(Known::load(Some(directory.path())).asks("a"), Asked::ROOTS.with(Asked::SAMPLING));
    }
}
