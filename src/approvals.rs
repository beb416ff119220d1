//! The user's approvals for servers in project configs (`docs/hazards.md` H93). For each config file and server name,
//! the state directory keeps a hash of the exact config entry, and the lines that the user was shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Approved, Project};
pub use crate::keep::Error;
use crate::keep::{self, Keep};

/// The approvals of a user.
///
/// ```no_run
/// use mcp_host::approvals::Approvals;
/// use mcp_host::config::{self, LoadRequest};
///
/// let mut request = LoadRequest::from_process();
/// request.approved = Approvals::of("/var/lib/my-agent".as_ref()).approved();
/// let config = config::load(&request)?;
/// # Ok::<_, config::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Approvals(Keep);

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    #[serde(default)]
    projects: BTreeMap<PathBuf, BTreeMap<String, Entry>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    hash: String,
    /// The lines that the user was shown when approving it.
    shown: Vec<String>,
}

const VERSION: u32 = 1;

impl Approvals {
    /// Returns the approvals that are kept in a state directory.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        Self(Keep::new(directory.join("approvals.json"), VERSION))
    }

    /// Returns what is approved, to load a config with. If the file with the approvals cannot be read, nothing is
    /// approved.
    #[must_use]
    pub fn approved(&self) -> Approved {
        let state: State = self.0.read().unwrap_or_else(|error| {
            tracing::warn!("no project is approved: {error}");
            State::default()
        });
        let entries = state.projects.into_iter().flat_map(|(file, servers)| {
            servers.into_iter().map(move |(server, entry)| ((file.clone(), server), entry.hash))
        });
        Approved::new(self.0.path().to_owned(), entries)
    }

    /// Returns the lines that were shown when a server in the config file `file` was last approved; `None` if it never
    /// was.
    ///
    /// # Errors
    /// Fails if the file with the approvals cannot be read.
    pub fn before(&self, file: &Path, server: &str) -> Result<Option<Vec<String>>, Error> {
        let state: State = self.0.read()?;
        let entry = state.projects.get(file).and_then(|servers| servers.get(server));
        Ok(entry.map(|entry| entry.shown.clone()))
    }

    /// Approves servers in the project config `file`, exactly as they were loaded and shown.
    ///
    /// # Errors
    /// Fails if the file with the approvals cannot be read or written. Then nothing is approved.
    pub async fn approve<'a>(
        &self,
        file: &Path,
        servers: impl IntoIterator<Item = (&'a str, &'a Project)>,
    ) -> Result<(), Error> {
        let entry = |project: &Project| Entry { hash: project.hash.clone(), shown: project.shown.clone() };
        let approved: Vec<(String, Entry)> =
            servers.into_iter().map(|(name, project)| (name.to_owned(), entry(project))).collect();
        let (keep, file) = (self.0.clone(), file.to_owned());
        keep::done(move || keep.update(|state: &mut State| state.projects.entry(file).or_default().extend(approved)))
            .await
    }
}
