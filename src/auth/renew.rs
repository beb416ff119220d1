//! Renews an access token by its refresh token: only once for all callers, in this process and in others
//! (`docs/hazards.md` H72, H73).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use url::Url;

use super::authorizer::Authorizer;
use super::desk::Desk;
use super::progress::{Hint, Notice};
use super::token::{Entry, Held, Reply};
use super::{Error, keychain, lock};

impl Authorizer {
    /// Renews the token `held`, or takes the token that another process has got meanwhile. The caller holds the lock on
    /// `progress`.
    ///
    /// # Errors
    /// Fails if that yields no new token. If `held` is still the current token then, it may be used until the server
    /// refuses it.
    pub(super) async fn renew(&self, held: &Arc<Held>) -> Result<(), Error> {
        let name = keychain::name(&held.entry);
        let lock = self.keys.stop.run_until_cancelled(lock::take(self.keys.directory.as_deref(), &name)).await;
        let lock = lock.unwrap_or(Err(Error::LoginNeeded))?;
        match self.keys.again(&held.entry).await {
            Ok(Some(kept)) if kept.access != held.entry.access => {
                self.take(kept);
                return Ok(());
            }
            Ok(Some(_)) => {}
            // Nothing is stored any more: the user has signed out in another program, and a renewal would undo that.
            Ok(None) if self.take_kept(Some(&held.entry)).await => return Ok(()),
            // These tokens need no user, so no user can have signed out.
            Ok(None) if !self.wants_user() => {
                drop(lock);
                return self.granted(&Hint::scopes(&held.entry.requested)).await;
            }
            Ok(None) => {
                self.current.store(None);
                self.tell(Notice::SignedOut);
                return Err(Error::SignedOut);
            }
            Err(error) => tracing::warn!(server = &*self.server, "a stored login cannot be read: {error}"),
        }
        let refreshed = self.refreshed(held).await;
        self.refreshes[usize::from(refreshed.is_err())].fetch_add(1, Ordering::Relaxed);
        match refreshed {
            Ok(reply) => {
                let entry = held.entry.renewed(&reply)?;
                // The token is stored before it is used: the old refresh token is worthless from here on.
                self.keep(&entry).await;
                self.take(entry);
                Ok(())
            }
            Err(error @ Error::Unreachable { unsent: false, .. }) => {
                // The refresh token may have been used up, and using it again may end the login. So it is dropped, and
                // the current access token has to do.
                let mut entry = held.entry.clone();
                entry.refresh = None;
                self.keep(&entry).await;
                self.take(entry);
                Err(error)
            }
            Err(Error::Refused { code }) if code == "invalid_grant" => {
                self.drop_spent(&held.entry).await;
                Err(Error::LoginNeeded)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the refresh token to the token endpoint, and retries once if nothing of the first request was sent.
    async fn refreshed(&self, held: &Held) -> Result<Reply, Error> {
        let Some(refresh) = &held.entry.refresh else { return Err(Error::LoginNeeded) };
        let endpoint = Url::parse(&held.entry.endpoint).map_err(|_| Error::Malformed("with an invalid URL"))?;
        let desk = Desk {
            web: self.web()?.clone(),
            endpoint,
            issuer: held.entry.issuer.clone(),
            client: held.entry.client.clone(),
            resource: Some(held.entry.resource.clone()),
            key: self.signer().await?,
            proof: held.proof.clone(),
        };
        match desk.refresh(refresh).await {
            Err(Error::Unreachable { unsent: true, .. }) => desk.refresh(refresh).await,
            answer => answer,
        }
    }

    /// Drops a token whose refresh token the issuer no longer accepts. If another token is stored by now, takes that
    /// one.
    async fn drop_spent(&self, entry: &Entry) {
        match self.keys.again(entry).await {
            Ok(Some(kept)) if kept.refresh != entry.refresh => self.take(kept),
            Ok(_) => {
                if let Err(error) = self.keys.forget(&self.slot, entry).await {
                    tracing::warn!(server = &*self.server, "a login that has ended is still stored: {error}");
                }
                self.current.store(None);
            }
            // A stored login that cannot be read is not removed.
            Err(_) => self.current.store(None),
        }
    }
}
