//! Caches answers of servers, so that equal calls and reads get them again (`cache` of a tool, `host.cache`).
//!
//! In: answers, each with the key of its request, and events that make answers outdated. Out: the answer to an equal
//! request, and its age. `router/cache.rs` decides what may be cached, and for how long.
//!
//! **Invariants:** all answers together have `host.cache.size` bytes at most; the least recently used go first. An
//! answer is never given after an event that may have changed it: a call that writes at the server, a list or a
//! resource that the server reports as changed, or a new connection. An answer whose request was sent before such a
//! call ended is not cached.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(any(feature = "server", test))]
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::lease::Principal;
use super::wants::tool_rules;
use super::{Manager, Server};
use crate::config::{HostSettings, ToolSettings};
use crate::lock::lock;
use crate::protocol::{ProtocolVersion, Raw};

/// Identifies a request: what it asks, which server, and for whom. Requests with equal keys get equal answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The server's id. A server whose config entry has changed gets a new one.
    pub(crate) server: usize,
    /// The lease: what the server knows of its client depends on it.
    pub(crate) lease: u64,
    /// The principal; `None` if the answer may be shared by all principals.
    pub(crate) principal: Option<Principal>,
    /// The server's own name of the tool, or the URI.
    pub(crate) target: Arc<str>,
    /// Whether the request reads a resource.
    pub(crate) is_read: bool,
    /// The hash of the tool's definition and of everything that the request says.
    pub(crate) asked: [u8; 32],
}

/// A server's answer, kept unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The server's revision.
    pub(crate) version: ProtocolVersion,
    pub(crate) result: Raw,
    /// The connection that it came on, and how many changes of lists had been reported there by then.
    pub(crate) epoch: (u64, u64),
}

/// The size of the cache of answers.
///
/// ```
/// let kept: mcp_host::admin::CacheStatus = serde_json::from_str(r#"{"entries":2,"bytes":1024,"size":67108864}"#)?;
/// assert!(kept.bytes < kept.size);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[cfg(any(feature = "server", test))]
#[cfg_attr(not(feature = "server"), allow(unreachable_pub, reason = "only a door tells it"))]
pub struct CacheStatus {
    /// The number of answers.
    pub entries: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// The size in bytes that they may have (`host.cache.size`).
    pub size: usize,
}

/// The cached answers, and whether the config wants any cached.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Whether the config wants any answers cached.
    is_on: AtomicBool,
    /// Whether any tool has a fallback.
    falls_back: AtomicBool,
    store: Mutex<Store>,
}

/// How many writes at a server one tool has to consider so far; a changed value means that answers may be outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writes {
    count: u64,
    reloads: u64,
}

/// A call in flight that may change what its server answers. When dropped, after the call, it drops the server's
/// answers once more: those requested meanwhile may be outdated.
#[derive(Debug)]
pub(crate) struct Writing {
    answers: Arc<Answers>,
    server: usize,
    /// The tool, if its own answers are cached: then the config says that its calls do not change them.
    tool: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Store {
    ids: HashMap<Key, u64>,
    entries: HashMap<u64, Entry>,
    /// The ids of the answers, by when they were last used.
    used: BTreeMap<u64, u64>,
    /// The ids of the answers, by when they expire.
    ends: BTreeSet<(Instant, u64)>,
    bytes: usize,
    count: u64,
    size: usize,
    written: HashMap<usize, Written>,
    /// How often the config was read. Between two reloads a call may have gone uncounted.
    reloads: u64,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    kept: Kept,
    at: Instant,
    ends: Instant,
    used: u64,
    weight: usize,
}

/// How many calls that may write have been counted at a server: in all, and those of tools whose own answers are
/// cached.
#[derive(Debug, Default)]
struct Written {
    all: u64,
    by_tool: HashMap<Arc<str>, u64>,
}

/// What an entry costs in addition to its answer, in bytes.
const OVERHEAD: usize = 512;

impl Answers {
    /// Applies a new config: notes what it wants, and drops the answers of servers that are gone or have changed.
    pub(super) fn follow(&self, settings: &HostSettings, servers: &[Arc<Server>]) {
        let rules = || tool_rules(settings, servers);
        let is_on = !settings.cache.reads.is_zero() || rules().any(|rules| rules.any(ToolSettings::has_cache));
        self.falls_back.store(rules().any(|rules| rules.any(|tool| tool.fallback.is_some())), Ordering::Relaxed);
        self.is_on.store(is_on, Ordering::Relaxed);
        let mut store = lock(&self.store);
        store.size = settings.cache.size;
        store.reloads += 1;
        let stays = |server: usize| is_on && servers.iter().any(|other| other.id == server);
        store.retain(|key| stays(key.server));
        store.written.retain(|server, _| stays(*server));
        store.make_room(0);
    }

    /// Reports whether the config wants any answers cached.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Reports whether any tool has a fallback.
    pub(crate) fn falls_back(&self) -> bool {
        self.falls_back.load(Ordering::Relaxed)
    }

