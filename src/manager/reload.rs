//! Reloads the config while the host runs (`docs/hazards.md` H91).
//!
//! A server whose config entry is unchanged stays the same object. A changed one is a new server of the same name:
//! clients see the old lists until the new server has listed, calls in flight finish at the old one within
//! `limits.drain`,
//! and new calls wait for the new one. A removed server finishes its calls and takes no new ones.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::leases::LOOK_AGAIN;
use super::{Manager, Server, StateChange, lock, servers};
use crate::config::{self, Config, HostSettings};
use crate::counts::Counts;
use crate::upstream::{Starter, StateName};

/// What a reload has changed.
///
/// ```
/// # fn show(host: &mcp_host::Host, config: mcp_host::Config) {
/// let changes = host.reload(config);
/// println!("new: {:?}, gone: {:?}", changes.added, changes.removed);
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reload {
    /// New servers.
    pub added: Vec<String>,
    /// Servers that are gone.
    pub removed: Vec<String>,
    /// Servers whose config entry has changed.
    pub changed: Vec<String>,
    /// Changed host settings that take effect at the next start.
    pub pending: Vec<String>,
}

/// The state of a running host's config.
///
/// ```
/// # fn show(host: &mcp_host::Host) {
/// let status = host.config_status().borrow().clone();
/// println!("taken {} times; not taken now: {:?}", status.reloads, status.problems);
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ConfigStatus {
    /// The config files.
    pub files: Vec<PathBuf>,
    /// How often the config was reloaded.
    pub reloads: u64,
    /// Why the current files are rejected; the previous config stays in effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Host settings that take effect at the next start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// What the last reload changed.
    #[serde(skip)]
    pub last: Reload,
}

/// A call in flight at a server; counted until dropped.
#[derive(Debug)]
pub(crate) struct Calling(Arc<Server>);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Counts a call, which is in flight until the returned guard is dropped.
    pub(crate) fn calling(self: &Arc<Self>) -> Calling {
        self.count_call();
        self.calling.fetch_add(1, Ordering::Relaxed);
        Calling(self.clone())
    }
}

/// Gives each server the counters of its name. `servers` are all servers of the config, so counters of other names are
/// dropped.
pub(super) fn count(counts: &Counts, servers: &[Arc<Server>], settings: &HostSettings) {
    for server in servers {
        let _ = server.counts.set(counts.of(&server.config.name));
    }
    counts.keep(&servers.iter().map(|server| server.config.name.as_str()).collect::<HashSet<_>>());
    counts.set_tools(&settings.metrics.tools);
}

impl Manager {
    /// Applies a new config. It was validated as a whole before, so nothing can fail here.
    pub(crate) fn reload(&self, config: Config, memory: &HashMap<String, Starter>) -> Reload {
        self.reload_but(config, memory, None)
    }

    /// Restarts a server of the config, as if its entry had changed.
    #[cfg(feature = "server")]
    pub(crate) fn restart(&self, config: Config, memory: &HashMap<String, Starter>, server: &str) {
        self.reload_but(config, memory, Some(server));
    }

