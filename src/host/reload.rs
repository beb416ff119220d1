//! Reloads the config of a running host on request, or when its files change (`docs/hazards.md` H91).
//!
//! The host follows all files that were read for the config, including those that the config names (`envFile`,
//! `${file:…}`), and compares a hash of each. When a file has changed and then stayed the same for a quarter of a
//! second, the host reads and checks the whole config, and applies it in one step or not at all. A hangup signal or a
//! request over the status socket reloads at once. An invalid config changes nothing; [`ConfigStatus`] reports it.
//!
//! A TOML or YAML file that is cut between two entries is still valid, so only the quarter of a second protects against
//! reading a half-written one. Half a JSON file is never valid.
//!
//! `host` settings that are read on demand, access rules included, apply at once (`downstream/http/rules.rs`). The
//! other `host` settings wait for the next start, and the status says so (`HostSettings::with`).
//!
//! **Invariant:** one task does all the loading, so that two reloads cannot overlap.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::lock;
use crate::config::{self, Config, Contents, Server, Watcher};
use crate::manager::{ConfigStatus, Manager, Reload};
use crate::upstream::Starter;

/// How often to check the files.
const LOOK: Duration = Duration::from_millis(500);
/// How long a file must stay unchanged before it is read: its writer may not be done.
const SETTLE: Duration = Duration::from_millis(250);
/// How many times a file may change again during [`SETTLE`] before it is read anyway.
const PATIENCE: u32 = 20;
/// How many reload requests may wait.
const ASKED: usize = 8;

/// Loads the config of a host again.
pub(super) type Load = Arc<dyn Fn() -> Result<Config, config::Error> + Send + Sync>;
type Answer = oneshot::Sender<Result<Reload, config::Error>>;

/// The config of a host, and how to change it.
pub(super) struct Configured {
    manager: Manager,
    memory: HashMap<String, Starter>,
    /// The in-process servers, which no config file contains.
    own: Vec<Server>,
    current: Mutex<Config>,
    asked: OnceLock<mpsc::Sender<Answer>>,
}

/// Why a config was not reloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotReloaded {
    /// The files are invalid.
    #[error("{0}")]
    Wrong(#[from] config::Error),
    /// The host follows no files.
    #[error("this host follows no config file")]
    NoFiles,
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Ending,
}

impl Configured {
    pub(super) fn new(manager: Manager, memory: HashMap<String, Starter>, config: Config) -> Self {
        let own = config.servers.iter().filter(|server| memory.contains_key(&server.name)).cloned().collect();
        Self { manager, memory, own, current: Mutex::new(config), asked: OnceLock::new() }
    }

    /// Returns the current config.
    #[cfg(feature = "server")]
    pub(super) fn current(&self) -> Config {
        lock(&self.current).clone()
    }

    /// Changes the current config, applies it, and returns the result of `change`.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Config) -> T) -> T {
        let mut current = lock(&self.current);
        let mut config = current.clone();
        let result = change(&mut config);
        self.manager.reload(config.clone(), &self.memory);
        *current = config;
        result
    }

    /// Restarts a server. Returns false if no server has that name.
    #[cfg(feature = "server")]
    pub(super) fn restart(&self, server: &str) -> bool {
        let current = lock(&self.current);
        let has = current.servers.iter().any(|known| known.name == server);
        if has {
            self.manager.restart(current.clone(), &self.memory, server);
        }
        has
    }

    /// Replaces the config; the in-process servers stay.
    pub(super) fn replace(&self, mut config: Config) -> Reload {
        let mut current = lock(&self.current);
        let missing = |own: &&Server| !config.servers.iter().any(|server| server.name == own.name);
        let own: Vec<Server> = self.own.iter().filter(missing).cloned().collect();
        config.servers.extend(own);
        let done = self.manager.reload(config.clone(), &self.memory);
        *current = config;
        done
    }

    /// Reloads the files now.
    pub(super) async fn reload(&self) -> Result<Reload, NotReloaded> {
        let (answer, done) = oneshot::channel();
        self.asked.get().ok_or(NotReloaded::NoFiles)?.send(answer).await.map_err(|_| NotReloaded::Ending)?;
        Ok(done.await.map_err(|_| NotReloaded::Ending)??)
    }

    pub(super) fn status(&self) -> watch::Receiver<ConfigStatus> {
        self.manager.config_status()
    }

    /// Returns the task that follows the files until `stop`; `None` if there already is such a task.
    pub(super) fn follow(
        self: &Arc<Self>,
        load: Load,
        stop: CancellationToken,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (sender, asked) = mpsc::channel(ASKED);
        self.asked.set(sender).ok()?;
        let watcher = Watcher::new(&lock(&self.current).contents);
        let task = Follow { configured: self.clone(), load, watcher };
        Some(async move {
            stop.run_until_cancelled(task.run(asked)).await;
        })
    }

    /// Applies the config if it was loaded; reports the error if not.
    fn take(&self, loaded: Result<Config, config::Error>) -> Result<Reload, config::Error> {
        match loaded {
            Ok(config) => {
                let done = self.replace(config);
                tracing::info!("config reloaded: {done:?}");
                Ok(done)
            }
            Err(error) => {
                tracing::warn!("config not reloaded: {error}");
                self.manager.not_reloaded(&error);
                Err(error)
            }
        }
    }
}

struct Follow {
    configured: Arc<Configured>,
    load: Load,
    watcher: Watcher,
}

impl Follow {
    async fn run(mut self, mut asked: mpsc::Receiver<Answer>) {
        loop {
            tokio::select! {
                answer = asked.recv() => {
                    let Some(answer) = answer else { return };
                    let done = self.reload().await;
                    // The caller may be gone.
                    let _ = answer.send(done);
                }
                () = sleep(LOOK) => {
                    if self.settled().await {
                        // The config status reports the outcome.
                        let _ = self.reload().await;
                    }
                }
            }
        }
    }

    /// Reports whether the files differ from those last loaded, after they have stayed unchanged for [`SETTLE`].
    async fn settled(&mut self) -> bool {
        if !self.look().await && !self.watcher.differs() {
            return false;
        }
        for _ in 0..PATIENCE {
            sleep(SETTLE).await;
            if !self.look().await {
                break;
            }
        }
        self.watcher.differs()
    }

    /// Checks the files, and reports whether one has changed. Runs on the blocking pool: a disk may be slow, or on
    /// another machine.
    async fn look(&mut self) -> bool {
        let mut watcher = std::mem::take(&mut self.watcher);
        let looked = tokio::task::spawn_blocking(move || {
            let changed = watcher.look();
            (watcher, changed)
        });
        match looked.await {
            Ok((watcher, changed)) => {
                self.watcher = watcher;
                changed
            }
            Err(_) => false,
        }
    }

    async fn reload(&mut self) -> Result<Reload, config::Error> {
        // An invalid file is not loaded again before it changes.
        self.look().await;
        self.watcher.judge();
        let load = self.load.clone();
        let loaded = tokio::task::spawn_blocking(move || load()).await;
        let loaded = loaded.unwrap_or_else(|_| Err(config::Error::NotFound { places: Vec::new() }));
        let contents: Option<Contents> = loaded.as_ref().ok().map(|config| config.contents.clone());
        let done = self.configured.take(loaded);
        if let Some(contents) = contents {
            self.watcher.follow(&contents);
        }
        done
    }
}
