//! Edits of config files on disk: each is written whole or not at all, recorded in a journal, and can be undone.
//!
//! In: files, the texts that the caller has read in them, and changes (`config/edit`). Out: the new files, one record
//! in `STATE/backups/journal.json`, and beside it the texts before and after the edit, for `undo`.
//!
//! **Invariant:** the texts and the record are on the disk before the first file changes, so a killed program leaves
//! only edits that can be undone; `undo` skips a file that the edit did not reach. A file that is not as the caller has
//! read it is not written, and the files before it are restored. Start with [`Edits::make_all`].

mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use self::record::Journal;
pub use self::record::{Part, Record};
use crate::config::LoadRequest;
use crate::config::clients::Client;
use crate::config::edit::{self, Around, Change, Done, Refused};
use crate::hex;
use crate::keep::{self, Keep};

/// The largest file that is edited, which is also the largest that is read as a config.
const MOST: u64 = 16 * 1024 * 1024;
/// How many edits can be undone.
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
    /// There is no edit to undo.
    #[error("there is no edit to take back")]
    None,
    /// There is no edit with this number.
    #[error("there is no edit {0}")]
    Unknown(u64),
    /// The edit was already undone.
    #[error("edit {0} was taken back already")]
    Undone(u64),
}

/// Changes of one file, which may be part of an edit of several files.
///
/// ```
/// use mcp_host::config::LoadRequest;
/// use mcp_host::config::edit::Change;
/// use mcp_host::edits::FileChange;
///
/// let change = FileChange {
///     file: "mcp.json".into(),
///     seen: Some(r#"{ "mcpServers": { "a": { "command": "a" }, "b": { "command": "b" } } }"#.to_owned()),
///     changes: vec![Change::Remove { name: "a".to_owned() }],
///     request: LoadRequest::default(),
/// };
/// ```
#[derive(Clone, Debug)]
pub struct FileChange {
    /// The file.
    pub file: PathBuf,
    /// Its text as the caller has read it; `None` means that there was no file.
    pub seen: Option<String>,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// How the file is read.
    pub request: LoadRequest,
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
    /// The name of the server that was changed last, as in the file.
    pub name: String,
}

/// An edit that was undone.
///
/// ```
/// # fn show(undone: &mcp_host::edits::Undone) {
/// for file in &undone.files {
///     println!("{} is as before: {}", file.part.file.display(), file.is_exact);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Undone {
    /// The edit.
    pub record: Record,
    /// The number of the edit that undid it, which can be undone, too.
    pub id: u64,
    /// The files in which the edit was undone.
    pub files: Vec<UndoneFile>,
    /// The files in which it could not be undone, and why. If these are all files, the call fails.
    pub refused: Vec<(PathBuf, Error)>,
}

/// A file in which an edit was undone.
///
/// ```
/// # fn show(file: &mcp_host::edits::UndoneFile) {
/// println!("{:?} became {:?}", file.was, file.text);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct UndoneFile {
    /// What the edit had changed in this file.
    pub part: Part,
    /// Whether the file has the same bytes as before the edit. If not, it was changed after the edit, and only the edit
    /// was reversed.
    pub is_exact: bool,
    /// The text before the undo; `None` if there was no file.
    pub was: Option<String>,
    /// The text after the undo; `None` if the file was removed.
    pub text: Option<String>,
}

/// A file to write, and the journal's record of that.
struct Write {
    part: Part,
    /// The text that the file must have before the write.
    seen: Option<String>,
    /// The text after the write; `None` removes the file.
    new: Option<String>,
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

