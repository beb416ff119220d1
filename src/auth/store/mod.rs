//! Where secrets are kept: a trait for embedders, and the stores that there are.
//!
//! `choice.rs` decides which of them has a token. `keyring.rs` and `system.rs` keep a key in the keyring of the system,
//! `named.rs` reads what configs name of it, `sealed.rs` writes files that are encrypted with such a key or with one of
//! the user's; `vault.rs` is what the rest of the program sees.
//!
//! The folder that a file lies in, the keyring's or the user's own key's, also records where that login belongs. A
//! locked keyring makes its server `unauthorized` with that reason: the user is not asked to sign in over an existing
//! login, and nothing is removed. While a server is `unauthorized`, the stamp of its file is looked at every two
//! seconds, so that a login by another program is used as it comes. A sign-out is noticed before a token is renewed,
//! because the renewal would bring the login back. Without a keyring the user's own key may lie in
//! `~/.config/mcp-host/secret.key`. Every host looks there when it needs a key, so a running daemon uses the key that
//! the first login makes (`commands/key.rs`), and no config has to name it.
//!
//! **Invariant:** a secret is written whole before anybody uses it, removed only when it is known to be of no use, and
//! never on a disk in the clear.

mod choice;
mod key_file;
mod keyring;
mod named;
mod sealed;
#[cfg(feature = "keyring")]
mod system;
#[cfg(test)]
mod tests;
mod vault;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use self::choice::chosen;
pub use self::key_file::make as make_key_file;
pub use self::named::keyring;
pub(crate) use self::vault::Vault;
use crate::config::Secret;

/// Keeps secrets by name. Calls may block; they are made on threads that may be blocked.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use mcp_host::auth::{SecretStore, StoreError};
/// use mcp_host::config::Secret;
///
/// struct Shelf(Mutex<HashMap<String, Secret>>);
///
/// impl SecretStore for Shelf {
///     fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
///         Ok(self.0.lock().expect("no panic").get(key).cloned())
///     }
///
///     fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
///         self.0.lock().expect("no panic").insert(key.to_owned(), secret.clone());
///         Ok(())
///     }
///
///     fn remove(&self, key: &str) -> Result<(), StoreError> {
///         self.0.lock().expect("no panic").remove(key);
///         Ok(())
///     }
/// }
/// ```
pub trait SecretStore: Send + Sync {
    /// The secret of that name, if there is one.
    ///
    /// # Errors
    /// When the store cannot tell.
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError>;

    /// Keeps a secret under that name, in place of one that was there.
    ///
    /// # Errors
    /// When it is not kept; one that was there before is still there then.
    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError>;

    /// Forgets the secret of that name; it need not be there.
    ///
    /// # Errors
    /// When it may still be there.
    fn remove(&self, key: &str) -> Result<(), StoreError>;

    /// A number that is another one after the secret of that name was written or removed, by whichever program; none where
    /// that cannot be told without reading it. It is asked every few seconds while a server waits to be signed in to.
    fn stamp(&self, key: &str) -> Option<u64> {
        let _ = key;
        None
    }

    /// Where the next secret would be kept. It is asked before somebody signs in.
    fn keeping(&self) -> Keeping {
        Keeping::at(Kept::Program)
    }

    /// Where the secret of that name is, or would be. This must not block.
    fn place(&self, key: &str) -> Kept {
        let _ = key;
        Kept::Program
    }
}

/// Where a secret is kept.
///
/// ```
/// # fn show(kept: mcp_host::auth::Kept) {
/// if kept == mcp_host::auth::Kept::Memory {
///     println!("the login ends with this program");
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kept {
    /// In a file whose key is in the keyring of the system.
    Keyring,
    /// In a file whose key the user has given.
    File,
    /// In memory: it is gone with the program.
    Memory,
    /// In a store of the program that embeds us.
    Program,
}

/// Where the next secret would be kept.
///
/// ```
/// use mcp_host::auth::{Keeping, Kept};
///
/// assert_eq!(Keeping::at(Kept::Program).reason, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Keeping {
    /// Where.
    pub kept: Kept,
    /// Why not in a place that lasts, where it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A file to make with a key, so that it would be kept in an encrypted file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

impl Keeping {
    /// There, for no reason to tell.
    #[must_use]
    pub fn at(kept: Kept) -> Self {
        Self { kept, reason: None, key_file: None }
    }
}

/// Why a store did not do what it was to do.
///
/// ```
/// use mcp_host::auth::StoreError;
///
/// let error = StoreError::Failed("the disk is full".to_owned());
/// assert_eq!(error.to_string(), "the disk is full");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is locked, and nobody is there to unlock it.
    #[error("the keyring is locked; unlock it")]
    Locked,
    /// It does not answer.
    #[error("the keyring did not answer within {0:?}; it may wait for somebody to unlock it")]
    Slow(Duration),
    /// There is none.
    #[error("there is no keyring: {0}")]
    Absent(String),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// A store in memory: what is in it is gone with the program.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::Error> {
/// use mcp_host::Host;
/// use mcp_host::auth::MemoryStore;
///
/// let host = Host::builder().config_file("mcp.json").secret_store(MemoryStore::default()).start().await?;
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct MemoryStore(Mutex<HashMap<String, Secret>>);

impl MemoryStore {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Secret>> {
        lock(&self.0)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("secrets", &self.kept().len()).finish()
    }
}

impl SecretStore for MemoryStore {
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        Ok(self.kept().get(key).cloned())
    }

    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
        self.kept().insert(key.to_owned(), secret.clone());
        Ok(())
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.kept().remove(key);
        Ok(())
    }

    fn keeping(&self) -> Keeping {
        Keeping { reason: Some("there is no place to keep it".to_owned()), ..Keeping::at(Kept::Memory) }
    }

    fn place(&self, _: &str) -> Kept {
        Kept::Memory
    }
}

/// What a panic left behind is whole: no change takes more than one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
