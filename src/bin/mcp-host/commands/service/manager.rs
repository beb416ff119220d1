//! The service manager of this system: where its files are, and the commands that start and stop the service.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use tokio::process::Command;

use super::unit::{self, LABEL, NAME, Plan, Written};
use crate::report::{Exit, Failure};

/// How long a command of the service manager may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service manager of the user's account.
#[derive(Clone, Debug)]
pub(super) enum Manager {
    /// systemd, with the folder of the user's units.
    Systemd(PathBuf),
    /// launchd, with the folder of the user's agents.
    Launchd(PathBuf),
}

/// The state of the service, as the manager reports it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct State {
    /// The files of the service; empty if it is not installed.
    pub(in crate::commands) files: Vec<String>,
    pub(in crate::commands) enabled: bool,
    /// The manager's word for the state: `active`, `inactive`, `failed`.
    pub(in crate::commands) active: String,
    /// The program that the service starts, if it no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) missing: Option<String>,
}

impl State {
    /// Reports whether the service runs, or its socket waits for the first connection.
    pub(in crate::commands) fn is_up(&self) -> bool {
        matches!(self.active.as_str(), "active" | "activating" | "reloading" | "listening")
    }
}

impl Manager {
    pub(super) fn find() -> Result<Self, Failure> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let lost = || Failure::new(Exit::Usage, "this user has no home directory").help("set HOME, and run it again");
        if cfg!(target_os = "macos") {
            return Ok(Self::Launchd(home.ok_or_else(lost)?.join("Library/LaunchAgents")));
        }
        if cfg!(target_os = "linux") {
            let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            let config = config.or_else(|| home.map(|home| home.join(".config"))).ok_or_else(lost)?;
            return Ok(Self::Systemd(config.join("systemd/user")));
        }
        Err(Failure::new(Exit::Failed, "mcp-host knows no service manager of this system")
            .help("let the system's own means start `mcp-host serve`"))
    }

    /// Returns the files of a service, and their content.
    pub(super) fn files(&self, plan: &Plan) -> Result<Vec<(PathBuf, String)>, Failure> {
        Ok(match self {
            Self::Systemd(folder) => plan.systemd().into_iter().map(|(name, text)| (folder.join(name), text)).collect(),
            Self::Launchd(folder) => vec![(folder.join(format!("{LABEL}.plist")), plan.launchd())],
        })
    }

    /// Returns the installed files of the service, and their content.
    pub(super) fn installed(&self) -> Vec<(PathBuf, String)> {
        let files = match self {
            Self::Systemd(folder) => ["socket", "service"].map(|kind| folder.join(format!("{NAME}.{kind}"))).to_vec(),
            Self::Launchd(folder) => vec![folder.join(format!("{LABEL}.plist"))],
        };
        files.into_iter().filter_map(|file| Some((file.clone(), std::fs::read_to_string(file).ok()?))).collect()
    }

    /// Returns the parsed content of the service's file; `None` if the service is not installed.
    pub(super) fn written(&self) -> Option<Written> {
        let (_, text) = self.installed().pop()?;
        Some(match self {
            Self::Systemd(_) => unit::of_systemd(&text),
            Self::Launchd(_) => unit::of_launchd(&text),
        })
    }

    /// Returns the commands that start the service, or restart it if it runs.
    pub(super) fn starts(&self, by_socket: bool) -> Vec<Vec<String>> {
        match self {
            Self::Systemd(_) => {
                let unit = format!("{NAME}.{}", if by_socket { "socket" } else { "service" });
                vec![systemctl(&["daemon-reload"]), systemctl(&["enable", &unit]), systemctl(&["restart", &unit])]
            }
            Self::Launchd(folder) => {
                let file = folder.join(format!("{LABEL}.plist")).display().to_string();
                vec![words(&["launchctl", "bootstrap", &domain(), &file])]
            }
        }
    }

    /// Returns the commands that stop the service permanently.
    pub(super) fn stops(&self) -> Vec<Vec<String>> {
        match self {
            Self::Systemd(_) => {
                let there = self.installed();
                let units = there.iter().filter_map(|(file, _)| file.file_name()?.to_str().map(str::to_owned));
                let all: Vec<String> = units.collect();
                let named = ["disable", "--now"].into_iter().chain(all.iter().map(String::as_str));
                vec![systemctl(&named.collect::<Vec<_>>())]
            }
            Self::Launchd(_) => vec![words(&["launchctl", "bootout", &format!("{}/{LABEL}", domain())])],
        }
    }

    /// Returns the commands to run after the files are removed.
    pub(super) fn forgets(&self) -> Vec<Vec<String>> {
        match self {
            Self::Systemd(_) => vec![systemctl(&["daemon-reload"])],
            Self::Launchd(_) => Vec::new(),
        }
    }

    /// Runs commands until one fails.
    pub(super) async fn run(&self, commands: &[Vec<String>]) -> Result<(), Failure> {
        for words in commands {
            let shown = words.join(" ");
            let help = match self {
                Self::Systemd(_) => {
                    "systemctl --user status shows whether systemd runs for your account; the files are written"
                }
                Self::Launchd(_) => "launchctl print gui/$UID shows your agents; the file is written",
            };
            let failed = |why: String| Failure::new(Exit::Failed, format!("`{shown}` failed: {why}")).help(help);
            let output = said(words).await.map_err(&failed)?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
                return Err(failed(why.to_owned()));
            }
        }
        Ok(())
    }

    /// Asks the manager for the state of the service.
    pub(super) async fn state(&self) -> State {
        let installed = self.installed();
        let Some(written) = self.written() else { return State::default() };
        let files: Vec<String> = installed.iter().map(|(file, _)| file.display().to_string()).collect();
        let missing = written.program.filter(|program| !std::path::Path::new(program).exists());
        let word = async |words: Vec<String>| match said(&words).await {
            Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("unknown").trim().to_owned(),
            Err(_) => "unknown".to_owned(),
        };
        match self {
            Self::Systemd(_) => {
                let by_socket = installed.len() > 1;
                let unit = format!("{NAME}.{}", if by_socket { "socket" } else { "service" });
                let enabled = word(systemctl(&["is-enabled", &unit])).await == "enabled";
                let service = word(systemctl(&["is-active", &format!("{NAME}.service")])).await;
                let active = match service.as_str() {
                    "inactive" if by_socket && word(systemctl(&["is-active", &unit])).await == "active" => {
                        "listening".to_owned()
                    }
                    _ => service,
                };
                State { files, enabled, active, missing }
            }
            Self::Launchd(_) => {
                let found = said(&words(&["launchctl", "print", &format!("{}/{LABEL}", domain())])).await;
                let is_up = found.is_ok_and(|output| output.status.success());
                let active = if is_up { "active" } else { "inactive" }.to_owned();
                State { files, enabled: true, active, missing }
            }
        }
    }

    /// Returns the command that shows why the service does not run.
    pub(super) fn log(&self) -> &'static str {
        match self {
            Self::Systemd(_) => "journalctl --user -u mcp-host -n 50 shows what it said",
            Self::Launchd(_) => "tail ~/Library/Logs/mcp-host.log shows what it said",
        }
    }

    /// Returns what the user should know after the start.
    pub(super) fn remarks(&self) -> Vec<&'static str> {
        match self {
            Self::Systemd(_) => vec!["it runs while you are logged in; loginctl enable-linger keeps it running"],
            Self::Launchd(_) => Vec::new(),
        }
    }
}

async fn said(words: &[String]) -> Result<std::process::Output, String> {
    let [program, rest @ ..] = words else { return Err("no command".to_owned()) };
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took longer than a minute".to_owned()),
    }
}

fn systemctl(rest: &[&str]) -> Vec<String> {
    words(&[&["systemctl", "--user"], rest].concat())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns launchd's name for the user's session.
fn domain() -> String {
    #[cfg(unix)]
    return format!("gui/{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    return String::new();
}
