//! The journal of edits, and which of them can be taken back.
//!
//! A record is written before its file is. Whether the edit happened is seen from what the file, or the next edit of it,
//! began with.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use crate::config::edit::Done;

/// An edit in the journal.
///
/// ```
/// # fn show(record: &mcp_host::edits::Record) {
/// println!("{}: {} in {}", record.id, record.done.name, record.file.display());
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub id: u64,
    /// When it was made, in seconds since 1970.
    pub at: u64,
    /// The file.
    pub file: PathBuf,
    /// Whether it was found in a working directory, and so belongs to a project.
    #[serde(default)]
    pub is_project: bool,
    /// The project of Claude Code's file whose part was edited.
    #[serde(default)]
    pub scope: Option<PathBuf>,
    /// What was done.
    pub done: Done,
    /// The hash of the text before it; `None` if there was no file.
    pub(super) before: Option<String>,
    /// The hash of the text after it; `None` if the file was removed.
    pub(super) after: Option<String>,
    /// The number of the edit that it took back.
    pub undoes: Option<u64>,
}

/// All edits, in their order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    #[serde(default)]
    records: Vec<Record>,
}

impl Journal {
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the number of the next edit.
    pub(super) fn next(&self) -> u64 {
        self.records.last().map_or(1, |last| last.id + 1)
    }

    /// Adds an edit. Returns the numbers of those that are forgotten for it.
    pub(super) fn add(&mut self, record: Record, most: usize) -> Vec<u64> {
        self.records.push(record);
        let over = self.records.len().saturating_sub(most);
        self.records.drain(..over).map(|record| record.id).collect()
    }

    /// Finds the edit to take back. `now` gives the hash of what a file holds.
    pub(super) fn to_undo(
        &self,
        id: Option<u64>,
        now: impl Fn(&Path) -> Result<Option<String>, Error>,
    ) -> Result<&Record, Error> {
        let Some(id) = id else {
            let own = self.records.iter().rev().filter(|record| record.undoes.is_none());
            for record in own {
                // An edit whose file cannot be read is not passed over: the user means the last one.
                if self.stands(record, now(&record.file)?.as_ref()) {
                    return Ok(record);
                }
            }
            return Err(Error::None);
        };
        let record = self.records.iter().find(|record| record.id == id).ok_or(Error::Unknown(id))?;
        match self.stands(record, now(&record.file)?.as_ref()) {
            true => Ok(record),
            false => Err(Error::Undone(id)),
        }
    }

    /// Reports whether an edit happened and was not taken back since.
    pub(super) fn stands(&self, record: &Record, now: Option<&String>) -> bool {
        let undone = |other: &Record| other.undoes == Some(record.id) && self.stands(other, now);
        self.happened(record, now) && !self.records.iter().filter(|other| other.id > record.id).any(undone)
    }

    /// Reports whether an edit reached its file: its program may have been killed before.
    fn happened(&self, record: &Record, now: Option<&String>) -> bool {
        let next = self.records.iter().find(|other| other.id > record.id && other.file == record.file);
        let then = match next {
            Some(next) => next.before.as_ref(),
            None => now,
        };
        record.before == record.after || then != record.before.as_ref()
    }
}
