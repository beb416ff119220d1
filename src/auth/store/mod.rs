//! Where secrets are stored: a trait for embedders, and the built-in stores.
//!
//! `choice.rs` decides which store holds a token. `keyring.rs` and `system.rs` keep a key in the system keyring,
//! `named.rs` reads those secrets in the keyring to which configs refer, `sealed.rs` writes files that are encrypted
//! with the keyring's key or with a key of the user's own, and `vault.rs` is what the rest of the program sees.
//!
//! There is one folder for files under the keyring's key and one for files under the user's own key, so the folder of a
//! file also tells which store holds its login. If the keyring is locked, the server of such a login is `unauthorized`
//! for that reason: the user is not asked to sign in over an existing login, and nothing is removed. While a server is
//! `unauthorized`, the stamp of its file (a hash of the file's metadata) is checked every two seconds, so that a login
//! by another program is used at once. A sign-out by another program is noticed before a token is renewed, because the
//! renewal would bring the login back. Without a keyring, the user's own key may be in `~/.config/mcp-host/secret.key`.
//! Every host looks there when it needs a key, so a running daemon uses the key that the first login creates
//! (`commands/key.rs`), and no config has to name it.
//!
//! **Invariant:** a secret is written in full before it is used, removed only when it is known to be useless, and never
//! on disk in plain text.

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
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub(crate) use self::choice::chosen;
pub use self::key_file::make as make_key_file;
pub use self::named::{keep_secret, keyring};
pub(crate) use self::vault::Vault;
use crate::config::Secret;
use crate::lock::lock;

/// A store of secrets by name. Its methods may block, except `place`: they are called on threads where blocking is
/// fine.
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
    /// Returns the secret with this name, if there is one.
    ///
    /// # Errors
    /// Fails if the store cannot tell whether there is one, or cannot read it.
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError>;

    /// Stores a secret under this name, replacing any previous one.
    ///
    /// # Errors
    /// Fails if the secret is not stored; a previous secret must then still be there.
    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError>;

    /// Removes the secret with this name, if there is one.
    ///
    /// # Errors
    /// Fails if the secret may still be there.
    fn remove(&self, key: &str) -> Result<(), StoreError>;

    /// Returns a stamp: a number that changes after any program writes or removes the secret with this name. `None`
    /// means that the store cannot tell this without reading the secret. Called every few seconds while a server waits
    /// for a login.
    fn stamp(&self, key: &str) -> Option<u64> {
        let _ = key;
        None
    }

    /// Returns where the next secret would be stored. Called before a login.
    fn keeping(&self) -> Keeping {
        Keeping::at(Kept::Program)
    }

    /// Returns where the secret with this name is, or would be. This must not block.
    fn place(&self, key: &str) -> Kept {
        let _ = key;
        Kept::Program
    }
}

/// Where a secret is stored.
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
    /// In an encrypted file whose key is in the system keyring.
    Keyring,
    /// In an encrypted file whose key the user provides.
    File,
    /// In memory, until the program ends.
    Memory,
    /// In a store of the embedding program.
    Program,
}

/// Where the next secret would be stored, and why not more safely.
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
    /// Where the secret would be stored.
    pub kept: Kept,
    /// Why the secret would not be stored persistently; `None` if it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A key file that could be created; the secret would then be stored in an encrypted file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

impl Keeping {
    /// Returns a value for this place, without a reason and a key file.
    #[must_use]
    pub fn at(kept: Kept) -> Self {
        Self { kept, reason: None, key_file: None }
    }
}

/// Why an operation of a store failed.
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
    /// The keyring is locked, and nobody has unlocked it.
    #[error("the keyring is locked; unlock it")]
    Locked,
    /// The keyring did not answer within this time.
    #[error("the keyring did not answer within {0:?}; it may wait for somebody to unlock it")]
    Slow(Duration),
    /// There is no keyring.
    #[error("there is no keyring: {0}")]
    Absent(String),
    /// Another failure, which the text describes.
    #[error("{0}")]
    Failed(String),
}

/// A store in memory, whose content is lost when the program ends.
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
        Keeping { reason: Some("this store keeps secrets in memory only".to_owned()), ..Keeping::at(Kept::Memory) }
    }

    fn place(&self, _: &str) -> Kept {
        Kept::Memory
    }
}
