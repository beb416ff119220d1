//! The files from which a config was read (config files, and files that they name), each with a hash of its text; and a
//! watcher with which the host polls whether they have changed.
//!
//! A file may be written in place, replaced by a rename, reached through symlinks that may each be swapped, stored on a
//! remote disk, or not exist yet. Only polling notices all of these changes. A stamp, which is the file's metadata, is
//! trusted only after it has stayed the same for a few polls, because a file may change twice within one tick of its
//! disk's clock.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

/// The hash of a file's content; `None` if it could not be read.
pub(super) type Hash = Option<[u8; 32]>;

/// The files from which a config was read, with a hash of each.
///
/// ```
/// # fn show(config: &mcp_host::Config) {
/// for path in config.contents.paths() {
///     println!("{} was read", path.display());
/// }
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents(Vec<(PathBuf, Hash)>);

impl Contents {
    /// Adds a file whose changes also count as changes of the config.
    pub fn watch(&mut self, path: PathBuf) {
        let hash = hash_now(&path);
        self.add(path, hash);
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }

    /// Returns the files, each with a hash of its content.
    pub(super) fn hashes(&self) -> impl Iterator<Item = (&Path, Hash)> {
        self.0.iter().map(|(path, hash)| (path.as_path(), *hash))
    }

    /// Adds all files of another set.
    fn extend(&mut self, other: &Self) {
        for (path, hash) in other.hashes() {
            self.add(path.to_owned(), hash);
        }
    }

    /// Adds a file with its hash, which replaces an earlier hash of the same file.
    fn add(&mut self, path: PathBuf, hash: Hash) {
        match self.0.iter_mut().find(|(known, _)| *known == path) {
            Some(known) => known.1 = hash,
            None => self.0.push((path, hash)),
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The hash of a short secret reveals the secret.
        f.debug_list().entries(self.paths()).finish()
    }
}

/// Reads files for a config, and remembers their hashes.
#[derive(Debug, Default)]
pub(super) struct Reads {
    contents: RefCell<Contents>,
    /// Names of the environment variables that the text refers to.
    names: RefCell<BTreeSet<String>>,
    /// Whether to open only regular files: reading a pipe may take forever.
    careful: bool,
}

impl Reads {
    /// Returns a reader for files that come from an untrusted party.
    pub(super) fn careful() -> Self {
        Self { careful: true, ..Self::default() }
    }

    /// Returns the text of a file of at most `most` bytes.
    pub(super) fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        let special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let read =
            if special && self.careful { Err(io::Error::other("it is not a regular file")) } else { read(path, most) };
        // A pipe can be read only once, so later polls have nothing to compare.
        if !special {
            self.contents.borrow_mut().add(path.to_owned(), read.as_ref().ok().map(|bytes| hash(bytes)));
        }
        let text =
            String::from_utf8(read?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
        Ok(text)
    }

    /// Adds the files that another reader has read, and the variables that their text refers to.
    pub(super) fn take(&self, other: &Self) {
        self.contents.borrow_mut().extend(&other.contents.borrow());
        self.names.borrow_mut().extend(other.names.borrow().iter().cloned());
    }

    /// Records that the text refers to an environment variable, whether or not that is set.
    pub(super) fn name(&self, name: &str) {
        self.names.borrow_mut().insert(name.to_owned());
    }

    /// Returns the names of the environment variables that the text refers to.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.names.borrow().clone()
    }

    /// Returns the files read so far, with their hashes.
    pub(super) fn contents(&self) -> Contents {
        self.contents.borrow().clone()
    }
}

/// Returns the hash of a file's current content. Opens only regular files: reading a pipe might wait forever.
fn hash_now(path: &Path) -> Hash {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    Some(hash(&read(path, MOST).ok()?))
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(match most >> 20 {
            0 => format!("it is larger than {} KiB", most >> 10),
            size => format!("it is larger than {size} MiB"),
        }));
    }
    Ok(bytes)
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Reports whether other users of this machine may read a file.
#[cfg(unix)]
pub(super) fn others_may_read(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
pub(super) fn others_may_read(_: &Path) -> bool {
    false
}

/// Polls files, and tells whether they differ from the content that was judged last.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    files: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// The hash of the content that the host judged last, that is, loaded or refused as a config.
    judged: Hash,
    now: Hash,
    stamp: Option<Stamp>,
    /// How many polls in a row saw the same stamp.
    same: u8,
}

