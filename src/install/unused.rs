//! Finds and removes trees in the store, and locks beside a config, that are no longer referred to.
//!
//! Beside a tree is a note of the configs for which it was installed ([`note`]). A tree is in use if its digest is
//! named by a config in the folder of one of these, by a lock there, or by an edit that can be undone. [`sweep`]
//! removes the others after an edit, and [`unused`] finds them for `doctor`.
//!
//! **Invariant:** if it is unknown whether something is in use, it stays: a tree without notes, a tree whose configs
//! cannot be read, and anything younger than a day, because another program may be about to write its entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Error;
use super::tree::{FOLDER, PATIENCE, digest_of, place_of};
use crate::config::{Package, PackageKind};
use crate::keep;
use crate::trees::{NEW, Place, Store};

/// The largest text that is searched: the largest config.
const MOST: u64 = 16 * 1024 * 1024;
/// The age in which a tree or a lock is never removed.
const YOUNG: Duration = Duration::from_secs(24 * 60 * 60);
/// The extensions of config files.
const CONFIGS: [&str; 6] = ["json", "jsonc", "json5", "toml", "yaml", "yml"];
const KINDS: [PackageKind; 3] = [PackageKind::Npm, PackageKind::Pypi, PackageKind::Mcpb];

/// The configs for which a tree was installed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Notes {
    configs: BTreeSet<PathBuf>,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many locks.
    pub locks: usize,
    /// How many trees.
    pub trees: usize,
    /// What could not be removed, and why.
    pub failures: Vec<(PathBuf, String)>,
}

/// Whether a tree is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Used,
    Unused,
    /// It is unknown, because a config that may refer to it is not known or cannot be read.
    Untold,
}

/// Records beside the tree of a package that a config uses it.
///
/// # Errors
/// Fails if it cannot be written.
///
/// # Cancel safety
/// A dropped future may still write it.
pub async fn note(config: PathBuf, package: Package) -> Result<(), Error> {
    let spec = package.spec();
    let wrong = |why: String| Error::Store { spec: spec.clone(), why };
    let store = Store::of_user().map_err(|error| wrong(error.to_string()))?;
    let place = place_of(&store, &package)?;
    let noted = keep::done(move || {
        let _held = keep::lock(&store.lock_file(), PATIENCE)?;
        let mut notes = notes(&place);
        notes.configs.insert(std::path::absolute(config)?);
        keep::replace(&place.notes_file(), &serde_json::to_vec(&notes)?)
    });
    noted.await.map_err(|error: io::Error| wrong(format!("its config cannot be noted: {error}")))
}

/// Removes the locks beside a config that are no longer referred to, then such trees of the whole store. `backups` is
/// the folder with the texts that edits can bring back.
///
/// # Cancel safety
/// A dropped future may still remove them.
pub async fn sweep(config: PathBuf, backups: PathBuf) -> Swept {
    keep::done(move || {
        let mut swept = Swept::default();
        let beside = folder_of(&config);
        let store = Store::of_user().ok().filter(|store| store.folder().is_dir());
        if store.is_none() && !beside.join(FOLDER).is_dir() {
            return swept;
        }
        // If they cannot be read, it is unknown what `undo` needs.
        let Ok(undo) = of_backups(&backups) else { return swept };
        if let Ok(named) = of_configs(&beside) {
            let is_used = |digest: &str| named.contains(digest) || undo.contains(digest);
            old_locks(&beside, &is_used, &mut swept);
        }
        if let Some(store) = store {
            old_trees(&store, undo, &mut swept);
        }
        swept
    })
    .await
}

/// Returns the folders of the trees that are not referred to, and of those for which that is unknown. Changes nothing.
///
/// # Cancel safety
/// A dropped future changes nothing.
pub async fn unused(backups: PathBuf) -> Vec<PathBuf> {
    keep::done(move || {
        let (Ok(store), Ok(undo)) = (Store::of_user(), of_backups(&backups)) else { return Vec::new() };
        let mut folders = Folders { undo, known: BTreeMap::new() };
        let all = places(&store).into_iter();
        all.filter(|place| folders.fate(place) != Fate::Used).map(|place| place.folder).collect()
    })
    .await
}

fn old_locks(beside: &Path, is_used: &dyn Fn(&str) -> bool, swept: &mut Swept) {
    for folder in folders_in(&beside.join(FOLDER)) {
        let Some((file, digest)) = lock_in(&folder) else { continue };
        if is_used(&digest) || is_young(&file) {
            continue;
        }
        // The folder stays if the user keeps something else in it.
        match fs::remove_file(&file).and_then(|()| fs::remove_dir(&folder)) {
            Ok(()) => swept.locks += 1,
            Err(error) => swept.failures.push((folder, error.to_string())),
        }
    }
}