    /// Returns the answer to a request with this key, and its age, if it is younger than `age` and came in this
    /// `epoch`.
    pub(crate) fn find(&self, key: &Key, epoch: (u64, u64), age: Duration) -> Option<(Kept, Duration)> {
        lock(&self.store).find(key, epoch, age, Instant::now())
    }

    /// Returns how many writes at a server this tool has to consider so far.
    pub(crate) fn writes(&self, server: usize, tool: &str) -> Writes {
        lock(&self.store).writes(server, tool)
    }

    /// Caches an answer for `time`, unless something was written at the server since `writes`.
    pub(crate) fn keep(&self, key: Key, kept: Kept, time: Duration, writes: Writes) {
        let mut store = lock(&self.store);
        // The config may have changed meanwhile.
        if self.is_on() && store.writes(key.server, &key.target) == writes {
            store.keep(key, kept, time, Instant::now());
        }
    }

    /// Notes that a call that may change what its server answers is about to be sent: drops the server's answers now,
    /// and once more when the returned value is dropped. `tool` names the tool if its own answers are cached; these
    /// stay.
    pub(crate) fn writing(self: &Arc<Self>, server: usize, tool: Option<Arc<str>>) -> Writing {
        let writing = Writing { answers: self.clone(), server, tool };
        writing.note();
        writing
    }

    /// Drops the contents of a resource, because the server reports that it has changed.
    pub(crate) fn updated(&self, server: usize, uri: &str) {
        if self.is_on() {
            let mut store = lock(&self.store);
            store.retain(|key| !(key.server == server && key.is_read && *key.target == *uri));
            // A read in flight may return contents older than the change: this keeps them out of the cache.
            store.written.entry(server).or_default().all += 1;
        }
    }

    /// Returns the size of the cache; `None` if the config wants no answers cached.
    #[cfg(any(feature = "server", test))]
    pub(crate) fn status(&self) -> Option<CacheStatus> {
        let store = lock(&self.store);
        let (entries, bytes, size) = (store.entries.len(), store.bytes, store.size);
        self.is_on().then_some(CacheStatus { entries, bytes, size })
    }
}

impl Writing {
    fn note(&self) {
        let (server, own) = (self.server, self.tool.as_deref());
        let mut store = lock(&self.answers.store);
        store.retain(|key| key.server != server || (!key.is_read && own == Some(&*key.target)));
        let written = store.written.entry(server).or_default();
        written.all += 1;
        if let Some(tool) = &self.tool {
            *written.by_tool.entry(tool.clone()).or_default() += 1;
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.note();
    }
}

impl Manager {
    /// Returns the cached answers of servers.
    pub(crate) fn answers(&self) -> &Arc<Answers> {
        &self.0.answers
    }
}

impl Store {
    fn writes(&self, server: usize, tool: &str) -> Writes {
        let written = self.written.get(&server);
        let count = written.map_or(0, |written| written.all - written.by_tool.get(tool).copied().unwrap_or_default());
        Writes { count, reloads: self.reloads }
    }

    fn find(&mut self, key: &Key, epoch: (u64, u64), age: Duration, now: Instant) -> Option<(Kept, Duration)> {
        let id = *self.ids.get(key)?;
        let entry = self.entries.get_mut(&id)?;
        if entry.ends <= now || entry.kept.epoch != epoch {
            self.remove(id);
            return None;
        }
        let old = now.saturating_duration_since(entry.at);
        if old >= age {
            return None;
        }
        self.count += 1;
        self.used.remove(&entry.used);
        entry.used = self.count;
        self.used.insert(entry.used, id);
        Some((entry.kept.clone(), old))
    }

    fn keep(&mut self, key: Key, kept: Kept, time: Duration, now: Instant) {
        if let Some(id) = self.ids.get(&key).copied() {
            self.remove(id);
        }
        while let Some((_, id)) = self.ends.first().copied().filter(|(ends, _)| *ends <= now) {
            self.remove(id);
        }
        let weight = OVERHEAD + kept.result.as_bytes().len() + key.target.len();
        if weight > self.size {
            return;
        }
        self.make_room(weight);
        self.count += 1;
        let (id, ends) = (self.count, now + time);
        self.ids.insert(key.clone(), id);
        self.used.insert(id, id);
        self.ends.insert((ends, id));
        self.bytes += weight;
        self.entries.insert(id, Entry { key, kept, at: now, ends, used: id, weight });
    }

    /// Removes the least recently used answers until there is room for `more` bytes.
    fn make_room(&mut self, more: usize) {
        while self.bytes + more > self.size {
            let Some((_, id)) = self.used.first_key_value().map(|(used, id)| (*used, *id)) else { return };
            self.remove(id);
        }
    }

    fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        let gone: Vec<u64> = self.ids.iter().filter(|(key, _)| !stays(key)).map(|(_, id)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.ids.remove(&entry.key);
        self.used.remove(&entry.used);
        self.ends.remove(&(entry.ends, id));
        self.bytes -= entry.weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);

    fn key(target: &str, asked: u8) -> Key {
        let principal = Some(Principal::local());
        Key { server: 1, lease: 1, principal, target: target.into(), is_read: false, asked: [asked; 32] }
    }

