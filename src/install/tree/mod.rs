//! Creates locked trees: asks npm, uv or pip what a package needs, stores that as a lock, and installs exactly what a
//! lock states into the store of `trees`.
//!
//! In: a package with its exact version. Out: a [`Lock`], whose digest goes into the config's entry, and the tree.
//! `npm.rs` and `pypi.rs` know the two package managers, `tool.rs` runs them.
//!
//! **Invariant:** a lock is checked before a tool gets it: it names each package with its hash, and nothing else.
//! Install scripts and source builds run only if the user allows it. A tree is complete before it is moved to its final
//! path. Start with [`Maker::find`].

mod npm;
mod pypi;
mod tool;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Error;
use crate::config::{Package, PackageKind};
use crate::hex;
use crate::keep;
use crate::trees::{self, Place, Record, Start, Store};

/// The folder with the locks, beside the config.
pub(super) const FOLDER: &str = "mcp-host.packages";
/// The largest lock.
const MOST: u64 = 16 * 1024 * 1024;
/// How long to wait for another program that is adding a tree to the store.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Whether packages may run their own programs during installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripts {
    /// No install scripts and no builds from source.
    Refused,
    /// Install scripts and builds from source.
    Run,
}

/// The tool that creates trees for a kind of package on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maker {
    /// npm.
    Npm,
    /// uv, for this interpreter.
    Uv {
        /// The interpreter.
        python: String,
    },
    /// The pip of this interpreter.
    Pip {
        /// The interpreter.
        python: String,
    },
}

/// The packages of a tree, each with its hash: `package-lock.json`, or `requirements.txt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    text: String,
}

/// A tree in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The hash of the tree, which is equal wherever the same lock is installed for the same system.
    pub tree: String,
    /// Whether the tree existed before.
    pub was_there: bool,
}

impl Lock {
    /// Returns the digest of the lock, as in the config's entry.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_of(&self.text)
    }

    /// Returns the file of a package's lock beside a config; `None` if the package has no digest.
    #[must_use]
    pub fn file(config: &Path, package: &Package) -> Option<PathBuf> {
        let name = match package.kind {
            PackageKind::Npm => "package-lock.json",
            PackageKind::Pypi => "requirements.txt",
            PackageKind::Oci | PackageKind::Nuget | PackageKind::Mcpb => return None,
        };
        let beside = config.parent().unwrap_or(Path::new("."));
        Some(beside.join(FOLDER).join(trees::folder_name(package)?).join(name))
    }

    /// Reads the lock of a package beside a config. It must have the digest that the entry names.
    ///
    /// # Errors
    /// Fails if there is no lock, or it has another digest.
    ///
    /// # Cancel safety
    /// A dropped future changes nothing.
    pub async fn read(config: PathBuf, package: Package) -> Result<Self, Error> {
        let spec = package.spec();
        let wrong = |why: String| Error::Lock { spec: spec.clone(), why };
        let Some(file) = Self::file(&config, &package) else {
            return Err(wrong(format!("packages of {} have none", package.kind.word())));
        };
        let read = keep::done({
            let file = file.clone();
            move || match fs::metadata(&file)? {
                metadata if metadata.is_file() && metadata.len() <= MOST => fs::read_to_string(&file),
                _ => Err(std::io::Error::other("it is no file, or larger than 16 MiB")),
            }
        });
        let text = read.await.map_err(|error| wrong(format!("{} cannot be read: {error}", file.display())))?;
        let lock = Self { text };
        if Some(lock.digest()) != package.digest {
            return Err(wrong(format!("{} is not the one that the entry names", file.display())));
        }
        Ok(lock)
    }

    /// Writes the lock beside a config.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    ///
    /// # Cancel safety
    /// A dropped future may still write it.
    pub async fn write(&self, config: &Path, package: &Package) -> Result<(), Error> {
        let (text, spec) = (self.text.clone(), package.spec());
        let Some(file) = Self::file(config, package) else { return Ok(()) };
        let written = keep::done(move || {
            let folder = file.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            // The file is named by its hash, so an existing file has the same text, or an incomplete one.
            fs::write(&file, text)
        });
        written.await.map_err(|error| Error::Lock { spec, why: format!("it cannot be written: {error}") })
    }
}

impl Maker {
    /// Finds the tool for this kind of package. Returns `None` if there is none, or if such packages have no locked
    /// trees.
    ///
    /// # Cancel safety
    /// A dropped future ends the tool that was started.
    pub async fn find(kind: PackageKind) -> Option<Self> {
        match kind {
            PackageKind::Npm => tool::answers("npm", &["--version"]).await.map(|_| Self::Npm),
            PackageKind::Pypi => pypi::maker().await,
            PackageKind::Oci | PackageKind::Nuget | PackageKind::Mcpb => None,
        }
    }

