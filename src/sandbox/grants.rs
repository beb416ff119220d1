//! Decides what a confined server may read and write: the table of its level, for one command on this machine.
//!
//! A path that follows from the command (its tree, `cwd`, `args`) is granted only if it is not HOME or above it, and
//! contains no keys. A path that the entry lists is granted unconditionally. **Invariant:** every path here is free of
//! links, so that the launcher opens exactly what was judged.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::places::{Own, Places};
use super::programs::Programs;
use crate::config::{Sandbox, SandboxHome, SandboxLevel, Stdio};
use crate::sandbox::Error;

/// What every program may read. On macOS the profile lists more (`macos/base.sb`).
const SYSTEM: [&str; 17] = [
    "/bin",
    "/etc",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/proc",
    "/run/current-system",
    "/sbin",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/usr",
    "/var/lib/ca-certificates",
];
/// System files that are often links to other folders.
const LINKED: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt"];
/// Devices that hold no data.
const DEVICES: [&str; 6] = ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];
/// Variables that name files of certificate authorities.
const AUTHORITIES: [&str; 12] = [
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// What one server may read and write.
#[derive(Debug, Default)]
pub(super) struct Grants {
    pub(super) read: BTreeSet<PathBuf>,
    pub(super) write: BTreeSet<PathBuf>,
    /// Folders named in arguments.
    folders: BTreeSet<PathBuf>,
    /// Links from the server's own HOME to listed paths in the user's HOME.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Whether an argument is a path relative to the working directory.
    pub(super) is_relative: bool,
    /// Paths as they were named, whose links lead to granted paths.
    pub(super) named: BTreeSet<PathBuf>,
}

impl Grants {
    /// Returns the grants of a command whose program is `file`, if there is one.
    pub(super) fn of(
        stdio: &Stdio,
        sandbox: &Sandbox,
        places: &Places,
        own: &Own,
        file: Option<&Path>,
    ) -> Result<Self, Error> {
        let mut grants = Self::default();
        grants.system(stdio, places, own);
        grants.write.extend([&own.home, &own.tmp, &own.cache].map(PathBuf::clone));
        let is_strict = sandbox.level == SandboxLevel::Strict;
        let cwd = stdio.cwd.as_deref().or(sandbox.folder());
        let base = cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let path = variable(stdio, "PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let mut programs = Programs::new(places, OsStr::new(&path), &base);
        if let Some(file) = file {
            programs.add(file);
        }
        if let Some(cwd) = cwd.and_then(|cwd| cwd.canonicalize().ok()).filter(|cwd| places.may_grant(cwd))
            && !is_strict
        {
            grants.write.insert(cwd);
        }
        for argument in &stdio.args {
            grants.argument(argument, &base, places, &mut programs);
        }
        if is_strict {
            // A folder that the entry names as an argument is readable; folders to write have to be listed.
            let folders = std::mem::take(&mut grants.folders);
            grants.read.extend(folders);
        }
        grants.write.append(&mut grants.folders);
        let (found, named) = programs.found();
        grants.read.extend(found);
        grants.named.extend(named);
        grants.listed("read", &sandbox.read, places)?;
        grants.listed("write", &sandbox.write, places)?;
        if sandbox.home == SandboxHome::Own {
            grants.link(sandbox, places, own);
        }
        grants.shorten();
        Ok(grants)
    }

    fn system(&mut self, stdio: &Stdio, places: &Places, own: &Own) {
        let holds_ours =
            |path: &Path| places.home.iter().any(|home| home.starts_with(path)) || own.home.starts_with(path);
        self.named.extend(SYSTEM.iter().chain(&LINKED).map(PathBuf::from));
        for path in SYSTEM.iter().chain(&LINKED).filter_map(|path| Path::new(path).canonicalize().ok()) {
            // Software may be inside HOME or our state directory; then only its own tree is granted.
            if !(path == Path::new("/opt") && holds_ours(&path)) {
                self.read.insert(path);
            }
        }
        self.write.extend(DEVICES.iter().map(PathBuf::from).filter(|path| path.exists()));
        let named = AUTHORITIES.iter().filter_map(|name| variable(stdio, name));
        let files = named.filter_map(|path| Path::new(&path).canonicalize().ok());
        self.read.extend(files.filter(|path| places.may_grant(path)));
    }

    /// Grants what an argument names: a folder for writing, a file for reading. `--option=PATH` grants PATH likewise.
    fn argument(&mut self, argument: &str, base: &Path, places: &Places, programs: &mut Programs<'_>) {
        let text = argument.split_once('=').filter(|_| argument.starts_with('-')).map_or(argument, |(_, value)| value);
        if text.is_empty() || text.starts_with('-') {
            return;
        }
        let named = base.join(text);
        // A word may be the name of a folder by coincidence.
        let is_path = text.contains('/') || text == "." || named.is_file();
        let Some(path) = named.canonicalize().ok().filter(|_| is_path) else { return };
        self.is_relative |= Path::new(text).is_relative();
        if !places.may_grant(&path) {
            return;
        }
        self.named.insert(named);
        if path.is_dir() {
            self.folders.insert(path);
        } else if path.is_file() {
            programs.add_script(&path);
            self.read.insert(path);
        }
    }

    /// Grants what the entry lists.
    fn listed(&mut self, key: &'static str, paths: &[PathBuf], places: &Places) -> Result<(), Error> {
        for path in paths {
            let meant = places.meant(path);
            let Ok(whole) = meant.canonicalize() else {
                let why = "does not exist, or cannot be reached; create it, or take it out of the list";
                return Err(Error::Path { key, path: meant.display().to_string(), why });
            };
            if whole.to_str().is_none() {
                return Err(Error::Path { key, path: whole.display().to_string(), why: "is not UTF-8; rename it" });
            }
            self.named.insert(meant);
            if key == "write" {
                self.write.insert(whole)
            } else {
                self.read.insert(whole)
            };
        }
        Ok(())
    }

    /// Makes listed paths of the user's HOME visible in the server's own HOME.
    fn link(&mut self, sandbox: &Sandbox, places: &Places, own: &Own) {
        let Some(home) = &places.named_home else { return };
        for path in sandbox.read.iter().chain(&sandbox.write) {
            let meant = places.meant(path);
            if let Ok(rest) = meant.strip_prefix(home)
                && rest.components().next().is_some()
            {
                self.links.push((own.home.join(rest), meant.clone()));
            }
        }
    }

    /// Returns the working directory; `None` means the one that mcp-host starts the process in.
    pub(super) fn cwd(&self, stdio: &Stdio, sandbox: &Sandbox, own: &Own) -> Option<PathBuf> {
        let own_cwd = stdio.cwd.as_deref().or(sandbox.folder());
        if sandbox.level != SandboxLevel::Strict {
            // A server that names no file relative to mcp-host's working directory has no business there.
            return (own_cwd.is_none() && !self.is_relative).then(|| own.home.clone());
        }
        let granted = |folder: &Path| self.read.iter().chain(&self.write).any(|path| folder.starts_with(path));
        let base = own_cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok());
        let base = base.and_then(|base| base.canonicalize().ok());
        // The base of a relative argument exists inside, even if only the path to the argument's file is visible in it.
        let base = base.filter(|base| self.is_relative || own_cwd.is_some() && granted(base));
        Some(base.unwrap_or_else(|| own.home.clone()))
    }

    /// Removes paths that another path already covers, and paths whose name a plan cannot hold.
    fn shorten(&mut self) {
        let is_covered = |path: &Path, by: &BTreeSet<PathBuf>, from: usize| {
            path.ancestors().skip(from).any(|above| by.contains(above))
        };
        let (reads, writes) = (self.read.clone(), self.write.clone());
        self.read
            .retain(|path| path.to_str().is_some() && !is_covered(path, &reads, 1) && !is_covered(path, &writes, 0));
        self.write.retain(|path| path.to_str().is_some() && !is_covered(path, &writes, 1));
    }
}

/// Returns the value that a variable will have for the server.
pub(super) fn variable(stdio: &Stdio, name: &str) -> Option<String> {
    let own = stdio.env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.expose().to_owned());
    own.or_else(|| std::env::var(name).ok())
}

/// Returns the file that the command means, as a whole path.
pub(super) fn program(stdio: &Stdio, places: &Places) -> Option<PathBuf> {
    let base = stdio.cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let path = variable(stdio, "PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let file = Programs::new(places, path.as_ref(), &base).find(&stdio.command)?;
    std::path::absolute(file).ok()
}
