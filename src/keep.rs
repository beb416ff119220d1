//! A small state file that all mcp-host processes of one user share. It is read whole, changed under a file lock, and
//! written whole or not at all (`docs/hazards.md` H94). Only this source file takes file locks and flushes to disk.
//!
//! **Invariant:** a file that cannot be understood, because it is broken or from another version, is never overwritten.
//! If a process is killed at any moment, the file is as it was before the change or after it. Work that may wait for
//! another process or for a disk is passed to [`aside`], which runs it on a thread that may block. A debug build panics if
//! such work runs on a thread of the async runtime.

use std::cell::Cell;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// One state file.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    path: PathBuf,
    version: u32,
}

/// Stands for what a file holds: equal content has equal marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Why state could not be read or kept.
///
/// ```no_run
/// use mcp_host::approvals::{Approvals, Error};
///
/// let approvals = Approvals::of("/var/lib/my-agent".as_ref());
/// if let Err(error @ Error::Read { .. }) = approvals.before("mcp.json".as_ref(), "files") {
///     println!("{error}");
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file exists and cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is broken, or another version of mcp-host wrote it.
    #[error("{} is not of this version of mcp-host, or broken; it is left as it is", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored<T> {
    version: u32,
    #[serde(flatten)]
    state: T,
}

/// How long to wait for another process that holds the lock. It holds the lock for a few milliseconds, unless it is
/// suspended.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(5);

impl Keep {
    pub(crate) fn new(path: PathBuf, version: u32) -> Self {
        Self { path, version }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the state. Returns the default if there is no file.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, Error> {
        self.read_marked().map(|(state, _)| state)
    }

    /// Returns the mark of the file's content, even if that cannot be understood. It reads the file, and costs a
    /// fraction of [`Keep::read`].
    pub(crate) fn mark(&self) -> Mark {
        Mark::of(&fs::read(&self.path).unwrap_or_default())
    }

    /// Reads the state and the mark of the file.
    pub(crate) fn read_marked<T: DeserializeOwned + Default>(&self) -> Result<(T, Mark), Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((T::default(), Mark::of(&[]))),
            Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
        };
        let stored = serde_json::from_slice::<Stored<T>>(&bytes).ok().filter(|stored| stored.version == self.version);
        let state = stored.map(|stored| stored.state).ok_or_else(|| Error::Strange { path: self.path.clone() })?;
        Ok((state, Mark::of(&bytes)))
    }

    /// Changes the state and writes the file. Blocks.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut T)) -> Result<(), Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        self.revise(|state: &mut T| (change(state), true))
    }

    /// Lets `work` read and change the state. The `bool` that `work` returns says whether to write the file. Blocks.
    pub(crate) fn revise<T, R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> Result<R, Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        self.revise_marked(work).map(|(result, _)| result)
    }

    /// Does what [`Keep::revise`] does, and returns the mark of what the file holds then. Blocks.
    pub(crate) fn revise_marked<T, R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> Result<(R, Mark), Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let wrong = |source| Error::Write { path: self.path.clone(), source };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        make_folder(folder).map_err(wrong)?;
        let _held = lock(&self.path.with_extension("lock"), PATIENCE).map_err(wrong)?;
        let (mut state, mut mark) = self.read_marked()?;
        let (result, is_changed) = work(&mut state);
        if is_changed {
            let bytes = serde_json::to_vec(&Stored { version: self.version, state });
            let bytes = bytes.map_err(|error| wrong(error.into()))?;
            replace(&self.path, &bytes).map_err(wrong)?;
            mark = Mark::of(&bytes);
        }
        Ok((result, mark))
    }
}

/// Writes changes to a state file in the background, in order, on one blocking thread at a time.
pub(crate) struct Behind<T> {
    keep: Keep,
    waiting: Mutex<Waiting<T>>,
    tasks: TaskTracker,
}

type Change<T> = Box<dyn FnOnce(&mut T) + Send>;

struct Waiting<T> {
    changes: Vec<Change<T>>,
    /// Whether a writer is running. It looks for more changes before it ends.
    is_written: bool,
}

impl<T> fmt::Debug for Behind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behind").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned + Default + 'static> Behind<T> {
    pub(crate) fn new(keep: Keep) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { changes: Vec::new(), is_written: false });
        Arc::new(Self { keep, waiting, tasks: TaskTracker::new() })
    }

    /// Queues a change. Outside of an async runtime, writes it at once.
    pub(crate) fn push(self: &Arc<Self>, change: impl FnOnce(&mut T) + Send + 'static) {
        {
            let mut waiting = self.waiting();
            waiting.changes.push(Box::new(change));
            if std::mem::replace(&mut waiting.is_written, true) {
                return;
            }
        }
        let behind = self.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(self.tasks.spawn_blocking_on(move || blocking(|| behind.write()), &runtime)),
            Err(_) => behind.write(),
        }
    }

    /// Waits until all changes are on disk.
    pub(crate) async fn written(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn write(&self) {
        loop {
            let changes = {
                let mut waiting = self.waiting();
                waiting.is_written = !waiting.changes.is_empty();
                std::mem::take(&mut waiting.changes)
            };
            if changes.is_empty() {
                return;
            }
            let written = self.keep.update(|state: &mut T| changes.into_iter().for_each(|change| change(state)));
            if let Err(error) = written {
                tracing::warn!("{error}");
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        crate::lock::lock(&self.waiting)
    }
}

thread_local! {
    /// Whether this thread may block now.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs work that may wait for a disk or another process on a thread that may block.
pub(crate) fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // Boxed: the runtime's code for a task is compiled once for each type of work.
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(|| blocking(work))
}

/// Like [`aside`], and waits for the result.
pub(crate) async fn done<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match aside(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this future with it.
            Err(_) => std::future::pending().await,
        },
    }
}

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            ASIDE.set(self.0);
        }
    }
    let _back = Back(ASIDE.replace(true));
    work()
}

