//! Where secrets are kept: a trait for embedders, and the store that forgets when the program ends.
//!
//! **Invariant:** a secret is written whole before anybody uses it, and removed only when it is known to be of no use.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::Secret;

/// Keeps secrets by name. Calls may block; they are made on threads that may be blocked.
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

    /// Whether what is written is there after the program has ended.
    fn lasts(&self) -> bool {
        true
    }
}

/// Why a store did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is locked, and nobody is there to unlock it.
    #[error("it is locked")]
    Locked,
    /// It does not answer.
    #[error("it did not answer within {0:?}")]
    Slow(Duration),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// A store in memory: what is in it is gone with the program.
#[derive(Default)]
pub struct MemoryStore(Mutex<HashMap<String, Secret>>);

impl MemoryStore {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Secret>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn lasts(&self) -> bool {
        false
    }
}

/// A store may ask a person, or hang (`hazards.md` H77).
const PATIENCE: Duration = Duration::from_secs(10);

/// A store as the rest of the program uses it.
#[derive(Clone)]
pub(crate) struct Vault(Arc<dyn SecretStore>);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault")
    }
}

impl Vault {
    pub(crate) fn new(store: Arc<dyn SecretStore>) -> Self {
        Self(store)
    }

    pub(crate) async fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        let key = key.to_owned();
        self.blocking(move |store| store.read(&key)).await
    }

    pub(crate) async fn write(&self, key: &str, secret: Secret) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.blocking(move |store| store.write(&key, &secret)).await
    }

    pub(crate) async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.blocking(move |store| store.remove(&key)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn SecretStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&*store));
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(StoreError::Failed("it broke down".to_owned())),
            Err(_) => Err(StoreError::Slow(PATIENCE)),
        }
    }
}
