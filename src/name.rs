//! The alias of a server, which is its name inside the host and in exposed names.
//!
//! An alias depends only on the server's configured name, never on what else is configured, so adding a server never
//! renames another one. Exposed names are resolved by a table, never by splitting them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::hex;

/// The length of the longest alias, in bytes.
pub(crate) const ALIAS: usize = 24;
/// How many bytes of a longer alias are kept before the hash of the name.
const KEPT: usize = 19;

/// The alias of a server: `[a-z][a-z0-9-]{0,23}` without `--`.
///
/// Tools are exposed as `<alias>__<tool>` and resources under the scheme `<alias>+<scheme>`, so an alias holds only
/// what both allow.
///
/// ```
/// use mcp_host::name::ServerName;
///
/// assert_eq!(ServerName::from_config("My GitHub (work)")?.as_str(), "my-github-work");
/// # Ok::<(), mcp_host::name::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// Makes the alias of the server that the config calls `name`.
    ///
    /// The alias may be the first part of a real URI scheme: a server called `git` becomes `git`, although `git+ssh`
    /// is a scheme. Refusing it would refuse one of the most used servers. So a URI is looked up among the listed URIs
    /// before a prefix is removed.
    ///
    /// # Errors
    ///
    /// Fails when `name` is empty or blank.
    pub fn from_config(name: &str) -> Result<Self, Error> {
        if name.trim().is_empty() {
            return Err(Error::Empty);
        }
        let mut alias = String::with_capacity(name.len() + 2);
        for c in name.chars().map(|c| c.to_ascii_lowercase()) {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                alias.push(c);
            } else if !alias.is_empty() && !alias.ends_with('-') {
                alias.push('-');
            }
        }
        trim_end(&mut alias);
        if alias.is_empty() {
            // A name in another script has no letter to keep, but is valid.
            alias = hash(name, 4);
            alias.insert_str(0, "s-");
        } else if alias.starts_with(|c: char| c.is_ascii_digit()) {
            alias.insert_str(0, "s-");
        }
        if alias.len() > ALIAS {
            alias.truncate(KEPT);
            trim_end(&mut alias);
            alias.push('-');
            alias.push_str(&hash(name, 2));
        }
        Ok(Self(alias.into()))
    }

    /// Returns the alias as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ServerName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Why a name cannot be used.
///
/// ```
/// use mcp_host::name::{Error, ServerName};
///
/// assert_eq!(ServerName::from_config(" "), Err(Error::Empty));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is empty or blank.
    #[error("the name of a server must not be empty")]
    Empty,
}

fn trim_end(alias: &mut String) {
    alias.truncate(alias.trim_end_matches('-').len());
}

/// Returns the first `bytes` bytes of the SHA-256 of `text`, in hex.
fn hash(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alias(name: &str) -> String {
        ServerName::from_config(name).unwrap().to_string()
    }

    #[test]
    fn alias_by_the_table() {
        for (name, expected) in [
            ("files", "files"),
            ("git", "git"),
            ("GitHub", "github"),
            ("My GitHub (work)", "my-github-work"),
            ("a__b--c", "a-b-c"),
            ("-x-", "x"),
            ("@scope/server", "scope-server"),
            ("3d", "s-3d"),
            ("12345678901234567890123", "s-12345678901234567-0c71"),
            ("abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
            ("abcdefghijklmnopqrstuvwxy", "abcdefghijklmnopqrs-69b9"),
            ("abcdefghijklmnopqr-stuvwxyz", "abcdefghijklmnopqr-de81"),
            ("메모리", "s-bc08b4c8"),
        ] {
            assert_eq!(alias(name), expected, "{name}");
        }
        assert_eq!(ServerName::from_config(" "), Err(Error::Empty));
    }

    proptest! {
        #[test]
        fn alias_is_always_legal(name in "\\PC{0,60}") {
            let Ok(alias) = ServerName::from_config(&name) else { return Ok(()) };
            let alias = alias.as_str();
            prop_assert!((1..=24).contains(&alias.len()));
            prop_assert!(alias.starts_with(|c: char| c.is_ascii_lowercase()));
            prop_assert!(alias.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            prop_assert!(!alias.contains("--") && !alias.ends_with('-'));
        }
    }
}
