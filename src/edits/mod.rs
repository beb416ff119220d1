//! Edits of config files on disk: each is written whole or not at all, kept in a journal, and can be taken back.
//!
//! In: a file, the text that was seen in it, and a change (`config/edit`). Out: the new file, its record in
//! `STATE/backups/journal.json`, and the text before and after it beside that, for `undo`.
//!
//! **Invariant:** the texts and the record are on the disk before the file changes, so a killed program leaves either a
//! record of an edit that did not happen, which `undo` passes over, or one that can be taken back. A file that is not as it
//! was seen is not written. Start with [`Edits::make`].

mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use self::record::Journal;
pub use self::record::Record;
use crate::config::LoadRequest;
use crate::config::edit::{self, Around, Change, Done, Refused, What};
use crate::hex;
use crate::keep::{self, Keep};

/// The largest file that is edited: the largest that is read as a config.
const MOST: u64 = 16 * 1024 * 1024;
/// How many edits can be taken back.
const KEPT: usize = 100;
/// How long to wait for another program that is editing.
const PATIENCE: Duration = Duration::from_secs(10);
const VERSION: u32 = 1;

/// Why a file was not edited. Nothing was written.
///
/// ```
/// use mcp_host::edits::Error;
///
/// fn again(error: &Error) -> bool {
///     matches!(error, Error::Changed { .. })
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The change does not fit the text.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Something else has changed the file since it was read.
    #[error("{} has changed while it was edited", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] keep::Error),
    /// There is no edit to take back.
    #[error("there is no edit to take back")]
    None,
    /// There is no edit with this number.
    #[error("there is no edit {0}")]
    Unknown(u64),
    /// The edit was taken back before.
    #[error("edit {0} was taken back already")]
    Undone(u64),
}

/// An edit that was made.
///
/// ```
/// # fn show(made: &mcp_host::edits::Made) {
/// println!("mcp-host undo {}", made.id);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Made {
    /// Its number in the journal.
    pub id: u64,
    /// The name of the server as the file has it.
    pub name: String,
}

/// An edit that was taken back.
///
/// ```
/// # fn show(undone: &mcp_host::edits::Undone) {
/// println!("{} is as before: {}", undone.record.file.display(), undone.is_exact);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Undone {
    /// The edit.
    pub record: Record,
    /// The number of what was done now, which can be taken back, too.
    pub id: u64,
    /// Whether the file has the bytes that it had before the edit; otherwise somebody had changed it since, and only the
    /// edit was reversed.
    pub is_exact: bool,
    /// The text of the file until now; `None` if there was no file.
    pub was: Option<String>,
    /// The text of the file from now on; `None` if there is none any more.
    pub text: Option<String>,
}

/// What a new record says of its edit.
struct New {
    done: Done,
    undoes: Option<u64>,
    is_project: bool,
    scope: Option<PathBuf>,
}

/// The edits of a user.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::edits::Error> {
/// use mcp_host::config::LoadRequest;
/// use mcp_host::config::edit::Change;
/// use mcp_host::edits::{Edits, read};
///
/// let edits = Edits::of("/var/lib/my-agent".as_ref());
/// let seen = read("mcp.json".as_ref())?;
/// let change = Change::Remove { name: "files".to_owned() };
/// edits.make("mcp.json".into(), seen, change, LoadRequest::from_process()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Edits {
    folder: PathBuf,
    journal: Keep,
}

