//! Reads a server's stored login when the first request needs it. While the secret store cannot be read, retries at
//! growing intervals (`docs/hazards.md` H77). While a server waits for a login, checks whether another program has
//! signed in.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::StoreError;
use super::authorizer::Authorizer;
use super::progress::{Notice, Progress};
use super::token::Entry;
use crate::lock::lock;

/// The first pause before a retry. It is long, because a retry may make the desktop ask its user to unlock the keyring.
const FIRST: Duration = Duration::from_secs(31);
/// The longest pause before a retry.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// The interval at which to check whether another process has signed in.
const ELSEWHERE: Duration = Duration::from_secs(2);

impl Authorizer {
    /// Reads the stored login, unless that has already succeeded. If the store cannot be read, retries later.
    pub(super) async fn read_kept(self: &Arc<Self>) {
        if self.loaded.get_or_try_init(|| self.load()).await.is_err() {
            self.look_again();
        }
    }

    /// Returns an id of the login whose token requests carry. The id changes with each login, but not when the token is
    /// renewed. Returns `None` without a login, or if these tokens need no user.
    pub(crate) async fn login_id(self: &Arc<Self>) -> Option<String> {
        if !self.loaded.initialized() {
            self.read_kept().await;
        }
        self.login_id_now()
    }

    /// Returns the same as [`Self::login_id`], without reading the store.
    pub(crate) fn login_id_now(&self) -> Option<String> {
        let held = self.current.load_full().filter(|_| self.wants_user())?;
        Some(held.entry.login.clone())
    }

    /// Reports whether requests carry a token now.
    pub(crate) fn has_token(&self) -> bool {
        self.current.load().is_some()
    }