    fn kept(text: &str) -> Kept {
        let result = Raw::from_value(text);
        Kept { version: ProtocolVersion::LATEST_HANDSHAKE, result, epoch: (1, 0) }
    }

    fn answers(size: usize) -> Arc<Answers> {
        let answers = Answers::default();
        answers.is_on.store(true, Ordering::Relaxed);
        lock(&answers.store).size = size;
        Arc::new(answers)
    }

    impl Answers {
        fn put(&self, target: &str, asked: u8) {
            let writes = self.writes(1, target);
            self.keep(key(target, asked), kept("x"), AGE, writes);
        }

        fn has(&self, target: &str, asked: u8) -> bool {
            self.find(&key(target, asked), (1, 0), AGE).is_some()
        }

        /// Checks that all indexes agree.
        fn check(&self) {
            let store = lock(&self.store);
            let count = store.entries.len();
            assert_eq!((store.ids.len(), store.used.len(), store.ends.len()), (count, count, count));
            assert_eq!(store.entries.values().map(|entry| entry.weight).sum::<usize>(), store.bytes);
            assert!(store.bytes <= store.size);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_an_age_and_an_end() {
        let answers = answers(1 << 20);
        answers.put("a", 1);
        tokio::time::advance(Duration::from_secs(4)).await;
        let (_, age) = answers.find(&key("a", 1), (1, 0), AGE).unwrap();
        assert_eq!(age, Duration::from_secs(4));
        assert!(answers.find(&key("a", 1), (1, 0), age).is_none(), "another view wants younger ones");
        assert!(answers.has("a", 1), "and takes it from nobody");
        assert!(!answers.has("a", 2) && !answers.has("b", 1));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!answers.has("a", 1));
        answers.put("a", 1);
        tokio::time::advance(AGE).await;
        answers.put("b", 1);
        assert_eq!(answers.status().unwrap().entries, 1, "an old one makes way");
        answers.check();
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_recently_used_goes_first() {
        let one = OVERHEAD + 3 + 1;
        let answers = answers(3 * one);
        for asked in 1..=3 {
            answers.put("a", asked);
        }
        assert!(answers.has("a", 1));
        answers.put("a", 4);
        assert_eq!([1, 2, 3, 4].map(|asked| answers.has("a", asked)), [true, false, true, true]);
        answers.check();
        lock(&answers.store).size = one;
        lock(&answers.store).make_room(0);
        assert_eq!([1, 3, 4].map(|asked| answers.has("a", asked)), [false, false, true]);
        lock(&answers.store).size = one - 1;
        answers.put("a", 5);
        assert!(!answers.has("a", 5), "one that never fits pushes out no other");
        lock(&answers.store).make_room(0);
        answers.check();
    }

    #[tokio::test(start_paused = true)]
    async fn another_connection_or_list_drops_what_came_before() {
        let answers = answers(1 << 20);
        for epoch in [(2, 0), (1, 1)] {
            answers.put("a", 1);
            assert!(answers.find(&key("a", 1), epoch, AGE).is_none());
            assert!(!answers.has("a", 1));
        }
        answers.check();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_writes_drops_what_is_kept_and_what_was_asked_meanwhile() {
        let answers = answers(1 << 20);
        answers.put("a", 1);
        let before = answers.writes(1, "a");
        let writing = answers.writing(1, None);
        assert!(!answers.has("a", 1));
        answers.keep(key("a", 1), kept("old"), AGE, before);
        assert!(!answers.has("a", 1));
        let during = answers.writes(1, "a");
        answers.put("a", 2);
        drop(writing);
        assert!(!answers.has("a", 2));
        answers.keep(key("a", 1), kept("old"), AGE, during);
        assert!(!answers.has("a", 1));
        answers.put("a", 1);
        assert!(answers.has("a", 1));
        drop(answers.writing(2, None));
        assert!(answers.has("a", 1), "it is of another server");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_whose_answers_are_kept_drops_those_of_others() {
        let answers = answers(1 << 20);
        answers.put("own", 1);
        answers.put("other", 1);
        let own = answers.writes(1, "own");
        let other = answers.writes(1, "other");
        drop(answers.writing(1, Some("own".into())));
        assert!(answers.has("own", 1) && !answers.has("other", 1));
        assert_eq!((answers.writes(1, "own") == own, answers.writes(1, "other") == other), (true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn an_updated_resource_is_read_again() {
        let answers = answers(1 << 20);
        let read = Key { is_read: true, ..key("file:///a", 1) };
        let before = answers.writes(1, "file:///a");
        answers.keep(read.clone(), kept("x"), AGE, before);
        answers.put("file:///a", 1);
        answers.updated(1, "file:///b");
        assert!(answers.find(&read, (1, 0), AGE).is_some());
        answers.updated(1, "file:///a");
        assert!(answers.find(&read, (1, 0), AGE).is_none());
        assert!(answers.has("file:///a", 1), "a tool of that name is none");
        answers.keep(read.clone(), kept("x"), AGE, before);
        assert!(answers.find(&read, (1, 0), AGE).is_none(), "it was asked for before");
    }
}
