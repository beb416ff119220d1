//! `join: "start"`: the first process of a config starts its daemon, and all others find it.
//!
//! This needs no async runtime, because a relay has none. Only one process starts a daemon at a time; all others poll
//! for that daemon meanwhile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_host::admin::{self, At, Introduction, Joined, Launch, NotJoined, Refusal, Turn};
use mcp_host::config::{Config, Join};

use crate::args::Common;
use crate::servers::{Plan, state_directory};

/// How long to wait until a daemon lets us in.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look for the daemon meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait before the next try if a daemon exited at once: an earlier one may still be shutting down.
const PAUSE: Duration = Duration::from_millis(250);

/// Starts the daemon of a config if none runs.
#[derive(Debug)]
pub(crate) struct Starter {
    launch: Launch,
    turn: Option<(Turn, Instant)>,
    child: Option<Child>,
    log: PathBuf,
    /// The earliest time of the next try; `None` if there is no limit.
    next: Option<Instant>,
}

/// Why there is no daemon.
#[derive(Debug)]
pub(crate) enum Not {
    /// The daemon may still come up.
    Yet(String),
    /// The daemon runs, but does not let us in.
    Ever(String),
}

impl Starter {
    /// Returns the starter for these files, or why there can be none. Returns `None` if their config wants none. The
    /// files are loaded only if one of them may ask for it.
    pub(crate) fn of_files(common: &Common, files: &[PathBuf]) -> Option<Result<Self, String>> {
        let says = match std::env::var("MCP_HOST_JOIN") {
            Ok(join) => join == "start",
            Err(_) => files.iter().any(|file| may_say_so(file)),
        };
        let plan = says.then(|| Plan::load(common, false, None).ok()).flatten()?;
        Self::of(&plan.config)
    }

    /// Like [`Starter::of_files`], for a loaded config.
    pub(crate) fn of(config: &Config) -> Option<Result<Self, String>> {
        (config.host.join == Some(Join::Start)).then(|| {
            let launch = Launch::of(config)?;
            Ok(Self { launch, turn: None, child: None, log: PathBuf::new(), next: None })
        })
    }

    /// Reports whether starting our own daemon would help after this refusal.
    pub(crate) fn helps(error: &NotJoined) -> bool {
        match error {
            NotJoined::No { no, .. } => matches!(no, Refusal::Config | Refusal::Stopping),
            _ => true,
        }
    }

    /// Waits for the daemon, and starts it unless another process does.
    pub(crate) fn wait(&mut self, client: &Introduction) -> Result<Joined, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.look(client) {
                Ok(joined) => return Ok(joined),
                Err(Not::Ever(why)) => return Err(why),
                Err(Not::Yet(why)) if Instant::now() >= end => {
                    self.turn = None;
                    let log = if self.log.as_os_str().is_empty() { String::new() } else { self.told() };
                    return Err(format!("its daemon did not start: {why}{log}"));
                }
                Err(Not::Yet(_)) => {}
            }
            #[expect(clippy::disallowed_methods, reason = "there is no runtime, or this is a thread that may block")]
            std::thread::sleep(LOOK);
        }
    }

    /// Joins the daemon if it is up. Otherwise starts it, unless another process does, and returns why it is not up.
    pub(crate) fn look(&mut self, client: &Introduction) -> Result<Joined, Not> {
        let error = match admin::join(client, None) {
            Ok(joined) => {
                self.turn = None;
                return Ok(joined);
            }
            Err(error) if !Self::helps(&error) => {
                self.turn = None;
                return Err(Not::Ever(error.to_string()));
            }
            Err(error) => error,
        };
        let mut why = error.to_string();
        if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            (self.child, self.next) = (None, Some(Instant::now() + PAUSE));
        }
        if self.turn.as_ref().is_some_and(|(_, since)| since.elapsed() >= PATIENCE) {
            self.turn = None;
        }
        let is_time = self.child.is_none() && self.next.is_none_or(|next| next <= Instant::now());
        // A daemon that is too busy to answer may be ours. It is waited for; otherwise there would be two.
        let is_time = is_time && !self.may_be_ours(&error);
        if is_time && let Err(error) = self.start(client) {
            why = error;
        }
        Err(Not::Yet(why))
    }

    /// Lets another process start the daemon.
    pub(crate) fn give_way(&mut self) {
        self.turn = None;
    }

    /// Reports whether a daemon that did not answer may serve our config.
    fn may_be_ours(&self, error: &NotJoined) -> bool {
        match error {
            NotJoined::Silent { at: at @ At::Config(_) } => *at == self.launch.at,
            error => matches!(error, NotJoined::Silent { .. }),
        }
    }

    fn start(&mut self, client: &Introduction) -> Result<(), String> {
        if self.turn.is_none() {
            let turn = self.launch.turn().map_err(|error| format!("no folder for its socket: {error}"))?;
            let Some(turn) = turn else { return Ok(()) };
            self.turn = Some((turn, Instant::now()));
            // The process that had the turn before may have started the daemon.
            if admin::join(client, None).is_ok() {
                return Ok(());
            }
        }
        let state = state_directory().ok_or("neither HOME nor XDG_STATE_HOME is set")?;
        let (path, log) = self.launch.log(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        self.log = path;
        let program =
            std::env::current_exe().map_err(|error| format!("mcp-host cannot find its own executable: {error}"))?;
        let mut command = Command::new(program);
        command.arg("__daemon").arg(self.launch.at.word());
        for file in &self.launch.files {
            command.arg("--config").arg(file);
        }
        command.args(self.launch.project.iter().flat_map(|folder| [OsString::from("--project"), folder.into()]));
        command.env_clear().envs(self.launch.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.launch.home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().map_err(|error| format!("{error}"))?);
        Ok(())
    }

    /// Returns the path of the daemon's log, and a quote of its last line.
    fn told(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("help:"));
        let last = last.map(|line| format!(", \"{line}\"")).unwrap_or_default();
        format!(" ({}{last})", self.log.display())
    }
}

/// Reports whether a config file may ask for a daemon. Only then is the file loaded.
fn may_say_so(file: &Path) -> bool {
    let text = std::fs::read(file).unwrap_or_default();
    let has = |word: &[u8]| memchr::memmem::find(&text, word).is_some();
    has(b"join") && has(b"start")
}
