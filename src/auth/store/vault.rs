//! A secret store as the rest of the program uses it: calls do not block async threads and do not hang, and a secret
//! that the store does not accept is held in memory until a later write succeeds (`docs/hazards.md` H77).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Keeping, Kept, SecretStore, StoreError, lock};
use crate::config::Secret;
use crate::keep;

/// How long a call may take: ten seconds for a keyring (see `keyring.rs`), and two more for the files.
const PATIENCE: Duration = Duration::from_secs(12);

/// A secret store as the rest of the program uses it.
#[derive(Clone)]
pub(crate) struct Vault {
    store: Arc<dyn SecretStore>,
    /// Secrets that the store has not accepted, by name. They are newer than those in the store, so they win: an older
    /// refresh token would be used up.
    held: Arc<Mutex<HashMap<String, Secret>>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault")
    }
}

impl Vault {
    pub(crate) fn new(store: Arc<dyn SecretStore>) -> Self {
        Self { store, held: Arc::default() }
    }

    pub(crate) async fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        if let Some(secret) = lock(&self.held).get(key) {
            return Ok(Some(secret.clone()));
        }
        let key = key.to_owned();
        self.blocking(move |store| store.read(&key)).await
    }

    /// Stores a secret. If that fails, returns the error and holds the secret in memory.
    pub(crate) async fn write(&self, key: &str, secret: Secret) -> Result<(), StoreError> {
        lock(&self.held).insert(key.to_owned(), secret.clone());
        let name = key.to_owned();
        let written = self.blocking(move |store| store.write(&name, &secret)).await;
        if written.is_ok() {
            lock(&self.held).remove(key);
        }
        written
    }

    pub(crate) async fn remove(&self, key: &str) -> Result<(), StoreError> {
        lock(&self.held).remove(key);
        let key = key.to_owned();
        self.blocking(move |store| store.remove(&key)).await
    }

    /// Returns a stamp: a number that changes after this secret is written or removed; `None` if the store has no
    /// stamps.
    pub(crate) async fn stamp(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let key = key.to_owned();
        self.blocking(move |store| Ok(store.stamp(&key))).await
    }

    /// Returns where the next secret would be stored.
    pub(crate) async fn keeping(&self) -> Result<Keeping, StoreError> {
        self.blocking(|store| Ok(store.keeping())).await
    }

    /// Returns where the secret with this name is.
    pub(crate) fn place(&self, key: &str) -> Kept {
        if lock(&self.held).contains_key(key) { Kept::Memory } else { self.store.place(key) }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn SecretStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.store.clone();
        let done = keep::aside(move || work(&*store));
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(StoreError::Failed("the secret store failed".to_owned())),
            Err(_) => Err(StoreError::Slow(PATIENCE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::MemoryStore;
    use super::*;

    /// A store that rejects writes while it is shut.
    #[derive(Default)]
    struct Door {
        shut: AtomicBool,
        inside: MemoryStore,
    }

    impl SecretStore for Arc<Door> {
        fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
            self.inside.read(key)
        }

        fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
            if self.shut.load(Ordering::SeqCst) { Err(StoreError::Locked) } else { self.inside.write(key, secret) }
        }

        fn remove(&self, key: &str) -> Result<(), StoreError> {
            self.inside.remove(key)
        }
    }

    #[tokio::test]
    async fn h77_what_a_locked_store_does_not_take_is_held_and_counts() {
        let door = Arc::new(Door::default());
        let vault = Vault::new(Arc::new(door.clone()));
        let read = async || vault.read("a").await.unwrap().unwrap().expose().to_owned();
        vault.write("a", Secret::new("old")).await.unwrap();
        door.shut.store(true, Ordering::SeqCst);
        assert_eq!(vault.write("a", Secret::new("new")).await, Err(StoreError::Locked));
        // Not the old one, which was spent to get the new one. The store still has it.
        assert_eq!((read().await.as_str(), vault.place("a")), ("new", Kept::Memory));
        assert_eq!(door.inside.read("a").unwrap().unwrap().expose(), "old");
        door.shut.store(false, Ordering::SeqCst);
        vault.write("a", Secret::new("newer")).await.unwrap();
        assert_eq!((read().await.as_str(), vault.place("a")), ("newer", Kept::Program));
    }

    #[tokio::test]
    async fn a_store_that_panics_is_an_error() {
        struct Broken;
        impl SecretStore for Broken {
            fn read(&self, _: &str) -> Result<Option<Secret>, StoreError> {
                panic!("on purpose")
            }
            fn write(&self, _: &str, _: &Secret) -> Result<(), StoreError> {
                Ok(())
            }
            fn remove(&self, _: &str) -> Result<(), StoreError> {
                Ok(())
            }
        }
        assert!(matches!(Vault::new(Arc::new(Broken)).read("a").await, Err(StoreError::Failed(_))));
    }
}
