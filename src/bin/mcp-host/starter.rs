//! `join: "start"`: the first process of a config starts its daemon, and all others find it.
//!
//! It needs no runtime: a relay has none. Nobody starts one while another process does, and all look for it meanwhile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_host::admin::{self, At, Introduction, Joined, Launch, NotJoined, Refusal, Turn};
use mcp_host::config::{Config, Join};

use crate::args::Common;
use crate::servers::{Plan, state_directory};

/// How long a daemon may take until it lets us in.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// How long after a daemon that ended at once another one is tried: the one before it may be in its last moments.
const PAUSE: Duration = Duration::from_millis(250);

/// Starts the daemon of a config where none runs.
#[derive(Debug)]
pub(crate) struct Starter {
    launch: Launch,
    turn: Option<(Turn, Instant)>,
    child: Option<Child>,
    log: PathBuf,
    /// Not before then.
    next: Option<Instant>,
}

/// Why there is no daemon, in words.
#[derive(Debug)]
pub(crate) enum Not {
    /// It may still come.
    Yet(String),
    /// It runs and does not let us in.
    Ever(String),
}

impl Starter {
    /// The starter for these files, if their config wants one; why it does not, where it does and that cannot be. The files are
    /// only read whole where one of them may say so.
    pub(crate) fn of_files(common: &Common, files: &[PathBuf]) -> Option<Result<Self, String>> {
        let says = match std::env::var("MCP_HOST_JOIN") {
            Ok(join) => join == "start",
            Err(_) => files.iter().any(|file| may_say_so(file)),
        };
        let plan = says.then(|| Plan::load(common, false, None).ok()).flatten()?;
        Self::of(&plan.config)
    }

    /// The same for a config.
    pub(crate) fn of(config: &Config) -> Option<Result<Self, String>> {
        (config.host.join == Some(Join::Start)).then(|| {
            let launch = Launch::of(config)?;
            Ok(Self { launch, turn: None, child: None, log: PathBuf::new(), next: None })
        })
    }

    /// Whether a daemon of our own would be let in where this one did not let us.
    pub(crate) fn helps(error: &NotJoined) -> bool {
        match error {
            NotJoined::No { no, .. } => matches!(no, Refusal::Config | Refusal::Stopping),
            _ => true,
        }
    }

    /// Waits for the daemon, which it starts where nobody else does.
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

    /// The daemon, if it is there by now. Where nobody starts it, it is started.
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
        // One that is busy may be the daemon of our config: it is waited for, else there would be two of them.
        let is_time = is_time && !self.may_be_ours(&error);
        if is_time && let Err(error) = self.start(client) {
            why = error;
        }
        Err(Not::Yet(why))
    }

    /// Lets another process start it.
    pub(crate) fn give_way(&mut self) {
        self.turn = None;
    }

    /// Whether a daemon runs that did not answer, and may serve our config.
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
            // Whoever had the turn before may have started it.
            if admin::join(client, None).is_ok() {
                return Ok(());
            }
        }
        let state = state_directory().ok_or("neither HOME nor XDG_STATE_HOME is set")?;
        let (path, log) = self.launch.log(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        self.log = path;
        let program = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
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

    /// Where more is told, and the last line of it.
    fn told(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("help:"));
        let last = last.map(|line| format!(", \"{line}\"")).unwrap_or_default();
        format!(" ({}{last})", self.log.display())
    }
}

/// Whether a config file may say that a daemon is to be started: it is read whole only then.
fn may_say_so(file: &Path) -> bool {
    let text = std::fs::read(file).unwrap_or_default();
    let has = |word: &[u8]| memchr::memmem::find(&text, word).is_some();
    has(b"join") && has(b"start")
}
