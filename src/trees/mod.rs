//! Locked trees of packages: where they are stored, whether they are intact, and how a server is started from one.
//!
//! In: the `package` of a server's entry. Out: the program to start in place of the entry's runner. A tree is stored in
//! the user's store, `$XDG_DATA_HOME/mcp-host/store`, in a folder named by the digest of its lock. `tree.json` beside
//! it states its hash and how it is started. `install` creates trees, and `upstream` starts servers from them.
//!
//! **Invariant:** a tree whose hash differs from the recorded one is not started, and neither is the entry's runner in
//! its place. Nothing here runs a program or uses the network. Start with [`program`].

mod hash;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::hash::{Hashes, of as hashes};
use crate::config::{Package, PackageKind, Secret, Stdio};

/// The version of `tree.json`.
const VERSION: u32 = 1;
/// The file beside a tree.
const RECORD: &str = "tree.json";
/// The folder with the tree.
const TREE: &str = "tree";
/// The prefix of folders in which a tree is being created, or from which it is being removed.
pub(crate) const NEW: &str = "new-";
/// The largest `tree.json`.
const MOST: u64 = 64 * 1024;

/// Starts a program of a Python package. The working directory and the system's packages are not on its path. Processes
/// that it starts find the tree by PYTHONPATH.
const PYTHON: &str = "\
import sys
sys.path = [place for place in sys.path if place]
tree, module, names, name = sys.argv[1:5]
sys.argv = [name] + sys.argv[5:]
import site
site.addsitedir(tree)
import importlib
run = importlib.import_module(module)
for part in names.split('.'):
    run = getattr(run, part)
sys.exit(run())
";

/// Why a server is not started from its locked tree. `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The tree is not in the store.
    #[error("the locked tree of {0} is not installed here")]
    Missing(String),
    /// There is no store.
    #[error("there is no folder for locked trees: neither HOME nor XDG_DATA_HOME is set")]
    NoStore,
    /// The files in the store are not those that were installed.
    #[error("the installed tree of {spec} differs from its lock: {why}")]
    Changed {
        /// The package.
        spec: String,
        /// What differs.
        why: String,
    },
    /// The store cannot be read.
    #[error("the installed tree of {spec} cannot be read: {why}")]
    Unread {
        /// The package.
        spec: String,
        /// The cause.
        why: String,
    },
    /// The command of the entry starts something other than its package.
    #[error("its command does not start {0}, the package that `package` names")]
    Other(String),
}

impl Error {
    /// Returns advice on what to do about the error at this entry.
    pub(crate) fn help(&self, entry: &Stdio) -> &'static str {
        let is_bundle = entry.package.as_ref().is_some_and(|package| package.kind == PackageKind::Mcpb);
        match self {
            Self::Missing(_) | Self::Changed { .. } | Self::Unread { .. } if is_bundle => {
                "mcp-host install FILE.mcpb installs it from its bundle"
            }
            Self::Missing(_) | Self::Changed { .. } | Self::Unread { .. } => {
                "mcp-host install --locked installs it from its lock"
            }
            Self::NoStore => "set HOME",
            Self::Other(_) => "mcp-host update writes both anew; or take `package` out of the entry",
        }
    }
}

/// The record of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u32,
    /// The digest of the lock.
    pub(crate) digest: String,
    /// The hash of what the lock determines: equal wherever the same lock is installed for the same system.
    pub(crate) tree: String,
    /// The hash of all files, including those that were created on this machine.
    pub(crate) whole: String,
    /// How its server is started.
    pub(crate) start: Start,
    /// Whether its packages ran their own programs during installation.
    #[serde(default)]
    pub(crate) ran_scripts: bool,
}

/// How a server is started from its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Start {
    /// Node.js runs this script, a path in the tree.
    Node { script: String },
    /// This executable file in the tree is run.
    File { file: String },
    /// The command of the entry is run. Its files are in the tree.
    AsWritten,
    /// Python calls this function of a module.
    Python { interpreter: String, module: String, function: String, name: String },
}

impl Record {
    pub(crate) fn new(digest: String, hashes: Hashes, start: Start) -> Self {
        let Hashes { tree, whole } = hashes;
        Self { version: VERSION, digest, tree, whole, start, ran_scripts: false }
    }
}

/// The user's store of trees.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Returns the store of this user.
    pub(crate) fn of_user() -> Result<Self, Error> {
        // Relative paths are ignored: their content would depend on the owner of the working directory.
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
        data.map(|data| Self { folder: data.join("mcp-host/store") }).ok_or(Error::NoStore)
    }

    #[cfg(test)]
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the folder of all trees.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file that is locked while a tree is added or removed.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join("store.lock")
    }

    /// Returns the path of a package's tree; `None` if the package has no locked tree.
    pub(crate) fn place(&self, package: &Package) -> Option<Place> {
        Some(Place { folder: self.folder.join(package.kind.word()).join(folder_name(package)?) })
    }

    /// Finds a package's tree without checking its files.
    fn find(&self, package: &Package) -> Result<(Place, Record), Error> {
        let spec = package.spec();
        let place = self.place(package).ok_or_else(|| Error::Missing(spec.clone()))?;
        let record = match place.record() {
            Ok(record) => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing(spec)),
            Err(error) => return Err(Error::Unread { spec, why: error.to_string() }),
        };
        if Some(&record.digest) != package.digest.as_ref() {
            return Err(Error::Changed { spec, why: "it was made from another lock".to_owned() });
        }
        Ok((place, record))
    }
}