/// Metadata that nearly always changes when a file does. Within one tick of the clock a file may change but keep its
/// stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
}

/// The largest file that is hashed, in bytes.
const MOST: u64 = 16 * 1024 * 1024;
/// After this many polls a stamp that stays the same is trusted.
const BELIEVED: u8 = 4;

impl Watcher {
    /// Watches these files; the content that was read counts as judged.
    pub(crate) fn new(contents: &Contents) -> Self {
        let mut watcher = Self::default();
        watcher.follow(contents);
        watcher
    }

    /// Switches to another set of files; the content that was read counts as judged.
    pub(crate) fn follow(&mut self, contents: &Contents) {
        let watched = |(path, hash): &(PathBuf, Hash)| Watched {
            path: path.clone(),
            judged: *hash,
            now: *hash,
            stamp: None,
            same: 0,
        };
        self.files = contents.0.iter().map(watched).collect();
    }

    /// Polls every file, and reports whether any has changed since the last poll.
    pub(crate) fn look(&mut self) -> bool {
        // `count` polls all of them, where `any` would stop at the first change.
        let changed = self.files.iter_mut().filter_map(|file| file.look().then_some(()));
        changed.count() > 0
    }

    /// Reports whether a file differs from the content that was judged last.
    pub(crate) fn differs(&self) -> bool {
        self.files.iter().any(|file| file.now != file.judged)
    }

    /// Marks the current content as judged, whether it was accepted or refused.
    pub(crate) fn judge(&mut self) {
        for file in &mut self.files {
            file.judged = file.now;
        }
    }
}

impl Watched {
    fn look(&mut self) -> bool {
        let stamp = std::fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        self.same = if stamp == self.stamp { self.same.saturating_add(1) } else { 0 };
        self.stamp = stamp;
        if self.same > BELIEVED {
            return false;
        }
        let now = hash_now(&self.path);
        std::mem::replace(&mut self.now, now) != now
    }
}

impl Stamp {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            place: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        Self { place: (0, 0), length: metadata.len(), modified: metadata.modified().ok(), changed: (0, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h91_a_change_is_seen_whatever_the_clock_of_the_disk_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        std::fs::write(&file, "one").unwrap();
        let mut contents = Contents::default();
        contents.watch(file.clone());
        let mut watcher = Watcher::new(&contents);
        assert!(!watcher.look() && !watcher.differs());
        let before = std::fs::metadata(&file).unwrap().modified().unwrap();
        // The same length, written in place, with the time set back.
        std::fs::write(&file, "two").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        assert!(watcher.look() && watcher.differs());
        watcher.judge();
        assert!(!watcher.look() && !watcher.differs());
        std::fs::write(&file, "six").unwrap();
        assert!(watcher.look());
        std::fs::write(&file, "two").unwrap();
        assert!(watcher.look() && !watcher.differs(), "there and back is no change");
        std::fs::remove_file(&file).unwrap();
        assert!(watcher.look() && watcher.differs());
    }

    #[test]
    fn h91_what_changed_before_the_first_look_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        let mut contents = Contents::default();
        contents.watch(file.clone());
        std::fs::write(&file, "now it is there").unwrap();
        let mut watcher = Watcher::new(&contents);
        assert!(watcher.look() && watcher.differs());
    }

    #[test]
    fn a_quiet_file_is_not_read_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        std::fs::write(&file, "one").unwrap();
        let mut contents = Contents::default();
        contents.watch(file.clone());
        let mut watcher = Watcher::new(&contents);
        for _ in 0..=BELIEVED + 1 {
            assert!(!watcher.look());
        }
        assert!(watcher.files[0].same > BELIEVED, "it is known by its stamp from here on");
        std::fs::write(&file, "two").unwrap();
        assert!(watcher.look());
    }
}
