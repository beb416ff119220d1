//! An invitation to sign in: when a call fails for lack of a token, it is sent to clients that can ask their user to
//! open a page.
//!
//! **Invariant:** for each server there is one login at a time, and no second invitation until the token from the first
//! has worked or the user acts in another way (`docs/hazards.md` H74). An invitation shows a local address of ours, not
//! the issuer's page, as the specification requires for URL elicitation. To pass the issuer's page on to somebody is
//! useless, because the redirect is only accepted from the browser that came in through our address. The page, with
//! `state` in its query, also stays out of the clients' logs. The host name of the page is shown beside our address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::progress::Under;

/// An invitation to sign in, with what the clients have answered.
pub(crate) struct Invitation {
    /// The number of this invitation; later ones have higher numbers.
    pub(crate) number: u64,
    /// Our local address, which the user opens.
    pub(crate) url: String,
    /// The host name of the issuer's page, to which the local address leads.
    pub(crate) host: String,
    under: Under,
    guests: watch::Sender<Guests>,
    /// Canceled when every client has declined.
    declined: CancellationToken,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The clients that were or will be shown an invitation.
#[derive(Debug, Default)]
struct Guests {
    /// Whether each client has accepted; `None` if it has not answered yet.
    clients: HashMap<u64, Option<bool>>,
    /// How many times it was shown without an answer yet.
    open: usize,
    shown: bool,
    accepted: bool,
}

/// How far a login is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// There is a token.
    SignedIn,
    /// The login ended without a token.
    Over,
    /// The login is still in progress.
    Open,
}

impl Invitation {
    pub(super) fn new(number: u64, url: String, host: String, under: Under, declined: CancellationToken) -> Self {
        Self { number, url, host, under, guests: watch::Sender::default(), declined }
    }

    /// Returns true the first time that it is called for a client: an invitation is shown only once to a client,
    /// however many of its calls wait for the login.
    pub(crate) fn is_new_to(&self, client: u64) -> bool {
        self.guests.send_if_modified(|guests| match guests.clients.entry(client) {
            Entry::Occupied(_) => false,
            Entry::Vacant(new) => new.insert(None).is_none(),
        })
    }

    /// Records that the invitation is now shown to a client.
    pub(crate) fn shown(&self) {
        self.guests.send_modify(|guests| {
            guests.open += 1;
            guests.shown = true;
        });
    }

    /// Records the answer of a client to the invitation. Once all clients that were shown it have declined, the login
    /// is over.
    pub(crate) fn answered(&self, client: u64, accepted: bool) {
        self.guests.send_modify(|guests| {
            guests.open = guests.open.saturating_sub(1);
            guests.accepted |= accepted;
            // A user who signs in from one window may close another: once a client has accepted, it stays accepted.
            let said = guests.clients.entry(client).or_default();
            *said = Some(accepted || *said == Some(true));
            if guests.open == 0 && !guests.accepted {
                self.declined.cancel();
            }
        });
    }

    /// Waits until the login ends, for `patience` at most. For a client that has declined, the login counts as over.
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

    /// Reports whether any client was shown the invitation so far.
    pub(super) fn was_shown(&self) -> bool {
        self.guests.borrow().shown
    }

    pub(super) fn is_open(&self) -> bool {
        self.under.0.borrow().is_none() && self.under.0.has_changed().is_ok()
    }
}
