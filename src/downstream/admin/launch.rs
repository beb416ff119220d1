//! How the first process that needs a daemon starts one, without a port, for its config (`join: "start"`).
//!
//! The daemon starts under a lock, in its own session, in the user's home, and with few environment variables. Its
//! socket is named by a digest of the config's paths, in a directory that depends only on the user's home, so every
//! process with the same config files finds it. It exits when it has been unused for a while (`host/socket.rs`).
//!
//! **Invariant:** the starter passes on only the environment variables that any program gets, those that the config
//! names, and our settings: the daemon outlives the starter and serves others.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::at::At;
use super::platform;
use crate::config::{Config, inherits};
use crate::keep;
use crate::transport::is_inherited;

/// How to start a daemon without a port.
///
/// ```
/// # fn start(config: &mcp_host::Config) -> Result<(), Box<dyn std::error::Error>> {
/// let launch = mcp_host::admin::Launch::of(config)?;
/// println!("the daemon will be {}", launch.at);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    /// The name of the daemon.
    pub at: At,
    /// The config files that it serves.
    pub files: Vec<PathBuf>,
    /// The folder that chooses among the projects in the config files.
    pub project: Option<PathBuf>,
    /// The daemon's working directory, the user's home.
    pub home: PathBuf,
    /// The daemon's whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// The right to start the daemon, which one process has at a time. It ends when dropped, or when the process ends in
/// any way.
///
/// ```
/// # fn start(launch: &mcp_host::admin::Launch) -> std::io::Result<()> {
/// let Some(_turn) = launch.turn()? else { return Ok(()) };
/// println!("this process starts {}", launch.at);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// The size in bytes above which the next start truncates the log.
const LOG: u64 = 1 << 20;

impl Launch {
    /// Works out how to start the daemon for a config.
    ///
    /// # Errors
    /// The reason, as text, when a daemon would not behave the same elsewhere: the config is a project's, or depends on
    /// this folder. Also when HOME, the folder, or a config file cannot be determined.
    pub fn of(config: &Config) -> Result<Self, String> {
        if config.project {
            return Err("a project's config starts no daemon".to_owned());
        }
        let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.ok_or("HOME is not set, and a daemon would run there")?;
        let here = env::current_dir().map_err(|error| format!("the working directory cannot be read: {error}"))?;
        if here != home
            && let Some(server) = config.depends_on(&[&home, &here])
        {
            return Err(format!("server {server:?} has a relative path, and a daemon would run in {}", home.display()));
        }
        let real = |path: &PathBuf| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
        let files: Vec<PathBuf> = config.files.iter().map(real).collect::<Result<_, _>>()?;
        if files.is_empty() {
            return Err("there is no config file".to_owned());
        }
        let project = config.scope().map(Path::to_owned);
        let mut digest = Sha256::new();
        for path in files.iter().chain(&project) {
            digest.update(path.as_os_str().as_bytes());
            digest.update([0]);
        }
        let at = At::of_digest(&digest.finalize());
        let names: Vec<String> = config.names().map(str::to_owned).collect();
        let environment = environment(env::vars_os(), &names, &here, &home);
        Ok(Self { at, files, project, home, environment })
    }

    /// Takes the right to start the daemon; `None` while another process has it.
    ///
    /// # Errors
    /// When the directory of the socket cannot be prepared.
    pub fn turn(&self) -> io::Result<Option<Turn>> {
        let lock = self.open("start")?;
        Ok(keep::try_lock(&lock)?.then_some(Turn { _lock: lock }))
    }

    /// Opens the file for the daemon's standard error.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn log(&self, state: &Path) -> io::Result<(PathBuf, File)> {
        platform::prepare(state)?;
        let path = state.join(format!("{}.log", self.at.word()));
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        if log.metadata()?.len() > LOG {
            log.set_len(0)?;
        }
        Ok((path, log))
    }

    /// Opens a file beside the daemon's socket.
    fn open(&self, extension: &str) -> io::Result<File> {
        let directories = platform::directories_of(&self.at);
        let directory = directories.first().ok_or(io::ErrorKind::NotFound)?;
        platform::prepare(directory)?;
        let path = directory.join(self.at.word()).with_extension(extension);
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }
}

