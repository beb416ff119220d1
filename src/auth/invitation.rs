//! An invitation to sign in, for clients that can ask their user to open a page when a call fails for lack of a token.
//!
//! **Invariant:** one login at a time, and one invitation until its token has worked or the user acts otherwise
//! (`docs/hazards.md` H74). An invitation shows a local address of ours, not the issuer's page, as the specification
//! requires of URL elicitation. Passing the page on is useless, because only the browser that came in through our address
//! is accepted when it comes back. The page, with the state in its query, also stays out of the clients' logs. The host of
//! the page is shown beside the address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::progress::Under;

/// An invitation.
pub(crate) struct Invitation {
    /// The number of this invitation; later ones have higher numbers.
    pub(crate) number: u64,
    /// The address to open.
    pub(crate) url: String,
    /// The host of the page that the address leads to.
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

/// The clients that were shown it.
#[derive(Debug, Default)]
struct Guests {
    /// The answer of each client.
    clients: HashMap<u64, Option<bool>>,
    /// How many have not answered yet.
    open: usize,
    shown: bool,
    accepted: bool,
}

/// The state of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// There is a token.
    SignedIn,
    /// It ended without a token.
    Over,
    /// It is still in progress.
    Open,
}

impl Invitation {
    pub(super) fn new(number: u64, url: String, host: String, under: Under, declined: CancellationToken) -> Self {
        Self { number, url, host, under, guests: watch::Sender::default(), declined }
    }

    /// Reports whether to show it to this client: once, however many of its calls wait.
    pub(crate) fn is_new_to(&self, client: u64) -> bool {
        self.guests.send_if_modified(|guests| match guests.clients.entry(client) {
            Entry::Occupied(_) => false,
            Entry::Vacant(new) => new.insert(None).is_none(),
        })
    }

    /// Records that a client is shown it now.
    pub(crate) fn shown(&self) {
        self.guests.send_modify(|guests| {
            guests.open += 1;
            guests.shown = true;
        });
    }

    /// Records the answer of a client that was shown it. Once all have declined, the login is over.
    pub(crate) fn answered(&self, client: u64, accepted: bool) {
        self.guests.send_modify(|guests| {
            guests.open = guests.open.saturating_sub(1);
            guests.accepted |= accepted;
            // A user who signs in from one window may close another.
            let said = guests.clients.entry(client).or_default();
            *said = Some(accepted || *said == Some(true));
            if guests.open == 0 && !guests.accepted {
                self.declined.cancel();
            }
        });
    }

    /// Waits for the end of the login, for `patience` at most. For a client that has declined, the login is over.
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

    /// Reports whether any client was shown it so far.
    pub(super) fn was_shown(&self) -> bool {
        self.guests.borrow().shown
    }

    pub(super) fn is_open(&self) -> bool {
        self.under.0.borrow().is_none() && self.under.0.has_changed().is_ok()
    }
}
