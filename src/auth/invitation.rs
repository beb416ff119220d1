//! An invitation to sign in, for whoever's call was refused for want of a token and can be asked to open a page.
//!
//! **Invariant:** one login at a time, and one invitation until a token of it has worked or the user acts otherwise
//! (`docs/hazards.md` H74). What it shows is an address of ours on this machine, not the page of the issuer: as the
//! specification wants it of elicitation by URL, whoever passes the page on has nothing, since only the browser that came in
//! by our address is believed when it comes back; and the page, with the state in its query, stays out of what clients keep.
//! Whose page it is goes beside it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use url::{Position, Url};

use super::attempt::Attempt;
use super::authorizer::{AGAIN, Authorizer, News};
use super::obtain::Under;
use super::{Error, Redirect};

/// An invitation.
pub(crate) struct Invitation {
    /// Sets it apart from those before.
    pub(crate) number: u64,
    /// What is to be opened.
    pub(crate) url: String,
    /// The host of the page that it leads to.
    pub(crate) host: String,
    under: Under,
    guests: watch::Sender<Guests>,
    /// Nobody wants it.
    declined: CancellationToken,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Who was shown it.
#[derive(Debug, Default)]
struct Guests {
    /// What each has said.
    clients: HashMap<u64, Option<bool>>,
    /// How many have not answered.
    open: usize,
    shown: bool,
    accepted: bool,
}

/// How it stands with a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// There is a token.
    SignedIn,
    /// There will be none of it.
    Over,
    /// Somebody is about it.
    Open,
}

impl Invitation {
    /// Whether that client is to be shown it: once, however many of its calls wait.
    pub(crate) fn is_new_to(&self, client: u64) -> bool {
        self.guests.send_if_modified(|guests| match guests.clients.entry(client) {
            Entry::Occupied(_) => false,
            Entry::Vacant(new) => new.insert(None).is_none(),
        })
    }

    /// Somebody is shown it now.
    pub(crate) fn shown(&self) {
        self.guests.send_modify(|guests| {
            guests.open += 1;
            guests.shown = true;
        });
    }

    /// Whoever was shown it wants to sign in, or does not. When nobody does, it is over.
    pub(crate) fn answered(&self, client: u64, accepted: bool) {
        self.guests.send_modify(|guests| {
            guests.open = guests.open.saturating_sub(1);
            guests.accepted |= accepted;
            // Who signs in by one window may close another.
            let said = guests.clients.entry(client).or_default();
            *said = Some(accepted || *said == Some(true));
            if guests.open == 0 && !guests.accepted {
                self.declined.cancel();
            }
        });
    }

    /// Waits for the end of the login, for so long at most. For a client that does not want it, it is over.
    pub(crate) async fn wait(&self, client: u64, patience: Duration) -> Stands {
        let (mut under, mut guests) = (self.under.0.clone(), self.guests.subscribe());
        let end = async {
            tokio::select! {
                biased;
                done = under.wait_for(Option::is_some) => match done {
                    Ok(done) if matches!(*done, Some(Ok(()))) => Stands::SignedIn,
                    _ => Stands::Over,
                },
                _ = guests.wait_for(|guests| guests.clients.get(&client) == Some(&Some(false))) => Stands::Over,
            }
        };
        timeout(patience, end).await.unwrap_or(Stands::Open)
    }

    fn is_open(&self) -> bool {
        self.under.0.borrow().is_none() && self.under.0.has_changed().is_ok()
    }
}

impl Authorizer {
    /// The invitation that is open, or a new one; none where nobody can sign in by a page, somebody was invited in vain, or the
    /// way there was not found a moment ago.
    ///
    /// # Cancel safety
    /// A dropped wait leaves the next one what was found out.
    pub(crate) async fn invite(self: &Arc<Self>) -> Option<Arc<Invitation>> {
        let (task, stop) = (self.clone(), self.keys.stop.clone());
        let made = self.keys.tasks.spawn(async move { stop.run_until_cancelled(task.invite_now()).await.flatten() });
        made.await.ok().flatten()
    }

    /// The invitation of that number, if there was none after it.
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
        // Whoever it was for may have gone away before it was there: that was nobody.
        let was_seen = before.as_ref().is_none_or(|invitation| invitation.guests.borrow().shown);
        if progress.prompted && was_seen || progress.failed.as_ref().is_some_and(lately) {
            return None;
        }
        // A token that is there, and that nobody wants another one for, is refused for something that no login mends.
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
            let back = Url::parse(&redirect.url()).map_err(|_| Error::Malformed("at no URL"))?;
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
                tracing::warn!(server = &*self.server, "nobody can be invited to sign in: {error}");
                progress.failed = Some((Instant::now(), error));
                None
            }
        }
    }

    /// Begins to wait for the browser.
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
        let guests = watch::Sender::default();
        let invitation = Arc::new(Invitation { number, url, host, under: Under(under), guests, declined });
        *self.invited() = Some(invitation.clone());
        invitation
    }

    /// Waits until somebody has signed in, here or elsewhere; the port is open no longer.
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
            () = news.came() => return Ok(()),
            () = declined.cancelled() => return Err(Error::Declined("it was declined".to_owned())),
        };
        drop(redirect);
        match back {
            Ok(back) => {
                self.finish(attempt, &back).await?;
                // What was tried in vain before says nothing of the new token.
                self.progress.lock().await.failed = None;
                Ok(())
            }
            Err(_) => Err(Error::Declined(format!("nobody finished it within {limit:?} (host.limits.login)"))),
        }
    }

    fn invited(&self) -> MutexGuard<'_, Option<Arc<Invitation>>> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether the way to a page is looked for at a server where nobody listens.
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
