//! The last lists of a server, for clients that have no lease of it yet, or one that is not up. Each client gets the list
//! of its own principal, or else the list of the host itself (`hazards.md` H63).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Principal;
use crate::registry::Offer;

/// The last offers, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct LastOffers(Mutex<Vec<(Principal, Arc<Offer>)>>);

/// Of so many principals they are kept.
const KEPT: usize = 256;

impl LastOffers {
    /// Keeps an offer that everybody may see.
    pub(super) fn keep_for_all(&self, offer: Arc<Offer>) {
        self.keep(&Principal::local(), offer);
    }

    /// Keeps an offer that was made to that principal.
    pub(super) fn keep(&self, principal: &Principal, offer: Arc<Offer>) {
        let mut offers = self.lock();
        offers.retain(|(of, _)| of != principal);
        if offers.len() >= KEPT {
            offers.remove(0);
        }
        offers.push((principal.clone(), offer));
    }

    /// Takes over what the server that stood here before had listed.
    pub(super) fn inherit(&self, before: &Self) {
        let offers = before.lock().clone();
        *self.lock() = offers;
    }

    /// What that principal may see.
    pub(super) fn of(&self, principal: &Principal) -> Option<Arc<Offer>> {
        let offers = self.lock();
        let find =
            |is: &dyn Fn(&Principal) -> bool| offers.iter().find(|(of, _)| is(of)).map(|(_, offer)| offer.clone());
        find(&|of| of == principal).or_else(|| find(&Principal::is_local))
    }

    /// The newest, whoever it was made to.
    pub(super) fn newest(&self) -> Option<Arc<Offer>> {
        self.lock().last().map(|(_, offer)| offer.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Principal, Arc<Offer>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