fn old_trees(store: &Store, undo: BTreeSet<String>, swept: &mut Swept) {
    let Ok(_held) = keep::lock(&store.lock_file(), PATIENCE) else { return };
    let mut folders = Folders { undo, known: BTreeMap::new() };
    for place in places(store) {
        if folders.fate(&place) != Fate::Unused {
            continue;
        }
        // The folder is renamed first, so that a killed process leaves no half-removed tree.
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let aside = store.folder().join(format!("{NEW}{name}"));
        match fs::rename(&place.folder, &aside).and_then(|()| fs::remove_dir_all(&aside)) {
            Ok(()) => swept.trees += 1,
            Err(error) => swept.failures.push((place.folder, error.to_string())),
        }
    }
    // Folders that killed processes have left.
    let is_left = |folder: &PathBuf| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NEW));
    for folder in folders_in(store.folder()).into_iter().filter(is_left).filter(|folder| !is_young(folder)) {
        if let Err(error) = fs::remove_dir_all(&folder) {
            swept.failures.push((folder, error.to_string()));
        }
    }
}

/// The digests to which the folders of configs refer. Each folder is read once.
struct Folders {
    undo: BTreeSet<String>,
    known: BTreeMap<PathBuf, Option<BTreeSet<String>>>,
}

impl Folders {
    fn fate(&mut self, place: &Place) -> Fate {
        let Ok(record) = place.record() else { return Fate::Untold };
        let notes = notes(place);
        let mut is_told = !notes.configs.is_empty();
        let mut is_used = self.undo.contains(&record.digest);
        for config in &notes.configs {
            match self.of(config) {
                Some(digests) => is_used |= digests.contains(&record.digest),
                None => is_told = false,
            }
        }
        match (is_used || is_young(&place.notes_file()), is_told) {
            (true, _) => Fate::Used,
            (false, true) => Fate::Unused,
            (false, false) => Fate::Untold,
        }
    }

    /// Returns the digests that the folder of a config refers to; `None` if the config is not there, or cannot be read.
    fn of(&mut self, config: &Path) -> Option<&BTreeSet<String>> {
        let read = || {
            let folder = folder_of(config);
            let mut digests = of_configs(&folder).ok()?;
            digests_in(&text(config).ok()?, &mut digests);
            let locks = folders_in(&folder.join(FOLDER)).into_iter().filter_map(|folder| lock_in(&folder));
            digests.extend(locks.map(|(_, digest)| digest));
            Some(digests)
        };
        self.known.entry(config.to_owned()).or_insert_with(read).as_ref()
    }
}

/// Returns the places of all trees in the store.
fn places(store: &Store) -> Vec<Place> {
    let folders = KINDS.iter().flat_map(|kind| folders_in(&store.folder().join(kind.word())));
    folders.map(|folder| Place { folder }).collect()
}

fn notes(place: &Place) -> Notes {
    let text = text(&place.notes_file()).unwrap_or_default();
    // Broken notes count as none, and then the tree stays.
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the lock in a folder, and its digest, if it is ours: the folder is named by the digest.
fn lock_in(folder: &Path) -> Option<(PathBuf, String)> {
    let file =
        ["package-lock.json", "requirements.txt"].map(|name| folder.join(name)).into_iter().find(|it| it.is_file())?;
    let digest = digest_of(&text(&file).ok()?);
    let short = digest.strip_prefix("sha256:")?.get(..16)?;
    folder.file_name()?.to_str()?.ends_with(short).then_some((file, digest))
}

/// Returns the digests that the configs of a folder name.
fn of_configs(folder: &Path) -> io::Result<BTreeSet<String>> {
    let is_config = |path: &Path| path.extension().is_some_and(|end| CONFIGS.iter().any(|known| end == *known));
    of_files(folder, is_config)
}

/// Returns the digests in the texts of edits.
fn of_backups(folder: &Path) -> io::Result<BTreeSet<String>> {
    of_files(folder, |path| path.extension().is_some_and(|end| end == "before" || end == "after"))
}

fn of_files(folder: &Path, is_meant: impl Fn(&Path) -> bool) -> io::Result<BTreeSet<String>> {
    let mut digests = BTreeSet::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(digests),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if is_meant(&path) && path.is_file() {
            digests_in(&text(&path)?, &mut digests);
        }
    }
    Ok(digests)
}

fn digests_in(text: &str, digests: &mut BTreeSet<String>) {
    const MARK: &str = "sha256:";
    for (at, _) in text.match_indices(MARK) {
        let digits = text.get(at + MARK.len()..at + MARK.len() + 64);
        if let Some(digits) = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            digests.insert(format!("{MARK}{digits}"));
        }
    }
}

/// Reads a text. Invalid UTF-8 in it does not matter here.
fn text(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other("it is larger than 16 MiB"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn folder_of(config: &Path) -> PathBuf {
    config.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Reports whether a file was written less than a day ago. A file without a time, or with one in the future, counts as
/// young.
fn is_young(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    match written {
        Ok(written) => SystemTime::now().duration_since(written).map_or(true, |age| age < YOUNG),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
