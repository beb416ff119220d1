//! Invites the user whose call failed for lack of a token to sign in: opens a local address that leads to the issuer's
//! page, and waits for the browser.

use std::sync::{Arc, MutexGuard};

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use url::{Position, Url};

use super::attempt::Attempt;
use super::authorizer::{Authorizer, News};
use super::invitation::Invitation;
use super::progress::{AGAIN, Under};
use super::{Error, Redirect};
use crate::lock::lock;

impl Authorizer {
    /// Returns the open invitation, or else a new one. Returns `None` if no invitation can help: a login needs no page
    /// here, an earlier invitation was in vain, or preparing one failed a moment ago.
    ///
    /// # Cancel safety
    /// If this call is dropped, its work goes on, and the next call returns the result.
    pub(crate) async fn invite(self: &Arc<Self>) -> Option<Arc<Invitation>> {
        let (task, stop) = (self.clone(), self.keys.stop.clone());
        let made = self.keys.tasks.spawn(async move { stop.run_until_cancelled(task.invite_now()).await.flatten() });
        made.await.ok().flatten()
    }

    /// Returns the invitation with this number, if it is the latest one.
    pub(crate) fn invitation(&self, number: u64) -> Option<Arc<Invitation>> {
        self.invited().clone().filter(|invitation| invitation.number == number)
    }

    async fn invite_now(self: &Arc<Self>) -> Option<Arc<Invitation>> {
        let has_page = self.wants_user() && self.keys.interaction.is_none();
        if !has_page || self.unread().is_some() {
            return None;
        }
        let mut progress = self.progress.lock().await;
        let before = self.invited().clone();
        if let Some(open) = before.as_ref().filter(|invitation| invitation.is_open()) {
            return Some(open.clone());
        }
        let lately = |(at, error): &(Instant, Error)| at.elapsed() < AGAIN && *error != Error::LoginNeeded;
        // The client may have gone before it was shown the invitation. Such an invitation does not count.
        let was_seen = before.as_ref().is_none_or(|invitation| invitation.was_shown());
        if progress.prompted && was_seen || progress.failed.as_ref().is_some_and(lately) {
            return None;
        }
        // Without a request for another token, the current token was refused for a reason that no login fixes.
        let wanted = progress.wanted.take();
        if wanted.is_none() && self.current.load().is_some() {
            return None;
        }
        let made = async {
            let hint = match wanted {
                Some(hint) => hint,
                None => self.asked().await?,
            };
            let redirect = Redirect::open().await.map_err(|error| no_port(&error))?;
            let back = Url::parse(&redirect.url()).map_err(|_| Error::Malformed("with an invalid URL"))?;
            let attempt = self.prepare(&back, &hint).await?;
            let (redirect, url) = redirect.with_door(attempt.page.clone())?;
            Ok((attempt, redirect, url))
        };
        match made.await {
            Ok((attempt, redirect, url)) => {
                progress.prompted = true;
                let number = before.map_or(1, |invitation| invitation.number + 1);
                Some(self.open(number, attempt, redirect, url))
            }
            Err(error) => {
                tracing::warn!(server = &*self.server, "cannot invite anybody to sign in: {error}");
                progress.failed = Some((Instant::now(), error));
                None
            }
        }
    }

    /// Creates the invitation, and starts a task that waits for the browser.
    fn open(self: &Arc<Self>, number: u64, attempt: Attempt, redirect: Redirect, url: String) -> Arc<Invitation> {
        let (done, under) = watch::channel(None);
        let declined = CancellationToken::new();
        let host = attempt.page[Position::BeforeHost..Position::AfterPort].to_owned();
        let (task, stop, no) = (self.clone(), self.keys.stop.clone(), declined.clone());
        self.keys.tasks.spawn(async move {
            let login = stop.run_until_cancelled(task.accept(attempt, redirect, &no));
            let result = login.await.unwrap_or(Err(Error::LoginNeeded));
            if let Err(error) = &result {
                tracing::warn!(server = &*task.server, "{error}");
            }
            done.send_replace(Some(result));
        });
        let invitation = Arc::new(Invitation::new(number, url, host, Under(under), declined));
        *self.invited() = Some(invitation.clone());
        invitation
    }

    /// Waits until the user has signed in, here or in another program, and closes the local port.
    async fn accept(
        self: &Arc<Self>,
        attempt: Attempt,
        redirect: Redirect,
        declined: &CancellationToken,
    ) -> Result<(), Error> {
        let limit = self.keys.limits.login;
        let mut news = News::of(Some(self));
        let back = tokio::select! {
            back = timeout(limit, redirect.hit()) => back,
            () = news.came() => {
                attempt.end(true);
                return Ok(());
            }
            () = declined.cancelled() => return Err(Error::Declined("it was declined".to_owned())),
        };
        drop(redirect);
        match back {
            Ok(back) => {
                self.finish(attempt, &back).await?;
                // Failures of earlier attempts say nothing about the new token.
                self.progress.lock().await.failed = None;
                Ok(())
            }
            Err(_) => Err(Error::Declined(format!("nobody finished it within {limit:?} (host.limits.login)"))),
        }
    }

    fn invited(&self) -> MutexGuard<'_, Option<Arc<Invitation>>> {
        lock(&self.invited)
    }
}

fn no_port(error: &std::io::Error) -> Error {
    let reason = format!("no port on this machine for the browser to come back to: {error}");
    Error::Unreachable { reason, unsent: true }
}

#[cfg(test)]
mod tests {
    use super::super::keychain::Keychain;
    use super::*;
    use crate::config::{Enterprise, Grant, Limits, OAuth, Remote, Secret, SecretSource};

    /// Reports whether a page is prepared for a server at which nothing listens.
    async fn is_looked_for(grant: Grant) -> bool {
        let remote = Remote::new("http://127.0.0.1:1/mcp".parse().unwrap());
        let keys = Keychain::new(None, None, None, Limits::default());
        let server = Authorizer::new("a", &remote, &OAuth { grant, ..OAuth::default() }, &keys);
        assert!(server.invite().await.is_none());
        server.progress.lock().await.failed.is_some()
    }

    #[tokio::test]
    async fn nobody_is_invited_where_tokens_come_without_a_user() {
        let given = || SecretSource::Given(Secret::new("statement"));
        let enterprise = Enterprise {
            token_endpoint: "https://idp.example/token".parse().unwrap(),
            client_id: "c".to_owned(),
            client_secret: None,
            id_token: given(),
        };
        for grant in [Grant::ClientCredentials, Grant::Workload(given()), Grant::Enterprise(Box::new(enterprise))] {
            assert!(!is_looked_for(grant.clone()).await, "{grant:?}");
        }
        assert!(is_looked_for(Grant::Code).await);
    }
}