    /// Returns the command that installs a tree, to show to people.
    #[must_use]
    pub fn shown(&self, scripts: Scripts) -> &'static str {
        match (self, scripts) {
            (Self::Npm, Scripts::Refused) => "npm ci --ignore-scripts",
            (Self::Npm, Scripts::Run) => "npm ci, with install scripts",
            (Self::Uv { .. }, Scripts::Refused) => "uv pip install --require-hashes, wheels only",
            (Self::Uv { .. }, Scripts::Run) => "uv pip install --require-hashes, with source builds",
            (Self::Pip { .. }, Scripts::Refused) => "pip install --require-hashes, wheels only",
            (Self::Pip { .. }, Scripts::Run) => "pip install --require-hashes, with source builds",
        }
    }

    /// Asks the tool what a package needs.
    ///
    /// # Errors
    /// Fails if the tool fails, or the package needs something that has no hash.
    ///
    /// # Cancel safety
    /// A dropped future ends the tool, and may leave a folder in the store.
    pub async fn lock(&self, package: &Package, scripts: Scripts) -> Result<Lock, Error> {
        let store = store(package)?;
        let work = Work::new(&store, package).await?;
        let text = match self {
            Self::Npm => npm::lock(&work.tree, package).await?,
            Self::Uv { python } => pypi::lock_by_uv(&work.tree, package, python, scripts).await?,
            Self::Pip { python } => pypi::lock_by_pip(&work.tree, package, python, scripts).await?,
        };
        check(&text, package)?;
        Ok(Lock { text })
    }

    /// Installs what a lock states, unless it is already installed.
    ///
    /// # Errors
    /// Fails if the lock belongs to another package, the tool fails, or the package has no program.
    ///
    /// # Cancel safety
    /// A dropped future ends the tool, and may leave a folder in the store.
    pub async fn install(&self, package: &Package, lock: &Lock, scripts: Scripts) -> Result<Installed, Error> {
        check(&lock.text, package)?;
        let store = store(package)?;
        let package = Package { digest: Some(lock.digest()), ..package.clone() };
        let wrong = |why: String| Error::Store { spec: package.spec(), why };
        let place = place_of(&store, &package)?;
        let there = place.clone();
        if let Some(record) = keep::done(move || there.sound()).await.filter(|record| suits(record, scripts)) {
            return Ok(Installed { tree: record.tree, was_there: true });
        }
        let work = Work::new(&store, &package).await?;
        let start = match self {
            Self::Npm => npm::install(&work.tree, &package, &lock.text, scripts).await?,
            Self::Uv { python } | Self::Pip { python } => {
                let is_uv = matches!(self, Self::Uv { .. });
                pypi::install(&work.tree, &package, &lock.text, python, pypi::How { is_uv, scripts }).await?
            }
        };
        let made = Made { digest: lock.digest(), start, scripts };
        let placed = keep::done(move || put(&store, &work, &place, made)).await;
        placed.map(|tree| Installed { tree, was_there: false }).map_err(|error| wrong(error.to_string()))
    }
}

/// Returns the digest of a lock's text.
pub(super) fn digest_of(text: &str) -> String {
    format!("sha256:{}", hex::encode(&Sha256::digest(text)))
}

/// Returns the path of the tree of a package that has a digest.
pub(super) fn place_of(store: &Store, package: &Package) -> Result<Place, Error> {
    let wrong = || Error::Store { spec: package.spec(), why: "its lock has no hash".to_owned() };
    store.place(package).ok_or_else(wrong)
}

fn store(package: &Package) -> Result<Store, Error> {
    Store::of_user().map_err(|error| Error::Store { spec: package.spec(), why: error.to_string() })
}

/// Refuses a lock that is not for this package alone, or that lacks hashes.
fn check(lock: &str, package: &Package) -> Result<(), Error> {
    let checked = match package.kind {
        PackageKind::Npm => npm::check(lock, package),
        PackageKind::Pypi => pypi::check(lock, package),
        PackageKind::Oci | PackageKind::Nuget | PackageKind::Mcpb => Err("such packages have none".to_owned()),
    };
    checked.map_err(|why| Error::Lock { spec: package.spec(), why })
}

/// A folder in which a tree is created. It is removed unless it becomes a tree of the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Work {
    folder: PathBuf,
    pub(super) tree: PathBuf,
}

impl Work {
    pub(super) async fn new(store: &Store, package: &Package) -> Result<Self, Error> {
        let (root, spec) = (store.folder().to_owned(), package.spec());
        let made = keep::done(move || {
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(std::io::Error::other)?;
            let folder = root.join(format!("{}{}", trees::NEW, hex::encode(&random)));
            let tree = folder.join("tree");
            keep::make_folder(&tree)?;
            Ok(Self { folder, tree })
        });
        made.await.map_err(|error: std::io::Error| Error::Store { spec, why: error.to_string() })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What is recorded about a tree besides its files.
pub(super) struct Made {
    /// The digest of the lock.
    pub(super) digest: String,
    pub(super) start: Start,
    pub(super) scripts: Scripts,
}

/// Reports whether an existing tree can be used. A tree made without scripts lacks the files that they would create.
fn suits(record: &Record, scripts: Scripts) -> bool {
    record.ran_scripts || scripts == Scripts::Refused
}

/// Writes the record of a tree, and moves the tree to its final path. Returns its hash. Blocks.
pub(super) fn put(store: &Store, work: &Work, place: &Place, made: Made) -> std::io::Result<String> {
    let hashes = trees::hashes(&work.tree)?;
    let tree = hashes.tree.clone();
    let mut record = Record::new(made.digest, hashes, made.start);
    record.ran_scripts = made.scripts == Scripts::Run;
    fs::write(work.folder.join("tree.json"), serde_json::to_string_pretty(&record)?)?;
    let _held = keep::lock(&store.lock_file(), PATIENCE)?;
    keep::make_folder(place.folder.parent().unwrap_or(store.folder()))?;
    if place.folder.exists() {
        if place.sound().is_some_and(|record| suits(&record, made.scripts)) {
            // Another program has created the tree meanwhile.
            return Ok(tree);
        }
        // Keeps the notes on which configs use the tree.
        match fs::copy(place.notes_file(), Place { folder: work.folder.clone() }.notes_file()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(&place.folder)?;
    }
    fs::rename(&work.folder, &place.folder)?;
    Ok(tree)
}
