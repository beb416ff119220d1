//! A server's last listings by key, from this run or an earlier one (`kept`). They are shown to clients that have no
//! lease of the server yet, or whose lease is down (`docs/hazards.md` H63). The list of a lost server stays while the
//! host reconnects; that of a failed or disabled one is not shown.

use std::sync::{Arc, Mutex, MutexGuard};

use super::list_key::ListKey;
use crate::lock::lock;
use crate::registry::Offer;

/// The lists of a server, and its instructions.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) offer: Arc<Offer>,
    pub(super) instructions: Option<Arc<str>>,
}

/// The last listings, newest last, and the login that the server listed them to.
#[derive(Debug, Default)]
pub(super) struct LastOffers(Mutex<Vec<(ListKey, Listing)>>, Mutex<Option<String>>);

/// How many keys are remembered per server.
pub(super) const KEYS: usize = 256;

impl LastOffers {
    /// Remembers a listing under this key.
    pub(super) fn keep(&self, key: &ListKey, listing: Listing) {
        let mut listings = self.lock();
        listings.retain(|(of, _)| of != key);
        if listings.len() >= KEYS {
            // The listing that everyone may see is dropped last.
            let oldest = listings.iter().position(|(of, _)| *of != ListKey::Rest).unwrap_or_default();
            listings.remove(oldest);
        }
        listings.push((key.clone(), listing));
    }

    /// Remembers a listing for everyone, in place of all others. Only listings for clients with a session stay, which a
    /// server that speaks both eras has.
    pub(super) fn keep_for_all(&self, listing: Listing) {
        let mut listings = self.lock();
        listings.retain(|(of, _)| of.is_in_sessions());
        listings.push((ListKey::Rest, listing));
    }

    /// Notes the login that the server now lists to. If it listed to another login before, forgets that login's
    /// listings and returns that login.
    pub(super) fn listed_to(&self, login: &Option<String>) -> Option<String> {
        let mut now = lock(&self.1);
        let before = std::mem::replace(&mut *now, login.clone()).filter(|before| Some(before) != login.as_ref())?;
        self.clear();
        Some(before)
    }

    /// Reports whether the server listed to a login.
    pub(super) fn are_of_a_login(&self) -> bool {
        lock(&self.1).is_some()
    }

    /// Adds a listing from an earlier run, unless there is a newer one under the same key.
    pub(super) fn recall(&self, key: &ListKey, listing: Listing) {
        let mut listings = self.lock();
        let has_room = listings.len() < KEYS || *key == ListKey::Rest;
        if has_room && !listings.iter().any(|(of, _)| of == key) {
            listings.insert(0, (key.clone(), listing));
        }
    }

    /// Takes over the listings of the server's predecessor.
    pub(super) fn inherit(&self, before: &Self) {
        let listings = before.lock().clone();
        *self.lock() = listings;
        let login = lock(&before.1).clone();
        *lock(&self.1) = login;
    }

    /// Forgets all listings.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the last listing under exactly this key.
    pub(super) fn of(&self, key: &ListKey) -> Option<Listing> {
        self.lock().iter().find(|(of, _)| of == key).map(|(_, listing)| listing.clone())
    }

    /// Returns the newest offer, whoever it was made to.
    pub(super) fn newest(&self) -> Option<Arc<Offer>> {
        self.lock().last().map(|(_, listing)| listing.offer.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ListKey, Listing)>> {
        lock(&self.0)
    }
}