    /// Returns the folder with the texts before and after each edit that can be undone.
    ///
    /// ```
    /// let edits = mcp_host::edits::Edits::of("/var/lib/my-agent".as_ref());
    /// assert_eq!(edits.folder(), std::path::Path::new("/var/lib/my-agent/backups"));
    /// ```
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes an edit. `seen` is the text of the file as the caller has read it; `None` means that there was no file.
    ///
    /// # Errors
    /// Fails if nothing was written.
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
        self.make_all(None, vec![FileChange { file, seen, changes: vec![change], request }]).await
    }

    /// Changes several files as one edit, which is undone as a whole. Each file may be named once; files are written in
    /// this order. `command` names the edit in the journal.
    ///
    /// # Errors
    /// Fails if nothing was written: files that were already written are restored.
    ///
    /// # Cancel safety
    /// A dropped future may still write the files.
    pub async fn make_all(&self, command: Option<&str>, changes: Vec<FileChange>) -> Result<Made, Error> {
        let (edits, command) = (self.clone(), command.map(str::to_owned));
        keep::done(move || {
            let _held = edits.hold()?;
            let mut name = String::new();
            let mut writes = Vec::with_capacity(changes.len());
            for FileChange { file, seen, changes, request } in changes {
                let (new, done) = edit::edit_all(seen.as_deref().unwrap_or_default(), &file, &request, &changes)?;
                if let Some(last) = done.last() {
                    name.clone_from(&last.name);
                }
                let part = part(&file, done, &request);
                writes.push(Write { part, seen, new: Some(new) });
            }
            let id = edits.write(writes, command, None)?;
            Ok(Made { id, name })
        })
        .await
    }

    /// Undoes the edit with this number, or else the last edit that was not undone.
    ///
    /// # Errors
    /// Fails if nothing was written.
    ///
    /// # Cancel safety
    /// A dropped future may still write the files.
    pub async fn undo(&self, id: Option<u64>, request: LoadRequest) -> Result<Undone, Error> {
        let edits = self.clone();
        keep::done(move || {
            let _held = edits.hold()?;
            let journal: Journal = edits.journal.read()?;
            let record = journal.to_undo(id, &hash_of)?.clone();
            let (mut files, mut refused) = (Vec::new(), Vec::new());
            for (number, part) in record.parts.iter().enumerate() {
                match journal.part_stands(&record, part, &hash_of) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        refused.push((part.file.clone(), error));
                        continue;
                    }
                }
                match edits.before(record.id, number, part, &request) {
                    Ok(file) => files.push(file),
                    Err(error) => refused.push((part.file.clone(), error)),
                }
            }
            if files.is_empty() {
                return Err(refused.pop().map_or(Error::None, |(_, error)| error));
            }
            let write = |file: &UndoneFile| {
                let done = file.part.done.iter().rev().map(Done::reversed).collect();
                let part = Part { done, ..file.part.clone() };
                Write { part, seen: file.was.clone(), new: file.text.clone() }
            };
            // The file that was written last is restored first.
            let writes = files.iter().rev().map(write).collect();
            let id = edits.write(writes, record.command.clone(), Some(record.id))?;
            Ok(Undone { record, id, files, refused })
        })
        .await
    }

    /// Returns what a file becomes when an edit is undone in it.
    fn before(&self, id: u64, number: usize, part: &Part, request: &LoadRequest) -> Result<UndoneFile, Error> {
        let client = part.client.as_deref().and_then(Client::named);
        let mut request = LoadRequest { project_directory: part.scope.clone(), client, ..request.clone() };
        if client.is_some() {
            // The edit was about the user's own servers, whatever the working directory is now.
            request.working_directory = None;
        }
        let now = read(&part.file)?;
        let (before, after) = (self.backup(id, number, "before")?, self.backup(id, number, "after")?);
        let is_exact = now.as_deref().map(hash) == part.after;
        let text = match (is_exact, &now) {
            (true, _) => before,
            (false, None) => {
                let source = io::Error::from(io::ErrorKind::NotFound);
                return Err(Error::Read { path: part.file.clone(), source });
            }
            (false, Some(now)) => {
                let texts = Around {
                    before: before.as_deref().unwrap_or_default(),
                    after: after.as_deref().unwrap_or_default(),
                };
                Some(edit::revert_all(now, texts, &part.file, &request, &part.done)?)
            }
        };
        Ok(UndoneFile { part: part.clone(), is_exact, was: now, text })
    }

    /// Returns the edits, the last one first, each with whether it is in effect: it was carried out and not undone.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn list(&self) -> Result<Vec<(Record, bool)>, Error> {
        let edits = self.clone();
        keep::done(move || {
            let journal: Journal = edits.journal.read()?;
            let now = |file: &Path| Ok(hash_of(file).unwrap_or_default());
            let stand = |record: &Record| Ok((record.clone(), journal.stands(record, &now)?));
            journal.records().iter().rev().map(stand).collect()
        })
        .await
    }

    fn hold(&self) -> Result<keep::Held, Error> {
        let path = self.folder.join("edit.lock");
        let wrong = |source| Error::Write { path: path.clone(), source };
        keep::make_folder(&self.folder).map_err(wrong)?;
        keep::lock(&path, PATIENCE).map_err(wrong)
    }

    /// Writes or removes files, after their record is written.
    fn write(&self, mut writes: Vec<Write>, command: Option<String>, undoes: Option<u64>) -> Result<u64, Error> {
        let mut targets = Vec::with_capacity(writes.len());
        for write in &mut writes {
            let file = &write.part.file;
            is_as_seen(write)?;
            targets.push(real(file).map_err(|source| Error::Write { path: file.clone(), source })?);
            write.part.before = write.seen.as_deref().map(hash);
            write.part.after = write.new.as_deref().map(hash);
        }
        let journal: Journal = self.journal.read()?;
        let id = journal.next();
        for (number, write) in writes.iter().enumerate() {
            for (what, text) in [("before", &write.seen), ("after", &write.new)] {
                let backup = self.backup_path(id, number, what);
                match text {
                    Some(text) => keep::replace(&backup, text.as_bytes()),
                    None => gone(&backup),
                }
                .map_err(|source| Error::Write { path: backup, source })?;
            }
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let parts = writes.iter().map(|write| write.part.clone()).collect();
        let record = Record { id, at, command, parts, undoes };
        let dropped = self.journal.revise(|journal: &mut Journal| (journal.add(record, KEPT), true))?;
        for number in 0..writes.len() {
            if let Err(error) = put(&writes[number], &targets[number]) {
                give_back(&writes[..number], &targets);
                return Err(error);
            }
        }
        for record in dropped {
            for number in 0..record.parts.len() {
                // A file that cannot be removed does no harm.
                let _ = gone(&self.backup_path(record.id, number, "before"));
                let _ = gone(&self.backup_path(record.id, number, "after"));
            }
        }
        Ok(id)
    }

    /// Returns the path of a stored text of an edit. The first file of an edit needs no number.
    fn backup_path(&self, id: u64, number: usize, what: &str) -> PathBuf {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        self.folder.join(format!("{id:06}{number}.{what}"))
    }

    /// Reads a stored text of an edit; `None` if there was no file.
    fn backup(&self, id: u64, number: usize, what: &str) -> Result<Option<String>, Error> {
        read(&self.backup_path(id, number, what))
    }
}

