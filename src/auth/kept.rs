//! What is kept of a login, read when the first request wants it; while it is out of reach, read again later and later
//! (`hazards.md` H77).

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::StoreError;
use super::authorizer::Authorizer;

/// The first look again, and the longest pause. A look may have the desktop ask its user to unlock the keyring.
const FIRST: Duration = Duration::from_secs(31);
const LONGEST: Duration = Duration::from_secs(10 * 60);

impl Authorizer {
    /// Reads what is kept, unless that was done. What is out of reach now is looked for again.
    pub(super) async fn read_kept(self: &Arc<Self>) {
        if self.loaded.get_or_try_init(|| self.load()).await.is_err() {
            self.look_again();
        }
    }

    /// Why what is kept cannot be read, if it cannot.
    pub(super) fn unread(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load(&self) -> Result<(), ()> {
        let kept = self.keys.load(&self.slot).await;
        // Somebody has signed in meanwhile.
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
                    // The server was told that there is none.
                    self.news.send_modify(|news| *news += 1);
                }
                Ok(())
            }
            Some(error) => {
                if before.as_ref() != Some(&error) {
                    tracing::warn!(server = &*self.server, "what is kept of its login is out of reach: {error}");
                }
                Err(())
            }
        }
    }

    /// Looks again until it can be read, somebody has signed in, or the server is not there any more.
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
