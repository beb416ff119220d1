//! The journal of edits, and which of them can be undone.
//!
//! A record is written before its files are. Whether an edit reached a file is determined from the hash of the file, or
//! from the hash with which the file's next edit began. So if a program is killed during an edit, the files that it
//! wrote count and can be undone, and the others do not.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use crate::config::edit::Done;

/// An edit in the journal: everything that one command changed.
///
/// ```
/// # fn show(record: &mcp_host::edits::Record) {
/// for part in &record.parts {
///     println!("{}: {} changes of {}", record.id, part.done.len(), part.file.display());
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Record {
    /// Its number.
    pub id: u64,
    /// When it was made, in seconds since 1970.
    pub at: u64,
    /// The command, if the edit is named after it and not after its only change.
    pub command: Option<String>,
    /// The changes, by file.
    pub parts: Vec<Part>,
    /// The number of the edit that this one undid; `None` if it undid none.
    pub undoes: Option<u64>,
}

/// What an edit did to one file.
///
/// ```
/// # fn show(part: &mcp_host::edits::Part) {
/// println!("{} of {} is of a project", part.file.display(), part.is_project);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The file.
    pub file: PathBuf,
    /// Whether it was found in a working directory, and so belongs to a project.
    #[serde(default)]
    pub is_project: bool,
    /// The project in Claude Code's file whose servers were edited.
    #[serde(default)]
    pub scope: Option<PathBuf>,
    /// The client whose file it is, if the user named one.
    #[serde(default)]
    pub client: Option<String>,
    /// The changes, in order.
    pub done: Vec<Done>,
    /// The hash of the text before the edit; `None` if there was no file.
    pub(super) before: Option<String>,
    /// The hash of the text after the edit; `None` if the file was removed.
    pub(super) after: Option<String>,
}

/// A record as stored: with parts, or, in old journals, with one change of one file.
#[derive(Deserialize)]
struct Stored {
    id: u64,
    at: u64,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
    undoes: Option<u64>,
    #[serde(flatten)]
    alone: Option<Alone>,
}

#[derive(Deserialize)]
struct Alone {
    file: PathBuf,
    #[serde(default)]
    is_project: bool,
    #[serde(default)]
    scope: Option<PathBuf>,
    done: Done,
    before: Option<String>,
    after: Option<String>,
}

impl From<Stored> for Record {
    fn from(stored: Stored) -> Self {
        let Stored { id, at, command, mut parts, undoes, alone } = stored;
        parts.extend(alone.map(|Alone { file, is_project, scope, done, before, after }| Part {
            file,
            is_project,
            scope,
            client: None,
            done: vec![done],
            before,
            after,
        }));
        Self { id, at, command, parts, undoes }
    }
}

/// All edits, in their order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    #[serde(default)]
    records: Vec<Record>,
}

/// Returns the hash of a file's current content; `None` if there is no file.
pub(super) type Now<'a> = &'a dyn Fn(&Path) -> Result<Option<String>, Error>;

impl Journal {
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the number of the next edit.
    pub(super) fn next(&self) -> u64 {
        self.records.last().map_or(1, |last| last.id + 1)
    }

    /// Adds an edit. Returns the oldest edits, which are dropped for it.
    pub(super) fn add(&mut self, record: Record, most: usize) -> Vec<Record> {
        self.records.push(record);
        let over = self.records.len().saturating_sub(most);
        self.records.drain(..over).collect()
    }

    /// Finds the edit to undo.
    pub(super) fn to_undo(&self, id: Option<u64>, now: Now<'_>) -> Result<&Record, Error> {
        let Some(id) = id else {
            let own = self.records.iter().rev().filter(|record| record.undoes.is_none());
            for record in own {
                // An edit whose file cannot be read is not skipped, because the user means the last edit.
                if self.stands(record, now)? {
                    return Ok(record);
                }
            }
            return Err(Error::None);
        };
        let record = self.records.iter().find(|record| record.id == id).ok_or(Error::Unknown(id))?;
        if self.stands(record, now)? { Ok(record) } else { Err(Error::Undone(id)) }
    }

    /// Reports whether any part of an edit is in effect: it was carried out and not undone.
    pub(super) fn stands(&self, record: &Record, now: Now<'_>) -> Result<bool, Error> {
        for part in &record.parts {
            if self.part_stands(record, part, now)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports whether an edit reached this file and was not undone there.
    pub(super) fn part_stands(&self, record: &Record, part: &Part, now: Now<'_>) -> Result<bool, Error> {
        if !self.happened(record, part, now)? {
            return Ok(false);
        }
        let later = self.records.iter().filter(|other| other.id > record.id && other.undoes == Some(record.id));
        for other in later {
            for undone in other.parts.iter().filter(|undone| undone.file == part.file) {
                if self.part_stands(other, undone, now)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reports whether an edit reached its file. If not, its program was killed before.
    fn happened(&self, record: &Record, part: &Part, now: Now<'_>) -> Result<bool, Error> {
        let later = self.records.iter().filter(|other| other.id > record.id);
        let next = later.flat_map(|other| &other.parts).find(|other| other.file == part.file);
        let then = match next {
            Some(next) => next.before.clone(),
            None => now(&part.file)?,
        };
        Ok(part.before == part.after || then != part.before)
    }
}
