//! What a server listed last, by key: in this life, or in an earlier one (`kept`). It is shown to clients that have no
//! lease of the server yet, or one that is not up (`docs/hazards.md` H63). The list of a lost server stays while the
//! host reconnects; that of a failed or disabled one is not shown.

use std::sync::{Arc, Mutex, MutexGuard};

use super::list_key::ListKey;
use crate::lock::lock;
use crate::registry::Offer;

/// What a server listed, and what it said of itself.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) offer: Arc<Offer>,
    pub(super) instructions: Option<Arc<str>>,
}

/// The last listings, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct LastOffers(Mutex<Vec<(ListKey, Listing)>>, Mutex<Option<String>>);

/// How many keys of one server are remembered.
pub(super) const KEYS: usize = 256;

impl LastOffers {
    /// Remembers what was listed under that key.
    pub(super) fn keep(&self, key: &ListKey, listing: Listing) {
        let mut listings = self.lock();
        listings.retain(|(of, _)| of != key);
        if listings.len() >= KEYS {
            // What everybody may be shown goes last.
            let oldest = listings.iter().position(|(of, _)| *of != ListKey::Rest).unwrap_or_default();
            listings.remove(oldest);
        }
        listings.push((key.clone(), listing));
    }

    /// Remembers what is listed to everybody, whatever was listed to whom before. What clients with a session are shown of a
    /// server that speaks both eras stays.
    pub(super) fn keep_for_all(&self, listing: Listing) {
        let mut listings = self.lock();
        listings.retain(|(of, _)| of.is_in_sessions());
        listings.push((ListKey::Rest, listing));
    }

    /// What is listed from now on is listed to that login. Where it was another one, all of that is forgotten; which one it was.
    pub(super) fn listed_to(&self, login: &Option<String>) -> Option<String> {
        let mut now = lock(&self.1);
        let before = std::mem::replace(&mut *now, login.clone()).filter(|before| Some(before) != login.as_ref())?;
        self.clear();
        Some(before)
    }

    /// Whether what was listed was listed to a login.
    pub(super) fn are_of_a_login(&self) -> bool {
        lock(&self.1).is_some()
    }

    /// Remembers what was listed in an earlier life, unless there is something newer.
    pub(super) fn recall(&self, key: &ListKey, listing: Listing) {
        let mut listings = self.lock();
        let has_room = listings.len() < KEYS || *key == ListKey::Rest;
        if has_room && !listings.iter().any(|(of, _)| of == key) {
            listings.insert(0, (key.clone(), listing));
        }
    }

    /// Takes over what the server that stood here before had listed.
    pub(super) fn inherit(&self, before: &Self) {
        let listings = before.lock().clone();
        *self.lock() = listings;
        let login = lock(&before.1).clone();
        *lock(&self.1) = login;
    }

    /// Forgets all of it.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// What was listed last under that key, and under no other.
    pub(super) fn of(&self, key: &ListKey) -> Option<Listing> {
        self.lock().iter().find(|(of, _)| of == key).map(|(_, listing)| listing.clone())
    }

    /// The newest, whoever it was made to.
    pub(super) fn newest(&self) -> Option<Arc<Offer>> {
        self.lock().last().map(|(_, listing)| listing.offer.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ListKey, Listing)>> {
        lock(&self.0)
    }
}