/// Selects the environment variables that a daemon inherits.
fn environment(
    all: impl Iterator<Item = (OsString, OsString)>,
    names: &[String],
    here: &Path,
    home: &Path,
) -> Vec<(OsString, OsString)> {
    let passes = |name: &str| name.starts_with("MCP_HOST_") || is_inherited(name) || inherits(names, name);
    let passing = all.filter(|(name, _)| name.to_str().is_some_and(passes));
    let clean = |(name, value): (OsString, OsString)| match name == "PATH" {
        true => (name, path(&value, here, home)),
        false => (name, value),
    };
    passing.map(clean).collect()
}

/// Removes from a search path the folders that depend on where the starter runs: relative ones, and those below its
/// working directory (`node_modules/.bin`), which belong to a project. If the working directory is the user's home or
/// above it, it is no project, and folders below it are the user's own (`~/.local/bin`).
fn path(value: &OsStr, here: &Path, home: &Path) -> OsString {
    let is_project = !home.starts_with(here);
    let is_fine = |folder: &PathBuf| {
        let has = |name: &str| folder.components().any(|part| part.as_os_str() == name);
        let is_of_project = folder.starts_with(here) && (is_project || has("node_modules"));
        folder.is_absolute() && !has("..") && !is_of_project
    };
    env::join_paths(env::split_paths(value).filter(is_fine)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Syntax, Vars, parse_str};

    #[test]
    fn little_of_the_starter_is_handed_on() {
        let all = [
            ("PATH", "/usr/bin:node_modules/.bin:/u/p/node_modules/.bin:/u/bin::/u/q/../p/x"),
            ("HOME", "/u"),
            ("TOKEN", "named"),
            ("AWS_REGION", "by a glob"),
            ("MCP_HOST_TASKS", "false"),
            ("_MCP_HOST_CHAIN", "marks"),
            ("_MCP_HOST_GUARD", "a mark"),
            ("OTHER", "of the starter"),
            ("NODE_OPTIONS", "--require x"),
        ];
        let all = all.into_iter().map(|(name, value)| (name.into(), value.into()));
        let names = ["TOKEN".to_owned(), "AWS_*".to_owned()];
        let given = environment(all, &names, Path::new("/u/p"), Path::new("/u"));
        let given: Vec<(&str, &str)> =
            given.iter().map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap())).collect();
        assert_eq!(
            given,
            [
                ("PATH", "/usr/bin:/u/bin"),
                ("HOME", "/u"),
                ("TOKEN", "named"),
                ("AWS_REGION", "by a glob"),
                ("MCP_HOST_TASKS", "false"),
            ]
        );
    }

    #[test]
    fn what_is_in_the_users_home_is_no_projects() {
        let given = |here: &str| {
            let value = OsStr::new("/usr/bin:/h/u/.local/bin:/h/u/node_modules/.bin:/h/u/p/bin");
            path(value, Path::new(here), Path::new("/h/u")).into_string().unwrap()
        };
        for here in ["/h/u", "/h", "/"] {
            assert_eq!(given(here), "/usr/bin:/h/u/.local/bin:/h/u/p/bin", "{here}");
        }
        assert_eq!(given("/h/u/p"), "/usr/bin:/h/u/.local/bin:/h/u/node_modules/.bin");
    }

    #[test]
    fn a_project_starts_none() {
        let text = r#"{ "mcpServers": { "a": { "command": "a" } } }"#;
        let mut config = parse_str(text, Syntax::Json, "mcp-host.json", &Vars::default()).unwrap();
        config.project = true;
        assert!(Launch::of(&config).unwrap_err().contains("project"));
    }
}
