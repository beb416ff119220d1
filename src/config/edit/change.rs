//! What an edit can change.

use super::entry::NewServer;
use super::undo::{Done, What};
use crate::config::import;

/// A change of one entry. A server is named by its name in the file, or by its alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a server.
    Add {
        /// Its name.
        name: String,
        /// What it is.
        server: NewServer,
    },
    /// Adds a server that was read from another client's file.
    Put {
        /// Its name.
        name: String,
        /// What it is.
        entry: import::Entry,
    },
    /// Gives a setting of the host this text.
    Setting {
        /// The way to it below `host`.
        key: Vec<String>,
        /// The text.
        value: String,
    },
    /// Gives a value inside of an entry this text. What is missing on the way comes with it.
    Text {
        /// The name of the server.
        name: String,
        /// The way to it: keys, and the numbers of items in lists.
        at: Vec<String>,
        /// The text.
        value: String,
    },
    /// Takes a server out.
    Remove {
        /// Its name.
        name: String,
    },
    /// Gives a server another name.
    Rename {
        /// Its name.
        name: String,
        /// The other name.
        to: String,
    },
    /// Turns a server on or off.
    Switch {
        /// Its name.
        name: String,
        /// Whether it is on from now on.
        on: bool,
    },
}

impl Change {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Add { name, .. }
            | Self::Put { name, .. }
            | Self::Text { name, .. }
            | Self::Remove { name }
            | Self::Rename { name, .. }
            | Self::Switch { name, .. } => name,
            Self::Setting { key, .. } => key.last().map_or("host", String::as_str),
        }
    }

    /// Returns what an edit has done that made this change; `name` is that of the touched server in the file.
    #[must_use]
    pub fn done(&self, name: &str) -> Done {
        let what = match self {
            Self::Add { .. } | Self::Put { .. } => What::Add,
            Self::Setting { key, .. } => What::Setting(key.clone()),
            Self::Text { at, .. } => What::Text(at.clone()),
            Self::Remove { .. } => What::Remove,
            Self::Rename { to, .. } => What::Rename(to.clone()),
            Self::Switch { on: true, .. } => What::Enable,
            Self::Switch { on: false, .. } => What::Disable,
        };
        Done { name: name.to_owned(), what }
    }
}
