//! Roots (`docs/bridging.md` 15.3): the host asks a client for them once, at its first call of a server that wants them,
//! and answers servers itself from then on. Clients with the same roots share leases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::Client;
use super::put::AskGuard;
use crate::manager::{Manager, Server, Told};
use crate::protocol::{Method, Profile};
use crate::upstream::Ask;

/// How long a client may take to tell its roots. A client that takes longer has none.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number under which a client is asked for its roots. No call has it.
const NO_CALL: u64 = u64::MAX;

impl Client {
    /// Returns the client's roots, if they decide which lease of the server it gets.
    pub(super) async fn roots_for(self: &Arc<Self>, server: &Server) -> Option<Arc<Told>> {
        if !server.wants_roots(self.profile()) || server.is_sessionless(&self.who) {
            return None;
        }
        if self.revision().is_modern() {
            // A client that is asked by results brought them with the request, or is not asked during it.
            return self.roots();
        }
        Some(self.known_roots().await)
    }

    /// Returns the roots of a client with a session. Asks the client if that has not happened before.
    async fn known_roots(self: &Arc<Self>) -> Arc<Told> {
        if let Some(told) = self.roots() {
            return told;
        }
        let asking = self.asking();
        let _turn = asking.turn.lock().await;
        if let Some(told) = self.roots() {
            return told;
        }
        let told = self.ask_roots().await;
        self.keep_roots(Some(told.clone()));
        told
    }

    async fn ask_roots(self: &Arc<Self>) -> Arc<Told> {
        let (ask, answer) = Ask::gathered("roots", self.revision(), Method::RootsList, None);
        // Strict clients take such a question only on the stream of a request.
        let leg = self.any_leg();
        let _taken_back = AskGuard::new(self, NO_CALL);
        self.ask_beside(ask, NO_CALL, leg);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(Ok(result))) => Told::read(&result),
            Ok(_) | Err(_) => Told::nothing(),
        }
    }

    /// Notes that the client has other roots. The returned future asks for them again. If no other client has called on a
    /// lease, the client keeps the lease and the server is told; otherwise the client moves at its next request.
    pub(super) fn roots_changed(
        self: &Arc<Self>,
        manager: &Manager,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if !self.profile().has(Profile::ROOTS) {
            return None;
        }
        if self.roots().is_none() {
            // It was never asked so far. A server that asks is told by the client itself.
            self.tell_roots(manager, None);
            return None;
        }
        let asking = self.asking();
        if asking.has_others.swap(true, Ordering::AcqRel) {
            // The pending question brings the new roots.
            return None;
        }
        let (client, manager) = (self.clone(), manager.clone());
        Some(async move {
            let told = {
                let _turn = asking.turn.lock().await;
                asking.has_others.store(false, Ordering::Release);
                let told = client.ask_roots().await;
                client.keep_roots(Some(told.clone()));
                told
            };
            client.tell_roots(&manager, Some(&told));
        })
    }

    fn tell_roots(&self, manager: &Manager, told: Option<&Arc<Told>>) {
        for (server, upstream) in self.leases() {
            let Some(server) = manager.server(server) else { continue };
            if upstream.is_only(self.owner()) {
                if let Some(told) = told.filter(|_| server.wants_roots(self.profile()) || upstream.roots().is_some()) {
                    server.told_roots(&upstream, told, &self.who_now());
                }
                upstream.tell_roots_changed();
            }
            self.drop_lease(server.id);
        }
    }
}