fn may_block() {
    debug_assert!(ASIDE.get() || Handle::try_current().is_err(), "a runtime's thread would wait: go `keep::aside`");
}

/// Replaces a whole file. The caller holds the file's lock. Blocks.
#[expect(clippy::disallowed_methods, reason = "it is checked that the thread may wait for the disk")]
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    may_block();
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The temporary file has one fixed name, since the lock allows only one writer. So what a killed writer left is
    // removed.
    let beside = folder.join(format!(".{name}.new"));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    let mut file = match options.open(&beside) {
        // A link of that name would redirect the write, so an existing file is never opened.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&beside)?;
            options.open(&beside)?
        }
        opened => opened?,
    };
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // Syncing the folder makes the new name as durable as the new content; not every file system supports that.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Waits until everything written to `file` is on the disk. Blocks.
#[expect(clippy::disallowed_methods, reason = "it is checked that the thread may wait for the disk")]
pub(crate) fn settle(file: &File) -> io::Result<()> {
    may_block();
    file.sync_data()
}

/// A held file lock. Dropping this releases the lock, and so does the end of the process.
#[derive(Debug)]
pub(crate) struct Held(#[cfg_attr(not(unix), allow(dead_code, reason = "there are no locks"))] Option<File>);

/// Locks the file at `path`, and creates it if it is missing. Waits at most `patience`. Blocks.
pub(crate) fn lock(path: &Path, patience: Duration) -> io::Result<Held> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    private(&mut options);
    hold(options.open(path)?, patience)
}

/// Locks an open file. Waits at most `patience`. Blocks.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it is checked that the thread may wait, and there is no news of a lock")]
pub(crate) fn hold(file: File, patience: Duration) -> io::Result<Held> {
    use rustix::fs::{FlockOperation, flock};

    may_block();
    let end = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Held(Some(file))),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(AGAIN),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another program has locked the file"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Locks nothing: other systems have no locks. One of two concurrent changes may be lost, but the file never breaks.
#[cfg(not(unix))]
pub(crate) fn hold(_: File, patience: Duration) -> io::Result<Held> {
    may_block();
    let _ = (patience, AGAIN, Instant::now());
    Ok(Held(None))
}

#[cfg(unix)]
impl Drop for Held {
    #[expect(clippy::disallowed_methods, reason = "releasing a lock does not wait")]
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // This is explicit, since the audit keeps the file open under another handle, which would keep the lock.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

/// Creates a folder and its missing parents, accessible only to this user.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Locks an open file without waiting. Returns false if another process holds the lock. Closing the file releases the
/// lock.
///
/// # Errors
/// If the file cannot be locked.
#[cfg(unix)]
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    tried(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
}

/// Reports whether another process holds the exclusive lock on an open file. This takes a shared lock for the check, so
/// concurrent callers do not mistake each other for the holder.
#[cfg(all(unix, feature = "server"))]
pub(crate) fn is_held(file: &File) -> bool {
    matches!(tried(file, rustix::fs::FlockOperation::NonBlockingLockShared), Ok(false))
}

#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it does not wait")]
fn tried(file: &File, how: rustix::fs::FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Always fails: other systems have no locks.
#[cfg(not(unix))]
pub(crate) fn try_lock(_: &File) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes new files accessible only to this user.
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
        })?;
        keep.read()
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

    /// The lock is held elsewhere: the writer waits for it, and the runtime's thread does not.
    #[cfg(unix)]
    #[tokio::test]
    async fn h94_changes_wait_for_a_lock_beside_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let keep = keep(folder.path());
        make_folder(keep.path().parent().unwrap()).unwrap();
        let path = keep.path().with_extension("lock");
        let held = aside(move || lock(&path, PATIENCE)).await.unwrap().unwrap();
        let behind = Behind::new(keep.clone());
        for word in ["a", "b"] {
            behind.push(move |state: &mut Words| {
                state.words.insert(word.to_owned());
            });
        }
        // This task runs on the runtime's only thread, so that thread does not wait for the lock.
        assert!(keep.read::<Words>().unwrap().words.is_empty());
        drop(held);
        behind.written().await;
        assert_eq!(keep.read::<Words>().unwrap().words.len(), 2);
    }

    #[cfg(debug_assertions)]
    #[tokio::test]
    #[should_panic(expected = "go `keep::aside`")]
    async fn the_thread_of_the_runtime_takes_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let _ = add(&keep(folder.path()), "a");
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
