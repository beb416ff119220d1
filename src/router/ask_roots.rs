//! Roots (`docs/bridging.md` 15.3): the host asks a client for them once, at its first call of a server that wants them, and
//! answers servers itself from then on. Clients that told the same share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Router;
use super::ask_guard::AskGuard;
use super::client::Client;
use crate::manager::{Server, Told};
use crate::protocol::{Method, Profile};
use crate::upstream::Ask;

/// A client has so long to tell its roots. One that does not has none.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of no call, under which a client is asked for its roots.
const NO_CALL: u64 = u64::MAX;

impl Router {
    /// The roots of the client, if they decide which lease of the server it gets.
    pub(super) async fn roots_for(&self, client: &Arc<Client>, server: &Arc<Server>) -> Option<Arc<Told>> {
        if !server.wants_roots(client.profile()) || server.is_sessionless(&client.who) {
            return None;
        }
        if client.revision().is_modern() {
            // One that is asked by results told them with the request, or is asked nothing during it.
            return client.roots();
        }
        Some(self.roots_of(client).await)
    }

    /// The roots of a client with a session; it is asked if it was not before.
    async fn roots_of(&self, client: &Arc<Client>) -> Arc<Told> {
        if let Some(told) = client.roots() {
            return told;
        }
        let asking = client.asking();
        let _turn = asking.turn.lock().await;
        if let Some(told) = client.roots() {
            return told;
        }
        let told = self.ask_roots(client).await;
        client.keep_roots(Some(told.clone()));
        told
    }

    async fn ask_roots(&self, client: &Arc<Client>) -> Arc<Told> {
        let (ask, answer) = Ask::gathered("roots", client.revision(), Method::RootsList, None);
        // It is asked for a call of it: strict clients hear of such on the streams of requests alone.
        let leg = client.any_leg();
        let _taken_back = AskGuard::new(client, NO_CALL);
        client.ask_beside(ask, NO_CALL, leg);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(Ok(result))) => Told::read(&result),
            Ok(_) | Err(_) => Told::nothing(),
        }
    }

    /// The client has other roots: it is asked anew. Where nobody else has called, its lease stays with it and the server is
    /// told; else the client moves at its next request.
    pub(super) fn roots_changed(&self, client: &Arc<Client>) {
        if !client.profile().has(Profile::ROOTS) {
            return;
        }
        if client.roots().is_none() {
            // Nobody has asked it so far; a server that asks is told by the client itself.
            return self.tell_roots(client, None);
        }
        let asking = client.asking();
        if asking.has_others.swap(true, Ordering::AcqRel) {
            // What it tells then is of now.
            return;
        }
        let (router, client) = (self.clone(), client.clone());
        self.spawn(async move {
            let told = {
                let _turn = asking.turn.lock().await;
                asking.has_others.store(false, Ordering::Release);
                let told = router.ask_roots(&client).await;
                client.keep_roots(Some(told.clone()));
                told
            };
            router.tell_roots(&client, Some(&told));
        });
    }

    fn tell_roots(&self, client: &Arc<Client>, told: Option<&Arc<Told>>) {
        for (server, upstream) in client.leases() {
            let Some(server) = self.manager().server(server) else { continue };
            if upstream.is_only(client.owner()) {
                if let Some(told) = told.filter(|_| server.wants_roots(client.profile()) || upstream.roots().is_some())
                {
                    server.told_roots(&upstream, told, &client.who_now());
                }
                upstream.tell_roots_changed();
            }
            client.drop_lease(server.id);
        }
    }
}