/// The folder of one tree in the store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Returns the folder with the files.
    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.join(TREE)
    }

    /// Returns the file that describes the tree.
    pub(crate) fn record_file(&self) -> PathBuf {
        self.folder.join(RECORD)
    }

    /// Returns the file that names the configs for which the tree was installed.
    pub(crate) fn notes_file(&self) -> PathBuf {
        self.folder.join("configs.json")
    }

    /// Reads the record of the tree. Blocks.
    pub(crate) fn record(&self) -> io::Result<Record> {
        let text = text(&self.record_file(), MOST)?;
        let record: Record = serde_json::from_str(&text).map_err(io::Error::other)?;
        if record.version != VERSION {
            return Err(io::Error::other(format!("its version is {}", record.version)));
        }
        Ok(record)
    }

    /// Reads the record of the tree, and hashes its files. Returns `None` if they are not the files that were
    /// installed. Blocks.
    pub(crate) fn sound(&self) -> Option<Record> {
        let record = self.record().ok()?;
        let hashes = hashes(&self.tree()).ok()?;
        (hashes.whole == record.whole && hashes.tree == record.tree).then_some(record)
    }
}

/// Reads a text of at most this many bytes. Blocks.
fn text(file: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the folder name for the tree and the lock of a package, which is readable and differs for each lock; `None`
/// if the package has no locked tree.
pub(crate) fn folder_name(package: &Package) -> Option<String> {
    let digits = package.digest.as_deref()?.strip_prefix("sha256:")?;
    let plain = |text: &str| -> String {
        let text = text.trim_start_matches(['@', '.', '-']);
        let letter = |c: char| if c.is_ascii_alphanumeric() || "._+".contains(c) { c } else { '-' };
        text.chars().take(60).map(letter).collect()
    };
    Some(format!("{}-{}-{}", plain(&package.name), plain(&package.version), digits.get(..16)?))
}

/// Reports whether a server is started from a locked tree.
pub(crate) fn is_locked(stdio: &Stdio) -> bool {
    stdio.package.as_ref().is_some_and(|package| package.digest.is_some())
}

/// Checks that the installed tree of a server exists, but not its files. Returns the command that starts the server.
/// Blocks for a moment.
pub(crate) fn look(stdio: &Stdio) -> Result<Stdio, Error> {
    match stdio.package.as_ref().filter(|package| package.digest.is_some()) {
        None => Ok(stdio.clone()),
        Some(package) => {
            let (place, record) = Store::of_user()?.find(package)?;
            started(stdio, package, &place.tree(), &record.start)
        }
    }
}

/// Returns the program to start for a server: its own command, or one from its locked tree after all files of the tree
/// were hashed. Blocks while it reads the tree.
pub(crate) fn program(stdio: &Stdio) -> Result<Stdio, Error> {
    match stdio.package.as_ref().filter(|package| package.digest.is_some()) {
        None => Ok(stdio.clone()),
        Some(package) => of_store(&Store::of_user()?, stdio, package),
    }
}

fn of_store(store: &Store, stdio: &Stdio, package: &Package) -> Result<Stdio, Error> {
    let (place, record) = store.find(package)?;
    let spec = || package.spec();
    let hashes = hashes(&place.tree()).map_err(|error| Error::Unread { spec: spec(), why: error.to_string() })?;
    if hashes.whole != record.whole {
        let why = "its files were changed since it was installed".to_owned();
        return Err(Error::Changed { spec: spec(), why });
    }
    started(stdio, package, &place.tree(), &record.start)
}

/// Returns the program that starts a server from its tree, with the entry's arguments after the package.
fn started(stdio: &Stdio, package: &Package, tree: &Path, start: &Start) -> Result<Stdio, Error> {
    let spec = package.spec();
    if package.kind == PackageKind::Mcpb {
        // The command names files of its own tree.
        let is_of_tree =
            std::iter::once(&stdio.command).chain(&stdio.args).any(|word| Path::new(word).starts_with(tree));
        return match start {
            Start::AsWritten if is_of_tree => Ok(Stdio { package: None, ..stdio.clone() }),
            _ => Err(Error::Other(spec)),
        };
    }
    let at = stdio.args.iter().position(|word| *word == spec).ok_or_else(|| Error::Other(spec.clone()))?;
    let own = stdio.args[at + 1..].to_vec();
    let inside = |path: &str| -> Result<String, Error> {
        let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let why = "the file that starts it is outside the tree".to_owned();
        let whole = tree.join(path).into_os_string().into_string();
        whole.ok().filter(|_| is_inside).ok_or_else(|| Error::Changed { spec: spec.clone(), why })
    };
    let mut ready = Stdio { package: None, ..stdio.clone() };
    match start {
        Start::Node { script } => {
            ready.command = "node".to_owned();
            ready.args = vec![inside(script)?];
        }
        Start::File { file } => {
            ready.command = inside(file)?;
            ready.args = Vec::new();
        }
        Start::AsWritten => return Err(Error::Other(spec)),
        Start::Python { interpreter, module, function, name } => {
            let folder = tree.display().to_string();
            ready.command.clone_from(interpreter);
            ready.args = ["-S", "-B", "-c", PYTHON].map(str::to_owned).to_vec();
            ready.args.extend([folder.clone(), module.clone(), function.clone(), name.clone()]);
            for (variable, value) in [("PYTHONPATH", folder.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")] {
                ready.env.push((variable.to_owned(), Secret::new(value)));
            }
        }
    }
    ready.args.extend(own);
    Ok(ready)
}
