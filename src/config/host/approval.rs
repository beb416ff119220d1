//! What happens when a server changes a definition that was approved.

use std::path::{Path, PathBuf};

use super::super::fields::Field;
use super::super::keys::words;
use super::super::report::Report;

words! {
    /// What happens when a server lists a definition that the user has not approved. The first whole listing of a
    /// server counts as approved, except under [`Approval::Ask`].
    ///
    /// ```
    /// use mcp_host::config::{Approval, HostSettings};
    ///
    /// let host = HostSettings::default().approval(Approval::Tofu);
    /// assert_eq!(host.approval, Approval::Tofu);
    /// ```
    pub enum Approval {
        /// Nothing is recorded or compared.
        Off = "off",
        /// The change passes and is reported.
        #[default]
        Warn = "warn",
        /// The change is withheld until it is approved, unless it only takes something away.
        Tofu = "tofu",
        /// Every new or changed definition is withheld until it is approved, those of a new server too.
        Ask = "ask",
    }
}

impl Approval {
    /// All values, in the order of their discriminants.
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::Warn, Self::Tofu, Self::Ask];

    /// Reports whether clients are shown what was not approved.
    pub(crate) fn is_lenient(self) -> bool {
        matches!(self, Self::Off | Self::Warn)
    }
}

/// Reads `host.lock`. A relative path starts in the folder of the config file.
pub(super) fn lock(field: &Field<'_>, report: &mut Report) -> Option<PathBuf> {
    let path = field.text(report)?;
    if path.is_empty() {
        report.problem(field.at, &field.path, "is empty").help("name a file, such as \"mcp-host.lock\"");
        return None;
    }
    Some(report.file(field.at.file).parent().unwrap_or(Path::new("")).join(path))
}