/// Returns the journal's record of the edit of a file, without the hashes.
fn part(file: &Path, done: Vec<Done>, request: &LoadRequest) -> Part {
    Part {
        file: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()),
        is_project: request.project,
        scope: request.project_directory.clone(),
        client: request.client.map(|client| client.id.to_owned()),
        done,
        before: None,
        after: None,
    }
}

/// Refuses to write a file that has changed. Other programs do not use our lock.
fn is_as_seen(write: &Write) -> Result<(), Error> {
    let file = &write.part.file;
    if read(file)? == write.seen { Ok(()) } else { Err(Error::Changed { path: file.clone() }) }
}

fn put(write: &Write, target: &Path) -> Result<(), Error> {
    is_as_seen(write)?;
    let written = match &write.new {
        Some(new) => keep::replace(target, new.as_bytes()),
        None => fs::remove_file(target),
    };
    written.map_err(|source| Error::Write { path: write.part.file.clone(), source })
}

/// Restores the old texts of files, except of files that were changed since.
fn give_back(writes: &[Write], targets: &[PathBuf]) {
    for (write, target) in writes.iter().zip(targets).rev() {
        if read(&write.part.file).ok() == Some(write.new.clone()) {
            // If a file cannot be restored, the edit stays in the journal, so that `undo` can undo it.
            let _ = match &write.seen {
                Some(seen) => keep::replace(target, seen.as_bytes()),
                None => gone(target),
            };
        }
    }
}

/// Reads a config file, and follows links. Returns `None` if there is none. Blocks.
///
/// # Errors
/// Fails if the file cannot be read, is larger than 16 MiB, or is not UTF-8.
pub fn read(file: &Path) -> Result<Option<String>, Error> {
    use std::io::Read as _;

    let wrong = |source| Error::Read { path: file.to_owned(), source };
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => {}
        // Opening a pipe would wait for its writer.
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

/// Returns the file to which all links lead, and creates its folder if that is missing.
fn real(file: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(file) {
        Ok(target) => {
            // A file that this user may not write must not be replaced either.
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

/// Returns the hash of a file's content; `None` if there is no file.
fn hash_of(file: &Path) -> Result<Option<String>, Error> {
    Ok(read(file)?.as_deref().map(hash))
}

#[cfg(test)]
mod tests;
