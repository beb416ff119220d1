//! Takes up a session again that is not in memory: the daemon was restarted, or let the session go while it was idle
//! (`docs/hazards.md` H62). Its id says how to make its client anew.
//!
//! In: an id, and who sends it. Out: the session, or the refusal that an unknown id gets. **Invariant:** a session comes back
//! with the rights of the request that names it, never with rights that its id remembers.

use http::StatusCode;

use super::Door;
use super::answer::Refusal;
use super::handle::{Handle, Origin};
use super::session::{Digest, Use};
use crate::router::{Identity, Via};

impl Door {
    /// Takes up the session with this id, if the id is of this principal and view, and has neither expired nor ended.
    pub(super) async fn take_up(&self, digest: Digest, id: &[u8], identity: &Identity) -> Result<Use, Refusal> {
        let handle = self.handles.open(id, identity, self.session_life()).await.ok_or_else(gone)?;
        if self.stopping.is_cancelled() {
            return Err(Refusal::busy("shutting down"));
        }
        // It may be in memory by now; or it is, and its client has other claims, or does not read.
        if self.sessions.has(digest) {
            return self.sessions.find(digest, identity).ok_or_else(gone);
        }
        let life = life()?;
        let (place, account) = (self.reserve(&identity.principal)?, self.router.queues().account());
        let age = handle.age();
        let Handle { serial, began, handshake, .. } = handle;
        let clients = self.router.clients();
        let client = clients.readmit(identity.clone(), handshake, account, age);
        let origin = Origin::Sealed { serial, began };
        match self.sessions.add((digest, origin, life), place, client.clone()) {
            // Another request of the same client has ended it meanwhile.
            Some(taken_up) if self.handles.has_ended(serial) => {
                self.let_go(taken_up.session());
                Err(gone())
            }
            Some(taken_up) => {
                clients.roster().welcome(&client, Via::Http);
                Ok(taken_up)
            }
            None => {
                // Another request of the same client was sooner.
                clients.close(&client);
                self.sessions.find(digest, identity).ok_or_else(gone)
            }
        }
    }
}

/// Draws the number of a new life, which is not 0.
fn life() -> Result<u32, Refusal> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|_| Refusal::busy("the system has no randomness"))?;
    Ok(u32::from_be_bytes(bytes).max(1))
}

fn gone() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such session (any more): send `initialize` again")
}