impl Edits {
    /// Returns the edits that are kept in a state directory.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        let folder = directory.join("backups");
        Self { journal: Keep::new(folder.join("journal.json"), VERSION), folder }
    }

    /// Makes an edit. `seen` is the text of the file as the caller has read it; `None` means that there was no file.
    ///
    /// # Errors
    /// If nothing was written.
    ///
    /// # Cancel safety
    /// A dropped future may still write the file.
    pub async fn make(
        &self,
        file: PathBuf,
        seen: Option<String>,
        change: Change,
        request: LoadRequest,
    ) -> Result<Made, Error> {
        let edits = self.clone();
        keep::done(move || {
            let _held = edits.hold()?;
            let text = seen.as_deref().unwrap_or_default();
            let edited = edit::edit(text, &file, &request, &change)?;
            let done = Done { name: edited.name.clone(), what: what(&change) };
            let new = New { done, undoes: None, is_project: request.project, scope: request.project_directory };
            let id = edits.write(&file, seen.as_deref(), Some(&edited.text), new)?;
            Ok(Made { id, name: edited.name })
        })
        .await
    }

    /// Takes an edit back: the one with this number, else the last one that was not taken back.
    ///
    /// # Errors
    /// If nothing was written.
    ///
    /// # Cancel safety
    /// A dropped future may still write the file.
    pub async fn undo(&self, id: Option<u64>, request: LoadRequest) -> Result<Undone, Error> {
        let edits = self.clone();
        keep::done(move || {
            let _held = edits.hold()?;
            let journal: Journal = edits.journal.read()?;
            let record = journal.to_undo(id, |file| Ok(read(file)?.as_deref().map(hash)))?.clone();
            let request = LoadRequest { project_directory: record.scope.clone(), ..request };
            let now = read(&record.file)?;
            let backup = |what: &str| edits.backup(record.id, what);
            let (before, after) = (backup("before")?, backup("after")?);
            let is_exact = now.as_deref().map(hash) == record.after;
            let new = match (is_exact, &now) {
                (true, _) => before,
                (false, None) => {
                    let source = io::Error::from(io::ErrorKind::NotFound);
                    return Err(Error::Read { path: record.file, source });
                }
                (false, Some(now)) => {
                    let texts = Around {
                        before: before.as_deref().unwrap_or_default(),
                        after: after.as_deref().unwrap_or_default(),
                    };
                    Some(edit::revert(now, texts, &record.file, &request, &record.done)?.text)
                }
            };
            let (is_project, scope) = (record.is_project, record.scope.clone());
            let reverse = New { done: record.done.reversed(), undoes: Some(record.id), is_project, scope };
            let id = edits.write(&record.file, now.as_deref(), new.as_deref(), reverse)?;
            Ok(Undone { record, id, is_exact, was: now, text: new })
        })
        .await
    }

    /// Returns the edits, the last one first, each with whether it still stands: it happened, and was not taken back.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub async fn list(&self) -> Result<Vec<(Record, bool)>, Error> {
        let edits = self.clone();
        keep::done(move || {
            let journal: Journal = edits.journal.read()?;
            let stand = |record: &Record| {
                let now = read(&record.file).ok().flatten().as_deref().map(hash);
                (record.clone(), journal.stands(record, now.as_ref()))
            };
            Ok(journal.records().iter().rev().map(stand).collect())
        })
        .await
    }

    fn hold(&self) -> Result<keep::Held, Error> {
        let path = self.folder.join("edit.lock");
        let wrong = |source| Error::Write { path: path.clone(), source };
        keep::make_folder(&self.folder).map_err(wrong)?;
        keep::lock(&path, PATIENCE).map_err(wrong)
    }

    /// Writes a file, or removes it. `seen` is what it must hold until then.
    fn write(&self, file: &Path, seen: Option<&str>, new: Option<&str>, edit: New) -> Result<u64, Error> {
        let path = || file.to_owned();
        if read(file)?.as_deref() != seen {
            return Err(Error::Changed { path: path() });
        }
        let target = real(file).map_err(|source| Error::Write { path: path(), source })?;
        let journal: Journal = self.journal.read()?;
        let id = journal.next();
        for (name, text) in [("before", seen), ("after", new)] {
            let backup = self.backup_path(id, name);
            match text {
                Some(text) => keep::replace(&backup, text.as_bytes()),
                None => gone(&backup),
            }
            .map_err(|source| Error::Write { path: backup, source })?;
        }
        let record = Record {
            id,
            at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            file: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()),
            is_project: edit.is_project,
            scope: edit.scope,
            done: edit.done,
            before: seen.map(hash),
            after: new.map(hash),
            undoes: edit.undoes,
        };
        let dropped = self.journal.revise(|journal: &mut Journal| (journal.add(record, KEPT), true))?;
        // Other programs do not know our lock.
        if read(file)?.as_deref() != seen {
            return Err(Error::Changed { path: path() });
        }
        let written = match new {
            Some(new) => keep::replace(&target, new.as_bytes()),
            None => fs::remove_file(&target),
        };
        written.map_err(|source| Error::Write { path: path(), source })?;
        for id in dropped {
            // What stays there is only litter.
            let _ = gone(&self.backup_path(id, "before")).and_then(|()| gone(&self.backup_path(id, "after")));
        }
        Ok(id)
    }

    fn backup_path(&self, id: u64, what: &str) -> PathBuf {
        self.folder.join(format!("{id:06}.{what}"))
    }

    /// Reads a text of an edit; `None` if there was no file.
    fn backup(&self, id: u64, what: &str) -> Result<Option<String>, Error> {
        read(&self.backup_path(id, what))
    }
}

/// Reads a config file, also one that is a link. Returns `None` if there is none. Blocks.
///
/// # Errors
/// If the file cannot be read, is larger than 16 MiB, or is not UTF-8.
pub fn read(file: &Path) -> Result<Option<String>, Error> {
    use std::io::Read as _;

    let wrong = |source| Error::Read { path: file.to_owned(), source };
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => {}
        // To open a pipe would wait for its writer.
        Ok(_) => return Err(wrong(io::Error::other("it is no regular file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(file).is_err() => {
            return Ok(None);
        }
        Err(source) => return Err(wrong(source)),
    }
    let opened = fs::File::open(file).map_err(wrong)?;
    let mut text = String::new();
    opened.take(MOST + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > MOST {
        return Err(wrong(io::Error::other("it is larger than 16 MiB")));
    }
    Ok(Some(text))
}

/// Returns the file at the end of all links, and makes its folder if that is missing.
fn real(file: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(file) {
        Ok(target) => {
            // A file that this user may not write is not replaced either.
            fs::OpenOptions::new().write(true).open(&target)?;
            Ok(target)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(file).is_err() => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            keep::make_folder(folder)?;
            Ok(fs::canonicalize(folder)?.join(file.file_name().unwrap_or_default()))
        }
        Err(error) => Err(error),
    }
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text))
}

fn what(change: &Change) -> What {
    match change {
        Change::Add { .. } => What::Add,
        Change::Remove { .. } => What::Remove,
        Change::Rename { to, .. } => What::Rename(to.clone()),
        Change::Switch { on: true, .. } => What::Enable,
        Change::Switch { on: false, .. } => What::Disable,
    }
}

#[cfg(test)]
mod tests;
