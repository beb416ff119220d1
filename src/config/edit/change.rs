//! The changes that an edit can make.

use super::entry::NewServer;
use super::undo::{Done, What};
use crate::config::import;

/// A change of one entry. A server is given by its name in the file, or by its alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a server.
    Add {
        /// Its name.
        name: String,
        /// Its entry.
        server: NewServer,
    },
    /// Adds a server that was read from another client's file.
    Put {
        /// Its name.
        name: String,
        /// Its entry.
        entry: import::Entry,
    },
    /// Sets a setting of the host to this text.
    Setting {
        /// The keys that lead to it from `host`.
        key: Vec<String>,
        /// The new text.
        value: String,
    },
    /// Sets a value inside an entry to this text. Objects that are missing on the path are added.
    Text {
        /// The name of the server.
        name: String,
        /// The path to the value: keys, and indices of list items.
        at: Vec<String>,
        /// The new text.
        value: String,
    },
    /// Removes a server.
    Remove {
        /// Its name.
        name: String,
    },
    /// Gives a server another name.
    Rename {
        /// Its name.
        name: String,
        /// The new name.
        to: String,
    },
    /// Enables or disables a server.
    Switch {
        /// Its name.
        name: String,
        /// Whether to enable it.
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

    /// Returns the record of an edit that made this change; `name` is the name of the changed server in the file.
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
