//! A small file of state that hosts of one user share: read whole, changed under a lock, written whole or not at all
//! (`docs/hazards.md` H94).
//!
//! **Invariant:** what cannot be understood, since it is broken or of a newer version, is never written over; and a
//! process that is killed at any moment leaves the file as it was before or after its change.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One file of state.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    path: PathBuf,
    version: u32,
}

/// Why state could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is there and cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is broken, or another version wrote it.
    #[error("{} is not of this version of mcp-host, or broken; it is left as it is", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
    },
    /// It could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Stored<T> {
    version: u32,
    #[serde(flatten)]
    state: T,
}

/// How long another process may hold the lock; it does for some milliseconds, unless it is stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(5);

impl Keep {
    pub(crate) fn new(path: PathBuf, version: u32) -> Self {
        Self { path, version }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; the default where there is no file.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
        };
        let stored = serde_json::from_slice::<Stored<T>>(&bytes).ok().filter(|stored| stored.version == self.version);
        stored.map(|stored| stored.state).ok_or_else(|| Error::Strange { path: self.path.clone() })
    }

    /// Changes what it holds, and gives back what it holds then.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut T)) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let wrong = |source| Error::Write { path: self.path.clone(), source };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        make_folder(folder).map_err(wrong)?;
        let _lock = lock(&self.path.with_extension("lock"), PATIENCE).map_err(wrong)?;
        let mut state = self.read()?;
        change(&mut state);
        let stored = Stored { version: self.version, state };
        let bytes = serde_json::to_vec(&stored).map_err(|error| wrong(error.into()))?;
        replace(&self.path, &bytes).map_err(wrong)?;
        Ok(stored.state)
    }
}

/// Writes a file whole. The caller holds its lock.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // One name for all, since there is one writer: what a killed one left is written over.
    let beside = folder.join(format!(".{name}.new"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    private(&mut options);
    let mut file = options.open(&beside)?;
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The new name is as durable as the new text; not every disk can say so.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Takes the lock of that path; it goes with the file that is given back, however the process ends.
#[cfg(unix)]
pub(crate) fn lock(path: &Path, patience: Duration) -> io::Result<File> {
    use rustix::fs::{FlockOperation, flock};

    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    private(&mut options);
    let file = options.open(path)?;
    let end = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::park_timeout(AGAIN),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another mcp-host holds its lock"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Elsewhere two that write at once may lose one of two changes, but never the file.
#[cfg(not(unix))]
pub(crate) fn lock(_: &Path, patience: Duration) -> io::Result<()> {
    let _ = (patience, AGAIN, Instant::now());
    Ok(())
}

/// Makes a folder for its user alone, with those above it.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Takes the lock of an open file if nobody has it, without waiting; it goes with the file.
#[cfg(unix)]
pub(crate) fn try_lock(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Elsewhere no lock can be had.
#[cfg(not(unix))]
pub(crate) fn try_lock(_: &File) -> bool {
    false
}

/// State is for its user alone.
pub(crate) fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Words {
        words: BTreeSet<String>,
    }

    fn add(keep: &Keep, word: &str) -> Result<Words, Error> {
        keep.update(|state: &mut Words| {
            state.words.insert(word.to_owned());
        })
    }

    fn keep(folder: &Path) -> Keep {
        Keep::new(folder.join("state/words.json"), 1)
    }

    #[test]
    fn h94_two_that_write_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let keep = keep(folder.path());
                scope.spawn(move || {
                    for word in 0..10 {
                        add(&keep, &format!("{writer}-{word}")).unwrap();
                    }
                });
            }
        });
        assert_eq!(keep(folder.path()).read::<Words>().unwrap().words.len(), 40);
    }

    #[test]
    fn h94_what_is_not_understood_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let keep = keep(folder.path());
        add(&keep, "a").unwrap();
        for text in [r#"{"version":2,"words":[]}"#, "{", r#"{"version":1,"words":7}"#] {
            fs::write(keep.path(), text).unwrap();
            assert!(matches!(keep.read::<Words>(), Err(Error::Strange { .. })));
            assert!(matches!(keep.update(|_: &mut Words| ()), Err(Error::Strange { .. })));
            assert_eq!(fs::read_to_string(keep.path()).unwrap(), text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn h94_a_file_keeps_its_mode_and_what_a_killed_writer_left_does_no_harm() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let keep = keep(folder.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        add(&keep, "a").unwrap();
        assert_eq!((mode(keep.path()), mode(keep.path().parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(keep.path().with_file_name(".words.json.new"), "half of i").unwrap();
        fs::write(keep.path().with_extension("lock"), "").unwrap();
        let state = add(&keep, "b").unwrap();
        assert_eq!((state.words.len(), mode(keep.path())), (2, 0o640));
    }
}