    /// Applies a config. The server named `anew` is replaced even if its entry is unchanged.
    fn reload_but(&self, config: Config, memory: &HashMap<String, Starter>, anew: Option<&str>) -> Reload {
        let old = self.servers();
        self.0.world.nature.lineage.follow(&config);
        let (settings, pending) = self.settings().with(config.host);
        let mut new = servers(config.servers, memory, &settings, &self.0.known, &self.0.keys, &self.0.presets);
        let pending = pending.into_iter().map(str::to_owned).collect();
        let mut done = Reload { pending, ..Reload::default() };
        let mut locked = Vec::new();
        for server in &mut new {
            match old.iter().find(|old| old.config.name == server.config.name) {
                Some(before) if before.config.same_as(&server.config) && anew != Some(&*server.config.name) => {
                    if before.pinned.lock_by(&server.config) {
                        locked.push(before.clone());
                    }
                    *server = before.clone();
                }
                Some(before) => {
                    server.inherit(before);
                    done.changed.push(server.config.name.clone());
                }
                None => done.added.push(server.config.name.clone()),
            }
        }
        let kept = |old: &Arc<Server>| new.iter().any(|new| Arc::ptr_eq(old, new));
        let gone: Vec<Arc<Server>> = old.iter().filter(|old| !kept(old)).cloned().collect();
        let named = |name: &str| new.iter().any(|new| new.config.name == name);
        done.removed =
            gone.iter().map(|gone| &gone.config.name).filter(|name| !named(name.as_str())).cloned().collect();
        // A user who reloads the config wants servers that were given up to be retried.
        let stay = new.iter().filter(|new| old.iter().any(|old| Arc::ptr_eq(old, new)));
        stay.flat_map(|server| server.upstreams()).for_each(|upstream| upstream.retry());
        // This comes before the new servers are in place: a server that asks a question must always be found.
        lock(&self.0.retired).extend(gone.iter().cloned());
        self.set(settings);
        let fresh: Vec<Arc<Server>> =
            new.iter().filter(|new| !old.iter().any(|old| Arc::ptr_eq(old, new))).cloned().collect();
        // Until the new servers are in place, views know the old ones, too.
        self.see(new.iter().chain(&gone));
        self.recall(&fresh);
        self.recall_pins(&fresh);
        let host = self.settings();
        let chosen: Vec<_> = new.iter().filter(|server| server.pinned.choose(&host)).cloned().collect();
        if !chosen.is_empty() {
            self.recall_pins(&chosen);
        }
        locked.iter().for_each(|server| self.judge_again(server));
        count(self.record().counts(), &new, &host);
        self.0.servers.store(Arc::new(new));
        self.note_rules();
        for server in fresh {
            self.tell_fixed(&server, &old);
            self.close_unused(&server);
        }
        for server in gone {
            self.retire(server);
        }
        for server in self.servers().iter() {
            if server.is_without_lease() {
                self.start_eager(server);
            }
        }
        self.0.config.send_modify(|status| {
            status.files = config.files;
            status.reloads += 1;
            status.problems.clear();
            status.pending.clone_from(&done.pending);
            status.last = done.clone();
        });
        self.remember_reload(&done);
        self.touch();
        done
    }

    /// Records why the current files are rejected.
    pub(crate) fn not_reloaded(&self, error: &config::Error) {
        let problems: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
        let problems = if problems.is_empty() { vec![error.to_string()] } else { problems };
        self.remember_refusal(&problems);
        self.0.config.send_modify(|status| status.problems = problems);
    }

    /// Subscribes to the state of the config.
    pub(crate) fn config_status(&self) -> watch::Receiver<ConfigStatus> {
        self.0.config.subscribe()
    }

    /// Emits the state of a server that never starts: it has no lease that would emit it.
    fn tell_fixed(&self, server: &Server, old: &[Arc<Server>]) {
        if let Some((state, why)) = &server.fixed {
            let before = old.iter().find(|old| old.config.name == server.config.name);
            let from = before.map_or(StateName::Disconnected, |before| self.shown(before));
            let (name, cause, at) = (server.config.name.clone(), Some(why.clone()), SystemTime::now());
            self.emit(StateChange { server: name, from, to: *state, cause, at });
        }
    }

    /// Lets the calls of a removed server end, then stops it.
    fn retire(&self, server: Arc<Server>) {
        let manager = self.clone();
        let patience = self.settings().limits.drain;
        self.0.tasks.spawn(async move {
            let end = Instant::now() + patience;
            let stop = manager.0.stop.clone();
            while server.calling.load(Ordering::Relaxed) > 0 && Instant::now() < end {
                if stop.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                    break;
                }
            }
            manager.end_removed(&server).await;
            lock(&manager.0.retired).retain(|retired| !Arc::ptr_eq(retired, &server));
        });
    }

    /// Stops a server that is not in the config any more, and emits `Disconnected` once its connections have ended.
    async fn end_removed(&self, server: &Arc<Server>) {
        let before = self.shown(server);
        let mut leases: Vec<_> = server.upstreams().iter().map(|upstream| upstream.watch()).collect();
        server.close();
        if !leases.is_empty() {
            self.show_end(server, before, StateName::Disconnecting);
        }
        let ended = async {
            for status in &mut leases {
                // A lease whose task is gone has ended, too.
                let _ = status.wait_for(|status| status.state == StateName::Disconnected).await;
            }
        };
        if self.0.stop.run_until_cancelled(ended).await.is_some() {
            self.show_end(server, before, StateName::Disconnected);
        }
    }
}
