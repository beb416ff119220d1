//! Counters of single tools, for those that the config wants counted separately (`host.metrics.tools`).
//!
//! **Invariant:** clients cannot create series: only tools that their server lists have one, and their number has a
//! cap. Tools beyond the cap, and unlisted ones, share one series of the server, [`OTHER`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::histogram::{Buckets, DURATIONS, Histogram};
use crate::answered::End;
use crate::glob;
use crate::lock::lock;

/// The name of the series for all tools that have no series of their own.
pub(super) const OTHER: &str = "_other";
/// The most tools that are counted separately, of one server and of all servers.
const OF_SERVER: usize = 200;
const IN_ALL: usize = 1000;

/// Which tools are counted separately.
#[derive(Debug, Default)]
pub(crate) struct ToolGlobs {
    is_on: AtomicBool,
    globs: ArcSwap<Vec<String>>,
    /// How many tools have a series.
    made: AtomicUsize,
}

impl ToolGlobs {
    /// Reports whether any tools are counted separately.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sets the globs, and reports whether they have changed.
    pub(super) fn set(&self, globs: &[String]) -> bool {
        if **self.globs.load() == globs {
            return false;
        }
        self.globs.store(Arc::new(globs.to_vec()));
        self.is_on.store(!globs.is_empty(), Ordering::Relaxed);
        self.made.store(0, Ordering::Relaxed);
        true
    }

    /// Records how many tools have a series, after servers were removed.
    pub(super) fn recount(&self, made: usize) {
        self.made.store(made, Ordering::Relaxed);
    }

    fn want(&self, names: [&str; 2]) -> bool {
        self.globs.load().iter().any(|wanted| names.iter().any(|name| glob::is_match(wanted, name)))
    }

    /// Reserves one more series. Returns false if there are too many.
    fn take_place(&self) -> bool {
        let more = |made: usize| (made < IN_ALL).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// The counters of one tool.
#[derive(Debug)]
pub(crate) struct ToolCounts {
    calls: [AtomicU64; End::ALL.len()],
    durations: Histogram<{ DURATIONS.len() }>,
}

impl Default for ToolCounts {
    fn default() -> Self {
        Self { calls: [const { AtomicU64::new(0) }; End::ALL.len()], durations: Histogram::new(&DURATIONS) }
    }
}

impl ToolCounts {
    pub(super) fn add(&self, end: End, took: Duration) {
        self.calls[end as usize].fetch_add(1, Ordering::Relaxed);
        self.durations.add(took);
    }

    /// Returns how many calls had this outcome.
    pub(crate) fn calls(&self, end: End) -> u64 {
        self.calls[end as usize].load(Ordering::Relaxed)
    }

    /// Returns how long calls took.
    pub(crate) fn durations(&self) -> Buckets {
        self.durations.read()
    }
}

/// The tools of one server. Known tools are found without a lock; `None` marks a tool that no glob matches.
#[derive(Debug, Default)]
pub(super) struct Tools {
    known: ArcSwap<HashMap<Arc<str>, Option<Arc<ToolCounts>>>>,
    adding: Mutex<()>,
}

impl Tools {
    /// Returns the counters for a tool, by the server's name and the name that clients know; `None` if it is not
    /// counted.
    pub(super) fn of(&self, globs: &ToolGlobs, own: &Arc<str>, shown: Option<&str>) -> Option<Arc<ToolCounts>> {
        // A name that is in no list is made up by the client.
        let Some(shown) = shown else {
            return globs.want([own, own]).then(|| self.other());
        };
        if let Some(known) = self.known.load().get(own) {
            return known.clone();
        }
        if !globs.want([own, shown]) {
            self.add(own.clone(), || None);
            return None;
        }
        let has_place = self.len() < OF_SERVER && globs.take_place();
        if has_place { self.add(own.clone(), || Some(Arc::default())) } else { Some(self.other()) }
    }

    fn other(&self) -> Arc<ToolCounts> {
        let known = self.known.load().get(OTHER).cloned().flatten();
        known.unwrap_or_else(|| self.add(OTHER.into(), || Some(Arc::default())).unwrap_or_default())
    }

    /// Adds a tool, unless another thread has added it meanwhile.
    fn add(&self, name: Arc<str>, make: impl FnOnce() -> Option<Arc<ToolCounts>>) -> Option<Arc<ToolCounts>> {
        let _one_at_a_time = lock(&self.adding);
        let mut known = HashMap::clone(&self.known.load());
        // Names that no glob matches are remembered, too, but not too many.
        if known.len() >= 10 * OF_SERVER && !known.contains_key(&name) {
            known.retain(|_, counts| counts.is_some());
        }
        let counts = known.entry(name).or_insert_with(make).clone();
        self.known.store(Arc::new(known));
        counts
    }

    /// Returns how many tools have a series.
    pub(super) fn len(&self) -> usize {
        self.known.load().iter().filter(|(name, counts)| counts.is_some() && &***name != OTHER).count()
    }

    pub(super) fn clear(&self) {
        let _one_at_a_time = lock(&self.adding);
        self.known.store(Arc::default());
    }

    /// Returns all counters, by name.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<ToolCounts>)> {
        let known = self.known.load();
        let counted = known.iter().filter_map(|(name, counts)| Some((name.clone(), counts.clone()?)));
        let mut all: Vec<_> = counted.collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(globs: &[&str]) -> ToolGlobs {
        let wanted = ToolGlobs::default();
        wanted.set(&globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>());
        wanted
    }

    fn names(tools: &Tools) -> Vec<String> {
        tools.all().iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn only_listed_tools_that_a_glob_wants_have_a_series() {
        let (wanted, tools) = (globs(&["read_*", "git__*"]), Tools::default());
        let count = |own: &str, shown: Option<&str>| {
            if let Some(counts) = tools.of(&wanted, &own.into(), shown) {
                counts.add(End::Ok, Duration::ZERO);
            }
        };
        count("read_file", Some("files__read_file"));
        count("read_file", Some("files__read_file"));
        count("write_file", Some("files__write_file"));
        count("log", Some("git__log"));
        count("read_what_no_list_has", None);
        assert_eq!(names(&tools), ["_other", "log", "read_file"]);
        assert_eq!(tools.of(&wanted, &"read_file".into(), Some("x")).unwrap().calls(End::Ok), 2);
    }

    #[test]
    fn a_server_has_two_hundred_series_and_all_servers_a_thousand() {
        let (wanted, servers): (_, [Tools; 6]) = (globs(&["*"]), Default::default());
        for server in &servers {
            for number in 0..300 {
                let own: Arc<str> = format!("t{number}").into();
                assert!(tools_of(server, &wanted, &own).is_some());
                assert!(tools_of(server, &wanted, &own).is_some());
            }
        }
        assert_eq!(servers.each_ref().map(Tools::len), [200, 200, 200, 200, 200, 0]);
        assert_eq!(names(&servers[5]), [OTHER]);
    }

    fn tools_of(server: &Tools, wanted: &ToolGlobs, own: &Arc<str>) -> Option<Arc<ToolCounts>> {
        server.of(wanted, own, Some(own))
    }
}
