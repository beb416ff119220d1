//! Roots (`docs/bridging.md` 15.3): mcp-host asks a client for its roots once, at the client's first call to a server
//! that wants them, and keeps the answer. From then on mcp-host itself answers `roots/list` requests from servers.
//! Clients with the same roots share leases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::Client;
use super::put::AskGuard;
use crate::manager::{Manager, Server, Told};
use crate::protocol::{Method, Profile};
use crate::upstream::Ask;

/// How long a client may take to tell its roots. A client that takes longer counts as one without roots.
const PATIENCE: Duration = Duration::from_secs(5);
/// The call number under which the request for roots is registered. No real call has this number.
const NO_CALL: u64 = u64::MAX;

impl Client {
    /// Returns the client's roots. Returns `None` if they do not affect which lease (connection) the client
    /// gets, or if a client of 2026-07-28 has not told them.
    pub(super) async fn roots_for(self: &Arc<Self>, server: &Server) -> Option<Arc<Told>> {
        if !server.wants_roots(&self.who) || server.is_sessionless(&self.who) {
            return None;
        }
        if self.revision().is_modern() {
            // A modern client is asked by a result and brings its roots with the next request. It is not asked during a
            // request.
            return self.roots();
        }
        Some(self.known_roots().await)
    }

    /// Returns the roots of a client with a session. Asks the client if it was not asked before.
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
        // Strict clients accept a request from the server only on the response stream of one of their own requests.
        let leg = self.any_leg();
        let _taken_back = AskGuard::new(self, NO_CALL);
        self.ask_beside(ask, NO_CALL, leg);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(Ok(result))) => Told::read(&result),
            Ok(_) | Err(_) => Told::nothing(),
        }
    }

    /// Handles the client's notification that its roots changed. The returned future asks for the new roots; it is
    /// `None` if there is nothing to ask. A lease on which no other client has called is kept, and its server is told
    /// of the change. From any other lease, the client moves to another one at its next request.
    pub(super) fn roots_changed(
        self: &Arc<Self>,
        manager: &Manager,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if !self.profile().has(Profile::ROOTS) {
            return None;
        }
        if self.roots().is_none() {
            // The client was never asked so far. A server that asks for roots gets the client's own answer.
            self.tell_roots(manager, None);
            return None;
        }
        let asking = self.asking();
        if asking.has_others.swap(true, Ordering::AcqRel) {
            // A request for the roots is already due, and brings the new ones.
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
                if let Some(told) = told.filter(|_| server.wants_roots(&self.who) || upstream.roots().is_some()) {
                    server.told_roots(&upstream, told, &self.who_now());
                }
                upstream.tell_roots_changed();
            }
            self.drop_lease(server.id);
        }
    }
}
