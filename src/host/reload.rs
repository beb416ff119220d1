//! The config of a running host: read again when it is asked to, or when its files change (`docs/hazards.md` H91).
//!
//! The host follows all files that were read for the config, including those that it names (`envFile`, `${file:…}`),
//! each by a hash. When one has changed and stayed the same for a quarter of a second, everything is read and judged
//! whole, and then taken in one step or not at all. A hangup signal or a word over the status socket does the same at
//! once. What cannot be used changes nothing and is told by [`ConfigStatus`].
//!
//! TOML and YAML cannot show that a file was cut between two entries, since both halves are whole; there the quarter of
//! a second must do. JSON has no such half.
//!
//! `host` settings that are read on demand, access rules included, apply at once (`downstream/http/rules.rs`). The
//! others wait for the next start, and the status says so (`HostSettings::with`).
//!
//! **Invariant:** one task loads, so that two reloads cannot cross.

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

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Whoever writes a file may not be done yet: it must stay as it is for that long.
const SETTLE: Duration = Duration::from_millis(250);
/// A file that is written all the time is read all the same.
const PATIENCE: u32 = 20;
/// Requests to reload that wait.
const ASKED: usize = 8;

/// Reads the config of a host again.
pub(super) type Load = Arc<dyn Fn() -> Result<Config, config::Error> + Send + Sync>;
type Answer = oneshot::Sender<Result<Reload, config::Error>>;

/// What a host is configured with.
pub(super) struct Configured {
    manager: Manager,
    memory: HashMap<String, Starter>,
    /// The servers in this process: no file knows them.
    own: Vec<Server>,
    current: Mutex<Config>,
    asked: OnceLock<mpsc::Sender<Answer>>,
}

/// Why a config was not read again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotReloaded {
    /// What the files say now cannot be used.
    #[error("{0}")]
    Wrong(#[from] config::Error),
    /// There are no files.
    #[error("this host follows no config file")]
    NoFiles,
    /// It ends.
    #[error("the host is shutting down")]
    Ending,
}

impl Configured {
    pub(super) fn new(manager: Manager, memory: HashMap<String, Starter>, config: Config) -> Self {
        let own = config.servers.iter().filter(|server| memory.contains_key(&server.name)).cloned().collect();
        Self { manager, memory, own, current: Mutex::new(config), asked: OnceLock::new() }
    }

    /// The config of now.
    #[cfg(feature = "server")]
    pub(super) fn current(&self) -> Config {
        lock(&self.current).clone()
    }

    /// Takes what somebody made of the current config.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Config) -> T) -> T {
        let mut current = lock(&self.current);
        let mut config = current.clone();
        let result = change(&mut config);
        self.manager.reload(config.clone(), &self.memory);
        *current = config;
        result
    }

    /// Takes another config; the servers in this process stay.
    pub(super) fn replace(&self, mut config: Config) -> Reload {
        let mut current = lock(&self.current);
        let missing = |own: &&Server| !config.servers.iter().any(|server| server.name == own.name);
        let own: Vec<Server> = self.own.iter().filter(missing).cloned().collect();
        config.servers.extend(own);
        let done = self.manager.reload(config.clone(), &self.memory);
        *current = config;
        done
    }

    /// Reads the files again, now.
    pub(super) async fn reload(&self) -> Result<Reload, NotReloaded> {
        let (answer, done) = oneshot::channel();
        self.asked.get().ok_or(NotReloaded::NoFiles)?.send(answer).await.map_err(|_| NotReloaded::Ending)?;
        Ok(done.await.map_err(|_| NotReloaded::Ending)??)
    }

    pub(super) fn status(&self) -> watch::Receiver<ConfigStatus> {
        self.manager.config_status()
    }

    /// The task that follows the files until `stop`; `None` if there is one already.
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

    /// Takes what was loaded.
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
                    // Whoever asked may be gone.
                    let _ = answer.send(done);
                }
                () = sleep(LOOK) => {
                    if self.settled().await {
                        // It was told where the status is.
                        let _ = self.reload().await;
                    }
                }
            }
        }
    }

    /// Whether the files say something else than what was judged last, and have said it for a while.
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

    /// A disk may be slow, or on another machine.
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
        // What is wrong now is not judged again before it changes.
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
