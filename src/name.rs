//! The alias of a server.

use std::fmt;
use std::sync::Arc;

/// The alias of a server: `[a-z][a-z0-9-]{0,23}` without `--`, not ending in `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// Makes the alias from a name in the config.
    #[must_use]
    pub fn from_config(name: &str) -> Self {
        Self(name.into())
    }

    /// The alias as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