    /// Returns why the stored login cannot be read; `None` if it can.
    pub(super) fn unread(&self) -> MutexGuard<'_, Option<StoreError>> {
        lock(&self.unread)
    }

    async fn load(&self) -> Result<(), ()> {
        let kept = self.read_slot().await;
        // The user has signed in meanwhile.
        if self.current.load().is_some() {
            return Ok(());
        }
        let (entry, error) = match kept {
            Ok(entry) => (entry, None),
            Err(error) => (None, Some(error)),
        };
        let before = std::mem::replace(&mut *self.unread(), error.clone());
        if let Some(entry) = entry {
            self.take(entry);
        }
        match error {
            None => {
                if before.is_some() {
                    // The connections were told before that there is no token.
                    self.tell(Notice::Came);
                }
                Ok(())
            }
            Some(error) => {
                if before.as_ref() != Some(&error) {
                    tracing::warn!(server = &*self.server, "its stored login cannot be read: {error}");
                }
                Err(())
            }
        }
    }

    /// Reads the login that any program has stored for this server. Reads its stamp first, so that a write during this
    /// read is noticed by the next check.
    async fn read_slot(&self) -> Result<Option<Entry>, StoreError> {
        let stamp = self.keys.stamp(&self.slot).await?;
        let kept = self.keys.load(&self.slot).await;
        *lock(&self.stamp) = stamp;
        kept
    }

    /// Reads the stored login, and uses it from now on if it is not `held`: then another program has stored it. Returns
    /// whether that was so. The caller holds the lock on `progress`.
    pub(super) async fn take_kept(&self, held: Option<&Entry>) -> bool {
        let Ok(Some(kept)) = self.read_slot().await else { return false };
        let is_other = held.is_none_or(|held| held.access != kept.access);
        if is_other {
            tracing::info!(server = &*self.server, "another program has signed in");
            self.take(kept);
        }
        is_other
    }

    /// Waits until another program has stored a usable login, and announces the new token. Waits forever if the store
    /// has no stamps.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the time waited.
    pub(crate) async fn signed_in_elsewhere(&self) {
        loop {
            tokio::time::sleep(ELSEWHERE).await;
            let Ok(now) = self.keys.stamp(&self.slot).await else { continue };
            if now == *lock(&self.stamp) {
                continue;
            }
            let mut progress = self.progress.lock().await;
            let before = self.current.load_full();
            if self.take_kept(before.as_ref().map(|held| &held.entry)).await {
                *progress = Progress::default();
                self.tell(Notice::Came);
                return;
            }
        }
    }

    /// Starts a task, if none is running, that retries until the store can be read, the user has signed in, or the
    /// server is gone.
    fn look_again(self: &Arc<Self>) {
        if self.looking.swap(true, Ordering::Relaxed) {
            return;
        }
        let (server, stop) = (Arc::downgrade(self), self.keys.stop.clone());
        self.keys.tasks.spawn(async move {
            let mut pause = FIRST;
            while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
                let Some(server) = server.upgrade() else { return };
                if server.loaded.get_or_try_init(|| server.load()).await.is_ok() {
                    server.looking.store(false, Ordering::Relaxed);
                    return;
                }
                pause = (pause * 2).min(LONGEST);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::time::timeout;

    use super::super::keychain::Keychain;
    use super::super::progress::Hint;
    use super::super::store::{MemoryStore, SecretStore, chosen};
    use super::super::tests::{entry, server};
    use super::*;
    use crate::config::{Limits, OAuth, Remote, SecretKey, Secrets, StoreKind};

    const A_WHILE: Duration = Duration::from_secs(10 * 60);

    /// Opens a file store in this folder, as each program does.
    fn files(folder: &Path) -> Arc<dyn SecretStore> {
        let secrets = Secrets { store: StoreKind::File, key: SecretKey::parse(&"07".repeat(32)), key_file: None };
        chosen(&secrets, Some(folder)).unwrap()
    }

    fn access(server: &Authorizer) -> Option<String> {
        server.current.load().as_ref().map(|held| held.entry.access.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn h72_a_login_by_another_program_is_seen_and_each_of_them_once() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (server(files(folder.path())), server(files(folder.path())));
        assert!(here.credentials().await.is_none());
        let waits = async || timeout(A_WHILE, here.signed_in_elsewhere()).await.is_err();
        assert!(waits().await, "nobody has");
        let mut news = here.news.subscribe();
        for token in ["one", "two"] {
            there.keep(&entry(token)).await;
            assert!(!waits().await);
            assert_eq!((access(&here).as_deref(), news.has_changed().unwrap()), (Some(token), true));
            news.mark_unchanged();
            assert!(waits().await, "it was told already");
        }
        // Our own writes are no news, and neither is a removal.
        here.keep(&entry("two")).await;
        assert!(waits().await);
        there.keys.forget(&there.slot, &entry("two")).await.unwrap();
        assert!(waits().await);
        assert_eq!((access(&here).as_deref(), news.has_changed().unwrap()), (Some("two"), false));
    }

    #[tokio::test]
    async fn h74_nobody_is_asked_again_after_it_was_in_vain() {
        struct Nobody;
        impl super::super::Interaction for Nobody {
            fn redirect_uri(&self) -> url::Url {
                "http://127.0.0.1:1/x".parse().unwrap()
            }
            fn authorize(
                &self,
                _: &str,
                _: url::Url,
            ) -> futures_util::future::BoxFuture<'static, Result<String, String>> {
                Box::pin(async { Err("not now".to_owned()) })
            }
        }
        let keys = Keychain::new(None, Some(Arc::new(Nobody)), None, Limits::default());
        // Nothing listens there.
        let remote = Remote::new("http://127.0.0.1:1/mcp".parse().unwrap());
        let server = Authorizer::new("a", &remote, &OAuth::default(), &keys);
        let mut progress = Progress::default();
        let under = server.ask(Hint::default(), &mut progress).await.unwrap().unwrap();
        under.wait().await.unwrap_err();
        let again = server.ask(Hint::default(), &mut progress).await.map(|_| ());
        assert_eq!(again, Err(super::super::Error::LoginNeeded));
    }

    #[tokio::test]
    async fn h74_nobody_is_asked_for_what_another_program_has_got() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (server(files(folder.path())), server(files(folder.path())));
        let obtain = async || here.obtain_now(None, Hint::default(), &mut Progress::default()).await.map(|_| ());
        assert_eq!(obtain().await, Err(super::super::Error::LoginNeeded));
        there.keep(&entry("one")).await;
        assert_eq!((obtain().await, access(&here).as_deref()), (Ok(()), Some("one")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_tell_is_not_read_again_and_again() {
        struct Mute(MemoryStore, std::sync::atomic::AtomicUsize);
        impl SecretStore for Arc<Mute> {
            fn read(&self, key: &str) -> Result<Option<crate::config::Secret>, StoreError> {
                self.1.fetch_add(1, Ordering::Relaxed);
                self.0.read(key)
            }
            fn write(&self, key: &str, secret: &crate::config::Secret) -> Result<(), StoreError> {
                self.0.write(key, secret)
            }
            fn remove(&self, key: &str) -> Result<(), StoreError> {
                self.0.remove(key)
            }
        }
        let store = Arc::new(Mute(MemoryStore::default(), std::sync::atomic::AtomicUsize::new(0)));
        let (here, there) = (server(Arc::new(store.clone())), server(Arc::new(store.clone())));
        assert!(here.credentials().await.is_none());
        there.keep(&entry("one")).await;
        let before = store.1.load(Ordering::Relaxed);
        assert!(timeout(A_WHILE, here.signed_in_elsewhere()).await.is_err());
        assert_eq!(store.1.load(Ordering::Relaxed), before);
    }
}
