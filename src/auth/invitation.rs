//! An invitation to sign in, for whoever's call was refused for want of a token and can be asked to open a page.
//!
//! **Invariant:** one login at a time, and one invitation until a token of it has worked or the user acts otherwise
//! (`docs/hazards.md` H74). What it shows is an address of ours on this machine, not the page of the issuer: as the
//! specification wants it of elicitation by URL, whoever passes the page on has nothing, since only the browser that came in
//! by our address is believed when it comes back; and the page, with the state in its query, stays out of what clients keep.
//! Whose page it is goes beside it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::progress::Under;

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
    pub(super) fn new(number: u64, url: String, host: String, under: Under, declined: CancellationToken) -> Self {
        Self { number, url, host, under, guests: watch::Sender::default(), declined }
    }

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

    /// Whether anybody was shown it so far.
    pub(super) fn was_shown(&self) -> bool {
        self.guests.borrow().shown
    }

    pub(super) fn is_open(&self) -> bool {
        self.under.0.borrow().is_none() && self.under.0.has_changed().is_ok()
    }
}
