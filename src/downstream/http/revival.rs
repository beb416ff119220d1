//! Revives a session that is not in memory: the daemon was restarted, or removed the session from memory while it was
//! idle (`docs/hazards.md` H62). The session's id says how to rebuild its client.
//!
//! In: an id, and who sends it. Out: the session, or the refusal that an unknown id gets. **Invariant:** a revived
//! session has the rights of the request that names it, never rights that its id remembers.

use http::StatusCode;

use super::Door;
use super::answer::Refusal;
use super::handle::{Handle, Origin};
use super::session::{Digest, Use};
use crate::router::{Identity, Via};

impl Door {
    /// Revives the session with this id, if the id belongs to this principal and view, and has neither expired nor
    /// ended.
    pub(super) async fn take_up(&self, digest: Digest, id: &[u8], identity: &Identity) -> Result<Use, Refusal> {
        let handle = self.handles.open(id, identity, self.session_life()).await.ok_or_else(gone)?;
        if self.stopping.is_cancelled() {
            return Err(Refusal::busy("shutting down"));
        }
        // The session may be in memory by now. Or it was there before, but has other claims, or its client does not
        // read.
        if self.sessions.has(digest) {
            return self.sessions.find(digest, identity).ok_or_else(gone);
        }
        let life = life()?;
        let (place, account) = (self.reserve(&identity.principal)?, self.router.queues().account());
        let age = handle.age();
        let Handle { serial, began, handshake } = handle;
        let clients = self.router.clients();
        let client = clients.readmit(identity.clone(), handshake, account, age);
        let origin = Origin::Sealed { serial, began };
        match self.sessions.add((digest, origin, life), place, client.clone()) {
            // Another request of the same client has ended the session meanwhile.
            Some(taken_up) if self.handles.has_ended(serial) => {
                self.let_go(taken_up.session());
                Err(gone())
            }
            Some(taken_up) => {
                clients.roster().welcome(&client, Via::Http);
                Ok(taken_up)
            }
            None => {
                // Another request of the same client has revived the session first.
                clients.close(&client);
                self.sessions.find(digest, identity).ok_or_else(gone)
            }
        }
    }
}

/// Returns a random number for a new life of a session; it is not 0.
fn life() -> Result<u32, Refusal> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|_| Refusal::busy("the system has no randomness"))?;
    Ok(u32::from_be_bytes(bytes).max(1))
}

fn gone() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such session (any more): send `initialize` again")
}
